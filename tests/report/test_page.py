"""The page: one file, nothing from outside, every fact of the table on it."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privet
from privet.guarantee import EXPERIMENT
from privet.report import figures, page
from privet.report.charts import SIZE, Axis, Mark, chart, powers

CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]


def in_a_browser(test: Any) -> Any:
    """Slow, and needs Debian's chromium."""
    missing = shutil.which("chromium") is None
    return pytest.mark.slow(pytest.mark.skipif(missing, reason="needs chromium")(test))


def results() -> dict[str, Any]:
    promise = {
        "text": "(1, 1e-05)-DP per record", "theorem": "a theorem", "epsilon": 1.0, "delta": 1e-5,
        "unit": "record", "adjacency": "zero-out", "standing": "proved",
        "premises": [{"text": "rows <are> bounded", "backing": "enforced"}],
    }  # fmt: skip
    attack = {
        "attack": "RMIA, 8 references", "auc": 0.51, "auc_interval": [0.4, 0.6],
        "roc": {"fpr": [0.0, 0.01, 1.0], "tpr": [0.0, 0.05, 1.0]},
        "tpr_at_0.1pct_fpr": 0.01, "tpr_at_0.1pct_fpr_interval": [0.0, 0.1],
        "tpr_at_1pct_fpr": 0.05, "tpr_at_1pct_fpr_interval": [0.0, 0.2],
    }  # fmt: skip
    common = {
        "accuracy": 0.9, "accuracy_interval": [0.85, 0.94], "attack_auc": 0.51, "seconds": 1.0,
        "attack_tpr_at_1pct_fpr": 0.05, "time_ratio": 1.5, "attack": attack, "attacks": [attack],
        "in_words": None,
    }  # fmt: skip
    limit = common | {
        "method": "not private", "system": "the limit", "private": False, "claimed_epsilon": None,
        "proved_epsilon": "inf", "audited_epsilon": None, "verdict": "no promise",
        "guarantee": None, "claim": None, "audit": None, "relevance": None,
    }  # fmt: skip
    ours = common | {
        "method": "a <method>", "system": "S", "private": True, "claimed_epsilon": 0.5,
        "proved_epsilon": 1.0, "audited_epsilon": 0.7, "verdict": "falsified", "guarantee": promise,
        "claim": promise, "audit": {}, "in_words": "An attacker reached .7 of <.5>.",
        "relevance": {"maps": [[0.5, -0.5], [0.1, 0.2]], "records": [2, 1]},
    }  # fmt: skip
    facts = {
        "name": "digits", "about": "pictures", "fingerprint": "ab", "records": 10, "features": 2,
        "classes": ["no", "yes"], "public_unlabelled": 3, "tested_on": 7, "shape": [2],
        "columns": ["age", "in<come"],
    }  # fmt: skip
    entries = [
        {"what": "moments", "epsilon": 1.0, "interrupted": True},
        {"what": "moments", "epsilon": 1.0, "interrupted": False},
    ]
    account = {"account": "a <method>", "file": "a.ledger", "spent": 1.5, "entries": entries}
    return {
        "data": facts, "epsilon": 1.0, "delta": 1e-5, "seeds": 1, "rows": [limit, ours],
        "run": {"sample_rate": 0.2, "noise_multiplier": 5.0, "steps": 40}, "ledgers": [account],
    }  # fmt: skip


