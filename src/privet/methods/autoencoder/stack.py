"""The models: a stack of learned layers, and one with an output layer on top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import chosen
from privet.bounds import Moments
from privet.mechanisms import Coefficients
from privet.methods.autoencoder.layers import CONSTANT, LENGTH, Layer, with_constant
from privet.methods.autoencoder.records import Scaling
from privet.nets.features import unit_rows

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """Layers behind a public scaling."""

    scaling: Scaling
    layers: tuple[Layer, ...]

    def encode(self, x: Array) -> NDArray[np.float32]:
        """The code of the last layer."""
        rows = self.scaling.rows(x)
        for layer in self.layers:
            rows = layer.encode(rows)
        return rows

    def decode(self, codes: Array) -> NDArray[np.float64]:
        """Records from codes, through every decoder."""
        rows = np.asarray(codes, dtype=np.float64)
        for layer in reversed(self.layers):
            rows = layer.decode(rows)
        return self.scaling.back(rows)


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
    ridge: float = chosen.STACK_OUTPUT_RIDGE

    def moments(self, units: int, share: float) -> Moments:
        """What is released."""
        return Moments(features=units + 1, outputs=self.classes, share=share)

    def rows(self, codes: Array) -> Array:
        """Rows of the unit ball for the release."""
        return with_constant(unit_rows(codes))

    def solve(self, found: Coefficients) -> NDArray[np.float64]:
        """Weights, a column a class, with the constant's last."""
        first = found.gram[:, -1] * (LENGTH / CONSTANT)
        records = max(float(first[-1]) * LENGTH / CONSTANT, 1.0)
        loss = found.cross_entropy(first=first, records=records)
        return loss.minimum(ridge=(self.ridge * found.ridge + 1e-9) / 4.0)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ClassifierStack:
    """A stack and its output layer."""

    stack: Stack
    output: OutputLayer
    weights: Array = field(repr=False)

    def logits(self, x: Array) -> NDArray[np.float64]:
        """One logit a class."""
        rows = self.output.rows(self.stack.encode(x))
        return np.asarray(rows.astype(np.float64) @ self.weights)

    def state(self) -> dict[str, NDArray[np.float64]]:
        """All that was learned, by name: what a file of this model holds."""
        found = {"output": np.asarray(self.weights, dtype=np.float64)}
        for k, layer in enumerate(self.stack.layers):
            found |= {
                f"layer{k}.mean": layer.mean,
                f"layer{k}.basis": layer.basis,
                f"layer{k}.gain": layer.gain,
                f"layer{k}.radius": np.array(layer.radius),
            }
        return found

    def with_state(self, found: Mapping[str, Array]) -> ClassifierStack:
        """A model of this shape with what was learned as in `state`."""
        layers = tuple(
            replace(
                layer,
                mean=found[f"layer{k}.mean"],
                basis=found[f"layer{k}.basis"],
                gain=found[f"layer{k}.gain"],
                radius=found[f"layer{k}.radius"].item(),
            )
            for k, layer in enumerate(self.stack.layers)
        )
        return replace(self, stack=replace(self.stack, layers=layers), weights=found["output"])
