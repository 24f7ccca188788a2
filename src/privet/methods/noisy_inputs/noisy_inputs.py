"""Train on noisy inputs: the part of residual perturbation that a proof survives for.

Symbols: R radius, pi input noise, E draws of the noisy inputs, n public number of slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor, nn

from privet import _check, premises
from privet import accounting as losses
from privet.accounting.calibration import BUDGET_MARGIN
from privet.data.domain import RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import Unattainable
from privet.guarantee import Adjacency, Premise, Protects
from privet.mechanisms import GaussianMechanism, RandomisedResponse
from privet.mechanisms.mechanism import ratio_up
from privet.methods.contract import Method, Plan, ReleaseContext, setting
from privet.methods.feasibility import Signal
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair
from privet.methods.noisy_inputs.plain_training import PlainTraining
from privet.methods.noisy_inputs.public_slots import fill_slots, noisy_rows, randomised_labels
from privet.methods.released_models import EnsembleModel
from privet.networks.residual import DenseResidual, Perturbation, PictureResNet, Strategy
from privet.noise import Source

Array = NDArray[Any]

PUBLIC_LABELS = premises.doubtful_premise(
    "labels", "labels are public, and so is which records have no finite row"
)


class LabelPrivacy(Enum):
    """How labels are protected, which input noise does not touch."""

    RANDOMISED = "randomised"
    """Randomised response: the guarantee covers the whole record."""
    PUBLIC = "public"
    """Nothing: the guarantee covers features only, and labels are assumed public."""


@final
@dataclass(frozen=True, kw_only=True)
class NoisyInputCost:
    """What is left of Theorem 1: all after the noisy input x + pi n is post-processing.

    Replacing a record within the ball of radius R moves x by at most 2R, and taking it out (a zero
    row stays in its place) by R: k = 2 or 1 radii. One draw is a Gaussian release with mu = k R /
    pi, and E of them (one an epoch and member, unless they share) cost
        mu = k R sqrt(E) / pi.
    gamma does not appear: block noise is drawn after the input noise and proves nothing more.

    **Guarantee** `loss`, exact, for the features of a record (labels need an account of their
    own). `dimension` counts the coordinates, whose rounding to the grid widens k R a little.

    >>> NoisyInputCost(radius=30.0, input_noise=0.25, draws=100, dimension=7500).loss().mu
    2400.0...

    Balle and Wang (2018), theorem 8; Dong, Roth and Su (2019) for the composition.
    """

    radius: float
    input_noise: float
    draws: int = 1
    dimension: int
    radii: int = 2
    """k, how many radii a neighbour moves a row by."""

    def __post_init__(self) -> None:
        _check.positive("radius", self.radius)
        _check.count("draws", self.draws)

    @property
    def sensitivity(self) -> float:
        """How far a neighbour moves one row."""
        return self.radii * self.radius

    @property
    def mechanism(self) -> GaussianMechanism:
        """The mechanism of one draw."""
        return GaussianMechanism(scale=self.input_noise)

    def loss(self, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> losses.Gaussian:
        """What all draws cost together."""
        one = self.mechanism.loss(self.sensitivity, adjacency=adjacency, dimension=self.dimension)
        return one if self.draws == 1 else one.repeat(self.draws)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class InputPlan(Plan):
    """Noise for inputs and labels, and what it costs, from public facts."""

    facts: PublicFacts
    cost: NoisyInputCost
    answers: RandomisedResponse | None
    """How labels answer; None when they are public."""
    redrawn: bool = False
    """Whether every epoch of every member has noise of its own."""
    epochs: int = 0
    """Of all members together."""

    @property
    def adjacency(self) -> Adjacency:
        """Records in public slots hide their number; public labels do not."""
        return Adjacency.REPLACE_ONE if self.answers is None else Adjacency.ADD_REMOVE

    @cached_property
    def loss(self) -> losses.PrivacyLoss:
        """Of all noisy inputs and answers together."""
        inputs = self.cost.loss(self.adjacency)
        if self.answers is None:
            return inputs
        answers = self.answers
        each = answers.epsilon if self.facts.declared else answers.epsilon_of_null
        labels = losses.Pure(epsilon_each=each, adjacency=self.adjacency)
        return losses.compose([inputs, labels])

    @property
    def theorem(self) -> str:
        on_inputs = f"{self.cost.mechanism.theorem} on inputs"
        on_labels = "" if self.answers is None else f", {self.answers.theorem} on labels"
        return f"{on_inputs}{on_labels}; all that follows is post-processing"

    @property
    def premises(self) -> tuple[Premise, ...]:
        cost = self.cost
        stated = [
            premises.bound(f"inputs are clipped to L2 norm {cost.radius:g}"),
            cost.mechanism.law,
        ]
        if self.answers is None:
            stated.append(PUBLIC_LABELS)
        elif self.facts.declared:
            stated.append(premises.slots(self.facts.records))
        return tuple(stated)

    @property
    def protects(self) -> Protects:
        return Protects.FEATURES if self.answers is None else Protects.RECORD

    @property
    def steps(self) -> int:
        return self.epochs

    @property
    def signal(self) -> Signal:
        """Every record has noise of its own, which grows with the root of their number."""
        return Signal(units=self.facts.records, numbers=self.facts.outputs, growth=0.5)

    def summary(self) -> dict[str, Any]:
        return {
            "input_noise": self.cost.input_noise,
            "radius": self.cost.radius,
            "draws": self.cost.draws,
            "true_labels": 1.0 if self.answers is None else self.answers.truth,
        }


@final
@dataclass(frozen=True, kw_only=True)
class NoisyInputs(Method[InputPlan]):
    """Residual networks on inputs clipped to R, one noisy copy for all epochs and members.

    Labels answer by randomised response with a share of epsilon. n public slots are filled: records
    in random order, then null records (a zero row, an answer drawn from all classes alike), and
    what is left over is dropped. Where n was counted, taking a record out changes one slot to a
    null one, by at most R and one answer, which becomes one by lot: that costs less than another
    label would (`RandomisedResponse.epsilon_of_null`), and pi = R / mu. Where n was declared,
    another record may take its place, which moves 2 R (orders are coupled so that the other slots
    agree): pi = 2 R / mu, and so it is where labels are public and a record's features replaced.

    **Guarantee**: every record by itself is protected before training (a local guarantee), so that
    network, epochs, members and block noise cost nothing, unless `redraw` draws the noise of inputs
    anew for every epoch of every member, which is paid for. At small epsilon pictures teach nothing
    so.

    >>> from privet.estimators import PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 2)); y = X[:, 0] > X[:, 1]
    >>> clf = PrivateClassifier(NoisyInputs(epochs=5), epsilon=8.0, bounds=(0.0, 1.0),
    ...                         classes=[False, True], random_state=0).fit(X, y)
    >>> clf.guarantee_.epsilon <= 8.0, clf.score(X, y) > 0.8
    (True, True)

    residual-perturbation, Theorem 1, as far as its proof goes.
    """

    name: ClassVar[str] = "residual"
    system: ClassVar[str] = "residual perturbation"

    radius: float | None = setting(
        None, help="R, the L2 bound of a row in [-1, 1]; None cuts nothing off."
    )
    labels: LabelPrivacy = setting(
        LabelPrivacy.RANDOMISED, help="randomised, or public (protects features only)."
    )
    label_share: float = setting(0.3, help="Share of epsilon for the answers of labels.")
    redraw: bool = setting(False, help="New input noise at every epoch; each draw is paid for.")
    members: int = setting(1, help="k of En_k, networks whose probabilities are averaged.")
    gamma: float = setting(0.0, help="Noise of the blocks; regularises, proves nothing.")
    strategy: Strategy = setting(
        Strategy.ADDITIVE, help="additive (I) or multiplicative (II), of the blocks' noise."
    )
    shape: tuple[int, ...] | None = setting(
        None, help="Of pictures that come as flat rows.", option=False
    )
    depth: int = setting(8, help="Of the ResNet on pictures, 6 k + 2.")
    noise_draws: int = setting(1, help="Draws of block noise averaged in a prediction.")
    epochs: int = setting(20, help="Free, unless noise is redrawn.")
    batch_size: int = setting(64, help="Records at a time; free.")
    learning_rate: float = setting(0.02, help="Of SGD with momentum.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _check.member("labels", self.labels, LabelPrivacy))
        object.__setattr__(self, "strategy", _check.member("strategy", self.strategy, Strategy))
        for name in ("members", "noise_draws", "epochs", "batch_size"):
            _check.count(name, getattr(self, name))
        if self.radius is not None:
            _check.positive("radius", self.radius)
        _check.open_unit("label_share", self.label_share)
        _check.non_negative("gamma", self.gamma)
        _check.positive("learning_rate", self.learning_rate)

    audit_records: ClassVar[int] = 64
    """So that one run shows the coin of many answers."""

    @classmethod
    def for_audit(cls) -> Self:
        """One epoch."""
        return cls(epochs=1)

    @classmethod
    def quick_settings(cls, facts: PublicFacts) -> dict[str, Any]:
        """So many epochs that a network is shown 60,000 pictures, the same one counted again."""
        pictures = len(facts.shape) >= 2
        return {"epochs": max(1, min(20, 60_000 // facts.records))} if pictures else {}

    def plan(self, facts: PublicFacts) -> InputPlan:
        """The least input noise for the budget."""
        epsilon = _check.positive("epsilon", facts.epsilon) * BUDGET_MARGIN
        delta = _check.open_unit("delta", facts.delta)
        public = self.labels is LabelPrivacy.PUBLIC
        answers, rest = None, epsilon
        if not public:
            share = min(self.label_share * epsilon, 700.0)  # the most that answers can be given
            answers = (
                RandomisedResponse(classes=facts.outputs, epsilon=share)
                if facts.declared
                else RandomisedResponse.for_null(classes=facts.outputs, epsilon=share)
            )
            rest = epsilon - share
        draws = self.members * self.epochs if self.redraw else 1
        whole = 1.0 if facts.kind is RowKind.BALL else math.sqrt(facts.features)
        radius = self.radius or whole
        radii = 2 if public or facts.declared else 1

        def with_noise(scale: float) -> InputPlan:
            return InputPlan(
                facts=facts,
                cost=NoisyInputCost(
                    radius=radius,
                    input_noise=scale,
                    draws=draws,
                    dimension=facts.features,
                    radii=radii,
                ),
                answers=answers,
                redrawn=self.redraw,
                epochs=self.members * self.epochs,
            )

        def over(scale: float) -> float:
            return with_noise(scale).loss.epsilon(delta) / facts.epsilon - 1.0

        scale = ratio_up(radii * radius * math.sqrt(draws), losses.gaussian_mu(rest, delta))
        # together they cost less, so that less noise will do; beyond 100 the search is not worth it
        if answers is not None and rest <= 100.0:
            high, low = 1.01 * scale, 0.5 * scale  # the root is inside, or `low` falls
            while over(low) <= 0.0:
                low *= 0.5
            # (finer than the accountant answers)
            scale = float(optimize.brentq(over, low, high, rtol=1e-7))
        for _ in range(50):  # rounding and the accountant's own error ask for a little more
            more = over(scale)
            if more <= 0.0:
                return with_noise(scale)
            # twice what is missing, as epsilon falls like 1 / scale
            scale *= 1.0 + 2.0 * more + 1e-9
        raise Unattainable(f"no input noise meets epsilon {facts.epsilon:g} at delta {delta:g}")

    def fit(self, records: Records, plan: InputPlan, context: ReleaseContext) -> EnsembleModel:
        """Pay, draw the noisy rows and answers, and train members on them."""
        rng = context.rng
        context.charge(what="noisy inputs (residual perturbation)")
        rows, known, null = fill_slots(records, plan, rng.child("labels", "slots"))
        targets = torch.from_numpy(randomised_labels(known, null, plan, rng.child("labels")))

        def draw_inputs(source: Source) -> Tensor:
            return torch.from_numpy(noisy_rows(rows, plan.cost, source, adjacency=plan.adjacency))

        shared = None if plan.redrawn else draw_inputs(rng.child("inputs"))
        members: list[nn.Module] = []
        for member in range(self.members):
            source = rng.child("member", member)

            def inputs(epoch: int, source: Source = source) -> Tensor:
                return draw_inputs(source.child("epoch", epoch)) if shared is None else shared

            def report(epoch: int, network: nn.Module, before: int = member * self.epochs) -> None:
                context.progress("epochs", before + epoch, plan.epochs)

            # as torch takes seeds
            start, order = (int(v) for v in source.child("seeds").integers(2**31, 2))
            training = PlainTraining(
                epochs=self.epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                seed=order,
            )
            members.append(training.run(self._network(plan.facts, start), inputs, targets, report))
        context.steps = plan.epochs
        return EnsembleModel(members=members, noise_draws=self.noise_draws)

    def neighbours(self, plan: InputPlan) -> NeighbouringPair:
        """A row as far out as R lets it, or none; where labels are public, or its opposite.

        All others are records in the middle of class 0: their answers show the same coin.
        """
        facts, radius, lone = plan.facts, plan.cost.radius, lone_record_pair(plan.facts).present
        middle = np.zeros((facts.records, facts.features), dtype=np.float32)
        far = min(1.0, radius / math.sqrt(facts.features))
        public = plan.answers is None

        def records(side: float) -> Records:
            null = np.zeros(facts.records, dtype=bool)
            null[0] = side == 0.0
            cube = middle.copy()
            cube[0] = side * far
            values = (cube + 1.0) / 2.0 if facts.kind is RowKind.BOX else cube
            values[null] = 0.0
            values = values.reshape(-1, *(facts.shape or (facts.features,))).astype(np.float32)
            rows = Rows(values=values, kind=facts.kind, null=null)
            return replace(lone, rows=rows, targets=np.where(null, -1, 0))

        return NeighbouringPair(present=records(1.0), absent=records(-1.0 if public else 0.0))

    def _network(self, facts: PublicFacts, seed: int) -> nn.Module:
        """A ResNet on pictures, a dense one on rows."""
        law = Perturbation(strategy=self.strategy, gamma=self.gamma)
        shape = self.shape or facts.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.shape or len(shape) in (2, 3):
                return PictureResNet(
                    shape=shape, classes=facts.outputs, depth=self.depth, perturbation=law
                )
            return DenseResidual(features=facts.features, classes=facts.outputs, perturbation=law)
