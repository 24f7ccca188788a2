"""Bugs planted by an outsider, and by us before we looked: a quick test of a property sees each."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.conformance import handed_in_bugs, outsiders_bugs, own_bugs
from tests.conformance.mutants import MUTANTS
from tests.conformance.planting import Bug, Check, notices

pytestmark = pytest.mark.filterwarnings("ignore::privet.data.records.UnprotectedDiagnostic")

BUGS = (*outsiders_bugs.BUGS, *own_bugs.BUGS, *handed_in_bugs.BUGS)


@cache
def false_alarm(check: Check) -> bool:
    """Whether a check fails on the library as it is."""
    with pytest.MonkeyPatch.context() as patch:
        return notices(check, patch)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.bug)
def test_the_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only the bug: the check passes on the library as it is."""
    assert not false_alarm(bug.check), f"a false alarm: {bug.bug}"
    bug.plant(monkeypatch)
    assert notices(bug.check, monkeypatch), f"nobody noticed: {bug.bug}"


def test_no_two_have_one_name() -> None:
    assert len({bug.bug for bug in BUGS}) == len(BUGS)


def test_the_page_tells_all_of_them() -> None:
    page = (Path(__file__).parents[2] / "docs/guide/conformance.md").read_text()
    for bug in BUGS:
        assert f"| {bug.kind} | {bug.bug} | {bug.seen_by} |" in page
    for mutant in MUTANTS:
        assert f"| {mutant.bug} |" in page
    assert f"{len(BUGS) + len(MUTANTS)} of {len(BUGS) + len(MUTANTS)} caught" in page
