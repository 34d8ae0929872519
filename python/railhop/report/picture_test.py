"""Pages in a real browser: they are not blank, nothing sticks out, nothing is complained about."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import struct
import zlib

import pytest

from railhop.report import ReportError, Run, load, page, png, run_of_drill, samples, write_png

# Appended to a copy of the page. What sticks out: of the window, and text out of its picture.
_PROBE = """<script>
const found = {wide: [], clipped: [], dark: ''};
const root = document.documentElement;
if (root.scrollWidth > root.clientWidth) found.wide.push('page ' + root.scrollWidth);
for (const one of document.querySelectorAll('body *:not(svg *)')) {
  if (one.closest('.scroll')) continue;
  const box = one.getBoundingClientRect();
  if (box.right > root.clientWidth + 1) found.wide.push(one.tagName + ' ' + one.className);
}
for (const details of document.querySelectorAll('details')) details.open = true;
for (const text of document.querySelectorAll('svg text')) {
  const box = text.getBoundingClientRect();
  const all = text.closest('svg').getBoundingClientRect();
  if (box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 1 ||
      box.bottom > all.bottom + 1) found.clipped.push(text.textContent);
}
root.setAttribute('data-found', btoa(unescape(encodeURIComponent(JSON.stringify(found)))));
</script></body>"""


def pages() -> dict[str, list[Run]]:
    def made(result: object) -> Run:
        return run_of_drill(json.loads(result.dump()))  # type: ignore[attr-defined]

    trained = samples.drill(title="run 3: NIC lost, Railhop on", steps=samples.steps())
    plain = samples.drill(title="run 1: no fault", steps=samples.steps(dip=False), happenings=[])
    dead = samples.dead()
    dead.steps = samples.steps(18, dip=False)
    return {
        "drill": [made(samples.drill())],
        "three": [made(plain), made(dead), made(trained)],
    }


@pytest.fixture(scope="module", params=["drill", "three", "journal"])
def html(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "journal":
        file = tmp_path_factory.mktemp("journal") / "journal.jsonl"
        file.write_text(samples.journal(), encoding="utf-8")
        return page([load(file)])
    return page(pages()[request.param])


def pixels(file: pathlib.Path) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of an 8-bit RGB or RGBA picture."""
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG")
    place, packed = 8, b""
    width = height = channels = 0
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        place += 12 + length
    raw = zlib.decompress(packed)
    stride = width * channels
    rows, before = [], bytes(stride)
    for y in range(height):
        kind_of, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 :][:stride])
        for x in range(stride):
            left = line[x - channels] if x >= channels else 0
            up, corner = before[x], before[x - channels] if x >= channels else 0
            if kind_of == 1:
                line[x] = (line[x] + left) & 255
            elif kind_of == 2:
                line[x] = (line[x] + up) & 255
            elif kind_of == 3:
                line[x] = (line[x] + (left + up) // 2) & 255
            elif kind_of == 4:
                guess = left + up - corner
                best = min((left, up, corner), key=lambda one: abs(guess - one))
                line[x] = (line[x] + best) & 255
        before = bytes(line)
        rows.append(bytes(line[i] for i in range(stride) if i % channels < 3))
    return width, height, rows


def shares(rows: list[bytes]) -> dict[bytes, float]:
    """The most frequent colours with their share."""
    counts: dict[bytes, int] = {}
    for row in rows[::7]:
        for x in range(0, len(row), 21):
            colour = row[x : x + 3]
            counts[colour] = counts.get(colour, 0) + 1
    total = sum(counts.values())
    return {colour: count / total for colour, count in counts.items()}


def probe(html: str, folder: pathlib.Path, width: int) -> tuple[dict[str, list[str]], str]:
    file = folder / "page.html"
    file.write_text(html.replace("</body>", _PROBE), encoding="utf-8")
    said = png.run_browser(
        file, f"--window-size={width},900", "--dump-dom", "--enable-logging=stderr", "--v=0"
    )
    found = re.search(r'data-found="([^"]+)"', said)
    assert found, said[-2000:]
    result: dict[str, list[str]] = json.loads(base64.b64decode(found[1]))
    return result, said


@pytest.mark.parametrize("width", [1100, 700])
def test_nothing_sticks_out_and_the_browser_has_no_complaint(
    html: str, width: int, tmp_path: pathlib.Path
) -> None:
    found, said = probe(html, tmp_path, width)
    assert found["wide"] == []
    assert found["clipped"] == []
    assert "CONSOLE" not in said, [line for line in said.splitlines() if "CONSOLE" in line]


def test_a_page_with_a_mistake_is_caught(tmp_path: pathlib.Path) -> None:
    bad = page(pages()["drill"]).replace(
        "</main>",
        '<div style="width:3000px">x</div><svg viewBox="0 0 10 10"><text x="90">out</text></svg>'
        "<script>console.error('a complaint')</script></main>",
    )
    found, said = probe(bad, tmp_path, 1100)
    assert found["wide"]
    assert "out" in found["clipped"]
    assert "CONSOLE" in said
    assert "a complaint" in said


@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_shows_the_page(dark: bool, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "report.png"
    write_png(page(pages()["drill"]), target, dark=dark)
    width, height, rows = pixels(target)
    assert width == 1100
    assert 900 < height < 3000
    found = shares(rows)
    paper = max(found, key=lambda one: found[one])
    assert (sum(paper) < 200) is dark, paper
    # Paper, tiles, areas, bands, curves, words: much that is not paper, in many colours.
    assert found[paper] < 0.9
    assert len(found) > 20
    # The last rows are below the last words: the whole page is there, and no more.
    assert len(set(rows[-3])) <= 3


def test_no_browser_is_one_sentence(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReportError, match="a picture needs Chromium, and there is none; install"):
        write_png("<html></html>", tmp_path / "x.png")
    monkeypatch.setenv("RAILHOP_BROWSER", "/bin/false")
    with pytest.raises(ReportError, match=r"/bin/false ended with status 1.*RAILHOP_BROWSER"):
        write_png("<html></html>", tmp_path / "x.png")
    monkeypatch.setenv("RAILHOP_BROWSER", "/no/browser")
    with pytest.raises(ReportError, match=r"/no/browser cannot be started: .*; RAILHOP_BROWSER"):
        write_png("<html></html>", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
