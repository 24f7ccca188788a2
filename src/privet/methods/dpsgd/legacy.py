"""DP-SGD as a method: planned from public facts, checked against the ledger, trained, released."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from privet import mechanisms
from privet.bounds import Bounded, clip_l2
from privet.errors import BudgetExceeded, InvalidArgument
from privet.ledger import Ledger, Scope
from privet.methods.base import Method, PublicFacts, Release, check_per_record
from privet.methods.dpsgd.automatic import Plan, Wishes, linear_plan, network_plan
from privet.methods.dpsgd.checkpoint import Checkpoints
from privet.methods.dpsgd.linear import LinearHead, add_softmax, add_squares
from privet.methods.dpsgd.loop import Training
from privet.methods.dpsgd.private import private
from privet.methods.dpsgd.records import tensor_of
from privet.methods.dpsgd.run import new_run
from privet.noise import Source

Array = NDArray[Any]
Watcher = Callable[[Training], None]
"""Called after every step, for a progress bar; the losses it can see are not protected."""


def nobody(training: Training) -> None:
    """Watches nothing."""


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """One run of a plan, or the next attempt at it: who pays, where noise comes from, its name."""

    plan: Plan
    ledger: Ledger
    rng: Source
    run: str


@dataclass(frozen=True, kw_only=True)
class _DPSGD(Method[nn.Module, Plan]):
    """What both kinds share: settings that do not change the price."""

    classification: bool = True
    wishes: Wishes = field(default_factory=Wishes)
    micro_batch: int | None = None
    checkpoints: Checkpoints | None = None
    watcher: Watcher = nobody

    @abstractmethod
    def _train(self, x: Tensor, y: Tensor, attempt: _Attempt) -> Training:
        """Train on rows and targets."""

    def fit(
        self, x: Array, y: Array, plan: Plan, *, ledger: Ledger | None, rng: Source
    ) -> Release[nn.Module]:
        """Train on rows x and targets y (class numbers, or numbers in [-1, 1]).

        **Guarantee**: `Release.guarantee`. Raises `BudgetExceeded` with nothing released when the
        ledger cannot afford the whole plan.
        """
        facts = plan.facts
        if ledger is None:
            ledger = Ledger.in_memory(cap_epsilon=facts.epsilon, cap_delta=facts.delta)
        check_per_record(ledger)
        before = None if self.checkpoints is None else self.checkpoints.read()
        if before is None and not ledger.affords(plan.loss):
            raise BudgetExceeded(
                cap_epsilon=ledger.cap_epsilon,
                would_be=ledger.epsilon_after(plan.loss),
                delta=ledger.cap_delta,
                what="DP-SGD",
            )
        run = new_run() if before is None else str(before[1]["run"])
        targets = tensor_of(y) if self.classification else tensor_of(y).float()[:, None]
        rows = tensor_of(x).float()
        attempt = _Attempt(plan=plan, ledger=ledger, rng=rng, run=run)
        training = self._train(rows, targets, attempt)
        return Release(
            model=training.model if plan.ema is None else training.averaged_model(),
            guarantee=training.guarantee,
            claim=training.claim,
            entries=training.entries,
            steps=training.steps_done,
        )

    def _private(
        self, model: nn.Module, tensors: tuple[Tensor, ...], attempt: _Attempt
    ) -> Training:
        plan = attempt.plan
        optimizer = torch.optim.SGD(
            model.parameters(), lr=1.0, momentum=plan.momentum, nesterov=plan.momentum > 0.0
        )
        return private(
            model,
            optimizer,
            tensors,
            plan.schedule,
            ledger=attempt.ledger,
            delta=plan.facts.delta,
            rng=attempt.rng,
            run=attempt.run,
            n_public=plan.facts.records,
            learning_rates=plan.absolute_learning_rates,
            micro_batch=self.micro_batch,
            checkpoints=self.checkpoints,
            ema=plan.ema,
            charge_block=plan.schedule.steps if self.checkpoints is None else None,
        )


@final
@dataclass(frozen=True, kw_only=True)
class PrivateLinear(_DPSGD):
    """A linear head on public features: a private mean, then clipped gradients in closed form.

    **Guarantee**: that of `privet.methods.dpsgd.private` together with one Gaussian release of the
    sum of rows, each clipped to the unit ball. **Assumes** rows of norm at most 1 for good results;
    longer ones are clipped where the mean is taken, and their gradients everywhere.
    """

    micro_batch: int | None = 4096

    def plan(self, facts: PublicFacts) -> Plan:
        """Full-batch gradient descent; see `linear_plan`."""
        return linear_plan(facts, self.wishes)

    def _train(self, x: Tensor, y: Tensor, attempt: _Attempt) -> Training:
        plan = attempt.plan
        head = LinearHead(features=x.shape[1], outputs=plan.facts.outputs, constant=plan.constant)
        self._centre(head, x, attempt)
        add = add_softmax if self.classification else add_squares
        with self._private(head, head.tensors(x, y), attempt) as training:
            for _ in training:
                training.step_in_closed_form(partial(add, head.linear.weight))
                self.watcher(training)
        return training

    def _centre(self, head: LinearHead, x: Tensor, attempt: _Attempt) -> None:
        """Release the mean of the rows, or take it from the checkpoint where it was released."""
        plan = attempt.plan
        if plan.centre_mu == 0.0:
            return
        # the token makes it one charge however often the run is resumed
        attempt.ledger.charge(
            plan.centre_loss,
            what="DP-SGD, mean of the features",
            scope=Scope(secret=attempt.rng.secret),
            run=attempt.run,
            token=f"{attempt.run}:mean",
        )
        found = None if self.checkpoints is None else self.checkpoints.read()
        if found is not None:
            head.mean.copy_(found[0]["model/mean"])
            return
        total = _sum_of_rows(x)
        mechanism = mechanisms.Gaussian(scale=plan.centre_scale(total.dimension))
        released = mechanism.release(total, rng=attempt.rng.child("mean"))
        head.mean.copy_(torch.from_numpy(released / plan.facts.records))


@final
@dataclass(frozen=True, kw_only=True)
class PrivateNetwork(_DPSGD):
    """Any torch module, trained from where it is, in place; its averaged weights are released."""

    network: nn.Module

    def plan(self, facts: PublicFacts) -> Plan:
        """Large Poisson batches; see `network_plan`."""
        return network_plan(facts, self.wishes)

    def _train(self, x: Tensor, y: Tensor, attempt: _Attempt) -> Training:
        with self._private(self.network, (x, y), attempt) as training:
            for batch in training:
                out = self.network(batch.x)
                training.step(self._losses(out, batch.y))
                if batch.last:
                    self.watcher(training)
        return training

    def _losses(self, out: Tensor, y: Tensor) -> Tensor:
        if self.classification:
            return functional.cross_entropy(out, y, reduction="none")
        if out.shape != y.shape:
            raise InvalidArgument("module", tuple(out.shape), f"one with outputs {tuple(y.shape)}")
        return 0.5 * (out - y).square().sum(1)


def _sum_of_rows(x: Tensor, part: int = 4096) -> Bounded:
    """The sum of rows clipped to the unit ball, a part at a time to bound the memory.

    Sums of multiples of the spacing are exact in float64, so the parts do not change the value.
    """
    first = clip_l2(np.zeros((1, x.shape[1])), 1.0).sum()
    value = np.zeros(x.shape[1])
    for start in range(0, len(x), part):
        value += clip_l2(x[start : start + part].numpy(), 1.0).sum().value
    return replace(first, value=value)
