"""What `import railhop.torch` says where torch is not."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_without_torch_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "railhop.torch", raising=False)
    what = r"needs PyTorch .* pip install 'railhop\[torch\]'"
    with pytest.raises(ImportError, match=what) as told:
        importlib.import_module("railhop.torch")
    assert told.value.name == "torch"
