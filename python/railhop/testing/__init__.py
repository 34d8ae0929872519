"""Helpers for tests that need more than a process."""
