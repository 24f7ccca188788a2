"""Audits of everything that a run releases, by the code that makes the releases.

A run is made on one of two neighbours, and played back on the other with the same outputs
(`mechanisms.release_transcript`). Both exact values of every release are known then, and so is how
far the neighbours move it. What is not known is the noise that was really drawn: its spread is
bounded from the draws, and the exact account of releases moved so far with noise so wide is the
lower bound of epsilon. Nothing that was stated goes into it: half the noise, or a value moved by
more than its sensitivity, shows as an epsilon above the one that is proved.

How the width of the noise is bounded is in `noise_scale_audit`. Where the law of a release is none
of those that it knows, one event of the likelihood ratio is counted instead, and nothing is assumed
about shapes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.audit.finding import Finding
from privet.audit.noise_scale_audit import NoiseWidthAccount, ObservedRun
from privet.audit.single_release_audit import OneShotAudit
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.mechanisms import release_transcript
from privet.mechanisms.release_transcript import Transcript
from privet.noise import Source, seeded

Run = Callable[[bool, Source], object]
"""Whether the record is there, and noise: make all releases, by the code that makes them."""

CONFIDENCE = 0.999
"""Of the lower bound: every method is audited often, and a false alarm is dear."""
FEWEST_RUNS, FEWEST_SAMPLED_RUNS = 10, 30
"""Runs a side at least, however many releases each makes: so that a pair of them that shares its
noise is found (`hidden_shift`); on samples, whose rate is estimated too."""
CONTROL_RUNS = 8
"""Runs a side without noise: they are distinguished at once, or never."""
COUNTING_FACTOR = 10
"""So many times more runs where no law is known: an event that is counted says less a run."""
THREAT = "knows both neighbours and sees everything that is released"


def observe(run: Run, *, inside: bool, seed: int, last: int | None, sampled: bool) -> ObservedRun:
    """Run, and play back on the other side; `last`: what follows so many releases is left out."""

    def replay(side: bool) -> Transcript:
        with release_transcript.replay_releases(
            transcript, last=last, included=0 if side else None
        ) as found:
            run(side, seeded(seed))
        return found

    with release_transcript.record_releases(last=last) as transcript:
        run(inside, seeded(seed))
    return ObservedRun(
        inside=inside,
        transcript=transcript,
        present=transcript if inside and not sampled else replay(True),
        absent=transcript if not inside else replay(False),
    )


@final
@dataclass(frozen=True, kw_only=True)
class ReleaseObserver:
    """Runs on both sides, to be bounded by what they show."""

    run: Run
    delta: float
    adjacency: Adjacency
    confidence: float = CONFIDENCE
    account: NoiseWidthAccount = field(init=False)

    def __post_init__(self) -> None:
        with release_transcript.record_releases() as whole:
            self.run(True, seeded(0))
        account = NoiseWidthAccount(
            whole=whole, delta=self.delta, adjacency=self.adjacency, confidence=self.confidence
        )
        object.__setattr__(self, "account", account)

    def observe_run(self, inside: bool, seed: int) -> ObservedRun:
        """Run once, and play the releases back on both sides."""
        last, sampled = len(self.account.whole.releases), self.account.uses_sampling
        return observe(self.run, inside=inside, seed=seed, last=last, sampled=sampled)

    def epsilon(self, trials: int, rng: Source) -> tuple[float, str, int]:
        """A lower bound of epsilon, what it assumes, and its runs a side, `trials` or fewer."""
        laws = self.account.laws
        if laws is not None:
            steps = sum(len(of) for of in self.account.groups())
            fewest = FEWEST_SAMPLED_RUNS if self.account.uses_sampling else FEWEST_RUNS
            trials = min(trials, max(fewest, math.ceil(trials / max(steps, 1))))
            if self.account.uses_sampling:  # three plays a run, not two
                trials = max(min(trials, FEWEST_SAMPLED_RUNS), trials // 2)
            runs = [
                self.observe_run(side, int(s))
                for side in (True, False)
                for s in rng.child("in" if side else "out").integers(2**31, trials)
            ]
            try:
                assumed = " and ".join(sorted(laws)) + ", bounded from draws"
                return self.account.epsilon(runs), assumed, trials
            except InvalidArgument:  # not the shape that the mechanism states
                pass
        counting = self._counting(COUNTING_FACTOR * trials)
        return (
            counting.epsilon(self._draw(True), self._draw(False), rng),
            "",
            COUNTING_FACTOR * trials,
        )

    def ceiling(self, trials: int, assumed: str) -> float:
        """What it would report of so many runs that are all distinguished."""
        return math.inf if assumed else self._counting(trials).ceiling

    def _counting(self, trials: int) -> OneShotAudit:
        return OneShotAudit(
            trials=trials,
            pilot=max(20, trials // 2),  # a threshold from fewer is left to luck
            delta=self.delta,
            confidence=self.confidence,
        )

    def _draw(self, inside: bool) -> Callable[[int, Source], NDArray[np.float64]]:
        return lambda n, rng: np.array(
            [self.observe_run(inside, int(s)).log_ratio for s in rng.integers(2**31, n)]
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
    watched = ReleaseObserver(run=run, delta=delta, adjacency=adjacency, confidence=confidence)
    audited, assumed, run_count = watched.epsilon(trials, rng.child("audit"))
    loud = ReleaseObserver(
        run=without_noise, delta=delta, adjacency=adjacency, confidence=confidence
    )
    control, *_ = loud.epsilon(min(CONTROL_RUNS, trials), rng.child("control"))
    return Finding(
        what=what,
        claimed=claimed,
        proved=proved,
        audited=audited,
        ceiling=watched.ceiling(run_count, assumed),
        control=control,
        delta=delta,
        confidence=confidence,
        trials=run_count,
        method=(
            f"account of all releases, {assumed}"
            if assumed
            else "one event of the likelihood ratio of all releases, threshold from a pilot"
        ),
        parametric=bool(assumed),
        seconds=time.perf_counter() - began,
        threat=THREAT,
    )
