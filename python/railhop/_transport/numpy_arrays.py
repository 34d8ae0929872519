"""NumPy's arrays for `collectives`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

_OPERATORS: dict[str, Callable[..., Any]] = {
    "sum": numpy.add,
    "avg": numpy.add,
    "min": numpy.minimum,
    "max": numpy.maximum,
    "product": numpy.multiply,
    "band": numpy.bitwise_and,
    "bor": numpy.bitwise_or,
    "bxor": numpy.bitwise_xor,
}


class NumpyArrays:
    """Flat, contiguous numpy.ndarray."""

    def memory(self, array: Any) -> tuple[int, int, Any]:
        if not array.flags.c_contiguous:
            raise ValueError("the array is not contiguous")
        return array.ctypes.data, array.nbytes, array

    def count(self, array: Any) -> int:
        return int(array.size)

    def empty(self, like: Any, count: int) -> Any:
        return numpy.empty(count, like.dtype)

    def copy(self, target: Any, source: Any) -> None:
        if target is not source:
            numpy.copyto(target, source)

    def reduce(self, operator: str, parts: Sequence[Any], out: Any) -> None:
        if operator not in _OPERATORS:
            allowed = ", ".join(_OPERATORS)
            raise ValueError(f"no operator '{operator}' (allowed: {allowed})")
        total = parts[0].copy()
        for part in parts[1:]:
            _OPERATORS[operator](total, part, out=total)
        if operator == "avg":
            total = (total / len(parts)).astype(total.dtype)
        numpy.copyto(out, total)
