"""Reports: what happened, as one page.

run = load(pathlib.Path("drill.json"))
pathlib.Path("report.html").write_text(page([run]))
write_png(page([run]), pathlib.Path("report.png"))
"""

from __future__ import annotations

from railhop.report.from_drill import run_of_drill
from railhop.report.load import load
from railhop.report.page import page
from railhop.report.png import write_png
from railhop.report.run import ReportError, Run

__all__ = ["ReportError", "Run", "load", "page", "run_of_drill", "write_png"]
