"""From released moments to a classifier: all of it post-processing.

Symbols: d features, K classes, S_k the noisy sum of the rows of class k, n_k its noisy size, M_k =
S_k / n_k its mean, pi_k its share, G the noisy second moment of the shaped directions around the
class means, D the shape (a weight a feature).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet import tuned_defaults
from privet.methods.released_models import LinearModel
from privet.sensitivity import Quadratic, cross_entropy, squared_error
from privet.singular_vectors import canonical_signs

Array = NDArray[np.float64]


class Objective(Enum):
    """What the released coefficients are solved for."""

    DISCRIMINANT = "discriminant"
    """Gaussian classes of one covariance: logits M_k^T C^-1 h - M_k^T C^-1 M_k / 2 + log pi_k."""
    SQUARED_ERROR = "squared error"
    """Least squares on one-hot targets."""
    CROSS_ENTROPY = "cross-entropy"
    """Sigmoid cross-entropy to order two, the loss of the paper (eq. 25)."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ClassMeans:
    """Released class means and sizes, and what follows from them."""

    means: Array = field(repr=False)
    """Class means M, d x K."""
    sizes: Array
    within: Array = field(repr=False)
    """The variance of each feature within classes."""
    total: float
    """The variance within classes of all features together: less noisy than the sum of `within`."""
    noise: float
    """Variance that noise adds to an entry of M, on average over classes."""

    @property
    def shares(self) -> Array:
        """The share of each class among the records, pi."""
        return np.asarray(self.sizes / self.sizes.sum())

    @property
    def centre(self) -> Array:
        """The mean of all records."""
        return np.asarray(self.means @ self.shares)

    def span(self, size: int) -> Array:
        """An orthonormal basis of the leading `size` directions that tell the means apart."""
        gaps = (self.means - self.centre[:, None]) * np.sqrt(self.shares)
        left, _, _ = np.linalg.svd(gaps, full_matrices=False)
        return canonical_signs(left[:, :size].T).T

    @property
    def relevance(self) -> Array:
        """Each feature's average relevance to the diagonal discriminant model of these moments.

        That model has weights w_jk = (M_jk - m_j) / v_j, and layer-wise relevance propagation
        gives feature j of a record (h_j - m_j) w_jk for class k. Its average over the records of
        class k is (M_jk - m_j)^2 / v_j; over all classes, less what noise adds,
            R_j = sum_k pi_k (M_jk - m_j)^2 / v_j,
        the variance between classes over that within. A function of what was released: it costs
        nothing.
        """
        gaps = (self.means - self.centre[:, None]) ** 2
        between = np.maximum(gaps @ self.shares - self.noise, 0.0)
        return np.asarray(between / self.within)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Solver:
    """How released moments become weights; nothing here touches the records.

    `ridge` multiplies sqrt(d) times the noise of the second moment, about half the largest
    eigenvalue of the noise: public facts. `epochs` None is the closed form, a number that many
    steps of accelerated gradient descent from zero.
    """

    objective: Objective = Objective.DISCRIMINANT
    ridge: float = tuned_defaults.MOMENTS_RIDGE
    epochs: int | None = None

    def _minimum(self, f: Quadratic, ridge: float) -> Array:
        if self.epochs is None:
            return f.minimum(ridge=ridge)
        return f.descend(ridge=ridge, epochs=self.epochs)

    def means_only(self, first: ClassMeans) -> LinearModel:
        """The rule when no second moment was released: one variance for all features."""
        weights = first.means / max(float(first.within.mean()), 1e-12)
        gaps = weights - (weights @ first.shares)[:, None]
        return _discriminant(weights, first, spread=first.within @ gaps**2)

    def solve(
        self, first: ClassMeans, gram: Array, *, gram_noise: float, shape: Array
    ) -> LinearModel:
        """The rule from class means and the second moment of shaped directions.

        C = c D^-1 G D^-1, where the public-by-then number c makes the trace of C what the released
        variances within classes say.
        """
        d, n = len(gram), float(first.sizes.sum())
        trace = float((np.maximum(np.diag(gram), 0.0) / shape**2).sum())
        # rows of length 1 have a trace of n: held above a thousandth of that, whatever noise does
        c = float(first.within.sum()) / max(trace, 1e-3 * n)
        ridge = self.ridge * math.sqrt(d) * gram_noise
        if self.objective is Objective.DISCRIMINANT:
            f = Quadratic(curvature=gram, linear=-shape[:, None] * first.means)
            weights = shape[:, None] * self._minimum(f, ridge) / c
            gaps = (weights - (weights @ first.shares)[:, None]) / shape[:, None]
            spread = (
                first.total / max(trace, 1e-3 * n) * _quadratic_form(gram, gaps, noise=gram_noise)
            )
            return _discriminant(weights, first, spread=spread)
        return self._order_two(first, c * n * gram / np.outer(shape, shape), c * n * ridge)

    def solve_projected(
        self, first: ClassMeans, gram: Array, *, gram_noise: float, basis: Array
    ) -> LinearModel:
        """The discriminant rule in the span of the means, from the second moment taken there.

        Other objectives need the moments outside the span, so this is always the discriminant.
        """
        # few directions, all of them needed: the ridge covers the largest eigenvalue of the noise
        ridge = 4.0 * self.ridge * math.sqrt(len(gram)) * gram_noise
        # noise in the means, which the second moment was taken around, counts as variance too
        ridge += float(first.sizes.sum()) * first.noise
        n = float(first.sizes.sum())
        f = Quadratic(curvature=gram, linear=-n * (basis.T @ first.means))
        weights = self._minimum(f, max(ridge, 1e-9))
        gaps = weights - (weights @ first.shares)[:, None]
        spread = _quadratic_form(gram, gaps, noise=gram_noise) / n
        return _discriminant(basis @ weights, first, spread=spread)

    def _order_two(self, first: ClassMeans, within: Array, ridge: float) -> LinearModel:
        """The polynomial loss on rows (h, 1): its moments put together from the released parts."""
        sums = first.means * first.sizes
        gram = within + sums @ first.means.T
        s, n = sums.sum(axis=1), float(first.sizes.sum())
        full = np.block([[gram, s[:, None]], [s[None, :], np.array([[n]])]])
        cross = np.vstack([sums, first.sizes[None, :]])
        if self.objective is Objective.SQUARED_ERROR:
            f, ridge = squared_error(gram=full, cross=cross), 2.0 * ridge
        else:
            f = cross_entropy(gram=full, cross=cross, first=full[:, -1], records=n)
            ridge /= 4.0
        weights = self._minimum(f, ridge)
        return LinearModel(weights=weights[:-1], intercept=weights[-1], view="ball")


