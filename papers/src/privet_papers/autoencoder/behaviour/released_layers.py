"""The released model of behaviour: encoders, the strength of ties, and output weights.

It answers for series of records, one a user (`examples.py`), and holds nothing of anybody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.domain import Rows
from privet.mechanisms import GaussianMechanism, release_moments
from privet.methods.contract import Model
from privet.noise import Source
from privet.rowwise_arithmetic import Product, row_norms, tanh
from privet.sensitivity import Moments, UserWeights
from privet_papers.autoencoder.behaviour.examples import Examples, SeriesLayout
from privet_papers.autoencoder.behaviour.sensitivity import social_rows

Array = NDArray[np.float64]

SLOPE = 2.0
"""Steepness of the codes tanh(slope W^T x), x of length 1: above 1, to use more of (-1, 1)."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class BehaviourLayer:
    """An encoder of k units, frozen once it is released."""

    weights: Array = field(repr=False)

    @property
    def units(self) -> int:
        """How many columns stood out of the noise."""
        return int(self.weights.shape[1])

    def codes(self, rows: Array) -> Array:
        """tanh(slope W^T x) of rows brought to unit length: entries in (-1, 1).

        A row's codes depend on that row alone, to the last bit.
        """
        return tanh(SLOPE * Product(self.weights)(unit_length(rows)))


def unit_length(rows: Array) -> Array:
    """Each row divided by its length; zero stays zero. Reads no row but the row itself."""
    norms = row_norms(rows)[..., None]
    return np.asarray(rows / np.maximum(norms, 1e-12))


def noise_edge(scale: float, features: int) -> float:
    """The largest eigenvalue that noise alone gives the second moment, about (Wigner)."""
    return scale * math.sqrt(2.0 * features)


def release_layer(
    rows: Array,
    weights: UserWeights | Array,
    *,
    units: int,
    moments: Moments,
    mechanism: GaussianMechanism,
    rng: Source,
) -> BehaviourLayer:
    """The leading eigenvectors that stand out of the noise; whoever calls this has charged for it.

    **Guarantee** that of one Gaussian release of sum w x x^T, ||x|| <= 1 (`Moments`): weights that
    sum to at most 1 for each user make it one per user.
    """
    total = moments.sum()
    total.add(unit_length(rows) * (1.0 - 2.0**-20), weights=weights)
    found = release_moments(total, mechanism, rng=rng)
    values, vectors = np.linalg.eigh(found.gram)
    order = np.argsort(values)[::-1][:units]
    clear = [i for i in order if values[i] > noise_edge(found.gram_noise, len(values))]
    return BehaviourLayer(weights=vectors[:, clear])


LAGGED, CALENDAR, CONSTANT, CODES = 0.5, 0.3, 0.1, 0.5
"""How long lags, calendar, constant and codes are beside today's target: public design."""


def own_rows(examples: Examples, layers: tuple[BehaviourLayer, ...]) -> Array:
    """The own part of each row before it is brought to length: a function of own records."""
    target, n = examples.target, len(examples)
    parts = [
        examples.now[:, [target]],
        LAGGED * examples.past[:, :, target],
        examples.now[:, list(examples.events)],
        CALENDAR * examples.calendar,
        np.full((n, 1), CONSTANT),
    ]
    if layers:
        lagged = layers[0].codes(examples.past) * LAGGED * CODES
        parts += [
            CODES * layers[0].codes(examples.now),
            lagged.reshape(n, math.prod(lagged.shape[1:])),
        ]
    rows = np.hstack(parts)
    if len(layers) > 1:
        rows = np.hstack([rows, CODES * layers[1].codes(rows)])
    return rows


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class BehaviourNetwork(Model):
    """Will the target rise tomorrow? Two logits a series: falls, rises."""

    layout: SeriesLayout
    lags: int
    social: float
    """c: the length of the social part of a row."""
    theta: Array = field(repr=False)
    """The strength of each kind of tie."""
    layers: tuple[BehaviourLayer, ...] = field(repr=False)
    weights: Array = field(repr=False)

    def logits(self, examples: Examples, social: Array) -> Array:
        """Of a rise, for each example with its social part."""
        rows = social_rows(own_rows(examples, self.layers), social, self.social)
        return np.asarray((rows * self.weights).sum(axis=1))

    def outputs(self, rows: Rows) -> Array:
        x = rows.box().astype(np.float64)
        z = self.logits(self.layout.tomorrow(x, lags=self.lags), self.layout.social(x) @ self.theta)
        return np.column_stack([np.zeros(len(z)), z])

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {"theta": self.theta, "weights": self.weights}
        arrays |= {f"layer {k}": layer.weights for k, layer in enumerate(self.layers)}
        return arrays, {
            "lags": self.lags, "social": self.social, "layers": len(self.layers),
            "layout": self.layout.to_dict(),
        }  # fmt: skip

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        return cls(
            layout=SeriesLayout.from_dict(settings["layout"]),
            lags=settings["lags"],
            social=settings["social"],
            theta=arrays["theta"],
            weights=arrays["weights"],
            layers=tuple(
                BehaviourLayer(weights=arrays[f"layer {k}"]) for k in range(settings["layers"])
            ),
        )
