"""An audit in one training run: many canaries at once, each in or out by a fair coin.

The auditor ranks the canaries by how member-like they look and guesses "in" for the first r/2 and
"out" for the last r/2. Against an epsilon-private training every guess, given all the others, is
right with probability at most q = 1/(1 + e^-epsilon); so the number v of right guesses gives

    p(epsilon) = beta + 2 m delta A,   beta = P[Bin(r, q) >= v],
    A = max over 1 <= i <= v of P[v - i <= Bin(r, q) < v] / i,

and the largest epsilon with p <= alpha is a lower bound (Steinke, Nasr and Jagielski, "Privacy
Auditing with One (1) Training Run", 2023, theorem 5.2). r is fixed before any score is seen.

Symbols: m canaries, r guesses, v right ones, alpha = 1 - confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privet import _check
from privet.audit.finding import Audit, Finding
from privet.audit.trade_off_one_run import gaussian_one_run_bound
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Protects
from privet.noise import Source

_HIGHEST = 60.0

Rule = Callable[..., float]
"""Right guesses, guesses, canaries, delta and alpha to a lower bound of epsilon."""


def one_run_bound(right: int, guesses: int, canaries: int, *, delta: float, alpha: float) -> float:
    """The largest epsilon that v right guesses of r refute at level alpha.

    >>> round(one_run_bound(100, 100, 1000, delta=1e-5, alpha=0.05), 1)
    3.5
    >>> one_run_bound(50, 100, 1000, delta=1e-5, alpha=0.05)
    0.0
    """
    r = _check.count("guesses", guesses)
    v = _check.count("right", right, minimum=0)
    m = _check.count("canaries", canaries)
    delta, alpha = _check.delta_or_zero("delta", delta), _check.open_unit("alpha", alpha)
    if not v <= r <= m:
        raise InvalidArgument("right", (v, r, m), "right <= guesses <= canaries")
    if p_value(0.0, v, r, m, delta) > alpha:
        return 0.0
    low, high = 0.0, _HIGHEST
    while high - low > 1e-9 * (1.0 + low):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if p_value(middle, v, r, m, delta) <= alpha else (low, middle)
    return low


def p_value(epsilon: float, right: int, guesses: int, canaries: int, delta: float) -> float:
    """How likely so many right guesses are at most, against (epsilon, delta)-private training."""
    q = 1.0 / (1.0 + math.exp(-epsilon))
    k = np.arange(guesses + 1)
    # below[j] = P[Bin < j]
    below = np.concatenate([[0.0], special.bdtr(k, guesses, q)])
    if right == 0:
        return 1.0
    beta = float(special.bdtrc(right - 1, guesses, q))
    i = np.arange(1, right + 1)
    lift = float(np.max((below[right] - below[right - i]) / i))
    return min(1.0, beta + 2.0 * canaries * delta * lift)


@final
@dataclass(frozen=True, kw_only=True)
class OneRunAudit(Audit):
    """`guesses` of the canaries' coins, half of them "in", half "out", none chosen afterwards.

    `guesses_in` says how many are "in" where halves are not best: under sampling few scores speak
    clearly for "in" and none for "out". `rule` makes the bound: `one_run_bound`,
    `trade_off_one_run_bound` (as sound, sharper) or `gaussian_one_run_bound` (parametric).

    **Guarantee** `Finding.audited` exceeds the true epsilon with probability at most
    1 - confidence, whatever the training and the scores, if the coins were fair and independent and
    `guesses` was fixed before the scores were seen.

    >>> rng = np.random.default_rng(0)
    >>> coins = rng.random(1000) < 0.5
    >>> found = OneRunAudit(guesses=100).run(
    ...     np.where(coins, 1.0, 0.0), coins, what="no privacy at all", proved=2.0,
    ...     control=np.where(coins, 1.0, 0.0))
    >>> round(found.audited, 1), found.verdict.value
    (3.5, 'falsified')
    """

    guesses: int = 100
    guesses_in: int | None = None
    rule: Rule = one_run_bound

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.count("guesses", self.guesses, minimum=2)
        if self.guesses_in is None and self.guesses % 2:
            raise InvalidArgument("guesses", self.guesses, "an even number")
        if _check.count("guesses_in", self.top, minimum=0) > self.guesses:
            raise InvalidArgument("guesses_in", self.top, f"at most {self.guesses}, the guesses")

    @property
    def top(self) -> int:
        """How many canaries are guessed to be in."""
        return self.guesses // 2 if self.guesses_in is None else self.guesses_in

    def run(
        self,
        scores: Any,
        included: Any,
        *,
        what: str,
        proved: float,
        control: Any,
        claimed: float | None = None,
        seconds: float = 0.0,
        threat: str = "knows the canaries, sees the trained model",
    ) -> Finding:
        """Guess by the scores (higher speaks for "in") and count; `control`: without privacy."""
        coins = np.asarray(included, dtype=bool)
        parametric = self.rule is gaussian_one_run_bound
        return self.finding(
            what=what,
            claimed=claimed,
            proved=proved,
            audited=self.bound(scores, coins),
            ceiling=self.ceiling(len(coins)),
            control=self.bound(control, coins),
            trials=len(coins),
            method=f"one run, {len(coins)} canaries, {self.top} guessed in, "
            f"{self.guesses - self.top} out" + (", normal trade-off curve" if parametric else ""),
            parametric=parametric,
            seconds=seconds,
            threat=threat,
        )

    def bound(self, scores: Any, included: NDArray[np.bool_]) -> float:
        """The lower bound of epsilon from these scores."""
        s = np.asarray(scores, dtype=np.float64)
        m = len(included)
        if s.shape != (m,) or np.isnan(s).any():
            raise InvalidArgument("scores", s.shape, f"{m} scores, none of them NaN")
        if self.guesses > m:
            raise InvalidArgument("guesses", self.guesses, f"at most {m}, the canaries")
        order, bottom = np.argsort(-s, kind="stable"), self.guesses - self.top
        right = int(included[order[: self.top]].sum())
        right += int((~included[order[m - bottom :]]).sum())
        return self._bound(right, m)

    def ceiling(self, canaries: int) -> float:
        """What it reports when every guess is right."""
        return self._bound(self.guesses, canaries)

    def _bound(self, right: int, canaries: int) -> float:
        return self.rule(right, self.guesses, canaries, delta=self.delta, alpha=self.alpha)


@final
@dataclass(frozen=True, kw_only=True)
class Canaries:
    """Records that stand out: a copy of a record with a wrong label, each in by a fair coin.

    `x`, `y` are the canaries, `otherwise` their labels when the coin says "out" and neighbours are
    by replacement, `included` the coins; `records` are trained on in any case.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    otherwise: NDArray[np.int64]
    included: NDArray[np.bool_]
    records: tuple[NDArray[Any], NDArray[np.int64]]

    @classmethod
    def mislabelled(
        cls, x: NDArray[Any], y: NDArray[np.int64], *, classes: int, count: int, rng: Source
    ) -> Canaries:
        """The last `count` records, each with a label drawn from the wrong ones."""
        m = _check.count("count", count)
        if m >= len(x):
            raise InvalidArgument("count", m, f"fewer than the {len(x)} records")
        u = rng.child("labels").uniform(m)
        shift = 1 + np.minimum((u * (classes - 1)).astype(np.int64), classes - 2)
        coins = rng.child("coins").uniform(m) < 0.5
        wrong = (y[-m:] + shift) % classes
        return cls(x=x[-m:], y=wrong, otherwise=y[-m:], included=coins, records=(x[:-m], y[:-m]))

    def training_set(
        self, adjacency: Adjacency, protects: Protects = Protects.RECORD
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The records, and each canary if its coin says "in".

        A coin that says "out" leaves the canary out (add-remove), or puts the record with its own
        label in the same place (replace-one), or zeros with the canary's label (replace-one, where
        only features are protected): one coin makes one neighbour of the promise.
        """
        x, y = self.records
        inside = self.included
        if adjacency is Adjacency.REPLACE_ONE and protects is Protects.FEATURES:
            shown = np.where(inside.reshape(-1, *[1] * (self.x.ndim - 1)), self.x, 0)
            return np.concatenate([x, shown.astype(self.x.dtype)]), np.concatenate([y, self.y])
        if adjacency is Adjacency.REPLACE_ONE:
            labels = np.where(inside, self.y, self.otherwise)
            return np.concatenate([x, self.x]), np.concatenate([y, labels])
        return np.concatenate([x, self.x[inside]]), np.concatenate([y, self.y[inside]])

    def scores(self, answer: Callable[[NDArray[Any]], Any]) -> NDArray[np.float64]:
        """The log probability that a model gives to each canary's label."""
        p = np.asarray(answer(self.x), dtype=np.float64)[np.arange(len(self.y)), self.y]
        return np.log(np.maximum(p, 1e-300))
