"""The page: one file, nothing from outside, every fact of the table on it."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privet
from privet.accounting import Gaussian
from privet.cli.main import main
from privet.guarantee import EXPERIMENT
from privet.ledger import Ledger, SubCap
from privet.report import comparison_page, plots
from privet.report.ledger_page import ledger_page
from privet.report.rendering import escape_markdown, render_markdown

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
        "attack_auc_interval": [0.4, 0.6], "in_words": None, "epsilon": 1.0, "delta": 1e-5,
        "splits": 5, "seeds": 1, "guessing": 0.5, "learned": True, "reference": "a <method>",
        "difference": None, "to_limit": None, "to_best": None, "best": False,
        "within_budget": False, "without_noise_epsilon": None,
    }  # fmt: skip
    limit = common | {
        "method": "not private", "system": "the limit", "private": False, "claimed_epsilon": None,
        "proved_epsilon": "inf", "audited_epsilon": None, "verdict": "no promise",
        "guarantee": None, "claim": None, "audit": None, "relevance": None,
    }  # fmt: skip
    ours = common | {
        "method": "a <method>", "system": "S", "private": True, "claimed_epsilon": 0.5,
        "proved_epsilon": 1.0, "audited_epsilon": 0.7, "verdict": "falsified", "guarantee": promise,
        "within_budget": True, "best": True, "without_noise_epsilon": 7.0,
        "to_limit": {"mean": -0.02, "low": -0.03, "high": -0.01},
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
    account = {
        "account": "a <method>: train, seed 0",
        "file": "a.ledger",
        "spent": 1.5,
        "entries": entries,
    }
    return {
        "data": facts, "epsilon": 1.0, "delta": 1e-5, "reference": "a <method>",
        "rows": [limit, ours],
        "run": {"sample_rate": 0.2, "noise_multiplier": 5.0, "steps": 40}, "ledgers": [account],
    }  # fmt: skip


def many_results() -> dict[str, Any]:
    """Twenty-three methods of six systems at three budgets, as `make demo` has them at one."""
    found = results()
    limit, ours = found["rows"]
    gap = {"mean": -0.08, "low": -0.1, "high": -0.06}
    attacks = [ours["attack"] | {"attack": f"an attack, number {k}"} for k in range(5)]
    premises = [{"text": f"premise {k} of a theorem, as we know it", "backing": "enforced"}
                for k in range(5)]  # fmt: skip
    promise = ours["guarantee"] | {"premises": premises}

    def rows(epsilon: float) -> list[dict[str, Any]]:
        others = [
            ours | {
                "method": f"a method, number {k}", "system": f"system {k // 4}", "epsilon": epsilon,
                "accuracy": 0.9 - 0.03 * k, "learned": k < 17, "best": k == 0, "attacks": attacks,
                "accuracy_interval": [0.88 - 0.03 * k, 0.92 - 0.03 * k], "guarantee": promise,
                "difference": gap, "to_limit": gap, "to_best": gap if k else None,
                "verdict": "falsified" if k > 19 else "consistent", "relevance": None,
                "in_words": f"An attacker reached {k}. " + "And so on, at some length. " * 4,
            }
            for k in range(22)
        ]  # fmt: skip
        return [limit | {"epsilon": epsilon, "attacks": attacks}, *others]

    accounts = [
        {"account": f"a method, number {k}: train, split {n}, seed 0", "file": "a", "spent": 1.0,
         "entries": [{"what": f"releases of method {k}", "epsilon": 1.0, "interrupted": False}]}
        for k in range(22) for n in range(5)
    ]  # fmt: skip
    curves = [row for epsilon in (0.25, 1.0, 4.0) for row in rows(epsilon)]
    return found | {"rows": rows(4.0), "curves": curves, "epsilon": 4.0, "ledgers": accounts}


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
    path = comparison_page.write(results(), tmp_path / "report.html")
    text = path.read_text()
    checker = Balanced()
    checker.feed(text)
    assert checker.open == []
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert "http" not in text.replace("http-equiv", "")
    assert path.stat().st_size < 2_000_000
    assert list(tmp_path.iterdir()) == [path]
    for words in ("a &lt;method&gt;", "rows &lt;are&gt; bounded", "falsified", "∞", "moments",
                  "not private itself", "in&lt;come", "an attempt that was interrupted"):  # fmt: skip
        assert words in text
    assert "a <method>" not in text and "1e-05" not in text
    assert text.count("<figure>") == 5 and text.count("</svg>") == 5


def test_maps_for_pictures() -> None:
    """A map for each class, in red and blue."""
    found = results()
    found["data"] |= {"shape": [1, 2], "columns": []}
    text = comparison_page.html(found)
    assert text.count('<img alt="relevance for') == 2
    assert "No other record was looked at" in text


def test_signed_maps_are_read_back() -> None:
    """What is written is a PNG with these colours, says another reader."""
    image = pytest.importorskip("PIL.Image")
    address = plots.to_png_address(np.array([[1.0, 0.0, -0.5]]))
    read = image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))
    pixels = np.asarray(read.convert("RGBA"))[0].tolist()
    assert pixels[0] == [209, 73, 91, 255] and pixels[2] == [47, 127, 193, 128]
    assert pixels[1][3] == 0


def test_a_picture_is_the_same_every_time_and_follows_the_page() -> None:
    """`privet verify` compares pages; colours of text and grid are the page's."""
    one, other = (
        plots.to_svg(plots.privacy_curve([(2.0, 1e-9), (1.0, 1e-5), (0.0, 0.1)]), 'a "name"')
        for _ in range(2)
    )
    assert one == other and 'aria-label="a &quot;name&quot;"' in one and 'role="img"' in one
    assert "var(--muted)" in one and plots.MUTED not in one and "#000000" not in one
    ids = re.findall(r' id="([^"]+)"', one)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=y>", "[a](http://b)", "**c**", "a\n# b", "`d`"]
)
def test_names_on_a_card_are_no_markup(text: str) -> None:
    escaped = escape_markdown(text)
    assert "<" not in escaped and "\n" not in escaped
    assert not re.search(r"(?<!\\)[\[\]*`]", escaped)
    line = render_markdown("promise.md.j2", p={"epsilon": "inf", "theorem": text})
    assert escaped in line


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison, drawn once."""
    return comparison_page.write(results(), tmp_path_factory.mktemp("report") / "report.html")


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
        const button = document.querySelectorAll("table[data-sort] th button")[1];
        button.click(); button.click();
        told.order = [...document.querySelectorAll("table[data-sort] tbody tr:not(.group)")]
          .map((r) => r.cells[0].textContent);
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
        const name = document.querySelector("table[data-sort] tbody tr:not(.group)").cells[0];
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
    assert not re.search(r'(?:src|href)="(?!data:|#)', text) and "http" not in text
    sheet, deeper = text.split("<details>")
    assert EXPERIMENT in sheet and "1e-05" not in sheet and "1 in 100,000" in sheet
    assert "Who prepared the file, and by which fixed rules?" in sheet and "noise key" in deeper


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


def printed(html_page: Path, folder: Path) -> bytes:
    """The PDF of a page, by a reader who prefers dark."""
    made = folder / "page.pdf"
    subprocess.run(
        [*CHROMIUM, "--blink-settings=preferredColorScheme=0", f"--print-to-pdf={made}",
         "--no-pdf-header-footer", html_page.as_uri()],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    return made.read_bytes()


def sheets(paper: bytes) -> int:
    """How many pages a PDF has."""
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", paper))


@pytest.fixture(scope="module")
def of_a_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a ledger with many releases, of two people."""
    folder = tmp_path_factory.mktemp("ledger")
    caps = [SubCap(kind="person", name="ada <b>", epsilon=2.0)]
    book = Ledger.create(
        folder / "b.ledger", cap_epsilon=3.0, cap_delta=1e-5, dataset="clinic", sub_caps=caps
    )
    for k in range(30):
        book.who, book.purpose = ("ada <b>", "triage") if k % 2 else ("ben", None)
        book.charge(Gaussian(mu=0.1), what=f"mean of column {k}")
    path = folder / "ledger.html"
    path.write_text(ledger_page(book))
    return path


