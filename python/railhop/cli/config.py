"""`railhop config`: the options in force, and who set them."""

from __future__ import annotations

from typing import Any, Optional

import click
from rich.table import Table

from railhop.cli.common import CliError, console, examples, json_option, print_json
from railhop.cli.select import choose_all, choose_some, process_options


def _row(option: dict[str, Any]) -> tuple[str, str, str, str]:
    changeable = "yes" if option["changeable"] else ""
    return option["name"], option["value"], option["source"], changeable


@click.command(
    "config",
    short_help="Options in force, and who set them.",
    epilog=examples(
        "railhop config --changed",
        "railhop config --pid 4242 --json",
        "railhop config --set RAILHOP_STALL_THRESHOLD=500ms",
    ),
)
@click.option(
    "--set", "setting", metavar="NAME=VALUE", help="Change one that may change while the job runs."
)
@click.option("--changed", is_flag=True, help="Only those that are not at their default.")
@process_options
@json_option
def COMMAND(  # noqa: N802
    *,
    setting: Optional[str],
    changed: bool,
    pid: Optional[int],
    job: Optional[str],
    path: Optional[str],
    as_json: bool,
) -> None:
    """Options in force in the jobs on this node, with the source of each.

    A change lasts until the process ends. docs/reference/environment.md explains every option.
    """
    if setting is not None:
        name, equals, value = setting.partition("=")
        if not equals:
            raise CliError(f"--set '{setting}': write NAME=VALUE")
        chosen = choose_all(pid, job, path)
        made = [(one.pid, one.api.set_option(name, value).to_dict()) for one in chosen]
        if as_json:
            print_json([{"pid": number, **option} for number, option in made])
            return
        for number, option in made:
            note = f"; {option['note']}" if option["note"] else ""
            print(f"{number}: {option['name']}={option['value']} ({option['source']}){note}")
        return
    found = []
    for one in choose_some(pid, job, path):
        options = [option.to_dict() for option in one.api.config()]
        kept = [x for x in options if not changed or x["source"] != "default"]
        found.append((one, kept))
    if as_json:
        print_json([{"pid": one.pid, "options": options} for one, options in found])
        return
    out = console()
    for one, options in found:
        out.print(f"process {one.pid} on {one.host}", style="bold")
        table = Table(box=None, pad_edge=False)
        for head in ("option", "value", "set by", "may change now"):
            table.add_column(head)
        for option in options:
            table.add_row(*_row(option))
        out.print(table)
