"""Railhop: a network plugin for NCCL that keeps GPU jobs running when links fail."""
