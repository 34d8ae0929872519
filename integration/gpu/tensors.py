"""What the ranks' jobs share: reproducible numbers, digests, and a small model."""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist
from torch import nn

DTYPE = torch.float32


def digest(*tensors: torch.Tensor) -> str:
    """SHA-256 of the bytes."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return total.hexdigest()


def filled(count: int, seed: int) -> torch.Tensor:
    """Numbers that differ by rank, size and place, the same in every run."""
    generator = torch.Generator(device="cuda").manual_seed(seed * 1009 + dist.get_rank())
    return torch.rand(count, generator=generator, device="cuda", dtype=DTYPE)


def same_bits_each_time() -> None:
    """Makes training give the same bits in every run, or raise.

    With warn_only the backward pass of attention takes a faster kernel, whose order of additions is
    another one from time to time, whatever the transport: seen on a GPU that two ranks share.
    """
    torch.use_deterministic_algorithms(True)


class Model(nn.Module):  # type: ignore[misc]
    """A small transformer that predicts the next of 256 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 256)
        layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits, (batch, length, 256)."""
        logits: torch.Tensor = self.head(self.layers(self.embed(tokens)))
        return logits
