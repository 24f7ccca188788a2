"""The exact maximum of eq. 3, against all corners of small cubes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privet.errors import InvalidArgument
from privet.papers.pate.sensitivity import largest_code


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
