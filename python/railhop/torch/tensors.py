"""Torch's tensors for railhop._transport.collectives: flat views, and reduction in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed as dist

__all__ = ["TensorArrays", "flat", "operator_of", "put_back"]

_NAMES = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.BAND: "band",
    dist.ReduceOp.BOR: "bor",
    dist.ReduceOp.BXOR: "bxor",
}

_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda total, part: total.add_(part),
    "avg": lambda total, part: total.add_(part),
    "min": lambda total, part: torch.minimum(total, part, out=total),
    "max": lambda total, part: torch.maximum(total, part, out=total),
    "product": lambda total, part: total.mul_(part),
    "band": lambda total, part: total.bitwise_and_(part),
    "bor": lambda total, part: total.bitwise_or_(part),
    "bxor": lambda total, part: total.bitwise_xor_(part),
}

# Added up in float32 and rounded once: better than a rounding for each rank, and as repeatable.
_WIDENED = {
    getattr(torch, name)
    for name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
}


def operator_of(operator: Any) -> str:
    """The name of a ReduceOp. ValueError: it is none that this backend has."""
    for known, name in _NAMES.items():
        if operator == known:
            return name
    allowed = ", ".join(name.upper() for name in _NAMES.values())
    raise ValueError(f"backend railhop has no {operator} (allowed: {allowed})")


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements in a row: a view where that is possible, else a copy (see put_back)."""
    if tensor.device.type != "cpu":
        raise ValueError(
            f"backend railhop carries CPU tensors, not one on {tensor.device}: GPUs use NCCL, "
            "with Railhop as its plugin"
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"backend railhop carries dense tensors, not {tensor.layout}")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.detach().contiguous().reshape(-1)


def put_back(tensor: torch.Tensor, array: torch.Tensor) -> None:
    """What was received into flat(tensor) goes to the tensor, if that was a copy."""
    if tensor.data_ptr() != array.data_ptr() or not tensor.is_contiguous():
        with torch.no_grad():
            tensor.copy_(array.reshape(tensor.shape))


class TensorArrays:
    """Flat, contiguous tensors on the CPU."""

    def memory(self, array: torch.Tensor) -> tuple[int, int, Any]:
        return array.data_ptr(), array.numel() * array.element_size(), array

    def count(self, array: torch.Tensor) -> int:
        return int(array.numel())

    def empty(self, like: torch.Tensor, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=like.dtype)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if target is not source:
            with torch.no_grad():
                target.copy_(source)

    def reduce(self, operator: str, parts: Sequence[torch.Tensor], out: torch.Tensor) -> None:
        step = _IN_PLACE[operator]
        dtype = out.dtype
        with torch.no_grad():
            widened = dtype in _WIDENED
            total = parts[0].float() if widened else parts[0].clone()
            try:
                for part in parts[1:]:
                    step(total, part.float() if widened else part)
                if operator == "avg":
                    if total.is_floating_point() or total.is_complex():
                        total.div_(len(parts))
                    else:
                        total = torch.div(total, len(parts), rounding_mode="trunc")
            except (RuntimeError, NotImplementedError) as error:
                raise ValueError(f"torch has no {operator.upper()} of {dtype}: {error}") from error
            out.copy_(total)