@pytest.fixture(scope="module")
def of_budgets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two budgets mean, before training."""
    path = tmp_path_factory.mktemp("explain") / "budgets.html"
    with pytest.raises(SystemExit) as left:
        main(["explain", "--epsilon", "1", "8", "--plot", str(path)])
    assert not left.value.code
    return path


@pytest.mark.slow
def test_the_page_of_budgets_is_whole(of_budgets: Path) -> None:
    text = of_budgets.read_text()
    checker = Balanced()
    checker.feed(text)
    assert checker.open == []
    assert not re.search(r'(?:src|href)="(?!data:|#)', text) and "http" not in text
    for words in ("from 50% to 73%", "Warning.", "1 in 100,000", "accuses wrongly"):
        assert words in text


def test_the_page_of_a_ledger_is_whole(of_a_ledger: Path) -> None:
    """The promise stands before the bookkeeping; people, purposes and what is left are on it."""
    text = of_a_ledger.read_text()
    checker = Balanced()
    checker.feed(text)
    assert checker.open == []
    assert not re.search(r'(?:src|href)="(?!data:|#)', text) and "http" not in text
    places = [text.index(words) for words in ("What is promised", "Over time", "What is left",
              "By person", "By purpose", "By release", "Bookkeeping</h2>")]  # fmt: skip
    assert places == sorted(places)
    for words in ("ada &lt;b&gt;", "triage", "the last release once more", "mean of column 29",
                  "so it is refused"):  # fmt: skip
        assert words in text
    assert "<b>" not in text.split("<h2>By person")[1]


def test_an_empty_ledger_has_a_page() -> None:
    book = Ledger.in_memory(cap_epsilon=float("inf"), cap_delta=0.0)
    assert "Nothing was charged yet" in ledger_page(book)


def page_texts(paper: bytes) -> list[str]:
    """The text of each page of a PDF that chromium printed, by the fonts' own tables."""
    parts = {int(m[1]): m[2] for m in re.finditer(rb"(?s)(\d+) 0 obj\s*(.*?)\s*endobj", paper)}

    def unpacked(n: bytes) -> str:
        body = re.search(rb"(?s)stream\r?\n(.*?)\r?\nendstream", parts[int(n)])[1]  # type: ignore[index]
        return (zlib.decompress(body) if b"Flate" in parts[int(n)] else body).decode("latin-1")

    def letters(font: bytes) -> dict[int, str]:
        table = unpacked(re.search(rb"/ToUnicode (\d+)", parts[int(font)])[1])  # type: ignore[index]
        found = {}
        for block in re.findall(r"(?s)beginbfchar(.*?)endbfchar", table):
            for a, b in re.findall(r"<(\w+)>\s*<(\w+)>", block):
                found[int(a, 16)] = bytes.fromhex(b).decode("utf-16-be")
        for block in re.findall(r"(?s)beginbfrange(.*?)endbfrange", table):
            for a, z, b in re.findall(r"<(\w+)>\s*<(\w+)>\s*<(\w+)>", block):
                codes = range(int(a, 16), int(z, 16) + 1)
                found |= {k: chr(int(b, 16) + k - codes[0]) for k in codes}
        return found

    texts = []
    for body in parts.values():
        if not re.search(rb"/Type\s*/Page\b(?!s)", body):
            continue
        fonts = {m[1].decode(): letters(m[2]) for m in re.finditer(rb"/(F\d+) (\d+) 0 R", body)}
        code = unpacked(re.search(rb"/Contents (\d+)", body)[1])  # type: ignore[index]
        text, font = "", dict[int, str]()
        for m in re.finditer(r"/(F\d+) [\d.]+ Tf|<([0-9A-Fa-f]+)>", code):
            if m[1]:
                font = fonts[m[1]]
            else:
                glyphs = (int(m[2][k : k + 4], 16) for k in range(0, len(m[2]), 4))
                text += "".join(font.get(g, "") for g in glyphs)
        texts.append(text)
    return texts


