"""The exact Gaussian: limits, round trips, an arbitrary-precision reference, properties."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting import Gaussian, gaussian_delta, gaussian_epsilon, gaussian_mu
from privet.accounting.gaussian import log_delta
from privet.errors import InvalidArgument


def reference(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(700):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mu", "epsilon"),
    [
        (1e-08, 1e-07),
        (0.001, 1e-06),
        (0.01, 0.3),
        (0.3, 1.0),
        (0.999, 5.0),
        (1.001, 5.0),
        (5.0, 0.1),
        (5.0, 100.0),
        (30.0, 800.0),
        (1400.0, 1000000.0),
        (1500.0, 1000000.0),
        (2.7e-08, 1e-06),
        (0.5, 0.0),
    ],
)
def test_delta_against_700_digits(mu: float, epsilon: float) -> None:
    exact = float(mpmath.log(reference(mu, epsilon)))
    assert log_delta(mu, epsilon) == pytest.approx(exact, rel=1e-10, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-5, 1e-2, 0.5])
def test_both_directions_are_inverse_and_safe(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert log_delta(mu, epsilon) <= math.log(delta)
    back = gaussian_epsilon(mu, delta)
    assert log_delta(mu, back) <= math.log(delta)
    assert back == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(
    ("mu", "a"), [(1e-36, -0.3), (1e-50, -2.0), (1e-29, -0.008), (2467.0, 5e-6), (8452.7, -2.7e-6)]
)
def test_delta_is_never_below_the_exact_one(mu: float, a: float) -> None:
    """Where the logarithm is large by itself, or the rounding of a is: 84 of 1500 were below."""
    for k in range(20):
        size = mu * (1.0 + 0.07 * k)
        epsilon = size * (size / 2.0 - a)
        with mpmath.workdps(120):
            m, e = mpmath.mpf(size), mpmath.mpf(epsilon)
            low, high = m / 2 - e / m, m / 2 + e / m  # e^epsilon Phi(-high) by Mills' ratio
            tail = (
                mpmath.exp(high**2 / 2) * mpmath.erfc(high / mpmath.sqrt(2))
                if high < 30
                else (
                    mpmath.sqrt(2 / mpmath.pi)
                    * sum(
                        (-1) ** j * mpmath.fac2(2 * j - 1) / high ** (2 * j + 1) for j in range(6)
                    )
                )
            )
            exact = mpmath.ncdf(low) - mpmath.npdf(low) * mpmath.sqrt(mpmath.pi / 2) * tail
            assert gaussian_delta(size, epsilon) >= exact


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(1.0, 1e-9), (3.0, 1e-7), (0.1, 1e-8), (1.0, 1e-6), (2e6, None)]
)
def test_the_lower_bound_is_below_the_exact_epsilon(mu: float, epsilon: float | None) -> None:
    """Next to 0, where nudges are more than 1e-9 of epsilon; and where a simpler bound is taken."""
    with mpmath.workdps(60):
        if epsilon is None:  # delta = Phi(a) - phi(a) / (mu - a), nearly
            a = mpmath.findroot(
                lambda a: mpmath.ncdf(a) - mpmath.npdf(a) / (mu - a) - mpmath.mpf(1e-5), -4.26
            )
            delta, exact = 1e-5, mu * (mu / 2 - a)
        else:
            delta = float(reference(mu, epsilon))
            exact = mpmath.findroot(lambda e: reference(mu, e) - delta, epsilon)
        low, high = Gaussian(mu=mu).epsilon_bounds(delta)
        assert low <= exact <= high


def test_check_values_of_the_readings() -> None:
    assert gaussian_mu(8, 1e-3) == pytest.approx(2.0833, abs=5e-5)
    assert gaussian_mu(8, 1e-5) == pytest.approx(1.666, abs=5e-4)
    assert gaussian_mu(1, 1e-5) == pytest.approx(0.2681, abs=5e-5)


def test_limits() -> None:
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(1e-9, 0.5) == 0.0
    assert Gaussian(mu=1.0).epsilon(0.0) == math.inf


@pytest.mark.slow
@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=6), st.floats(1e-9, 0.1))
@settings(max_examples=40, deadline=None)
def test_squares_add_up(mus: list[float], delta: float) -> None:
    total = sum((Gaussian(mu=m) for m in mus[1:]), start=Gaussian(mu=mus[0]))  # type: ignore[arg-type]
    assert total.epsilon(delta) == pytest.approx(
        gaussian_epsilon(math.sqrt(sum(m * m for m in mus)), delta), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), "much"])
def test_bad_mu(bad: float) -> None:
    with pytest.raises(InvalidArgument, match="mu must be"):
        Gaussian(mu=bad)


@pytest.mark.parametrize("bad", [1.5, -0.1, 1.0, float("nan")])
def test_bad_delta(bad: float) -> None:
    with pytest.raises(InvalidArgument, match="delta must be"):
        Gaussian(mu=1.0).epsilon(bad)
