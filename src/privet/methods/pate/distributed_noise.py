"""Noise from the sites themselves: the coordinator never sees an exact answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from privet import _check, premises
from privet import accounting as losses
from privet.accounting.calibration import BUDGET_MARGIN
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee
from privet.ledger import Entry, Ledger
from privet.mechanisms import DiscreteGaussianMechanism
from privet.methods.pate.answer_checks import check_compatible, inspect_answers
from privet.methods.pate.answer_files import (
    Answers,
    AnswerSource,
    RefusedAnswers,
)
from privet.methods.pate.mean_aggregation import NoisyAnswers, block_sums, sum_sensitivity
from privet.methods.pate.shard_charges import (
    REPLACE_ONE,
    charge_shards,
    shard_guarantee,
)
from privet.noise import Source
from privet.noise.grid import ROUND_UP, power_of_two_at_most

_BITS = 26
"""Codes are multiples of 2^-26 of the power of two below their radius, as `clip_l2` makes them."""
_SHARES = "shares "
"""In a ledger's entry, before the marks of the answers that were summed."""
_MARK = 16
"""Hexadecimal digits of a checksum that tell answers apart: 64 bits, so that two of a million files
agree with a chance of 3e-8."""


@final
@dataclass(frozen=True, kw_only=True)
class DistributedAggregator:
    """Every site adds its share of the noise to its own clipped codes before it sends them.

    A share is discrete Gaussian with scale s = S / sqrt(K - k), S being the scale that the sum
    needs. The sum of the shares of any K - k sites then has at least the variance S^2, so up to k
    sites may be missing, or tell the coordinator their share, and the promise still holds. A sum of
    discrete Gaussians is not exactly one, but for s of 2^20 steps and more the logarithms of their
    probabilities differ by less than 10 K e^(-2^40) (Kairouz, Liu and Steinke 2021, on sums of
    discrete Gaussians).

    **Guarantee** `guarantee(...)` of the *sum*, replace-one, per teacher shard. Against whoever
    reads a site's own file it is `guarantee_against_coordinator`: much less. A share hides its site
    in one released sum only: the sums of all sites and of all but one differ by that one's own
    file. So a ledger remembers which files were summed and refuses any of them in another sum.

    **Assumes** that each site clips and adds its share as stated: its own records depend on it, and
    nobody else can check it, since an answer with noise may be longer than the radius.

    >>> shares = DistributedAggregator.for_budget(
    ...     teachers=8, missing=2, queries=80, epsilon=8.0, delta=1e-3)
    >>> round(shares.noise(8), 4), round(shares.noise(6), 4)  # of the mean; 1.0733 from one place
    (1.3428, 1.5505)
    >>> shares.guarantee(80, delta=1e-3).epsilon <= 8.0
    True
    """

    teachers: int
    missing: int
    radius: float
    share: float
    """s, of each site."""

    def __post_init__(self) -> None:
        k, m = (
            _check.count("teachers", self.teachers),
            _check.count("missing", self.missing, minimum=0),
        )
        if m >= k:
            raise InvalidArgument("missing", m, f"below {k}, the number of teachers")
        _check.positive("radius", self.radius)
        # below, the grid would show beside the noise; above, exact samplers end
        if not 2.0**20 <= self.share / self.step <= 2.0**40:
            raise InvalidArgument(
                "share", self.share, f"between 2^20 and 2^40 steps of {self.step:g}"
            )

    @classmethod
    def for_budget(
        cls,
        *,
        teachers: int,
        missing: int,
        queries: int,
        epsilon: float,
        delta: float,
        radius: float = 1.0,
        dimension: int = 1,
    ) -> Self:
        """The least share with which any `teachers - missing` sites are noise enough."""
        total = DiscreteGaussianMechanism.for_budget(
            sum_sensitivity(radius, queries),
            epsilon=_check.positive("epsilon", epsilon) * BUDGET_MARGIN,
            delta=delta,
            step=_step(radius),
            adjacency=REPLACE_ONE,
            dimension=queries * _check.count("dimension", dimension),
        )
        enough = _check.count("teachers", teachers) - _check.count("missing", missing, minimum=0)
        share = total.scale / math.sqrt(max(enough, 1)) * ROUND_UP
        return cls(teachers=teachers, missing=missing, radius=radius, share=share)

    @property
    def step(self) -> float:
        """The grid of codes and noise."""
        return _step(self.radius)

    def noise(self, present: int) -> float:
        """The noise on the mean of so many sites."""
        return self.share / math.sqrt(_check.count("present", present))

    def loss(self, queries: int, *, dimension: int = 1) -> losses.ZCDP:
        """What so many answers cost when as many sites are missing as may be."""
        return self._loss(self.teachers - self.missing, queries, dimension)

    def guarantee(
        self, queries: int, *, delta: float, dimension: int = 1, seeded: bool = False
    ) -> Guarantee:
        """What the sum promises to everybody; `seeded` if some site's noise came from a seed."""
        loss = self.loss(queries, dimension=dimension)
        return self._promise(loss, delta, "the sum of shares", seeded=seeded)

    def guarantee_against_coordinator(
        self, queries: int, *, delta: float, dimension: int = 1
    ) -> Guarantee:
        """What a site's own share promises against whoever reads its file."""
        return self._promise(self._loss(1, queries, dimension), delta, "one share")

    def _loss(self, shares: int, queries: int, dimension: int) -> losses.ZCDP:
        scale = self.share * math.sqrt(shares) * (1.0 - 2.0**-50)  # down by eight roundings
        return DiscreteGaussianMechanism(scale=scale, step=self.step).loss(
            sum_sensitivity(self.radius, queries),
            adjacency=REPLACE_ONE,
            dimension=queries * dimension,
        )

    def _promise(
        self, loss: losses.ZCDP, delta: float, what: str, *, seeded: bool = False
    ) -> Guarantee:
        theorem = f"distributed discrete Gaussian (Kairouz, Liu and Steinke 2021), {what}"
        clipping, dropout = premises.sites_clip(self.radius), premises.sites_missing(self.missing)
        key = premises.SECRET_SEED if seeded else premises.SECRET_KEY
        rests_on = (clipping, dropout, premises.SHARES_ONCE, key)
        return shard_guarantee(loss, delta, theorem, rests_on)

    def add_share(self, answers: Answers, *, rng: Source) -> Answers:
        """At the site: clipped codes with its share of the noise, ready to be sent."""
        h = answers.header
        if h.radius != self.radius or h.spacing != self.step:
            raise InvalidArgument("answers", h.radius, f"clipped to the radius {self.radius:g}")
        if h.share != 0.0:
            raise InvalidArgument("answers", h.share, "without noise")
        units = answers.units.astype(np.int64)
        for block, (start, part) in enumerate(answers.blocks()):
            source = rng.child("share", h.site, block)
            noise = source.discrete_gaussian(len(part), self.share / self.step)
            units[start : start + len(part)] += noise
        return Answers(header=replace(h, share=self.share, seeded=not rng.secret), units=units)

    def release(
        self,
        answers: Sequence[AnswerSource],
        *,
        delta: float,
        ledger: Ledger | None = None,
        reducer: str | None = None,
        what: str = "answers of teachers with noise of their own",
    ) -> NoisyAnswers:
        """At the coordinator: the mean of what arrived, charged as if `missing` sites were.

        With a ledger, answers that were in another sum already are refused: they need new noise.
        The very same sum may be made again, after a crash, and is charged once.
        """
        least = self.teachers - self.missing
        if not least <= len(answers) <= self.teachers:
            raise InvalidArgument(
                "answers", len(answers), f"those of {least} to {self.teachers} teachers"
            )
        check_compatible(answers, radius=self.radius, reducer=reducer)
        for source in answers:
            if source.header.share != self.share:
                raise RefusedAnswers(
                    source.display_name,
                    f"its share of the noise is {source.header.share:g}, not {self.share:g}",
                )
        checked = inspect_answers(answers, allow_equal=False)  # noise makes all of them differ
        h = checked[0].header
        if h.spacing != self.step:
            raise RefusedAnswers(
                checked[0].display_name, f"its spacing is {h.spacing:g}, not {self.step:g}"
            )
        loss = self.loss(h.rows, dimension=h.dimension)
        entry: Entry | None = None
        if ledger is not None:
            marks = [one.checksum[:_MARK] for one in checked]
            _check_unused(answers, marks, ledger.entries())
            token = _SHARES + " ".join(sorted(marks))
            entry = charge_shards(ledger, loss, what=f"{what}; {token}", token=token)
            assert entry is not None
            # again, since another process may have been faster than our look
            _check_unused(answers, marks, ledger.entries()[: entry.sequence - 1])
        total = np.concatenate([part for _, part in block_sums(checked)])
        codes = total.astype(np.float64) * (h.spacing / len(answers))
        return NoisyAnswers(
            codes=codes.reshape(h.rows, h.dimension),
            noise=self.noise(len(answers)),
            guarantee=self.guarantee(
                h.rows,
                delta=delta,
                dimension=h.dimension,
                seeded=any(source.header.seeded for source in answers),
            ),
            entry=entry,
        )


def _check_unused(
    answers: Sequence[AnswerSource], marks: Sequence[str], entries: Sequence[Entry]
) -> None:
    """Raise when some of these shares are in another sum that was charged for before."""
    sums = (set(e.what.partition(_SHARES)[2].split()) for e in entries)
    earlier = set[str]().union(*(before for before in sums if before != set(marks)))
    for source, mark in zip(answers, marks, strict=True):
        if mark in earlier:
            raise RefusedAnswers(
                source.display_name,
                "its share of the noise was used in an earlier sum",
                "two sums with one share uncover a site: ask the sites for answers with new noise",
            )


def _step(radius: float) -> float:
    return math.ldexp(power_of_two_at_most(_check.positive("radius", radius)), -_BITS)
