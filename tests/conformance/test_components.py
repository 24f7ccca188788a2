"""The suite holds for everything of ours, and catches every planted bug: the test of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from privet.audit import conformance
from privet.noise import seeded
from tests.conformance.mutants import MUTANTS, Mutant
from tests.conformance.subjects import SUBJECTS

BY_NAME = {s.name: s for s in SUBJECTS}


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
def test_conforms(subject: conformance.Subject) -> None:
    """False alarms with a fresh seed: at most 1e-6 a statistical check."""
    report = conformance.check(subject, seeded(41))
    assert report.held, str(report)


def _param(mutant: Mutant) -> Any:
    """Bugs of whole training steps take a second each."""
    marks = [pytest.mark.slow] if mutant.subject == "DP-SGD steps" else []
    return pytest.param(mutant, marks=marks, id=mutant.bug)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [_param(m) for m in MUTANTS])
def test_the_bug_is_caught(mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    report = conformance.check(BY_NAME[mutant.subject], seeded(42))
    assert not report.held, f"nobody noticed: {mutant.bug}"


def test_enough_bugs() -> None:
    assert len({m.bug for m in MUTANTS}) == len(MUTANTS) >= 25
