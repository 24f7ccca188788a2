"""The outsider's 28 bugs: each is planted, and a quick test of a property notices."""

from __future__ import annotations

import pytest

from tests.conformance.outsiders_bugs import BUGS
from tests.conformance.planting import Bug, notices

pytestmark = pytest.mark.filterwarnings("ignore::privet.data.records.UnprotectedDiagnostic")


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.bug)
def test_the_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only the bug: the check passes on the library as it is."""
    with monkeypatch.context() as patch:
        assert not notices(bug.check, patch), f"a false alarm: {bug.bug}"
    bug.plant(monkeypatch)
    assert notices(bug.check, monkeypatch), f"nobody noticed: {bug.bug}"


def test_all_of_them() -> None:
    assert [b.bug[:2] for b in BUGS] == [f"{k:02}" for k in range(1, 29)]
