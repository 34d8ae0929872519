"""docs/reference/cli.md is what the help texts say."""

from __future__ import annotations

import pathlib
import re

from railhop.cli.main import COMMANDS
from railhop.cli.reference import markdown


def test_the_page_is_up_to_date() -> None:
    page = pathlib.Path("docs/reference/cli.md").read_text(encoding="utf-8")
    assert page == markdown(), (
        "bazel run //python/railhop/cli:make_reference > docs/reference/cli.md"
    )


def test_every_command_has_an_example_of_itself() -> None:
    page = markdown()
    for name in COMMANDS:
        section = page.split(f"\n## railhop {name}\n")[1].split("\n## ")[0]
        assert "Examples:" in section, name
        assert re.search(rf"^    .*railhop {name}\b", section, re.MULTILINE), name
