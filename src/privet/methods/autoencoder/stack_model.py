"""What a stack of auto-encoders releases: learned layers, and an output layer on top or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import tuned_defaults
from privet.data.domain import Rows
from privet.features import unit_rows
from privet.mechanisms import Coefficients
from privet.methods.autoencoder.private_layer import (
    CONSTANT,
    LENGTH,
    Activation,
    Layer,
    with_constant,
)
from privet.methods.contract import Model
from privet.sensitivity import Moments

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class StackModel(Model):
    """Layers behind a public map into the unit ball, and the output's weights.

    `weights` None: there is nothing to predict, and the outputs are the codes. The map is
    `Rows.squash`, or `Rows.unit` where `looseness` is None.
    """

    layers: tuple[Layer, ...]
    looseness: float | None
    weights: NDArray[np.float64] | None = field(default=None, repr=False)

    def encode(self, rows: Rows) -> NDArray[np.float32]:
        """The codes of the last layer."""
        codes = rows.unit() if self.looseness is None else rows.squash(self.looseness)
        for layer in self.layers:
            codes = layer.encode(codes)
        return codes

    def decode(self, codes: Array) -> NDArray[np.float64]:
        """Rows of the unit ball from codes, through every decoder."""
        rows = np.asarray(codes, dtype=np.float64)
        for layer in reversed(self.layers):
            rows = layer.decode(rows)
        return rows

    def outputs(self, rows: Rows) -> NDArray[np.float64]:
        codes = self.encode(rows)
        if self.weights is None:
            return codes.astype(np.float64)
        return np.asarray(output_rows(codes).astype(np.float64) @ self.weights)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {} if self.weights is None else {"weights": self.weights}
        for k, layer in enumerate(self.layers):
            arrays |= {
                f"layer{k}.mean": layer.mean,
                f"layer{k}.basis": layer.basis,
                f"layer{k}.gain": layer.gain,
            }
        layers = [{"radius": y.radius, "activation": y.activation.value} for y in self.layers]
        return arrays, {"looseness": self.looseness, "layers": layers}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        layers = tuple(
            Layer(
                **{name: arrays[f"layer{k}.{name}"] for name in ("mean", "basis", "gain")},
                radius=layer["radius"],
                activation=Activation(layer["activation"]),
            )
            for k, layer in enumerate(settings["layers"])
        )
        return cls(layers=layers, looseness=settings["looseness"], weights=arrays.get("weights"))


def output_rows(codes: Array) -> Array:
    """Rows of the unit ball that the output layer is on: codes of length 1, and a constant."""
    return with_constant(unit_rows(codes))


@final
@dataclass(frozen=True, kw_only=True)
class OutputLayer:
    """K sigmoid outputs on a code, by the functional mechanism: Taylor cross-entropy, one release.

    The code is scaled to length 1, record by record; released are the moments of (code, constant)
    and its products with one-hot labels. The sum of codes, which the linear coefficients need too,
    is the constant's column of the second moment, so it costs nothing.

    deep-private-auto-encoder, eq. 8 and lemma 3, with the sensitivities of `Moments`.
    """

    classes: int
    ridge: float = tuned_defaults.STACK_OUTPUT_RIDGE

    def moments(self, units: int, share: float) -> Moments:
        """The moments that the output layer releases."""
        return Moments(features=units + 1, outputs=self.classes, share=share)

    def solve(self, found: Coefficients) -> NDArray[np.float64]:
        """Weights, a column a class, with the constant's last."""
        first = found.gram[:, -1] * (LENGTH / CONSTANT)
        records = max(float(first[-1]) * LENGTH / CONSTANT, 1.0)
        loss = found.cross_entropy(first=first, records=records)
        return loss.minimum(ridge=(self.ridge * found.ridge + 1e-9) / 4.0)
