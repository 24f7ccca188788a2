"""A small part of `python -m benchmarks.moved_sums`: a search that fails, and one that wins."""

import pytest

from benchmarks.moved_sums import CASES, search


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if not case.wins], ids=lambda c: c.name)
def test_no_record_moves_a_sum_by_more_than_is_paid(case):
    found = search(case, 40, seed=1)
    assert 0.5 < found.ratio < 1.0


@pytest.mark.slow
def test_the_search_finds_what_is_there():
    """The same search beats sums in float32 at 2 u B C, which this library once paid."""
    (control,) = [case for case in CASES if case.wins]
    assert search(control, 3000, seed=0).ratio > 1.0
