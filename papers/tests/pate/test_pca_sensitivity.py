"""The exact maximum of eq. 3, against all corners of small cubes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privet.errors import InvalidArgument
from privet_papers.pate.pca_sensitivity import count_useful_components, largest_code


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["any", "twice", "whole"])
def test_it_is_the_largest_of_all_corners(rows, kind):
    """Also where columns lie along each other, are zero, or lie in a plane."""
    rng = np.random.default_rng(rows)
    a = rng.normal(size=(rows, 9))
    if kind == "twice":
        a = np.concatenate([a[:, :4], -2.0 * a[:, :4], 0.0 * a[:, :1]], axis=1)
    if kind == "whole":
        a = rng.integers(-1, 2, size=(rows, 9)).astype(float)
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=9)))
    assert largest_code(a) == pytest.approx(np.linalg.norm(a @ corners.T, axis=0).max(), rel=1e-12)


def test_orthonormal_rows_stay_below_the_papers_bound():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(200, 2)))[0].T
    assert 1.0 <= largest_code(basis) < math.sqrt(200)
    assert largest_code(np.full((1, 16), 0.25)) == pytest.approx(4.0)  # where it is reached


def test_too_much_work_is_refused():
    with pytest.raises(InvalidArgument, match="columns"):
        largest_code(np.ones((4, 1000)))


def test_the_printed_noise_is_equation_5_and_components_are_those_above_it():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(60, 3)) * [30.0, 9.0, 1.0] @ np.linalg.qr(rng.normal(size=(8, 3)))[0].T
    n, k, eps, delta = 50, 8, 8.0, 1e-3
    found = count_useful_components(y, width=2.0, teachers=k, queries=n, epsilon=eps, delta=delta)
    log = math.log(1.0 / delta)
    published_aggregator = (
        math.sqrt(n * 8) * (math.sqrt(log + eps) + math.sqrt(log)) / (math.sqrt(2) * k * eps)
    )
    assert found["noise"] == pytest.approx(2.0 * published_aggregator)
    variances = np.linalg.eigvalsh(np.cov(y.T))
    assert found["components"] == (variances > found["noise"] ** 2).sum() == 2
    assert found["largest_spread"] == pytest.approx(math.sqrt(variances[-1]))