@in_a_browser
@pytest.mark.parametrize(
    ("which", "most"), [("of_one_run", 2), ("of_a_ledger", 4), ("of_budgets", 2)]
)
def test_pages_for_signing_in_print(
    which: str, most: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A few sheets of A4; who it is about stands on top of each, and trust among what is printed."""
    page = request.getfixturevalue(which)
    paper = printed(page, tmp_path)
    assert 1 <= sheets(paper) <= most
    width, height = map(float, re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", paper).groups())  # type: ignore[union-attr]
    assert abs(width - 595) < 2 and abs(height - 842) < 2
    title = re.search(r"<title>(.*?)</title>", page.read_text())[1]  # type: ignore[index]
    texts = page_texts(paper)
    assert len(texts) == sheets(paper) and all(text.startswith(title) for text in texts)
    if which == "of_one_run":
        whole = "".join(texts)
        assert "Who saw what" in whole and "Approved by" in whole and "lawful basis" in whole


@in_a_browser
@pytest.mark.parametrize("which", ["of_one_run", "of_a_ledger", "of_budgets", "of_many"])
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_contrast_and_pictures_for_everybody(
    which: str, scheme: int, request: pytest.FixtureRequest
) -> None:
    """Every text stands out by 4.5 to 1 (WCAG AA), and every picture says what it shows."""
    probe = """
        document.querySelectorAll("details").forEach((d) => { d.open = true; });
        const shade = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
        const light = (c) => .2126 * shade(c[0]) + .7152 * shade(c[1]) + .0722 * shade(c[2]);
        const rgb = (s) => s.match(/[\\d.]+/g).map(Number);
        const paper = (e) => { for (; e; e = e.parentElement) {
            const c = rgb(getComputedStyle(e).backgroundColor);
            if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
        let least = 99, worst = "";
        for (const e of document.querySelectorAll("body *")) {
          const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
          if (!own || ["SCRIPT", "STYLE"].includes(e.tagName)) continue;
          const style = getComputedStyle(e), ink = e.closest("svg") ? style.fill : style.color;
          if (ink === "rgb(34, 48, 61)") continue;  // on a map, which is light on a dark page too
          const [a, b] = [light(rgb(ink)), light(paper(e))].sort((x, y) => y - x);
          const ratio = (a + .05) / (b + .05);
          if (ratio < least) { least = ratio; worst = e.tagName + ": " + e.textContent.slice(0, 40); }
        }
        told.least = Math.round(100 * least) / 100; told.worst = worst.replace(/[^a-zA-Z0-9 :.]/g, "");
        told.named = [...document.querySelectorAll("svg, img")].every((e) =>
          (e.getAttribute("aria-label") || e.getAttribute("alt") || "").length > 10)"""
    page = request.getfixturevalue(which)
    shown = browsed(page, 1200, probe, f"--blink-settings=preferredColorScheme={scheme}")
    told = json.loads(re.search(r"\{[^{}]*least[^{}]*\}", shown)[0].replace("&quot;", '"'))  # type: ignore[index]
    assert told["least"] >= 4.5, told
    assert told["named"]


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


@pytest.fixture(scope="module")
def of_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a large comparison at three budgets."""
    return comparison_page.write(many_results(), tmp_path_factory.mktemp("many") / "report.html")


@in_a_browser
@pytest.mark.parametrize("which", ["one budget", "three budgets"])
def test_picture_and_conclusions_without_scrolling(which: str, tmp_path: Path) -> None:
    """On a screen of 1300 x 900: the whole picture, and every sentence that follows from it."""
    found = many_results()
    if which == "one budget":
        found["curves"] = found["rows"]
    page = comparison_page.write(found, tmp_path / "report.html")
    probe = """
        const below = (e) => e.getBoundingClientRect().bottom;
        const picture = document.querySelector("figure svg"), box = picture.getBoundingClientRect();
        told.picture = below(picture.closest("figure")) <= 900 && box.top > 0 && box.width > 500;
        told.sentences = [...document.querySelectorAll(".findings li")].map((e) => below(e) <= 900);
        told.wide = document.documentElement.scrollWidth > window.innerWidth"""
    shown = browsed(page, 1300, probe)
    assert '"picture":true' in shown and '"sentences":[true,true,true]' in shown, shown[-300:]
    assert '"wide":false' in shown


@in_a_browser
def test_printed(report: Path, of_many: Path, tmp_path: Path) -> None:
    """Light whatever the screen is; at most six sheets of A4, every table with its heading."""
    assert 1 <= sheets(printed(report, tmp_path)) <= 3
    paper = printed(of_many, tmp_path)
    assert 1 <= sheets(paper) <= 6
    texts = page_texts(paper)
    rows = [k for k, text in enumerate(texts) if "to 0.60" in text and "consistent" in text]
    assert rows and all("verdict" in texts[k] for k in rows)
    assert "@media screen and (prefers-color-scheme: dark)" in report.read_text()
