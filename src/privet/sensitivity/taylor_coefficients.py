"""The coefficients of an order-2 cross-entropy on the unit cube, with exact sensitivities.

The auto-encoder paper's loss of one record with hidden units h in [0, 1]^b and targets x in [0,
1]^d is, up to a constant, for weights w_j (one row a target)

    sum_j  <lambda_j, w_j> + sum_(e<=q) kappa_eq w_je w_jq,
    lambda_je = (1/2 - x_j) h_e,    kappa_ee = h_e^2 / 8,    kappa_eq = h_e h_q / 4 for e < q.

kappa is the same for every target, so it is summed (and released) once, not d times. The output
layer is the case of d classes in place of d inputs.

Symbols: b `features`, d `outputs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.noise.grid import ROUND_UP
from privet.sensitivity.bounded_value import BoundedValue, Sensitivity
from privet.sensitivity.polynomial_loss import Quadratic

Array = NDArray[np.float64]

_BITS = 12
"""h and x are cut down to multiples of 2^-12, so that sums of up to 2^26 records are exact."""
_MOST = 2.0**26  # so many records of products of at most 1 (see _BITS)


@final
@dataclass(frozen=True, kw_only=True)
class TaylorCoefficients:
    """Sums of (lambda, kappa) over records, h and x held in [0, 1].

    **Guarantee** exact, each reached by vertices of the cube:

    - add-remove: L1 d b / 2 + b^2 / 8; L2^2 d b / 4 + (2 b^2 - b) / 64, at h = 1 and x in {0, 1}^d;
    - replace-one, L1: d (b + m) / 2 + (b^2 - m^2) / 8 with m = min(2 d, b);
    - replace-one, L2^2: d (b + 3 m) / 4 + (2 (b^2 - m^2) - (b - m)) / 64 with m = min(12 d, b);
      both at h = 1, h' with m ones, and opposite x.

    Proof of the last two. Given h and h', opposite targets are worst: |lambda_je - lambda'_je| <=
    (h_e + h'_e) / 2. With u the larger and v the smaller of the two, entry by entry, h_e + h'_e =
    u_e + v_e and |h_e h_q - h'_e h'_q| <= u_e u_q - v_e v_q, so that h = u, h' = v is worst; both
    norms grow with u, so u = 1. L1 is then d (b + s) / 2 + (b^2 - s^2) / 8 for s = sum v. L2^2 is
    convex in each v_e (second derivative at least d/2 - 1/16), so v is a vertex.

    The paper's lemma 2 counts kappa d times and doubles add-remove: `published`, d (b + b^2/4).

    >>> own = TaylorCoefficients(features=25, outputs=784)
    >>> own.published, own.replace_one.l1 < own.published / 7
    (142100.0, True)
    """

    features: int
    outputs: int

    def __post_init__(self) -> None:
        _check.count("features", self.features)
        _check.count("outputs", self.outputs)

    @property
    def published(self) -> float:
        """The paper's bound: lemma 2, and for d = 1 lemma 3."""
        return self.outputs * (self.features + self.features**2 / 4.0)

    @property
    def add_remove(self) -> Sensitivity:
        """The most that one record adds."""
        b, d = self.features, self.outputs
        l2 = math.sqrt(d * b / 4.0 + (2 * b * b - b) / 64.0)
        return Sensitivity(l1=(d * b / 2.0 + b * b / 8.0) * ROUND_UP, l2=l2 * ROUND_UP)

    @property
    def replace_one(self) -> Sensitivity:
        """The most that the sums move when one record is exchanged for another."""
        b, d = self.features, self.outputs
        m = min(2 * d, b)
        l1 = d * (b + m) / 2.0 + (b * b - m * m) / 8.0
        k = min(12 * d, b)
        l2 = math.sqrt(d * (b + 3 * k) / 4.0 + (2 * (b * b - k * k) - (b - k)) / 64.0)
        return Sensitivity(l1=l1 * ROUND_UP, l2=l2 * ROUND_UP)

    def sum(self, hidden: ArrayLike, targets: ArrayLike) -> BoundedValue:
        """The coefficients of these records: lambda (d x b), then kappa for e <= q.

        h and x are cut down to multiples of 2^-12: products are multiples of 2^-24, and their sums
        exact in any order. A record with a NaN or an infinity counts for nothing.
        """
        h, x = np.asarray(hidden, dtype=np.float64), np.asarray(targets, dtype=np.float64)
        b, d = self.features, self.outputs
        if h.ndim != 2 or h.shape[1] != b:
            raise InvalidArgument("hidden", h.shape, f"records with {b} hidden units")
        if x.shape != (len(h), d):
            raise InvalidArgument("targets", x.shape, f"{d} targets for each of {len(h)} records")
        good = np.isfinite(h).all(axis=1) & np.isfinite(x).all(axis=1)
        h, x = (np.floor(np.clip(z[good], 0.0, 1.0) * 2.0**_BITS) / 2.0**_BITS for z in (h, x))
        upper = np.triu_indices(b)
        weight = np.where(upper[0] == upper[1], 1.0 / 8.0, 1.0 / 4.0)
        linear, gram = np.clip((0.5 - x).T @ h, -_MOST, _MOST), np.clip(h.T @ h, 0.0, _MOST)
        return BoundedValue(
            value=np.concatenate([linear.ravel(), weight * gram[upper]]),
            add_remove=self.add_remove,
            replace_one=self.replace_one,
            premise=premises.bound("hidden units and targets are held in [0, 1]"),
            spacing=2.0 ** (-2 * _BITS - 3),  # of products, and of weights of 1/8
            invalid=int((~good).sum()),
        )

    def objective(self, coefficients: ArrayLike) -> Quadratic:
        """The loss with these, perhaps noisy, coefficients; its weights are b x d."""
        v = np.asarray(coefficients, dtype=np.float64)
        b, d = self.features, self.outputs
        if v.shape != (d * b + b * (b + 1) // 2,):
            raise InvalidArgument("coefficients", v.shape, "a vector as `sum` makes it")
        upper = np.zeros((b, b))
        upper[np.triu_indices(b)] = v[d * b :]
        return Quadratic(curvature=upper + upper.T, linear=v[: d * b].reshape(d, b).T)
