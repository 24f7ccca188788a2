"""What audits of a release that can be drawn again have in common: draw, bound, fill a Finding."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.audit.finding import Audit, Finding
from privet.errors import InvalidArgument
from privet.noise import Source

Scores = NDArray[np.float64]
Draw = Callable[[int, Source], Scores]
"""So many releases, each with the attacker's score: higher speaks for the record."""


@dataclass(frozen=True, kw_only=True)
class DrawnAudit(Audit, ABC):
    """An audit of a release that is made once: `trials` draws a side, and a bound from them."""

    trials: int = 100_000
    delta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.count("trials", self.trials)

    def run(
        self,
        *,
        what: str,
        with_record: Draw,
        without_record: Draw,
        control: tuple[Draw, Draw],
        claimed: float | None,
        proved: float,
        rng: Source,
    ) -> Finding:
        """Draw on both sides and bound epsilon.

        `control`: the same two draws from the release without its noise.
        """
        began = time.perf_counter()
        audited = self.epsilon(with_record, without_record, rng.child("audit"))
        without_noise = self.epsilon(*control, rng.child("control"))
        return self.finding(
            what=what,
            claimed=claimed,
            proved=proved,
            audited=audited,
            ceiling=self.ceiling,
            control=without_noise,
            trials=self.trials,
            method=self.method,
            parametric=self.parametric,
            seconds=time.perf_counter() - began,
        )

    @abstractmethod
    def epsilon(self, with_record: Draw, without_record: Draw, rng: Source) -> float:
        """The lower bound of epsilon from fresh draws."""

    @property
    @abstractmethod
    def ceiling(self) -> float:
        """What it reports when every draw is told apart."""

    @property
    @abstractmethod
    def method(self) -> str:
        """How the bound is made, in words."""

    @property
    @abstractmethod
    def parametric(self) -> bool:
        """Whether the bound also assumes the shape of the noise."""


def scores_of(draw: Draw, n: int, rng: Source) -> Scores:
    """n scores, checked."""
    scores = np.asarray(draw(n, rng), dtype=np.float64)
    if scores.shape != (n,) or np.isnan(scores).any():
        raise InvalidArgument("draw", scores.shape, f"{n} scores, none of them NaN")
    return scores
