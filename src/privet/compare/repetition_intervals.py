"""One interval for a mean over repetitions: it covers splits, noise and the finite test records.

Given all records, repetitions (a split and its noise) are independent: the variance of their mean
is S^2 / k. What the records themselves add, another sample of them, is at most v / D, where v is
the variance over the D different records that were asked about. Both are added, and Satterthwaite's
rule says how many degrees of freedom t has: k - 1 where repetitions differ most, infinitely many
where they agree. With one repetition only v / D is left: the interval is that of one trained model.

Nadeau and Bengio's (1/k + test/train) S^2 would be three times too wide where many records are
tested and few are trained on: it charges all of S^2 to records that splits share.
`tests/compare/test_repetition_intervals.py` holds the coverage against held-out repetitions: .94
to .98. The least that we ever saw is .91, where noise skewed the accuracies, of which there are
five: t is not made for such.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Array = NDArray[np.float64]
CONFIDENCE = 0.95


def accuracy_interval(repetitions: Sequence[Array], records: int) -> tuple[float, float]:
    """The interval of an accuracy, from whether each record was right in each repetition.

    `records`: how many different ones were asked about. Wilson's interval at as many records as
    have this variance, so that it stays within 0 and 1.

    >>> one = accuracy_interval([np.repeat([1.0, 0.0], [90, 10])], 100)
    >>> from scipy.stats import binomtest
    >>> [round(x, 3) for x in one], [round(float(x), 3) for x in binomtest(90, 100).proportion_ci(
    ...     method="wilson")]
    ([0.826, 0.945], [0.826, 0.945])
    """
    p, between = _mean_and_variance(repetitions)
    one_record = p * (1.0 - p)
    if one_record == 0.0:
        return _wilson(p, records, _critical(0.0, 1.0, len(repetitions)))
    of_records = one_record / records
    critical = _critical(between, of_records, len(repetitions))
    return _wilson(p, one_record / (between + of_records), critical)


def difference_interval(repetitions: Sequence[Array], records: int) -> tuple[float, float]:
    """The interval of a mean difference, from the difference on each record in each repetition.

    One record more on which one side wins, and one on which the other does (Agresti and Min): two
    models that agree everywhere are not known to be equal.

    >>> low, high = difference_interval([np.zeros(98)], 98)
    >>> round(low, 3), round(high, 3)
    (-0.02, 0.02)
    """
    mean, between = _mean_and_variance(repetitions)
    each = np.concatenate(repetitions)
    square = (float((each**2).mean()) * records + 1.0) / (records + 2.0)
    of_records = max(square - mean**2, 0.0) / records
    half = _critical(between, of_records, len(repetitions)) * math.sqrt(between + of_records)
    return mean - half, mean + half


def _mean_and_variance(repetitions: Sequence[Array]) -> tuple[float, float]:
    """The mean over repetitions, and its variance for given records; 0 where there is only one."""
    means = [float(values.mean()) for values in repetitions]
    if len(means) < 2:
        return means[0], 0.0
    return float(np.mean(means)), float(np.var(means, ddof=1)) / len(means)


def _critical(between: float, of_records: float, repetitions: int) -> float:
    """The quantile of t with Satterthwaite's degrees of freedom."""
    share = between / (between + of_records) if between > 0.0 else 0.0
    freedom = math.inf if share == 0.0 else (repetitions - 1) / share**2
    return float(student.ppf(0.5 + CONFIDENCE / 2.0, freedom))


def _wilson(p: float, trials: float, z: float) -> tuple[float, float]:
    middle = (p + z * z / (2.0 * trials)) / (1.0 + z * z / trials)
    half = z / (1.0 + z * z / trials)
    half *= math.sqrt(p * (1.0 - p) / trials + z * z / (4.0 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)
