"""What a conformance check says: a name, whether it held, and what was seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

LEVEL = 1e-6
"""The false-alarm rate of every statistical check, for a fresh seed."""

Check = Callable[[], str | None]
"""Runs one check: None if it held, else what was seen."""


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one check found, and how long it took."""

    name: str
    problem: str | None
    seconds: float

    @property
    def held(self) -> bool:
        """Whether nothing was found."""
        return self.problem is None


@final
@dataclass(frozen=True, kw_only=True)
class Report:
    """What all checks of one subject found.

    >>> report = Report(subject="mine", outcomes=(Outcome(name="law", problem="flat", seconds=0),))
    >>> print(report)
    mine: 1 of 1 checks failed
      law: flat
    """

    subject: str
    outcomes: tuple[Outcome, ...]

    @property
    def problems(self) -> tuple[Outcome, ...]:
        """The checks that did not hold."""
        return tuple(o for o in self.outcomes if not o.held)

    @property
    def held(self) -> bool:
        """Whether every check held. It is no proof: a check finds what it looks for."""
        return not self.problems

    def __str__(self) -> str:
        bad, n = self.problems, len(self.outcomes)
        if not bad:
            return f"{self.subject}: {n} checks held"
        lines = (f"  {o.name}: {o.problem}" for o in bad)
        return "\n".join([f"{self.subject}: {len(bad)} of {n} checks failed", *lines])


def run(subject: str, checks: Sequence[tuple[str, Check]]) -> Report:
    """Run checks one by one; an exception is a problem too."""
    return Report(subject=subject, outcomes=tuple(_each(checks)))


def _each(checks: Sequence[tuple[str, Check]]) -> Iterator[Outcome]:
    for name, check in checks:
        began = time.perf_counter()
        try:
            problem = check()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        yield Outcome(name=name, problem=problem, seconds=time.perf_counter() - began)
