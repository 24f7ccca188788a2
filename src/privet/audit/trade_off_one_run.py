"""The one-run audit against a whole trade-off curve: nothing is lost on delta.

The canaries' coins are guessed as in `one_run`: c' guesses, c of them right. Suppose that P[S | in]
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

from scipy import special

from privet import _check
from privet.audit.likelihood_ratio import mu_epsilon
from privet.errors import InvalidArgument

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
    _counts(right, guesses, canaries)
    delta, alpha = _check.delta_or_zero("delta", delta), _check.open_unit("alpha", alpha)

    def refuted(epsilon: float) -> bool:
        weight = math.exp(-epsilon)
        return refutes(lambda x: weight * (x - delta), right, guesses, canaries, alpha)

    return _largest(refuted, 60.0)


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
    _counts(right, guesses, canaries)
    delta, alpha = _check.delta_or_zero("delta", delta), _check.open_unit("alpha", alpha)

    def refuted(mu: float) -> bool:
        return refutes(
            lambda x: float(special.ndtr(special.ndtri(x) - mu)), right, guesses, canaries, alpha
        )

    return mu_epsilon(_largest(refuted, 40.0), delta)


def _counts(right: int, guesses: int, canaries: int) -> None:
    _check.count("right", right, minimum=0)
    _check.count("guesses", guesses)
    _check.count("canaries", canaries)
    if not right <= guesses <= canaries:
        raise InvalidArgument("right", (right, guesses, canaries), "right <= guesses <= canaries")


def _largest(refuted: Callable[[float], bool], highest: float) -> float:
    """The largest number that is refuted; 0 if none is."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, highest
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
