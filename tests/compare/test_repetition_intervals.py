"""Intervals over splits hold the accuracy of repetitions that nobody has seen."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from privet.compare.comparison_data import ComparisonData, View
from privet.compare.repetition_intervals import accuracy_interval, difference_interval
from privet.data import Dataset

Array = NDArray[np.float64]
SPLITS, WORLDS = 5, 200


def draw(n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    """Three clouds that overlap: the best rule is right on three quarters."""
    y = rng.integers(0, 3, n)
    return 1.4 * np.eye(3, 8)[y] + rng.normal(size=(n, 8)), y


def right(
    train: tuple[Array, NDArray[np.int64]], test: tuple[Array, NDArray[np.int64]], noise: float,
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Nearest of noisy class means."""
    (x, y), (x_test, y_test) = train, test
    sums = np.stack([x[y == c].sum(axis=0) for c in range(3)])
    means = (sums + noise * rng.normal(size=sums.shape)) / np.bincount(y, minlength=3)[:, None]
    far = ((x_test[:, None] - means) ** 2).sum(axis=2)
    return (far.argmin(axis=1) == y_test).astype(np.float64)


def world(records: int, tests: int, rng: np.random.Generator) -> list[ComparisonData]:
    """One data set drawn from the population, as `compare` splits it."""
    x, y = draw(records + tests, rng)
    dataset = Dataset(
        name="world", about="", classes=("a", "b", "c"), low=-8.0, high=8.0,
        x_train=x[:records], y_train=y[:records], x_test=x[records:], y_test=y[records:],
    )  # fmt: skip
    return [
        ComparisonData(dataset=dataset, epsilon=1.0, delta=1e-5, split=k) for k in range(SPLITS)
    ]


def unscaled(part: tuple[Array, NDArray[np.int64]]) -> tuple[Array, NDArray[np.int64]]:
    return 16.0 * part[0] - 8.0, part[1]


@pytest.mark.slow
@pytest.mark.parametrize(("records", "tests", "noise"), [(300, 300, 100.0), (1000, 3000, 200.0)])
def test_held_out_repetitions_are_covered(records: int, tests: int, noise: float) -> None:
    """What would be found on average, on other data with other noise: 95 times in 100.

    The interval of one split knows nothing of noise, that of the splits' means nothing of the
    finite pool of records: each has it too seldom where that is what makes the spread.
    """
    rng = np.random.default_rng(7)
    noises = (0.0, noise)
    held_out = {z: np.mean([right(draw(records, rng), draw(3000, rng), z, rng).mean()
                            for _ in range(400)]) for z in noises}  # fmt: skip
    apart = held_out[noises[1]] - held_out[noises[0]]
    covered: dict[str, list[bool]] = {}
    for _ in range(WORLDS):
        splits = world(records, tests, rng)
        asked = len(np.unique(np.concatenate([data.tested for data in splits])))
        found = {}
        for z in noises:
            found[z] = [
                right(unscaled(data.train(View.COLUMNS)), unscaled(data.test(View.COLUMNS)), z, rng)
                for data in splits
            ]
            for name, values, n in (("all", found[z], asked), ("one", found[z][:1], len(found[z][0])),
                                    ("means", found[z], 10**9)):  # fmt: skip
                low, high = accuracy_interval(values, n)
                covered.setdefault(f"{name}, {z:g}", []).append(low <= held_out[z] <= high)
        differences = [b - a for a, b in zip(found[noises[0]], found[noises[1]], strict=True)]
        low, high = difference_interval(differences, asked)
        covered.setdefault("difference", []).append(low <= apart <= high)
    share = {name: float(np.mean(hits)) for name, hits in covered.items()}
    assert min(share[name] for name in ("all, 0", f"all, {noise:g}", "difference")) >= 0.92, share
    assert share[f"one, {noise:g}"] < 0.7 and share["means, 0"] < 0.9, share


@pytest.mark.slow
def test_no_difference_is_found_where_there_is_none() -> None:
    """Two methods with the same noise: told apart in one world of twenty."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(WORLDS):
        splits = world(300, 300, rng)
        asked = len(np.unique(np.concatenate([data.tested for data in splits])))
        parts = [(unscaled(d.train(View.COLUMNS)), unscaled(d.test(View.COLUMNS))) for d in splits]
        low, high = difference_interval(
            [right(a, b, 30.0, rng) - right(a, b, 30.0, rng) for a, b in parts], asked
        )
        wrong += not low <= 0.0 <= high
    assert wrong <= 0.07 * WORLDS


def test_repetitions_that_agree_are_not_more_evidence() -> None:
    """Of the same records with the same answers: the interval is that of one of them."""
    answers = np.repeat([1.0, 0.0], [70, 30])
    one, three = (accuracy_interval([answers] * k, 100) for k in (1, 3))
    assert three == pytest.approx(one)
    low, high = accuracy_interval([np.ones(100)] * 5, 100)
    assert high == 1.0 and 0.95 < low < 0.97


def test_splits_deal_the_same_records_and_keep_copies_together() -> None:
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(60, 8)), 2, axis=0)  # everybody is there twice
    y = np.repeat(rng.integers(0, 3, 60), 2)
    order = rng.permutation(120)
    x, y = x[order], y[order]
    dataset = Dataset(name="twice", about="", classes=("a", "b", "c"), low=-8.0, high=8.0,
                      x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])  # fmt: skip
    seen = []
    for k in range(4):
        data = ComparisonData(dataset=dataset, epsilon=1.0, delta=1e-5, split=k)
        (train, labels), test = data.train(View.COLUMNS), data.test(View.COLUMNS)[0]
        public = data.public(View.COLUMNS)
        assert (len(train), len(public), len(test)) == (80, 13, 27)
        assert np.array_equal(data.tested_labels, data.test(View.COLUMNS)[1])
        whole = np.concatenate([train, public, test])
        assert np.array_equal(np.unique(whole, axis=0), np.unique(np.concatenate(
            [dataset.train_rows(), dataset.test_rows()]), axis=0))  # fmt: skip
        both = {tuple(r) for r in train} & {tuple(r) for r in np.concatenate([public, test])}
        assert len(both) <= 1 or k == 0
        seen.append((train.tobytes(), labels.tobytes()))
    assert len(set(seen)) == 4
