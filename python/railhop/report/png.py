"""The page as a picture, through Chromium without a window."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Optional

from railhop.report.run import ReportError

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_TIMEOUT_S = 120.0
_WIDTH = 1100
# A script for the browser alone, in a copy of the page: how high it is.
_MEASURE = (
    "<script>document.documentElement.setAttribute('data-height', "
    "document.documentElement.scrollHeight);</script></body>"
)


def browser() -> Optional[str]:
    """A Chromium, or None. RAILHOP_BROWSER names another."""
    named = os.environ.get("RAILHOP_BROWSER")
    if named:
        return named
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def run_browser(page: pathlib.Path, *options: str) -> str:
    """Runs it over a page; what it prints, both streams.

    Errors: ReportError if there is none, or it fails.
    """
    program = browser()
    if program is None:
        raise ReportError(
            "a picture needs Chromium, and there is none; install it ('apt-get install chromium'), "
            "name it in RAILHOP_BROWSER, or open the page in a browser"
        )
    # In a folder of a short name: there is a socket in it.
    profile = tempfile.mkdtemp(prefix="railhop-")
    try:
        return _run(program, page, options, profile)
    finally:
        shutil.rmtree(profile, ignore_errors=True)


def _run(program: str, page: pathlib.Path, options: Sequence[str], profile: str) -> str:
    command = [
        program, "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        "--disable-extensions", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []), *options, page.absolute().as_uri(),
    ]  # fmt: skip
    env = {**os.environ, "HOME": profile, "TMPDIR": profile}
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ReportError(f"{program} did not finish within {_TIMEOUT_S:g} s") from None
    except OSError as error:
        hint = "; RAILHOP_BROWSER names it" if os.environ.get("RAILHOP_BROWSER") else ""
        raise ReportError(f"{program} cannot be started: {error.strerror}{hint}") from None
    if done.returncode != 0:
        said = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        raise ReportError(
            f"{program} ended with status {done.returncode}: {said}; RAILHOP_BROWSER names another"
        )
    return done.stdout + done.stderr


def write_png(html: str, target: pathlib.Path, *, width: int = _WIDTH, dark: bool = False) -> None:
    """Renders a page whole.

    Errors: ReportError.
    """
    with tempfile.TemporaryDirectory(prefix="railhop-report-") as folder:
        work = pathlib.Path(folder)
        page = work / "page.html"
        page.write_text(html.replace("</body>", _MEASURE), encoding="utf-8")
        size = f"--window-size={width},800"
        look = ["--blink-settings=preferredColorScheme=0"] if dark else []
        dom = run_browser(page, size, "--dump-dom")
        found = re.search(r'data-height="(\d+)"', dom)
        if not found:
            raise ReportError("the browser did not tell how high the page is")
        page.write_text(html, encoding="utf-8")
        picture = work / "page.png"
        run_browser(page, f"--window-size={width},{found[1]}", f"--screenshot={picture}", *look)
        if not picture.exists():
            raise ReportError("the browser made no picture")
        shutil.copyfile(picture, target)
