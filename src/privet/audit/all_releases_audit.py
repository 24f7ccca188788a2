"""Audits of everything that a run releases, by the code that makes the releases.

A run is made on one of two neighbours, and played back on the other with the same outputs
(`mechanisms.transcript`). Both exact values of every release are known then, and so is how far the
neighbours move it. What is not known is the noise that was really drawn: its spread is bounded
from the draws, and the exact account of releases moved so far with noise so wide is the lower
bound of epsilon. Nothing that was stated goes into it: half the noise, or a value moved by more
than its sensitivity, shows as an epsilon above the one that is proved.

How the width of the noise is bounded is in `by_law`. Where the law of a release is none of those
that it knows, one event of the likelihood ratio is counted instead, and nothing is
assumed about shapes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.audit.by_law import ByLaw, Seen
from privet.audit.finding import Finding
from privet.audit.likelihood_ratio import OneShotAudit
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.mechanisms import transcript
from privet.mechanisms.transcript import Transcript
from privet.noise import Source, seeded

Run = Callable[[bool, Source], object]
"""Whether the record is there, and noise: make all releases, by the code that makes them."""

CONFIDENCE = 0.999
"""Of the lower bound: every method is audited often, and a false alarm is dear."""
FEWEST, SAMPLED = 10, 30
"""Runs a side at least, however many releases each makes: so that a pair of them that shares its
noise is found (`hidden_shift`); on samples, whose rate is seen too."""
CONTROL = 8
"""Runs a side without noise: they are told apart at once, or never."""
FREE = 10
"""So many times more runs where no law is known."""
THREAT = "knows both neighbours and sees everything that is released"


def watch(run: Run, *, inside: bool, seed: int, last: int | None, sampled: bool) -> Seen:
    """Run, and play back on the other side; `last`: what follows so many releases is left out."""

    def played(there: bool) -> Transcript:
        with transcript.replayed(made, last=last, included=0 if there else None) as found:
            run(there, seeded(seed))
        return found

    with transcript.recorded(last=last) as made:
        run(inside, seeded(seed))
    return Seen(
        inside=inside,
        made=made,
        present=made if inside and not sampled else played(True),
        absent=made if not inside else played(False),
    )


@final
@dataclass(frozen=True, kw_only=True)
class Watched:
    """Runs on both sides, to be bounded by what they show."""

    run: Run
    delta: float
    adjacency: Adjacency
    confidence: float = CONFIDENCE
    account: ByLaw = field(init=False)

    def __post_init__(self) -> None:
        with transcript.recorded() as whole:
            self.run(True, seeded(0))
        account = ByLaw(
            whole=whole, delta=self.delta, adjacency=self.adjacency, confidence=self.confidence
        )
        object.__setattr__(self, "account", account)

    def seen(self, inside: bool, seed: int) -> Seen:
        """One run."""
        last, sampled = len(self.account.whole.releases), self.account.sampled
        return watch(self.run, inside=inside, seed=seed, last=last, sampled=sampled)

    def epsilon(self, trials: int, rng: Source) -> tuple[float, str, int]:
        """A lower bound of epsilon, what it assumes, and its runs a side, `trials` or fewer."""
        laws = self.account.laws
        if laws is not None:
            steps = sum(len(of) for of in self.account.groups())
            fewest = SAMPLED if self.account.sampled else FEWEST
            trials = min(trials, max(fewest, math.ceil(trials / max(steps, 1))))
            if self.account.sampled:  # three plays a run, not two
                trials = max(min(trials, SAMPLED), trials // 2)
            runs = [
                self.seen(side, int(s))
                for side in (True, False)
                for s in rng.child("in" if side else "out").integers(2**31, trials)
            ]
            try:
                assumed = " and ".join(sorted(laws)) + ", bounded from draws"
                return self.account.epsilon(runs), assumed, trials
            except InvalidArgument:  # not the shape that the mechanism states
                pass
        free = self._free(FREE * trials)
        return free.epsilon(self._draw(True), self._draw(False), rng), "", FREE * trials

    def ceiling(self, trials: int, assumed: str) -> float:
        """What it would report of so many runs that are all told apart."""
        return math.inf if assumed else self._free(trials).ceiling

    def _free(self, trials: int) -> OneShotAudit:
        return OneShotAudit(
            trials=trials,
            pilot=max(20, trials // 2),
            delta=self.delta,
            confidence=self.confidence,
        )

    def _draw(self, inside: bool) -> Callable[[int, Source], NDArray[np.float64]]:
        return lambda n, rng: np.array(
            [self.seen(inside, int(s)).log_ratio for s in rng.integers(2**31, n)]
        )


def audit_releases(
    run: Run,
    *,
    without_noise: Run,
    what: str,
    claimed: float | None,
    proved: float,
    delta: float,
    adjacency: Adjacency,
    trials: int,
    rng: Source,
    confidence: float = CONFIDENCE,
) -> Finding:
    """The account of what `trials` runs a side show, beside the same of runs without noise.

    **Guarantee** `Finding.audited` exceeds the true epsilon with probability at most
    1 - confidence, if noise has the law that its mechanism states, whatever its width, and
    releases are independent given what came before (parametric). Where a law is not known or does
    not look so, nothing is assumed.
    """
    began = time.perf_counter()
    watched = Watched(run=run, delta=delta, adjacency=adjacency, confidence=confidence)
    audited, assumed, played = watched.epsilon(trials, rng.child("audit"))
    loud = Watched(run=without_noise, delta=delta, adjacency=adjacency, confidence=confidence)
    control, *_ = loud.epsilon(min(CONTROL, trials), rng.child("control"))
    return Finding(
        what=what,
        claimed=claimed,
        proved=proved,
        audited=audited,
        ceiling=watched.ceiling(played, assumed),
        control=control,
        delta=delta,
        confidence=confidence,
        trials=played,
        method=(
            f"account of all releases, {assumed}"
            if assumed
            else "one event of the likelihood ratio of all releases, threshold from a pilot"
        ),
        parametric=bool(assumed),
        seconds=time.perf_counter() - began,
        threat=THREAT,
    )