class Balanced(HTMLParser):
    """Checks that every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag


@pytest.mark.slow
def test_one_whole_page_without_network(tmp_path: Path) -> None:
    path = page.write(results(), tmp_path / "report.html")
    text = path.read_text()
    checker = Balanced()
    checker.feed(text)
    assert checker.open == []
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    assert "http" not in text.replace("http-equiv", "")
    assert path.stat().st_size < 2_000_000
    assert list(tmp_path.iterdir()) == [path]
    for words in ("a &lt;method&gt;", "rows &lt;are&gt; bounded", "falsified", "∞", "moments",
                  "not private itself", "in&lt;come", "an attempt that was interrupted"):  # fmt: skip
        assert words in text
    assert "a <method>" not in text and "1e-05" not in text
    assert text.count("<figure>") == 5 and text.count("</svg>") == 5


def test_maps_for_pictures() -> None:
    """A map for each class, in red and blue, drawn without matplotlib."""
    told = results()
    facts = told["data"] | {"shape": [1, 2], "columns": []}
    drawn, caption = figures.relevance(told["rows"][1], facts)
    assert drawn.count('<img alt="relevance for') == 2
    assert "No other record was looked at" in caption


def test_png_is_read_back() -> None:
    """What is written is a PNG with these pixels, says another reader."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    address = figures.data_uri(pixels)
    read = image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))
    assert (np.asarray(read.convert("RGBA")) == pixels).all()


def test_marks_do_not_hide_each_other() -> None:
    axis = Axis(low=0.0, high=1.0, ticks=(), label="")
    marks = [Mark(x=0.5, y=0.5, name=str(k), colour="red") for k in range(7)]
    drawn = chart("marks", axis, axis, marks=marks)
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', drawn)]
    assert len(places) == 7
    assert min(b - a for a, b in itertools.pairwise(sorted(places))) > 1.5 * SIZE


def test_axes() -> None:
    log = Axis(low=0.1, high=1000.0, ticks=powers(-1, 3), label="", log=True)
    assert log.at(0.1) == 0.0 and log.at(1000.0) == 1.0
    assert log.at(10.0) == pytest.approx(0.5)
    assert log.at(float("inf")) == 1.0  # an unbounded epsilon stands at the right edge


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison, drawn once."""
    return page.write(results(), tmp_path_factory.mktemp("report") / "report.html")


def browsed(path: Path, width: int, probe: str, *options: str) -> str:
    """What the page's own document becomes in a frame of this width, `probe` run at the end.

    Headless chromium does not go below 500 pixels: a frame of the wanted width does.
    """
    watched = path.read_text().replace(
        "<head>", "<head><script>window.onerror = () => { window.failed = 1; };</script>", 1
    )
    told = (
        '<script>window.addEventListener("load", () => { const told = {};'
        f'{probe}; document.body.setAttribute("data-probe", JSON.stringify(told)); }});</script>'
    )
    (path.parent / "probed.html").write_text(watched.replace("</body>", told + "</body>"))
    frame = (
        f'<iframe src="probed.html" width="{width}" height="900" onload="setTimeout(() => '
        "document.body.append(this.contentDocument.body.getAttribute('data-probe')), 100)\">"
    )
    (path.parent / "frame.html").write_text(f"<body>{frame}</body>")
    return subprocess.run(
        [*CHROMIUM, *options, "--dump-dom", "--allow-file-access-from-files",
         "--virtual-time-budget=4000", (path.parent / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip


@in_a_browser
@pytest.mark.parametrize("width", [375, 1200])
def test_in_a_real_browser(width: int, report: Path) -> None:
    """Sorting works, no error is logged, and a phone's screen needs no sideways scrolling."""
    probe = """
        const button = document.querySelectorAll("table[data-sort] th button")[3];
        button.click();
        told.order = [...document.querySelectorAll("table[data-sort] tbody tr")]
          .map((r) => r.cells[1].textContent);
        told.wide = document.documentElement.scrollWidth > window.innerWidth;
        told.pictures = document.querySelectorAll("figure svg").length;
        told.errors = window.failed || 0"""
    shown = browsed(report, width, probe)
    assert '"order":["not private' in shown, shown[-500:]
    assert '"wide":false' in shown
    assert '"pictures":5' in shown
    assert '"errors":0' in shown


@in_a_browser
def test_the_methods_stay_in_sight_on_a_phone(report: Path) -> None:
    """However far the table is moved sideways."""
    probe = """
        const wide = document.querySelector(".wide"); wide.scrollLeft = 10000;
        const name = document.querySelector("table[data-sort] tbody tr").cells[1];
        told.moved = wide.scrollLeft > 50;
        told.left = Math.round(name.getBoundingClientRect().left - wide.getBoundingClientRect().left)"""
    shown = browsed(report, 375, probe)
    assert '"moved":true' in shown, shown[-500:]
    assert re.search(r'"left":[01]\b', shown), shown[-500:]


