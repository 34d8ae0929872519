"""The page about railhop.torch is that of the package, and its examples do what they say."""

from __future__ import annotations

import pathlib

from integration.torch import make_reference
from integration.torch.job import TorchJob

_REMEDY = "run: bazel run //integration/torch:make_reference > docs/reference/torch.md"


def test_the_page_is_up_to_date() -> None:
    made = make_reference.page()
    assert pathlib.Path("docs/reference/torch.md").read_text(encoding="utf-8") == made, _REMEDY
    for name in ("ProcessGroupRailhop", "Step", "StepMonitor", "groups", "register"):
        assert f"\n## `{name}" in made, name


def test_every_example_does_what_it_says() -> None:
    with TorchJob("examples.py") as job:
        for lines in job.succeed():
            results = lines[-1]["results"]
            assert "StepMonitor.hook" in results, results
            for name, result in results.items():
                assert not result["problem"], result["problem"]
                assert result["examples"] > 0, f"{name} has no example"
