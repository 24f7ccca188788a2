"""Moment generating functions against arbitrary precision, within the bound that they report."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from privet.accounting import Direction
from privet.accounting.moment_generating_functions import sampled_gaussian, sampled_laplace
from privet.accounting.privacy_loss import VerticalLine
from privet.accounting.sampled_likelihood_ratio import log_ratio


def gaussian_reference(q: float, z: float, x: complex, direction: Direction | None) -> mpmath.mpc:
    with mpmath.workdps(40):
        q_, z_, x_ = mpmath.mpf(q), mpmath.mpf(z), mpmath.mpc(x)

        def ratio(u: mpmath.mpf) -> mpmath.mpf:
            return 1 - q_ + q_ * mpmath.exp(u / z_ - 1 / (2 * z_**2))

        def integrand(u: mpmath.mpf) -> mpmath.mpc:
            density = mpmath.npdf(u)
            if direction is Direction.REMOVE:
                return density * ratio(u) ** (x_ + 1)
            if direction is Direction.ADD:
                return density * ratio(u) ** (-x_)
            return density * ratio(u) ** (x_ + 1) * ratio(-u) ** (-x_)

        top = 14 + (2 * x.real + 1) / z
        edges = [-14, *np.linspace(-4, top - 4, 12), top]
        return mpmath.quad(integrand, edges)


@pytest.mark.slow
@pytest.mark.parametrize("direction", [Direction.REMOVE, Direction.ADD, None])
@pytest.mark.parametrize(
    ("q", "z", "order", "spacing"),
    [(0.01, 1.0, 3.0, 2.0), (0.3, 0.5, 1.5, 1.0), (1e-4, 4.0, 60.0, 30.0)],
)
def test_gaussian(
    q: float, z: float, order: float, spacing: float, direction: Direction | None
) -> None:
    line = VerticalLine(order=order, spacing=spacing, count=4)
    values, errors = sampled_gaussian(np.array([q]), np.array([z]), line, direction, 0.0)
    for x, value, bound in zip(line.points, values[0], errors[0], strict=True):
        exact = gaussian_reference(q, z, complex(x), direction)
        assert abs(complex(np.exp(value)) / complex(exact) - 1) <= bound + 1e-15
        assert bound < 1e-10  # every rounding on the way is in it


@pytest.mark.slow
@pytest.mark.parametrize("direction", list(Direction))
def test_laplace(direction: Direction) -> None:
    q, z = 0.2, 0.4
    line = VerticalLine(order=2.0, spacing=9.0, count=4)
    values, errors = sampled_laplace(np.array([q]), np.array([z]), line, direction)
    for x, value, bound in zip(line.points, values[0], errors[0], strict=True):
        with mpmath.workdps(30):
            s, x_ = 1 / mpmath.mpf(z), mpmath.mpc(complex(x))

            def term(t: mpmath.mpf, x_: mpmath.mpc = x_) -> mpmath.mpc:
                r = 1 - q + q * mpmath.exp(t)
                return r ** (x_ + 1) if direction is Direction.REMOVE else r ** (-x_)

            middle = mpmath.quad(
                lambda v, s=s, term=term: s / 2 * mpmath.exp(-s * v) * term(s * (2 * v - 1)),
                np.linspace(0, 1, 17),
            )
            exact = 0.5 * term(-s) + middle + 0.5 * mpmath.exp(-s) * term(s)
        assert abs(complex(np.exp(value)) / complex(exact) - 1) <= bound + 1e-14


def test_the_cut_off_only_leaves_out_what_it_says() -> None:
    q, z, cut = np.array([0.05]), np.array([0.7]), 1e-6
    line = VerticalLine(order=1e-9, spacing=1.0, count=1)
    whole, _ = sampled_gaussian(q, z, line, Direction.REMOVE, 0.0)
    rest, _ = sampled_gaussian(q, z, line, Direction.REMOVE, cut)
    missing = float(np.exp(whole[0, 0].real) - np.exp(rest[0, 0].real))
    assert 0.0 < missing <= cut


def test_log_ratio_keeps_its_digits() -> None:
    for q, t in [(1e-12, 0.3), (1e-4, -40.0), (0.5, 800.0), (1.0, 31.0), (1e-9, 29.9)]:
        with mpmath.workdps(50):
            exact = mpmath.log(1 - mpmath.mpf(q) + mpmath.mpf(q) * mpmath.exp(mpmath.mpf(t)))
        assert float(log_ratio(np.array(q), np.array(t))) == pytest.approx(float(exact), rel=1e-13)
