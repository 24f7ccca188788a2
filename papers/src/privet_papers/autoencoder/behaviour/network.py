"""The released model of behaviour: encoders, the strength of ties, and output weights.

It answers for series of records, one a user (`series.py`), and holds nothing of anybody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.rows import Rows
from privet.methods.autoencoder.behaviour.examples import Examples
from privet.methods.autoencoder.behaviour.layers import Layer
from privet.methods.autoencoder.behaviour.sensitivity import social_rows
from privet.methods.autoencoder.behaviour.series import Layout
from privet.methods.contract import Model

Array = NDArray[np.float64]

LAGGED, CALENDAR, CONSTANT, CODES = 0.5, 0.3, 0.1, 0.5
"""How long lags, calendar, constant and codes are beside today's target: public design."""


def own_rows(examples: Examples, layers: tuple[Layer, ...]) -> Array:
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

    layout: Layout
    lags: int
    social: float
    """c: the length of the social part of a row."""
    theta: Array = field(repr=False)
    """The strength of each kind of tie."""
    layers: tuple[Layer, ...] = field(repr=False)
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
        told = {"lags": self.lags, "social": self.social, "layers": len(self.layers)}
        return arrays, told | {"layout": self.layout.to_dict()}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        return cls(
            layout=Layout.from_dict(settings["layout"]),
            lags=settings["lags"],
            social=settings["social"],
            theta=arrays["theta"],
            weights=arrays["weights"],
            layers=tuple(Layer(weights=arrays[f"layer {k}"]) for k in range(settings["layers"])),
        )