@pytest.fixture(scope="module")
def of_one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an experiment, which has everything that a page can have."""
    x = np.random.default_rng(0).uniform(size=(300, 3))
    clf = privet.DPSGDClassifier(bounds=(0, 1), classes=[False, True], random_state=0)
    folder = clf.fit(x, x[:, 0] > 0.5).save(tmp_path_factory.mktemp("run") / "out")
    return folder / "run.html"


def test_the_page_of_a_run_is_whole(of_one_run: Path) -> None:
    text = of_one_run.read_text()
    checker = Balanced()
    checker.feed(text)
    assert checker.open == []
    assert not re.search(r'(?:src|href)="(?!data:)', text) and "http" not in text
    sheet, deeper = text.split("<details>")
    assert EXPERIMENT in sheet and "1e-05" not in sheet and "1 in 100,000" in sheet
    assert "each record was made from its own person" in sheet and "noise key" in deeper


@in_a_browser
@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_of_a_run_in_a_real_browser(width: int, of_one_run: Path) -> None:
    """One click opens the rest; nothing is wider than the screen, open or not."""
    probe = """
        told.first = document.documentElement.scrollWidth > window.innerWidth;
        const more = document.querySelector("details"); told.closed = !more.open;
        more.querySelector("summary").click(); told.open = more.open;
        told.second = document.documentElement.scrollWidth > window.innerWidth;
        told.errors = window.failed || 0"""
    shown = browsed(of_one_run, width, probe)
    for fact in ('"first":false', '"closed":true', '"open":true', '"second":false', '"errors":0'):
        assert fact in shown, shown[-500:]


def printed(page: Path, folder: Path) -> bytes:
    """The PDF of a page, by a reader who prefers dark."""
    made = folder / "page.pdf"
    subprocess.run(
        [*CHROMIUM, "--blink-settings=preferredColorScheme=0", f"--print-to-pdf={made}",
         "--no-pdf-header-footer", page.as_uri()],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    return made.read_bytes()


def sheets(paper: bytes) -> int:
    """How many pages a PDF has."""
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", paper))


@in_a_browser
def test_the_page_of_a_run_is_one_sheet(of_one_run: Path, tmp_path: Path) -> None:
    """As printed, with the engineer's part closed: one page of A4."""
    paper = printed(of_one_run, tmp_path)
    assert sheets(paper) == 1
    width, height = map(float, re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", paper).groups())  # type: ignore[union-attr]
    assert abs(width - 595) < 2 and abs(height - 842) < 2


@in_a_browser
@pytest.mark.parametrize(("scheme", "dark"), [(0, True), (1, False)])
def test_light_and_dark(scheme: int, dark: bool, report: Path) -> None:
    """The page follows the reader's preference, and its text stands out either way."""
    probe = """
        const light = (c) => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 765;
        const style = getComputedStyle(document.body);
        told.paper = light(style.backgroundColor); told.ink = light(style.color);
        told.label = light(getComputedStyle(document.querySelector("svg text")).fill)"""
    shown = browsed(report, 1200, probe, f"--blink-settings=preferredColorScheme={scheme}")
    told = json.loads(
        re.search(r"\{&quot;paper.*?\}|\{\"paper.*?\}", shown)[0].replace("&quot;", '"')
    )  # type: ignore[index]
    assert (told["paper"] < 0.3) is dark
    for what in ("ink", "label"):
        assert abs(told[what] - told["paper"]) > 0.35


@in_a_browser
def test_printed(report: Path, tmp_path: Path) -> None:
    """On paper it is light whatever the screen is, and a few pages of A4."""
    paper = printed(report, tmp_path)
    assert 1 <= sheets(paper) <= 6
    assert "@media screen and (prefers-color-scheme: dark)" in report.read_text()
