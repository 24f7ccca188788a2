"""DP-SGD under the contract: a linear head on public features, or any torch network."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from privet import _check, chosen, mechanisms
from privet.bounds import Bounded, clip_l2
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.guarantee import Unit
from privet.loss import Gaussian
from privet.methods.contract import (
    Front,
    Method,
    Spending,
    Worst,
    lone_record,
    setting,
    worst_unit,
)
from privet.methods.dpsgd import confidence
from privet.methods.dpsgd.checkpoint import Checkpoints
from privet.methods.dpsgd.distributed import current
from privet.methods.dpsgd.fixed import fixed_schedule, table_rates, within_budget, written
from privet.methods.dpsgd.linear import Examples, LinearHead, add_softmax, add_squares
from privet.methods.dpsgd.linear_steps import descend
from privet.methods.dpsgd.loop import Training
from privet.methods.dpsgd.plan import DPSGDPlan
from privet.methods.dpsgd.private import private
from privet.methods.dpsgd.schedule import Schedule, values
from privet.methods.models import LinearModel, NetworkModel
from privet.nets.networks import SmallCNN, SmallMLP


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """What both share; None leaves a setting to the rule."""

    steps: int | None = setting(None, help="How many steps; by rule unless told.")
    sample_rate: float | None = setting(None, help="Rate of the Poisson sample; by rule.")
    clipping_bound: float | None = setting(None, help="L2 bound of one gradient; by rule.")
    learning_rate: float | None = setting(
        None, help="Of the mean gradient over the bound, at the start; by rule."
    )
    momentum: float = setting(chosen.MOMENTUM, help="Of the descent, after Nesterov.")
    rows_each: int = setting(8, help="Rows of a user in a step, at most; for users only.")
    noise_multiplier: float | None = setting(None, help="z of every step, in place of a budget.")
    sigma: float | None = setting(
        None, help="The noise on the mean gradient, in place of a budget: z = sigma q N / C."
    )
    schedule: str | None = setting(
        None,
        help="CSV of sample_rate, noise_multiplier or sigma, clipping_bound, learning_rate, steps, "
        "in place of a budget; with learning rates there is no momentum.",
    )

    def fixed_epsilon(self, records: int, delta: float) -> float | None:
        """What the steps cost exactly, where settings fix their noise."""
        schedule = fixed_schedule(self, records, bound=1.0)  # the price does not depend on it
        if schedule is None:
            return None
        return schedule.loss().epsilon(delta) * (1.0 + 1e-9)  # a ledger rounds up what it states

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", written(self.schedule))
        if self.steps is not None:
            _check.count("steps", self.steps)
        _check.count("rows_each", self.rows_each)
        for name in ("sample_rate", "clipping_bound", "learning_rate", "noise_multiplier", "sigma"):
            if (value := getattr(self, name)) is not None:
                _check.positive(name, value)

    @classmethod
    def small(cls) -> Self:
        """Four steps on samples of most records, so short that none runs away from a record.

        A gradient that stays as long as the clipping bound is the most that a record can do, and
        the learning rate is nothing that the promise depends on.
        """
        return cls(steps=4, sample_rate=0.8, learning_rate=1e-3)

    def _rows(self, facts: PublicFacts) -> int:
        return self.rows_each if facts.unit is Unit.USER else 1


@final
@dataclass(frozen=True, kw_only=True)
class LinearDPSGD(_Settings, Method[DPSGDPlan]):
    """Clipped, noised gradients of a linear head on public features, after a private mean.

    **Guarantee**: exact composition of all steps and of Gaussian releases of the sum of rows before
    them and, with classes, of how sure and how often right the head is after them.

    >>> from privet.estimators import PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 5)); y = X[:, 0] > 0
    >>> clf = PrivateClassifier(LinearDPSGD(), classes=[False, True], bounds=(-4, 4),
    ...                         random_state=0).fit(X, y)
    >>> clf.guarantee_.epsilon <= 1.0, clf.score(X, y) > 0.9
    (True, True)
    """

    name: ClassVar[str] = "dpsgd"
    system: ClassVar[str] = "DP-SGD"
    front: ClassVar[Front] = Front.MANY
    regression: ClassVar[bool] = True
    grouped: ClassVar[bool] = True

    centre: float = setting(
        chosen.LINEAR_CENTRE,
        help="Share of the budget for the mean of the rows and for how sure answers may be.",
    )

    def plan(self, facts: PublicFacts) -> DPSGDPlan:
        """Full-batch gradient descent with momentum on rows of the unit ball.

        mu n is the signal that the budget leaves of the data; the number of steps and the learning
        rate are powers of it (benchmarks/choose_settings.py says how they were found). Small
        clipping bounds were best throughout: near the optimum most gradients are small, and noise
        is proportional to the bound.
        """
        _check.open_unit("delta", facts.delta)
        fixed = within_budget(fixed_schedule(self, facts.units, bound=chosen.LINEAR_BOUND), facts)
        signal = max(facts.mu * facts.units, 1.0)
        ruled = int(min(400, max(5, math.ceil(chosen.LINEAR_STEPS * signal**chosen.LINEAR_POWER))))
        steps = fixed.steps if fixed else self.steps or ruled
        rule = max(0.1, chosen.LINEAR_RATE * signal / steps)
        rate = self.learning_rate or (rule if facts.outputs > 1 else chosen.SQUARES_RATE)
        centred = self.centre > 0.0 and facts.unit is Unit.RECORD and fixed is None
        centre_mu = facts.mu * math.sqrt(self.centre) if centred else 0.0
        schedule = fixed or Schedule.for_budget(
            epsilon=facts.epsilon,
            delta=facts.delta,
            steps=steps,
            sample_rate=self.sample_rate or 1.0,
            clipping_bound=self.clipping_bound or chosen.LINEAR_BOUND,
            beside=Gaussian(mu=centre_mu) if centre_mu else None,
        )
        own = table_rates(self, fixed)
        return DPSGDPlan(
            facts=facts,
            schedule=schedule,
            learning_rates=rate * (1.0 - np.arange(steps) / steps) if own is None else own,
            momentum=self.momentum if own is None else 0.0,
            centre_mu=centre_mu,
            constant=0.1,
            rows_each=self._rows(facts),
            closed=facts.unit is Unit.RECORD and current().world == 1,
        )

    def neighbours(self, plan: DPSGDPlan) -> Worst:
        """A record against a null one; or a user to whom all records belong."""
        return _worst(plan)

    def fit(self, records: Records, plan: DPSGDPlan, spending: Spending) -> LinearModel:
        """The private mean, then all steps: in closed form, or of users through the engine."""
        x = torch.from_numpy(np.ascontiguousarray(records.rows.ball()))
        head = LinearHead(features=x.shape[1], outputs=plan.facts.outputs, constant=plan.constant)
        checkpoints = _checkpoints(plan, spending)
        self._centre(head, x, plan, spending, checkpoints)
        classified = plan.facts.outputs > 1
        y = _targets(records, classified)
        if not plan.closed:
            _fit(head, x, records, plan, spending, checkpoints, None)
            return self._model(head, plan)
        examples = head.examples(x, y.clamp(min=0) if classified else y)
        rows, _, squares, scales = examples
        null = torch.from_numpy(records.null)
        rows[null], squares[null], scales[null] = 0.0, 0.0, 0.0  # a null record has no gradient
        add = add_softmax if classified else add_squares
        finish = partial(self._confidence, head, examples, plan, spending)
        descend(head, examples, add, plan, spending, checkpoints, finish)
        return self._model(head, plan)

    def _confidence(
        self,
        head: LinearHead,
        examples: Examples,
        plan: DPSGDPlan,
        spending: Spending,
        save: Callable[[], None],
    ) -> None:
        """Release how sure and how often right the head is, once; paid for before the steps.

        A run that ends between this and its last checkpoint goes without: new noise would be a
        second release.
        """
        if len(plan.beside) < 2 or not bool(head.confidence.isnan().any()):
            return
        if spending.rng.secret:
            head.confidence.fill_(math.inf)
            save()
        total = _sum_of_rows(confidence.unit_rows(head.linear.weight, examples))
        mechanism = mechanisms.Gaussian(scale=plan.confidence_scale(total.dimension))
        released = mechanism.release(total, rng=spending.rng.child("confidence"))
        head.confidence.copy_(torch.from_numpy(released / plan.facts.records))

    def _model(self, head: LinearHead, plan: DPSGDPlan) -> LinearModel:
        weight = head.linear.weight.detach().double()
        if bool(head.confidence.isfinite().all()):
            noise = plan.confidence_scale(len(head.confidence)) / plan.facts.records
            mean, outputs = head.confidence.numpy(), plan.facts.outputs
            weight = weight / confidence.temperature(mean, outputs=outputs, noise=noise)
        intercept = weight[:, -1] * plan.constant - weight[:, :-1] @ head.mean.double()
        return LinearModel(
            weights=weight[:, :-1].T.numpy().copy(), intercept=intercept.numpy(), view="ball"
        )

    def _centre(
        self,
        head: LinearHead,
        x: Tensor,
        plan: DPSGDPlan,
        spending: Spending,
        checkpoints: Checkpoints | None,
    ) -> None:
        """Release the mean of the rows, or take it from the checkpoint where it was released."""
        if plan.centre_mu == 0.0:
            return
        for part, what in zip(plan.beside, ("mean of the features", "confidence"), strict=False):
            spending.charge(part, what=f"DP-SGD, {what}")
        found = None if checkpoints is None else checkpoints.read()
        if found is not None:
            head.mean.copy_(found[0]["model/mean"])
            return
        total = _sum_of_rows(x)
        mechanism = mechanisms.Gaussian(scale=plan.centre_scale(total.dimension))
        released = mechanism.release(total, rng=spending.rng.child("mean"))
        head.mean.copy_(torch.from_numpy(released / plan.facts.records))


@final
@dataclass(frozen=True, kw_only=True)
class NetworkDPSGD(_Settings, Method[DPSGDPlan]):
    """Clipped, noised gradients of a network, trained end to end; averaged weights are released.

    `network`: any torch module with one output a class; a copy of it is trained. None: a small
    convolutional network for pictures, else one with a hidden layer, from a public start.

    **Guarantee**: exact composition of all steps.
    """

    name: ClassVar[str] = "dpsgd-network"
    system: ClassVar[str] = "DP-SGD"
    regression: ClassVar[bool] = True
    grouped: ClassVar[bool] = True

    network: nn.Module | None = setting(None, help="The torch module to train.", option=False)
    micro_batch: int | None = setting(None, help="Examples at a time; by the model's shapes.")

    def plan(self, facts: PublicFacts) -> DPSGDPlan:
        """Large Poisson batches with momentum, for a network trained from scratch.

        Batches of 8 sqrt(n) examples, 8 + 2 epsilon epochs (40 at most), clipping at .1, which is
        small against usual gradients, so that every example weighs about alike; learning rate 1 on
        the mean gradient over the bound, falling to 0; a moving average of the weights.
        """
        _check.open_unit("delta", facts.delta)
        n = facts.units
        epochs = chosen.NETWORK_EPOCHS + chosen.NETWORK_EPOCHS_PER_EPSILON * facts.epsilon
        q = self.sample_rate or min(1.0, max(64.0, chosen.NETWORK_BATCH * math.sqrt(n)) / n)
        fixed = within_budget(fixed_schedule(self, n, bound=chosen.NETWORK_BOUND), facts)
        steps = fixed.steps if fixed else self.steps or max(20, round(min(40.0, epochs) / q))
        schedule = fixed or Schedule.for_budget(
            epsilon=facts.epsilon,
            delta=facts.delta,
            steps=steps,
            sample_rate=q,
            clipping_bound=self.clipping_bound or chosen.NETWORK_BOUND,
        )
        rate = self.learning_rate or chosen.NETWORK_RATE
        own = table_rates(self, fixed)
        falling = values("learning_rate", lambda t: rate * (1.0 - t / steps), steps)
        return DPSGDPlan(
            facts=facts,
            schedule=schedule,
            learning_rates=falling if own is None else own,
            momentum=self.momentum if own is None else 0.0,
            rows_each=self._rows(facts),
            ema=1.0 - 1.0 / max(4.0, 0.125 * steps),
        )

    def neighbours(self, plan: DPSGDPlan) -> Worst:
        """A record against a null one; or a user to whom all records belong."""
        return _worst(plan)

    def fit(self, records: Records, plan: DPSGDPlan, spending: Spending) -> NetworkModel:
        """Every step through the per-example engine."""
        network = self._start(plan.facts)
        x = torch.from_numpy(np.ascontiguousarray(records.rows.cube()))
        checkpoints = _checkpoints(plan, spending)
        training = _fit(network, x, records, plan, spending, checkpoints, self.micro_batch)
        return NetworkModel(network=training.averaged_model().eval(), view="cube")

    def _start(self, facts: PublicFacts) -> nn.Module:
        if self.network is not None:
            return copy.deepcopy(self.network)
        with torch.random.fork_rng():
            torch.manual_seed(0)  # where training starts is public
            if len(facts.shape) in (2, 3) and min(facts.shape[:2]) >= 16:
                return SmallCNN(shape=facts.shape, classes=facts.outputs)
            return SmallMLP(features=facts.features, classes=facts.outputs)


def _worst(plan: DPSGDPlan) -> Worst:
    return (worst_unit if plan.facts.unit is Unit.USER else lone_record)(plan.facts)


def _fit(
    network: nn.Module,
    x: Tensor,
    records: Records,
    plan: DPSGDPlan,
    spending: Spending,
    checkpoints: Checkpoints | None,
    micro_batch: int | None,
) -> Training:
    """All steps of a network through the per-example engine."""
    classified = plan.facts.outputs > 1
    tensors = (x, _targets(records, classified), torch.from_numpy(~records.null).float())
    with _steps(
        network, tensors, plan, spending, checkpoints, micro_batch, groups=records.groups
    ) as training:
        for batch in training:
            rows, targets, there = batch.tensors
            losses = _losses(network(rows), targets, classified)
            training.step(losses * there)  # a null record has no gradient
            if batch.last:
                spending.progress("steps", training.steps_done, plan.steps)
    return training


def _targets(records: Records, classified: bool) -> Tensor:
    if classified:
        return torch.from_numpy(records.targets.astype(np.int64))
    return torch.from_numpy(records.targets.astype(np.float32))[:, None]


def _losses(out: Tensor, y: Tensor, classified: bool) -> Tensor:
    if classified:
        return functional.cross_entropy(out, y, reduction="none", ignore_index=-1)
    if out.shape != y.shape:
        raise InvalidArgument("network", tuple(out.shape), f"one with outputs {tuple(y.shape)}")
    return 0.5 * (out - y).square().sum(1)


def _checkpoints(plan: DPSGDPlan, spending: Spending) -> Checkpoints | None:
    """Where the run is kept in files; the run that was begun there goes on under its name."""
    if spending.folder is None:
        return None
    found = Checkpoints(folder=spending.folder, every=max(1, plan.steps // 10))
    if (before := found.read()) is not None:
        spending.run = str(before[1]["run"])
    return found


@contextmanager
def _steps(
    model: nn.Module,
    tensors: tuple[Tensor, ...],
    plan: DPSGDPlan,
    spending: Spending,
    checkpoints: Checkpoints | None,
    micro_batch: int | None,
    *,
    groups: Any = None,
) -> Iterator[Training]:
    """The training loop of a plan; what it charged is taken over at the end."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=1.0, momentum=plan.momentum, nesterov=plan.momentum > 0.0
    )
    whole = plan.steps if checkpoints is None else None
    with private(
        model,
        optimizer,
        tensors,
        plan.schedule,
        ledger=spending.ledger,
        delta=plan.facts.delta,
        rng=spending.rng,
        run=spending.run,
        n_public=plan.facts.records if plan.facts.declared else None,
        learning_rates=plan.absolute_learning_rates,
        micro_batch=micro_batch,
        groups=groups,
        rows_each=plan.rows_each,
        checkpoints=checkpoints,
        ema=plan.ema,
        charge_block=whole,
        limit=plan.facts.epsilon,
    ) as training:
        yield training
    spending.take_over(training.entries, steps=training.steps_done)


def _sum_of_rows(x: Tensor, part: int = 4096) -> Bounded:
    """The sum of rows clipped to the unit ball, a part at a time to bound the memory.

    Sums of multiples of the spacing are exact in float64, so the parts do not change the value.
    """
    first = clip_l2(np.zeros((1, x.shape[1])), 1.0).sum()
    value = np.zeros(x.shape[1])
    for start in range(0, len(x), part):
        value += clip_l2(x[start : start + part].numpy(), 1.0).sum().value
    return replace(first, value=value)
