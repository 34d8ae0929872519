"""`railhop report`: drills and journals as one page with pictures."""

from __future__ import annotations

import pathlib
from typing import Optional

import click

from railhop.cli.common import examples, json_option, not_over, print_json, writable_folder


@click.command(
    "report",
    epilog=examples(
        "railhop report drill.json",
        "railhop events --json > journal.jsonl; railhop report journal.jsonl -o incident.html",
        'railhop report run1.json run2.json --png report.png --title "Before and after"',
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", default="report.html", metavar="FILE", help="(report.html)")
@click.option("--png", metavar="FILE", help="Also as a picture; needs Chromium.")
@click.option("--dark", is_flag=True, help="The picture in dark colours.")
@click.option("--title", default="", help="Of the page.")
@json_option
def COMMAND(  # noqa: N802
    *,
    files: tuple[str, ...],
    output: str,
    png: Optional[str],
    dark: bool,
    title: str,
    as_json: bool,
) -> None:
    """Make one self-contained page of drills or journals.

    FILE is what `railhop drill --save` or `railhop events --json` wrote; several make one page
    that compares them. The page needs nothing from elsewhere, so it can be mailed.
    """
    from railhop import report  # noqa: PLC0415  most commands need no pictures

    not_over({"-o": output, "--png": png}, files)
    writable_folder(output)
    if png:
        writable_folder(png)
    runs = [report.load(pathlib.Path(name)) for name in files]
    html = report.page(runs, title=title)
    if png:
        report.write_png(html, pathlib.Path(png), dark=dark)
    pathlib.Path(output).write_text(html, encoding="utf-8")
    if as_json:
        print_json({"html": output, "png": png})
        return
    print(output)
    if png:
        print(png)
