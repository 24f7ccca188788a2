"""The deep private auto-encoder as published: Algorithm 1, its claim, and why nothing is proved.

For users who want the idea under a guarantee there is the sound reading; this is the system that is
compared and attacked. Its proof fails in four places (`FAULTS`), each with a test that runs.

Symbols: W (d x b) tied weights, h = sigma(W^T x), Delta the paper's sensitivity, eta its noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Standing
from privet.ledger import Ledger
from privet.noise import Source
from privet.sensitivity import TaylorCoefficients
from privet_papers.argument_checks import check_counts, check_positive
from privet_papers.published_classifier import PublishedClassifier, PublishedFacts, PublishedRelease

Array = NDArray[Any]

FAULTS = (
    "coefficients move with the weights while the noise stays: it cancels between two steps",
    "the minimum and maximum of eq. 13 read the records: one moves the codes of all others",
    "every layer spends the whole budget",
    "fine-tuning reads the records again through layers that were paid for once",
)


@final
@dataclass(frozen=True, kw_only=True)
class PublishedStackPlan:
    """Sensitivities by the paper's lemmas, and its claim."""

    facts: PublishedFacts
    sizes: tuple[int, ...]
    """Inputs, then the units of every layer."""
    claim: Guarantee
    guarantee: Guarantee

    def coefficients(self, layer: int) -> TaylorCoefficients:
        """Those of a layer; the one after the last is the output layer."""
        if layer == len(self.sizes) - 1:
            return TaylorCoefficients(features=self.sizes[-1], outputs=self.facts.outputs)
        return TaylorCoefficients(features=self.sizes[layer + 1], outputs=self.sizes[layer])

    def scale(self, layer: int) -> float:
        """Delta / epsilon, the scale of the Laplace noise: the whole epsilon at every layer.

        It is 0 for an infinite epsilon, which is TdA: the truncated objectives without noise.
        """
        return self.coefficients(layer).published / self.facts.epsilon


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CoefficientNoise:
    """One draw of noise for the coefficients of a layer, kept for all of its training."""

    linear: Tensor
    """d x b."""
    quadratic: Tensor | None
    """d x b x b, upper triangles: lemma 2 counts the second-order coefficients of every target.
    None where there is no noise."""

    @classmethod
    def draw(cls, coefficients: TaylorCoefficients, scale: float, rng: Source) -> CoefficientNoise:
        """Laplace noise of one scale for every coefficient; none for scale 0."""
        b, d = coefficients.features, coefficients.outputs
        if scale == 0.0:
            return cls(linear=torch.zeros(d, b, dtype=torch.float64), quadratic=None)
        quadratic = np.triu(rng.child("quadratic").laplace((d, b, b), scale))
        return cls(
            linear=torch.from_numpy(rng.child("linear").laplace((d, b), scale)),
            quadratic=torch.from_numpy(quadratic),
        )

    def loss(
        self, hidden: Tensor, targets: Tensor, weights: Tensor, *, weight: float = 1.0
    ) -> Tensor:
        """The perturbed loss of eq. 11 at W = weights (d x b), without its constant.

        `weight` is how many records each row stands for, where they are a sample of all.
        """
        linear = weight * ((0.5 - targets).T @ hidden) + self.linear
        curved = weights @ (hidden.T @ hidden) * (weight / 8.0)
        if self.quadratic is None:
            return ((linear + curved) * weights).sum()
        held = weights.detach()
        slope = (self._both_triangles @ held[:, :, None])[:, :, 0]  # of noise(W) = slope . W / 2
        return ((linear + curved) * weights + slope * (weights - 0.5 * held)).sum()

    @cached_property
    def _both_triangles(self) -> Tensor:
        """Q + Q^T. It is the largest array of a step, so its product is made once, by hand."""
        assert self.quadratic is not None
        return self.quadratic + self.quadratic.mT


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DataMinMax:
    """Eq. 13: (h - min) / ((max - min) sqrt(b)), with the minimum and maximum *of the data*."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, hidden: Tensor) -> DataMinMax:
        """Reads the records: this is what breaks the proof."""
        return cls(low=hidden.min(dim=0).values, high=hidden.max(dim=0).values)

    def __call__(self, hidden: Tensor) -> Tensor:
        share = ((hidden - self.low) / (self.high - self.low).clamp_min(1e-12)).clamp(0.0, 1.0)
        return share / math.sqrt(len(self.low))  # of length 1 at most, outside the range too


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class StackNetwork:
    """Tied weights of each layer, their min-max layers, and the output weights (K x b)."""

    low: Array = field(repr=False)
    high: Array = field(repr=False)
    weights: tuple[Tensor, ...] = field(repr=False)
    ranges: tuple[DataMinMax, ...] = field(repr=False)
    output: Tensor = field(repr=False)

    @torch.no_grad()
    def logits(self, x: Array) -> NDArray[np.float64]:
        """Logits of rows, one a class."""
        rows = encode(unit_inputs(x, self.low, self.high), self.weights, self.ranges)
        return np.asarray((rows @ self.output.T).numpy())


@final
@dataclass(frozen=True, kw_only=True)
class PublishedStack:
    """Algorithm 1 (dPA): private auto-encoders, stacked, a perturbed output layer, fine-tuning.

    `layers`: units of each; `epochs` of gradient descent for every layer, the output and the
    fine-tuning. Perturbed losses are often unbounded below, on which the paper is silent: each row
    of W is held to length `radius`, which is post-processing.

    **Guarantee** none: epsilon is infinite (`FAULTS`). `PublishedRelease.claim` is the paper's.

    **Assumes** labels 0 to K - 1. Records are scaled to [0, 1] and divided by sqrt(d), so that
    ||x|| <= 1 as the paper asks.

    deep-private-auto-encoder, Algorithm 1, lemmas 2 and 3, eqs. 11-13.
    """

    layers: tuple[int, ...]
    bounds: tuple[Any, Any]
    epochs: int = 50
    learning_rate: float = 0.05
    radius: float = 1.0

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidArgument("layers", self.layers, "at least one layer")
        check_counts(0, epochs=self.epochs)
        check_positive(radius=self.radius)

    def plan(self, facts: PublishedFacts) -> PublishedStackPlan:
        """The sensitivities of all layers by lemmas 2 and 3, and the claim."""
        if not facts.epsilon > 0.0:
            raise InvalidArgument("epsilon", facts.epsilon, "above 0 (infinite: no noise)")
        return PublishedStackPlan(
            facts=facts,
            sizes=(facts.features, *self.layers),
            claim=Guarantee(
                epsilon=facts.epsilon,
                delta=0.0,
                adjacency=Adjacency.REPLACE_ONE,
                standing=Standing.CLAIMED,
                theorem="deep-private-auto-encoder, lemmas 2 and 3, at every layer and step",
                premises=(
                    premises.doubtful_premise("sum", "the coefficients do not change in training"),
                ),
            ),
            guarantee=Guarantee(
                epsilon=math.inf,
                delta=0.0,
                adjacency=Adjacency.REPLACE_ONE,
                standing=Standing.NONE,
                theorem=f"none: {FAULTS[0]}; {FAULTS[1]}",
            ),
        )

    def fit(
        self, x: Array, y: Array, plan: PublishedStackPlan, *, ledger: Ledger | None, rng: Source
    ) -> PublishedRelease[StackNetwork]:
        """Train every layer, then the output, then all of it."""
        if ledger is not None:
            raise InvalidArgument(
                "ledger", ledger, "None: no finite charge covers the published reading"
            )
        low, high = self.bounds
        rows = unit_inputs(x, low, high)
        targets = torch.eye(plan.facts.outputs, dtype=torch.float64)
        labels = targets[torch.from_numpy(np.asarray(y, dtype=np.int64))]
        weights: list[Tensor] = []
        ranges: list[DataMinMax] = []
        code = rows
        for k in range(len(self.layers)):
            noise = CoefficientNoise.draw(
                plan.coefficients(k), plan.scale(k), rng.child("layer", k)
            )
            start = start_weights(code.shape[1], self.layers[k])
            weights.append(self.pretrain(code, start, noise))
            hidden = torch.sigmoid(code @ weights[-1])
            ranges.append(DataMinMax.of(hidden))
            code = ranges[-1](hidden)
        last = len(self.layers)
        noise = CoefficientNoise.draw(
            plan.coefficients(last), plan.scale(last), rng.child("output")
        )
        output = torch.zeros(plan.facts.outputs, code.shape[1], dtype=torch.float64)
        output = self.descend([output], lambda w: noise.loss(code, labels, w[0]), len(rows))[0]
        tuned = self.descend(
            [*weights, output],
            lambda w: noise.loss(encode(rows, tuple(w[:-1]), tuple(ranges)), labels, w[-1]),
            len(rows),
        )
        model = StackNetwork(
            low=low, high=high, weights=tuple(tuned[:-1]), ranges=tuple(ranges), output=tuned[-1]
        )
        return PublishedRelease(model=model, guarantee=plan.guarantee, claim=plan.claim)

    def pretrain(self, rows: Tensor, start: Tensor, noise: CoefficientNoise) -> Tensor:
        """One PA: W that minimises the perturbed reconstruction loss, h moving with W."""

        def loss(w: list[Tensor]) -> Tensor:
            return noise.loss(torch.sigmoid(rows @ w[0]), rows, w[0])

        return self.descend([start], loss, len(rows))[0]

    def descend(self, weights: list[Tensor], loss: Any, records: int) -> list[Tensor]:
        """Gradient descent (Adam) on the loss per record, rows of every matrix held in a ball."""
        found = [w.clone().requires_grad_(True) for w in weights]
        first = [torch.zeros_like(w) for w in weights]
        second = [torch.zeros_like(w) for w in weights]
        for t in range(1, self.epochs + 1):
            slopes = torch.autograd.grad(loss(found) / max(records, 1), found)
            with torch.no_grad():
                for w, m, v, g in zip(found, first, second, slopes, strict=True):
                    m += 0.1 * (g - m)
                    v += 0.001 * (g * g - v)
                    size = (v / (1.0 - 0.999**t)).sqrt() + 1e-8
                    w -= self.learning_rate * m / (1.0 - 0.9**t) / size
                    length = w.norm(dim=1, keepdim=True).clamp_min(1e-30)
                    w *= (self.radius / length).clamp_max(1.0)
        return [w.detach() for w in found]


@final
@dataclass(kw_only=True, eq=False)
class PublishedDPA(PublishedClassifier):
    """The deep private auto-encoder as a classifier: Algorithm 1 with these layers.

    **Guarantee** none (`FAULTS`); `claim_` is the paper's epsilon.

    >>> X = np.random.default_rng(0).uniform(size=(60, 4)); y = np.arange(60) % 2
    >>> made = PublishedDPA(epsilon=2.0, layers=(3,), epochs=2, random_state=0).fit(X, y)
    >>> made.claim_.epsilon, made.guarantee_.epsilon, made.predict(X).shape
    (2.0, inf, (60,))
    """

    epsilon: float = 1.0
    layers: tuple[int, ...] = (200,)
    epochs: int = 50

    def _release(
        self, rows: Array, labels: NDArray[np.int64], rng: Source
    ) -> PublishedRelease[StackNetwork]:
        d = rows.shape[1]
        method = PublishedStack(
            layers=tuple(self.layers), epochs=self.epochs, bounds=(np.zeros(d), np.ones(d))
        )
        self.plan_ = method.plan(self._facts(rows, self.epsilon))
        return method.fit(rows, labels, self.plan_, ledger=self.ledger, rng=rng)

    def _logits(self, rows: Array) -> NDArray[np.float64]:
        return self.model_.logits(rows)  # type: ignore[no-any-return]


def unit_inputs(x: Array, low: Array, high: Array) -> Tensor:
    """Records in [0, 1]^d by public bounds, divided by sqrt(d); one that is not finite is zero."""
    u = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    good = np.isfinite(u).all(axis=1, keepdims=True)
    u = np.where(good, (np.clip(np.where(good, u, low), low, high) - low) / (high - low), 0.0)
    return torch.from_numpy(u / math.sqrt(u.shape[1]))


def encode(rows: Tensor, weights: tuple[Tensor, ...], ranges: tuple[DataMinMax, ...]) -> Tensor:
    """The code of the last min-max layer."""
    for w, normalise in zip(weights, ranges, strict=True):
        rows = normalise(torch.sigmoid(rows @ w))
    return rows


def start_weights(inputs: int, units: int) -> Tensor:
    """Public weights that training starts from, the same every time."""
    generator = torch.Generator().manual_seed(0)
    return 0.1 * torch.randn(inputs, units, generator=generator, dtype=torch.float64)
