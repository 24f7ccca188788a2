"""What README and the pages point at is there: links, headings in them, and files of the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for folder in (ROOT, ROOT / "docs", ROOT / "papers", ROOT / "benchmarks", ROOT / "examples")
    for page in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
    if not {"_build", "_generated"} & set(page.parts)
)
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub and Sphinx name them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), flags=re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        place = page if not file else (page.parent / file).resolve()
        missing = not place.exists() and "_generated" not in place.parts
        if missing or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            broken.append(target)
    assert not broken, broken


NAMED = re.compile(r"`([\w./-]+\.py)(?:::\w+)?`")
SOURCES = {
    str(path.relative_to(ROOT))
    for folder in ("src", "papers", "tests", "benchmarks", "examples", "docs", "tools")
    for path in (ROOT / folder).rglob("*.py")
}
# the changelog and the decisions tell of files as they were; these are a reader's own, or others'
HISTORY = {"CHANGELOG.md", "changelog.md"}
ELSEWHERE = {"src/privet/mechanisms/staircase.py", "AdLM/MNIST/AdLM.py"}


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.name not in HISTORY and "decisions" not in p.parts],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_files_that_are_named_exist(page: Path) -> None:
    """A page that names a module by an old name sends its reader nowhere."""
    named = {name for name in NAMED.findall(page.read_text()) if name not in ELSEWHERE}
    gone = [n for n in named if not any(path == n or path.endswith("/" + n) for path in SOURCES)]
    assert not gone, sorted(gone)