def _discriminant(weights: Array, first: ClassMeans, *, spread: Array) -> LinearModel:
    """Logits w_k^T h - w_k^T M_k / 2 + log pi_k / s, with s how much too short the slope is.

    A ridge, and variances held above their noise, shorten w: probabilities are then as unsure as
    noise makes them. But the whole of log pi beside a short slope calls everything the larger
    class. Scores w_k^T h, less their mean over classes, have class means g_k apart from the overall
    one, and `spread`_k is their variance within classes, both from what was released. Log odds of
    Gaussian classes have the slope g over variance, which is s = sum pi_k g_k / sum pi_k spread_k
    of ours, and 1 without ridge and noise. Slope and intercept are brought to one scale by dividing
    the prior. Post-processing.
    """
    gaps = first.means - first.centre[:, None]
    apart = float(((weights - (weights @ first.shares)[:, None]) * gaps).sum(axis=0) @ first.shares)
    s = max(apart / max(float(spread @ first.shares), 1e-12), 1.0)
    intercept = np.log(first.shares) / s - (first.means * weights).sum(axis=0) / 2.0
    return LinearModel(weights=weights, intercept=intercept, view="ball")


def _quadratic_form(gram: Array, w: Array, *, noise: float) -> Array:
    """The form w_k^T G w_k for each column, of a noisy G.

    Its negative part is noise, and no form is smaller than noise makes it.
    """
    values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
    return np.asarray(np.maximum(values, noise) @ (vectors.T @ w) ** 2)


def noise_shape(relevance: Array, exponent: float) -> Array:
    """D_j = (R_j / mean R)^(exponent/2), no smaller than for a twentieth of the mean.

    >>> noise_shape(np.array([1.0, 1.0]), 0.5).tolist()
    [1.0, 1.0]
    """
    mean = float(relevance.mean())
    if mean <= 0.0:
        return np.ones_like(relevance)
    # a twentieth: noise on features without relevance stays within 20^(exponent/2) of the mean's
    return np.asarray(np.maximum(relevance / mean, 0.05) ** (exponent / 2.0))


def shrink_sizes(sizes: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Noisy class sizes, drawn towards equal ones by as much as noise explains their spread.

    The positive-part James-Stein estimate, no smaller than the noise: of sizes that are noise
    alone only their mean is left.

    >>> shrink_sizes(np.array([101.0, 99.0]), 5.0).tolist()
    [100.0, 100.0]
    """
    mean = float(sizes.mean())
    gaps = sizes - mean
    spread = float((gaps**2).sum())
    keep = max(0.0, 1.0 - (len(sizes) - 1) * noise**2 / spread) if spread > 0.0 else 0.0
    return np.maximum(mean + keep * gaps, max(noise, 1.0))
