"""The shadow attack of the residual-perturbation paper: one shadow model, top probabilities, MLP.

Symbols (section IV.A of the paper): D_shadow and D_target are halves of the data; each is halved
again into what its model is trained on ("train") and what it never sees ("out").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.audit.membership import input_checks
from privet.audit.membership.input_checks import Floats, Mask
from privet.audit.membership.membership_finding import MembershipFinding, evaluate
from privet.errors import InvalidArgument
from privet.noise import Source

Indices = NDArray[np.int64]


@final
@dataclass(frozen=True, kw_only=True)
class Splits:
    """Four parts of equal size: which records train which model, and which are left out.

    >>> from privet.noise import seeded
    >>> s = Splits.of(1003, rng=seeded(0))
    >>> len(s.shadow_train), len(s.shadow), int(s.shadow_members.sum()), len(s.target_out)
    (250, 500, 250, 250)
    """

    shadow_train: Indices
    shadow_out: Indices
    target_train: Indices
    target_out: Indices

    @classmethod
    def of(cls, records: int, *, rng: Source) -> Splits:
        """Quarters of so many records in random order; up to three records are left over."""
        quarter = _check.count("records", records, minimum=4) // 4
        order = rng.permutation(records)
        parts = [np.sort(order[k * quarter : (k + 1) * quarter]) for k in range(4)]
        a, b, c, d = parts
        return cls(shadow_train=a, shadow_out=b, target_train=c, target_out=d)

    @property
    def shadow(self) -> Indices:
        """D_shadow: the records the attack model learns from, members first."""
        return np.concatenate([self.shadow_train, self.shadow_out])

    @property
    def target(self) -> Indices:
        """D_target: the records whose membership is guessed, members first."""
        return np.concatenate([self.target_train, self.target_out])

    @property
    def shadow_members(self) -> Mask:
        """Which of `shadow` trained the shadow model."""
        return np.arange(2 * len(self.shadow_train)) < len(self.shadow_train)

    @property
    def target_members(self) -> Mask:
        """Which of `target` trained the target."""
        return np.arange(2 * len(self.target_train)) < len(self.target_train)


Weights = tuple[NDArray[np.float64], ...]
_DECAY, _DECAY_SQUARES, _TINY = 0.9, 0.999, 1e-8  # as Kingma and Ba (2015) set Adam


@final
@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """A network with one layer of `hidden` tanh units and a softmax over (out, in).

    Written out in numpy because auditing needs neither torch nor scikit-learn.
    """

    weights: Weights

    def probability(self, features: Floats) -> Floats:
        """Probability of "in" for each row."""
        a, b, c, d = self.weights
        logits = np.tanh(features @ a + b) @ c + d
        with np.errstate(over="ignore"):  # e^huge is infinity, and 1 / (1 + infinity) is right
            p: Floats = 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))
        return p


def train_perceptron(
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


@final
@dataclass(frozen=True, kw_only=True)
class FittedShadowAttack:
    """A trained attack model; `control` is what it finds on the shadow model it learned from.

    A control near AUC .5 says that the attack did not learn, so that nothing it says of a target
    is evidence of privacy.
    """

    top: int
    perceptron: Perceptron
    control: MembershipFinding

    def score(self, probabilities: Any) -> Floats:
        """Probability of membership for each record, from the target's probabilities."""
        return self.perceptron.probability(_highest(probabilities, self.top))


@final
@dataclass(frozen=True, kw_only=True)
class ShadowAttack:
    """Learns from a shadow model how members' probabilities look; the true label is not used.

    The `top` largest probabilities (all of them where there are fewer classes: 2 for binary
    problems) go into a perceptron with 64 hidden units and a softmax, trained by Adam for 50 epochs
    with a learning rate of 0.1. The paper names neither its batches (ours have 128 records) nor its
    activation: ours is tanh, because rectified units die at this learning rate when members and
    others look nearly alike, and a dead attack reports an area of exactly .5 for any target.

    *Residual perturbation*, section IV.A, after Salem et al., *ML-Leaks* (2019).

    >>> from privet.noise import seeded
    >>> draw = np.random.default_rng(0)
    >>> def answers(n, sharpness):
    ...     p = np.exp(sharpness * draw.normal(size=(n, 5)))
    ...     return p / p.sum(axis=1, keepdims=True)
    >>> shadow = np.concatenate([answers(200, 3.0), answers(200, 1.0)])
    >>> attack = ShadowAttack(epochs=5).fit(shadow, np.arange(400) < 200, rng=seeded(0))
    >>> target = np.concatenate([answers(200, 3.0), answers(200, 1.0)])
    >>> evaluate(attack.score(target), np.arange(400) < 200).auc.value > 0.8
    True
    """

    top: int = 3
    hidden: int = 64
    epochs: int = 50
    learning_rate: float = 0.1
    batch_size: int = 128

    def fit(self, probabilities: Any, members: Any, *, rng: Source) -> FittedShadowAttack:
        """Learn from a shadow model's probabilities on D_shadow and which of it were members."""
        features = _highest(probabilities, self.top)
        inside = input_checks.members("members", members, len(features))
        perceptron = train_perceptron(
            features,
            inside,
            hidden=self.hidden,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            rng=rng,
        )
        control = evaluate(perceptron.probability(features), inside, attack="shadow, control")
        return FittedShadowAttack(top=self.top, perceptron=perceptron, control=control)


def _highest(probabilities: Any, top: int) -> Floats:
    """The largest probabilities of each row, falling."""
    p = input_checks.probabilities("probabilities", probabilities)
    top = min(_check.count("top", top), p.shape[1])
    if top < 1:
        raise InvalidArgument("top", top, "at least 1")
    rising = np.sort(p, axis=1) if top == p.shape[1] else np.partition(p, -top, axis=1)[:, -top:]
    return np.ascontiguousarray(np.sort(rising, axis=1)[:, ::-1])
