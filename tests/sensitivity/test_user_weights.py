"""Declared sensitivities are made true: no unit weighs more than its share, whatever is passed."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Backing, Premise, Unit
from privet.mechanisms import GaussianMechanism
from privet.sensitivity import (
    BoundedValue,
    Categories,
    Moments,
    MomentSum,
    Sensitivity,
    UserWeights,
    assign_owners,
    moments,
    user_weights,
)
from privet.sensitivity.user_ids import number_users
from privet.sensitivity.user_weights import UserShares
from tests.sensitivity.test_second_moments import within

E1 = np.array([1.0, 0.0, 0.0])


def test_a_share_needs_users() -> None:
    """Moments(share=.01) once declared .01 for plain records that move it by .9995."""
    for share in (0.01, 2.0):
        total = Moments(features=3, share=share).sum()
        for weights in (None, [1.0]):
            with pytest.raises(InvalidArgument, match="user_weights"):
                total.add([E1], weights=weights)
    held = moments(
        [E1], of=Moments(features=3, share=0.01), weights=user_weights(["a"], share=0.01)
    )
    assert np.linalg.norm(held.value) <= held.add_remove.l2 < 0.0101
    greedy = UserWeights(users=np.array(["a"]), values=np.ones(1))
    held = moments([E1], of=Moments(features=3, share=0.01), weights=greedy)
    assert 0.0099 < np.linalg.norm(held.value) <= held.add_remove.l2


def test_fifty_records_of_one_user() -> None:
    """At weight 1 each they moved a declared 1.0 by 49.98; now they are a user, or fifty records."""
    rows, shape = np.tile(E1, (50, 1)), Moments(features=3)
    greedy = UserWeights(users=np.full(50, 7), values=np.ones(50))
    as_user = moments(rows, of=shape, weights=greedy)
    assert np.linalg.norm(as_user.value) <= as_user.add_remove.l2 and as_user.unit is Unit.USER
    as_records = moments(rows, of=shape, weights=np.ones(50))
    assert as_records.unit is Unit.RECORD and "user" not in as_records.premise.text
    assert GaussianMechanism(scale=1.0).guarantee(as_records, delta=1e-5).unit is Unit.RECORD
    stated = GaussianMechanism(scale=1.0).guarantee(as_user, delta=1e-5)
    assert stated.unit is Unit.USER and as_user.premise in stated.premises
    assert "a user weighs at most 1 records" in as_user.premise.text


def test_one_sum_has_one_unit() -> None:
    total = Moments(features=3).sum()
    total.add([E1])
    with pytest.raises(InvalidArgument, match="weights must be numbers in every batch"):
        total.add([E1], weights=user_weights([1]))
    other = Moments(features=3).sum()
    other.add([E1], weights=user_weights([1]))
    with pytest.raises(InvalidArgument, match="user_weights in every batch"):
        other.add([E1])


ROW = st.lists(st.floats(-2, 2), min_size=3, max_size=3)
WEIGHT = st.one_of(
    st.sampled_from([0.0, 1.0, 7.0, -1.0, float("nan"), float("inf")]), st.floats(0, 1)
)
RECORD = st.tuples(ROW, st.integers(0, 3), WEIGHT)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(RECORD, max_size=14), st.integers(0, 3), st.sampled_from([0.01, 0.7, 1.0, 2.5]),
    st.integers(1, 5), st.integers(1, 5),
)  # fmt: skip
def test_whatever_weights_are_passed_a_user_moves_a_share(
    records, gone, share, size, other
) -> None:
    """Any weights, any batches on either side: removing one user moves the sum by no more."""
    shape = Moments(features=3, share=share, bits=8)

    def add_up(some: list, batch: int) -> BoundedValue:
        total = MomentSum(shape)
        for i in range(0, len(some), batch):
            part = some[i : i + batch]
            weights = UserWeights(
                users=np.array([u for _, u, _ in part]), values=np.array([w for *_, w in part])
            )
            total.add([row for row, *_ in part], weights=weights)
        return total.bounded()

    left = [r for r in records if r[1] != gone]
    assert within(add_up(records, size), add_up(left, other), shape.add_remove)


def test_honest_weights_are_granted_in_full() -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, 40, 1000)
    for share in (0.3, 1.0, 7.5):
        weights, book = user_weights(users, share=share), UserShares(share)
        got = [book.take(weights[i : i + 77]) for i in range(0, 1000, 77)]
        assert np.array_equal(np.concatenate(got), weights.values)
        sums = np.bincount(users, weights.values)
        assert sums.max() <= share and sums.min() > 0.999 * min(share, np.bincount(users).min())


def test_users_that_are_no_number_are_one_user() -> None:
    book = UserShares(1.0)
    many = UserWeights(users=np.full(5, np.nan), values=np.ones(5))
    assert sum(book.take(many).sum() for _ in range(3)) == 1.0


def test_a_value_is_on_its_grid() -> None:
    one = Sensitivity(l1=1.0, l2=1.0)
    claim = Premise(about="bound", text="test", backing=Backing.TESTED)
    with pytest.raises(InvalidArgument, match=r"multiples of 0\.5"):
        BoundedValue(
            value=np.array([0.3]), add_remove=one, replace_one=one, premise=claim, spacing=0.5
        )


@pytest.mark.parametrize(
    "values", [np.array([5]), np.array([-1]), np.array([0.5]), np.zeros((2, 2), int)]
)
def test_categories_by_hand_are_checked(values: np.ndarray) -> None:
    """A number beyond the classes would make the histogram longer: its length would tell."""
    with pytest.raises(InvalidArgument, match="values must be"):
        Categories(values=values, classes=3)


def test_more_records_than_whole_numbers_hold() -> None:
    total = Moments(features=3, bits=18).sum()
    total._rows = 2**26
    with pytest.raises(InvalidArgument, match="bits must be fewer"):
        total.add([E1])


PROGRAM = """
import hashlib, numpy as np
from privet.sensitivity import Moments, MomentSum, TaylorCoefficients, clip_l1, clip_l2, user_weights
rng = np.random.default_rng(3)
n, d = 601, 67
x = rng.normal(size=(n, d)) * np.geomspace(1e-3, 1e3, n)[:, None]
y, users = rng.integers(0, 4, n), rng.integers(0, 50, n)
real = rng.normal(size=(n, 4))
found = []
for order, size in ((np.arange(n), n), (np.arange(n)[::-1], 100), (rng.permutation(n), 7)):
    parts = []
    for targets, one_hot in ((y, True), (real, False)):
        for bits in (12, 18):
            for weights in (None, user_weights(users)):
                total = MomentSum(Moments(features=d, outputs=4, one_hot=one_hot, bits=bits))
                for i in range(0, n, size):
                    own = order[i : i + size]
                    total.add(x[own], targets[own], None if weights is None else weights[own])
                parts.append(total.bounded().value)
    cube = TaylorCoefficients(features=d, outputs=4)
    parts.append(cube.sum(np.abs(x[order]), np.abs(real[order])).value)
    parts += [f(x[order], 1.0).sum().value for f in (clip_l1, clip_l2)]
    alone = [clip_l2(x[i : i + 1], 1.0).units for i in order[:50]]
    assert np.array_equal(np.concatenate(alone), clip_l2(x[order], 1.0).units[:50])
    found.append(hashlib.sha256(b"".join((p + 0.0).tobytes() for p in parts)).hexdigest())
