"""The noise of Algorithm 1, drawn once as preprocessing, and what can be proved about it.

Symbols: d features, M classes, |L| the batch size, |h0| the neurons of the first layer, |h| those
of the last hidden layer, beta_j the budget ratio of a feature (sum d), Delta the sensitivities of
the paper, eps_1 (relevance), eps_2 (features), eps_3 (labels).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.noise import Source, grid
from privet_papers.argument_checks import check_counts, check_positive

Floats = NDArray[np.float64]
_SMALLEST_RATIO = 1e-9
"""Where budget ratios are held from below: a ratio of 0 would be infinite noise."""
_ROWS = 4096
"""Records that get noise at a time, which bounds memory."""


def first_layer_sensitivity(neurons: int, features: int) -> float:
    """Delta_h0 = 2 |h0| d (line 9, Lemma 3).

    >>> first_layer_sensitivity(32, 784)
    50176.0
    """
    check_counts(neurons=neurons, features=features)
    return 2.0 * neurons * features


@final
@dataclass(frozen=True, kw_only=True)
class PolynomialLoss:
    """phi0 + phi1 z + phi2 z^2 for one output, with coefficients for labels 0 and 1."""

    name: str
    zero: tuple[float, float, float]
    one: tuple[float, float, float]

    def sensitivity(self, classes: int, hidden: int) -> float:
        """Delta_F: twice the largest sum over outputs of |phi1| |h| + |phi2| |h|^2 (Lemma 5).

        >>> CROSS_ENTROPY.sensitivity(10, 25)  # M (|h| + |h|^2 / 4)
        1812.5
        """
        check_counts(hidden=hidden)
        check_counts(2, classes=classes)
        h, m = hidden, classes
        others, own = (abs(phi[1]) * h + abs(phi[2]) * h * h for phi in (self.zero, self.one))
        return 2.0 * ((m - 1) * others + own)

    def base_rate(self, classes: int) -> float:
        """The output that fits best where nothing is known: one label in M is 1.

        >>> round(CROSS_ENTROPY.base_rate(10), 9), SQUARED_ERROR.base_rate(10)
        (-1.6, 0.1)
        """
        _, first, second = (
            (classes - 1) * zero + one for zero, one in zip(self.zero, self.one, strict=True)
        )
        return -first / (2.0 * second)

    @property
    def label_change(self) -> float:
        """How far another label moves all coefficients of a record, in L1: two outputs change.

        >>> CROSS_ENTROPY.label_change, SQUARED_ERROR.label_change
        (2.0, 6.0)
        """
        return 2.0 * sum(abs(a - b) for a, b in zip(self.zero, self.one, strict=True))

    def coefficients(self, labels: NDArray[np.int64], classes: int) -> Floats:
        """The exact coefficients, of shape (records, classes, 3)."""
        check_counts(2, classes=classes)
        phi = np.empty((len(labels), classes, 3))
        phi[:] = self.zero
        phi[np.arange(len(labels)), labels] = self.one
        return phi


CROSS_ENTROPY = PolynomialLoss(
    name="cross-entropy to order 2",
    zero=(math.log(2.0), 0.5, 0.125),
    one=(math.log(2.0), -0.5, 0.125),
)
"""log 2 + (1/2 - y) z + z^2/8 (eq. 25)."""
SQUARED_ERROR = PolynomialLoss(name="squared error", zero=(0.0, 0.0, 1.0), one=(1.0, -2.0, 1.0))
"""(z - y)^2, exactly; the paper mentions it and leaves its sensitivity to the reader."""


def feature_scales(
    ratios: Floats, *, epsilon: float, sensitivity: float, batch_size: int
) -> Floats:
    """The scales b_j = Delta_h0 / (|L| beta_j eps_2) of the features' noise (lines 11-13).

    A feature with ratio 0 would have infinite noise; it is held at 1e-9.

    >>> b = feature_scales(np.ones(2), epsilon=1.0, sensitivity=50176.0, batch_size=1800)
    >>> b.round(2).tolist()
    [27.88, 27.88]
    """
    check_positive(epsilon=epsilon, sensitivity=sensitivity)
    check_counts(batch_size=batch_size)
    beta = np.maximum(np.asarray(ratios, dtype=np.float64), _SMALLEST_RATIO)
    beta = beta / max(1.0, float(beta.mean()))  # they must not sum to more than d
    return sensitivity / (batch_size * beta * epsilon)


def perturb_records(x: NDArray[Any], scales: Floats, rng: Source) -> NDArray[np.float32]:
    """x_ij + Lap(b_j), every record once and by itself (lines 12-13); x is held in [0, 1].

    Value and noise are rounded to a public power of two of at most 1 and added exactly, so that no
    low bit tells x; 0 and 1 are on that grid, so the range of a feature stays 1.

    **Guarantee** for each record: sum_j 1 / b_j, whatever the other records are (local, so
    replace-one). **Assumes** the draws are Laplace (tested).
    """
    rows = np.asarray(x)
    b = np.broadcast_to(np.asarray(scales, dtype=np.float64), rows.shape[1:])
    if not (np.isfinite(b) & (b > 0)).all():
        raise InvalidArgument("scales", scales, "finite and above 0, one a feature")
    step = min(1.0, grid.spacing(float(b.min())))
    out = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), _ROWS):
        part = np.nan_to_num(rows[start : start + _ROWS].astype(np.float64), nan=0.0)
        noise = grid.to_units(rng.laplace(part.shape) * b, step)
        out[start : start + _ROWS] = grid.add(np.clip(part, 0.0, 1.0), noise, step=step)
    return out


def perturb_coefficients(coefficients: Floats, scale: float, rng: Source) -> NDArray[np.float32]:
    """phi + Lap(scale), every coefficient of every record and class once (lines 18-19).

    **Guarantee** for each record's label: `PolynomialLoss.label_change` / scale.
    """
    out = np.empty(coefficients.shape, dtype=np.float32)
    step = min(0.125, grid.spacing(scale))
    for start in range(0, len(out), _ROWS):
        part = coefficients[start : start + _ROWS]
        noise = grid.to_units(rng.laplace(part.shape, scale), step)
        out[start : start + _ROWS] = grid.add(part, noise, step=step)
    return out


def local_feature_epsilon(*, epsilon: float, batch_size: int, neurons: int) -> float:
    """eps_x = |L| eps_2 / (2 |h0|): what the noise on one record's features really promises.

    sum_j |x_j - x'_j| / b_j <= sum_j |L| beta_j eps_2 / (2 |h0| d) and the beta_j sum to d.

    >>> local_feature_epsilon(epsilon=1.0, batch_size=1800, neurons=32)
    28.125
    """
    check_counts(batch_size=batch_size, neurons=neurons)
    return batch_size * epsilon / (2.0 * neurons)


def local_label_epsilon(
    *, epsilon: float, batch_size: int, sensitivity: float, change: float
) -> float:
    """eps_y = 2 |L| eps_3 / Delta_F, likewise for a label; `change` in place of the 2.

    >>> round(local_label_epsilon(epsilon=1.0, batch_size=1800, sensitivity=1812.5, change=2.0), 3)
    1.986
    """
    check_counts(batch_size=batch_size)
    return change * batch_size * epsilon / sensitivity


CLIP = 10.0
"""The released code clips noisy inputs to +-10."""


def share_one_draw(x: NDArray[Any], scales: Floats, rng: Source) -> NDArray[np.float32]:
    """The authors' released variant: one noise image for the whole batch, then clipped to +-10.

    **Guarantee** none: where the noise leaves room, two records differ by x_0 - x_1 exactly. Two
    neighbouring data sets whose records 0 differ in d pixels are distinguished with probability
    1 - prod_j P(|noise_j| > 9), so no finite epsilon exists for any smaller delta.

    >>> from privet.noise import seeded
    >>> x = np.array([[0.25, 1.0, 0.5], [0.75, 0.5, 0.0]])
    >>> seen = share_one_draw(x, np.array([4.0, 4.0, 1e9]), seeded(0))
    >>> (seen[0] - seen[1]).tolist(), np.abs(seen[:, 2]).tolist()
    ([-0.5, 0.5, 0.0], [10.0, 10.0])
    """
    noise = rng.laplace(np.shape(x)[1:]) * np.asarray(scales)
    noisy = np.asarray(x, dtype=np.float64) + noise
    return np.asarray(np.clip(noisy, -CLIP, CLIP), dtype=np.float32)
