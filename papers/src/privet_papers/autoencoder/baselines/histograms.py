"""DPME and FP: regressions on data made from a private histogram."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from privet import premises
from privet.noise import Source
from privet.sensitivity import BoundedValue, Sensitivity
from privet_papers.autoencoder.baselines.private_regression import (
    PrivateRegression,
    check_examples,
    columns,
    example_weights,
    logistic_regression,
    public_weight,
)
from privet_papers.autoencoder.behaviour.examples import Examples
from privet_papers.autoencoder.behaviour.predictor import sigmoid

Array = NDArray[np.float64]


class _HistogramModel(PrivateRegression):
    """Noisy counts of cells (columns cut into equal bins, times the status), then a regression."""

    @abstractmethod
    def _grid(self, weight: int, available: int) -> tuple[int, int]:
        """How many columns are used and into how many bins each is cut, from public facts."""

    @abstractmethod
    def _synthetic(self, noisy: Array, scale: float, rng: Source) -> Array:
        """Weights of the cells in the data that the regression sees: post-processing."""

    def fit(self, examples: Examples) -> Self:
        """Release the histogram and run the regression on it."""
        check_examples(examples, self.unit, self.ledger)
        x = columns(examples)
        self.used_, self.bins_ = self._grid(public_weight(examples, self.unit), x.shape[1])
        counts = self._histogram(x[:, : self.used_], examples)
        noisy, scale, rng = self.released(counts, type(self).__name__)
        weights = self._synthetic(noisy, scale, rng.child("sampling"))
        places = np.indices([self.bins_] * self.used_).reshape(self.used_, -1).T
        centres = (2.0 * places + 1.0) / self.bins_ - 1.0
        rows = np.repeat(centres, 2, axis=0)
        statuses = np.tile([0.0, 1.0], len(centres))
        heavy = weights > 0.0
        self.weights_ = logistic_regression(rows[heavy], statuses[heavy], weights[heavy], ridge=1.0)
        return self

    def _histogram(self, x: Array, examples: Examples) -> BoundedValue:
        cut = np.clip(((x + 1.0) / 2.0 * self.bins_).astype(np.int64), 0, self.bins_ - 1)
        cell = np.ravel_multi_index(tuple(cut.T), [self.bins_] * self.used_)
        weights = np.floor(example_weights(examples, self.unit) * 2.0**20) / 2.0**20
        value = np.bincount(
            2 * cell + examples.status, weights=weights, minlength=2 * self.bins_**self.used_
        )
        one = Sensitivity(l1=1.0, l2=1.0)
        return BoundedValue(
            value=value.astype(np.float64),
            add_remove=one,
            replace_one=one.scaled(2.0),
            premise=premises.bound("a row is in one cell; a user's rows weigh at most 1 together"),
            spacing=2.0**-20,
            unit=self.unit,
        )

    def predict_proba(self, examples: Examples) -> Array:
        x = columns(examples)[:, : self.used_]
        return sigmoid(x @ self.weights_[:-1] + self.weights_[-1])


@final
class PerturbedHistogram(_HistogramModel):
    """DPME (Lei 2011): an M-estimator on a histogram with Laplace noise.

    Bins have width (log n / n)^(1/(2+d)) of the range. That leaves one bin, and nothing to learn,
    for more than some log2(n / log n) - 2 columns, so the first columns are used, as many as can be
    cut in two; n is the public number of users (or tuples).

    **Guarantee** `guarantee_`: pure epsilon, add-remove, per user or per tuple.
    """

    def _grid(self, weight: int, available: int) -> tuple[int, int]:
        size = max(weight / math.log(max(weight, 3)), 1.0)
        used = max(1, min(available, math.floor(math.log2(size)) - 2))
        return used, max(2, math.floor(size ** (1.0 / (2 + used))))

    def _synthetic(self, noisy: Array, scale: float, rng: Source) -> Array:
        return np.maximum(noisy, 0.0)


@final
class FilterPriority(_HistogramModel):
    """FP (Cormode, Procopiuc, Srivastava and Tran 2012): filter noisy counts, sample by priority.

    All columns, each cut in two. Cells whose noisy count is below a threshold are dropped (the
    threshold lets about `kept` cells of pure noise pass); of the others `kept` are drawn with
    priorities count / uniform, and those drawn weigh at least the (kept + 1)-st priority. Here the
    table is small enough to add noise to every cell, which has the law that the paper samples from.

    **Guarantee** `guarantee_`: pure epsilon, add-remove, per user or per tuple.
    """

    kept = 200

    def _grid(self, weight: int, available: int) -> tuple[int, int]:
        return min(available, 14), 2

    def _synthetic(self, noisy: Array, scale: float, rng: Source) -> Array:
        threshold = scale * max(math.log(len(noisy) / (2.0 * self.kept)), 0.0)
        counts = np.where(noisy > threshold, np.maximum(noisy, 0.0), 0.0)
        uniform = (rng.integers(2**30, counts.size) + 1.0) / 2.0**30
        priority = counts / uniform
        if np.count_nonzero(counts) <= self.kept:
            return counts
        limit = float(np.sort(priority)[-self.kept - 1])
        return np.where(priority > limit, np.maximum(counts, limit), 0.0)
