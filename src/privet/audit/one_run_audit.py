"""An audit in one training run: many canaries at once, each in or out by a fair coin.

The auditor ranks the canaries by how member-like they look and guesses "in" for the first r/2 and
"out" for the last r/2. Against an epsilon-private training every guess, given all the others, is
right with probability at most q = 1/(1 + e^-epsilon); so the number v of right guesses gives

    p(epsilon) = beta + 2 m delta A,   beta = P[Bin(r, q) >= v],
    A = max over 1 <= i <= v of P[v - i <= Bin(r, q) < v] / i,

and the largest epsilon with p <= alpha is a lower bound (Steinke, Nasr and Jagielski, "Privacy
Auditing with One (1) Training Run", 2023, theorem 5.2). r is fixed before any score is seen.

Symbols: m canaries, r guesses, v right ones, alpha = 1 - confidence.

**Against a whole trade-off curve** (`trade_off_one_run_bound`) nothing is lost on delta.
The coins are guessed in the same way: c' guesses, c of them right. Suppose that P[S | in]
<= F(P[S | out]) and the other way round for every event S, with F concave: F(x) = e^epsilon x +
delta under (epsilon, delta)-privacy, F(x) = Phi(Phi^-1(x) + mu) under mu-GDP. Write g for the
inverse of F, and for 0 <= i <= c'

    r_i = E[right 1{right >= i}] / m,     h_i = E[wrong 1{right >= i}] / m.

*Lemma.* h_i >= g(r_{i+1}). For one canary j let A say that i or more of the *other* guesses are
right. Given the other coins, P[guess j right, A] <= F(P[guess j wrong, A]) whichever way coin j
fell; F is concave, so this survives averaging over the coins and over j. Left of it stands
r_{i+1}, right of it F(h_i).

From the definition r_i - r_{i+1} = i / (c' - i) (h_i - h_{i+1}), and r_0 + h_0 = c' / m. If
P[right >= c] were alpha or more, the least possible r_0 + h_0 would come from r_c = alpha c / m,
h_c = alpha (c' - c) / m and h_i = max(h_{i+1}, g(r_{i+1})) going down: more mass, or mass moved
from wrong to right, only adds. If that exceeds c' / m, the curve is refuted at level alpha.

The idea is that of Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run",
2024; the argument above is ours, after their theorem.
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
from privet.audit.epsilon_lower_bounds import mu_epsilon
from privet.audit.finding import Audit, Finding
from privet.errors import InvalidArgument

HIGHEST_EPSILON = 60.0  # no count of guesses that fits in memory refutes e^60
HIGHEST_MU = 40.0  # P[N > 40] is below the smallest float64

Rule = Callable[..., float]
"""Right guesses, guesses, canaries, delta and alpha to a lower bound of epsilon."""


def one_run_bound(right: int, guesses: int, canaries: int, *, delta: float, alpha: float) -> float:
    """The largest epsilon that v right guesses of r refute at level alpha.

    >>> round(one_run_bound(100, 100, 1000, delta=1e-5, alpha=0.05), 1)
    3.5
    >>> one_run_bound(50, 100, 1000, delta=1e-5, alpha=0.05)
    0.0
    """
    _check_counts(right, guesses, canaries)
    delta, alpha = _check.delta_or_zero("delta", delta), _check.open_unit("alpha", alpha)

    def is_refuted(epsilon: float) -> bool:
        return p_value(epsilon, right, guesses, canaries, delta) <= alpha

    return _largest(is_refuted, HIGHEST_EPSILON, relative=1e-9)


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


Inverse = Callable[[float], float]


def refutes(inverse: Inverse, right: int, guesses: int, canaries: int, alpha: float) -> bool:
    """Whether so many right guesses refute the curve with this inverse g, at level alpha.

    >>> refutes(lambda x: x, 70, 100, 1000, 0.05), refutes(lambda x: x, 55, 100, 1000, 0.05)
    (True, False)
    """
    r, h = alpha * right / canaries, alpha * (guesses - right) / canaries
    whole = guesses / canaries
    for i in range(right - 1, -1, -1):
        higher = max(h, inverse(r))
        r, h = r + i / (guesses - i) * (higher - h), higher
        if r + h > whole:
            return True
    return False


def trade_off_one_run_bound(
    right: int, guesses: int, canaries: int, *, delta: float, alpha: float
) -> float:
    """The largest epsilon for which v right guesses refute (epsilon, delta)-privacy.

    Assumes nothing about the noise, as `one_run_bound`; sharper where m delta is not tiny, because
    delta is taken where it hurts and not from every canary.

    >>> round(trade_off_one_run_bound(250, 250, 20_000, delta=1e-5, alpha=0.05), 2)
    4.41
    """
    _check_counts(right, guesses, canaries)
    delta, alpha = _check.delta_or_zero("delta", delta), _check.open_unit("alpha", alpha)

    def is_refuted(epsilon: float) -> bool:
        weight = math.exp(-epsilon)
        return refutes(lambda x: weight * (x - delta), right, guesses, canaries, alpha)

    return _largest(is_refuted, HIGHEST_EPSILON, absolute=1e-6)  # digits enough


def gaussian_one_run_bound(
    right: int, guesses: int, canaries: int, *, delta: float, alpha: float
) -> float:
    """epsilon(delta) of the largest mu for which v right guesses refute mu-GDP.

    **Guarantee** above the true epsilon with probability at most alpha if the training's curve is
    that of two normal distributions (**assumed**; exact for Gaussian releases without sampling).

    >>> round(gaussian_one_run_bound(250, 250, 5000, delta=1e-5, alpha=0.05), 1)
    6.4
    >>> gaussian_one_run_bound(125, 250, 5000, delta=1e-5, alpha=0.05)
    0.0
    """
    _check_counts(right, guesses, canaries)
    delta, alpha = _check.delta_or_zero("delta", delta), _check.open_unit("alpha", alpha)

    def is_refuted(mu: float) -> bool:
        return refutes(
            lambda x: float(special.ndtr(special.ndtri(x) - mu)), right, guesses, canaries, alpha
        )

    return mu_epsilon(_largest(is_refuted, HIGHEST_MU, absolute=1e-6), delta)


def _check_counts(right: int, guesses: int, canaries: int) -> None:
    _check.count("right", right, minimum=0)
    _check.count("guesses", guesses)
    _check.count("canaries", canaries)
    if not right <= guesses <= canaries:
        raise InvalidArgument("right", (right, guesses, canaries), "right <= guesses <= canaries")


def _largest(
    is_refuted: Callable[[float], bool],
    highest: float,
    *,
    absolute: float = 0.0,
    relative: float = 0.0,
) -> float:
    """The largest number that is refuted, by bisection from below; 0 if none is."""
    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, highest
    while high - low > absolute + relative * (1.0 + low):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


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
