"""The page: one file, nothing from outside, every fact of the table on it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from privet.report import page
from privet.report.charts import Axis, powers


def results() -> dict[str, Any]:
    promise = {
        "text": "(1, 1e-05)-DP per record", "theorem": "a theorem", "epsilon": 1.0,
        "assumptions": [{"text": "rows <are> bounded", "backing": "enforced"}],
    }  # fmt: skip
    attack = {"roc": {"fpr": [0.0, 0.01, 1.0], "tpr": [0.0, 0.05, 1.0]}}
    common = {
        "accuracy": 0.9, "accuracy_interval": [0.85, 0.94], "attack_auc": 0.51, "seconds": 1.0,
        "attack_tpr_at_1pct_fpr": 0.05, "time_ratio": 1.5, "attack": attack,
    }  # fmt: skip
    limit = common | {
        "method": "not private", "system": "the limit", "private": False, "claimed_epsilon": None,
        "proved_epsilon": "inf", "audited_epsilon": None, "verdict": "no promise",
        "guarantee": None, "claim": None, "spent": [], "audit": None,
    }  # fmt: skip
    ours = common | {
        "method": "a <method>", "system": "S", "private": True, "claimed_epsilon": 0.5,
        "proved_epsilon": 1.0, "audited_epsilon": 0.7, "verdict": "falsified", "guarantee": promise,
        "claim": promise, "spent": [{"what": "moments", "epsilon": 1.0}], "audit": {},
    }  # fmt: skip
    facts = {
        "name": "digits", "about": "pictures", "fingerprint": "ab", "records": 10, "features": 2,
        "classes": 2, "public_unlabelled": 3, "tested_on": 7,
    }  # fmt: skip
    return {"data": facts, "epsilon": 1.0, "delta": 1e-5, "seeds": 1, "rows": [limit, ours]}


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
                  "not private itself"):  # fmt: skip
        assert words in text
    assert "a <method>" not in text


def test_axes() -> None:
    log = Axis(low=0.1, high=1000.0, ticks=powers(-1, 3), label="", log=True)
    assert log.at(0.1) == 0.0 and log.at(1000.0) == 1.0
    assert log.at(10.0) == pytest.approx(0.5)
    assert log.at(float("inf")) == 1.0  # an unbounded epsilon stands at the right edge


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
@pytest.mark.parametrize("width", [375, 1200])
def test_in_a_real_browser(width: int, tmp_path: Path) -> None:
    """Sorting works, no error is logged, and a phone's screen needs no sideways scrolling."""
    path = page.write(results(), tmp_path / "report.html")
    probe = """<script>
      window.addEventListener("load", () => {
        const button = document.querySelectorAll("table[data-sort] th button")[2];
        button.click();
        const order = [...document.querySelectorAll("table[data-sort] tbody tr")]
          .map((r) => r.cells[0].textContent);
        document.title = JSON.stringify({order,
          wide: document.documentElement.scrollWidth > window.innerWidth,
          pictures: document.querySelectorAll("figure svg").length, errors: window.failed || 0});
        document.body.setAttribute("data-probe", document.title);
      });
    </script>"""
    watched = path.read_text().replace(
        "<head>", "<head><script>window.onerror = () => { window.failed = 1; };</script>", 1
    )
    (tmp_path / "probed.html").write_text(watched.replace("</body>", probe + "</body>"))
    # headless chromium does not go below 500 pixels: a frame of the wanted width does
    frame = (
        f'<iframe src="probed.html" width="{width}" height="900" onload="setTimeout(() => '
        "document.body.append(this.contentDocument.body.getAttribute('data-probe')), 100)\">"
    )
    (tmp_path / "frame.html").write_text(f"<body>{frame}</body>")
    shown = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         "--allow-file-access-from-files", "--virtual-time-budget=4000",
         (tmp_path / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert '"order":["not private' in shown, shown[-500:]
    assert '"wide":false' in shown
    assert '"pictures":2' in shown
    assert '"errors":0' in shown