assert len(set(found)) == 1, "the order shows"
print(found[0])
"""


@pytest.mark.slow
def test_the_same_sums_in_every_order_on_every_processor() -> None:
    """Moments, Taylor coefficients and clipped sums: one result for all kernels of OpenBLAS."""
    seen = set()
    for core in ("", "Haswell", "SkylakeX", "Zen", "Sandybridge", "Prescott"):
        env = {**os.environ, "OPENBLAS_CORETYPE": core} if core else dict(os.environ)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
        )
        if done.returncode < 0:  # this processor has no such instructions
            continue
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1


FIRST, SECOND = 1_700_000_000_000_000_001, 1_700_000_000_000_000_101


@pytest.mark.parametrize(
    "ids",
    [
        np.array([FIRST, SECOND], dtype=float),
        np.array([2**24 + 1, 2], dtype=np.float32),
        [float(FIRST), 2.0],
        [np.float32(2**25), np.float32(1.0)],
        np.array([np.inf, 1.0]),
        [1, 1.0],
        [True, 1],
        [1, "1"],
        ["a", b"a"],
        np.array([1, "1"], dtype=object),
        [(1, 2), (1, 3)],
        [np.zeros(2), np.zeros(2)],
        ["1.700000000000000e+18", "7"],
        ["1700000000000000000.0", "7"],
        np.array(["1.7e+18", "7"]),
        ["2E+18", "7"],
        ["1,7E+18", "7"],
        np.array([1j, 2j]),
    ],
    ids=repr,
)
def test_ids_by_which_two_people_fall_together_are_refused(ids: object) -> None:
    """64-bit ids that went through float64 made one user of two: 2.0 moved for 1.0 paid."""
    for take in (number_users, user_weights):
        with pytest.raises(InvalidArgument, match="groups") as error:
            take(ids)
        assert "\n" not in str(error.value)
    if not isinstance(ids[0], tuple | np.ndarray | complex):  # type: ignore[index]
        with pytest.raises(InvalidArgument, match="groups"):
            assign_owners([[one] for one in ids])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "ids",
    [
        [FIRST, SECOND],
        [2**63, -1],
        [2**70, 2**70 + 1],
        np.array([FIRST, SECOND]),
        np.array([2.0**53 - 1, 2.0**53 - 2]),
        [b"a", b"a\0"],
        ["a", "a\0"],
        [str(FIRST), str(SECOND)],
        ["1.2.3", "1e400"],
        ["12e45678", "7e20"],
        [1, np.int64(2)],
        np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"),
        [uuid.UUID(int=1), uuid.UUID(int=2)],
    ],
    ids=repr,
)
def test_people_whose_ids_differ_stay_two(ids: object) -> None:
    assert sorted(number_users(ids).tolist()) == [0, 1]
    weights = user_weights(ids)
    assert UserShares(1.0).take(weights).min() > 0.999


def test_weights_of_users_by_rounded_ids_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="2\\^53"):
        UserWeights(users=np.array([float(FIRST), 1.0]), values=np.ones(2))


def test_that_no_two_people_share_an_id_is_assumed() -> None:
    for premise in (premises.one_group_each("groups"), premises.SEVERAL_OWNERS):
        assert premise.backing is Backing.ASSUMED
    assert "no other person" in premises.one_group_each("groups").text
    assert "no two people" in premises.SEVERAL_OWNERS.text
