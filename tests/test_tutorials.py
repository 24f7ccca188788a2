"""Tutorials of Opacus, anew: each page says truly how many lines differ from the plain script."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from tests.test_docs import blocks

PAGES = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))


def test_all_four_are_there() -> None:
    assert {p.stem for p in PAGES} == {"mnist_cnn", "imdb_lstm", "text_bert", "resnet"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_lines_that_differ_are_counted(page: Path) -> None:
    plain, private = (
        [line.split("  #")[0] for line in b.text.splitlines()]
        for b in blocks(page)
        if b.language == "python"
    )
    marks = [line[0] for line in difflib.ndiff(plain, private) if line[2:].strip()]
    told = re.search(r"\*\*(\d+) lines are new and (\d+) are gone\*\*", page.read_text())
    assert told is not None
    assert (int(told[1]), int(told[2])) == (marks.count("+"), marks.count("-"))
    assert any("backward()" in line for line in plain) and "print(training.guarantee)" in private
