"""A multilayer perceptron with one hidden layer, trained by Adam: all that the shadow attack needs.

Written out because auditing needs neither torch nor scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.audit.membership._rows import Floats, Mask
from privet.noise import Source

Weights = tuple[NDArray[np.float64], ...]
_DECAY, _DECAY_SQUARES, _TINY = 0.9, 0.999, 1e-8


@final
@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """Inputs -> `hidden` tanh units -> softmax over (out, in)."""

    weights: Weights

    def probability(self, features: Floats) -> Floats:
        """Probability of "in" for each row."""
        a, b, c, d = self.weights
        logits = np.tanh(features @ a + b) @ c + d
        with np.errstate(over="ignore"):  # e^huge is infinity, and 1 / (1 + infinity) is right
            p: Floats = 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))
        return p


def train(
    features: Floats,
    inside: Mask,
    *,
    hidden: int,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    rng: Source,
) -> Perceptron:
    """Minimise the cross-entropy by Adam, the records in a new order every epoch.

    Weights start uniform on [-1, 1] / sqrt(inputs of the layer).
    """
    hidden, epochs = _check.count("hidden", hidden), _check.count("epochs", epochs)
    batch = _check.count("batch_size", batch_size)
    rate = _check.positive("learning_rate", learning_rate)
    n, width = features.shape
    target = np.stack([~inside, inside], axis=1).astype(np.float64)
    weights = [
        (2.0 * rng.child("start", k).uniform(shape) - 1.0) / np.sqrt(fan)
        for k, (shape, fan) in enumerate(
            (((width, hidden), width), ((hidden,), width), ((hidden, 2), hidden), ((2,), hidden))
        )
    ]
    first = [np.zeros_like(w) for w in weights]
    second = [np.zeros_like(w) for w in weights]
    step = 0
    for epoch in range(epochs):
        order = rng.child("order", epoch).permutation(n)
        for start in range(0, n, batch):
            here = order[start : start + batch]
            step += 1
            corrected = rate * np.sqrt(1.0 - _DECAY_SQUARES**step) / (1.0 - _DECAY**step)
            for w, m, v, g in zip(
                weights,
                first,
                second,
                _gradients(weights, features[here], target[here]),
                strict=True,
            ):
                m += (1.0 - _DECAY) * (g - m)
                v += (1.0 - _DECAY_SQUARES) * (g * g - v)
                w -= corrected * m / (np.sqrt(v) + _TINY)
    return Perceptron(weights=tuple(weights))


def _gradients(weights: list[Floats], x: Floats, target: Floats) -> tuple[Floats, ...]:
    """Gradients of the mean cross-entropy of a batch."""
    a, b, c, d = weights
    units = np.tanh(x @ a + b)
    logits = units @ c + d
    logits -= logits.max(axis=1, keepdims=True)
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    back = (p - target) / len(x)
    deeper = (back @ c.T) * (1.0 - units * units)
    return x.T @ deeper, deeper.sum(axis=0), units.T @ back, back.sum(axis=0)
