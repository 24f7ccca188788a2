"""DP-SGD of any torch network under the contract, every step through the per-example engine."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from privet import tuned_defaults
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.methods.contract import Method, ReleaseContext, setting
from privet.methods.dpsgd.checkpoints import Checkpoints, checkpoints_in
from privet.methods.dpsgd.dataset_rows import Batch
from privet.methods.dpsgd.private import Training, private
from privet.methods.dpsgd.private_options import Charging, Sampling, StepOptions
from privet.methods.dpsgd.schedule import values
from privet.methods.dpsgd.settings_and_plan import DPSGDPlan, DPSGDSettings
from privet.methods.released_models import NetworkModel
from privet.networks.architectures import SmallCNN, SmallMLP


@final
@dataclass(frozen=True, kw_only=True)
class NetworkDPSGD(DPSGDSettings, Method[DPSGDPlan]):
    """Clipped, noised gradients of a network, trained end to end; averaged weights are released.

    `network`: any torch module with one output a class; a copy of it is trained. None: a small
    convolutional network for pictures, else one with a hidden layer, from a public start.

    **Guarantee**: exact composition of all steps.
    """

    name: ClassVar[str] = "dpsgd-network"
    system: ClassVar[str] = "DP-SGD"
    regression: ClassVar[bool] = True
    unplanned_fields: ClassVar[tuple[str, ...]] = ("network",)
    protects_users: ClassVar[bool] = True

    network: nn.Module | None = setting(None, help="The torch module to train.", option=False)
    micro_batch: int | None = setting(None, help="Examples at a time; by the model's shapes.")

    def plan(self, facts: PublicFacts) -> DPSGDPlan:
        """Large Poisson batches with momentum, for a network trained from scratch.

        Batches of 8 sqrt(n) examples, 8 + 2 epsilon epochs (40 at most), clipping at .1, which is
        small against usual gradients, so that every example weighs about alike; learning rate 1 on
        the mean gradient over the bound, falling to 0; a moving average of the weights.
        """
        # 64 examples, 20 steps and 40 epochs are guards at the ends of the rules that were tried
        n = facts.units
        epochs = (
            tuned_defaults.NETWORK_EPOCHS
            + tuned_defaults.NETWORK_EPOCHS_PER_EPSILON * facts.epsilon
        )
        q = self.sample_rate or min(1.0, max(64.0, tuned_defaults.NETWORK_BATCH * math.sqrt(n)) / n)
        fixed = self.fixed_schedule(facts, bound=tuned_defaults.NETWORK_BOUND)
        steps = fixed.steps if fixed else self.steps or max(20, round(min(40.0, epochs) / q))
        schedule = fixed or self.schedule_for(
            facts, steps=steps, sample_rate=q, bound=tuned_defaults.NETWORK_BOUND
        )
        rate = self.learning_rate or tuned_defaults.NETWORK_RATE
        own = self.table_rates(fixed)
        falling = values("learning_rate", lambda t: rate * (1.0 - t / steps), steps)
        # `ema`: over the last eighth of the steps, and four at least; no trial was recorded
        return DPSGDPlan(
            facts=facts,
            schedule=schedule,
            learning_rates=falling if own is None else own,
            momentum=self.momentum if own is None else 0.0,
            rows_each=self.rows_of(facts),
            ema=1.0 - 1.0 / max(4.0, 0.125 * steps),
        )

    def fit(self, records: Records, plan: DPSGDPlan, context: ReleaseContext) -> NetworkModel:
        """Every step through the per-example engine."""
        network = self._start(plan.facts)
        x = torch.from_numpy(np.ascontiguousarray(records.rows.cube()))
        checkpoints = checkpoints_in(context, plan.steps)
        training = fit_network(network, x, records, plan, context, checkpoints, self.micro_batch)
        return NetworkModel(network=training.averaged_model().eval(), view="cube")

    def _start(self, facts: PublicFacts) -> nn.Module:
        if self.network is not None:
            return copy.deepcopy(self.network)
        with torch.random.fork_rng():
            torch.manual_seed(0)  # where training starts is public
            if len(facts.shape) in (2, 3) and min(facts.shape[:2]) >= 16:
                return SmallCNN(shape=facts.shape, classes=facts.outputs)
            return SmallMLP(features=facts.features, classes=facts.outputs)


def fit_network(
    network: nn.Module,
    x: Tensor,
    records: Records,
    plan: DPSGDPlan,
    context: ReleaseContext,
    checkpoints: Checkpoints | None,
    micro_batch: int | None,
) -> Training:
    """All steps of a plan; what they charged is taken over at the end."""
    classified = plan.facts.outputs > 1
    optimizer = torch.optim.SGD(
        network.parameters(), lr=1.0, momentum=plan.momentum, nesterov=plan.momentum > 0.0
    )

    def losses(model: nn.Module, batch: Batch) -> Tensor:
        rows, targets, there = batch.tensors
        return _losses(model(rows), targets, classified) * there  # a null record has no gradient

    with private(
        network,
        optimizer,
        (x, plan.targets(records), torch.from_numpy(~records.null).float()),
        plan.schedule,
        losses=losses,
        ledger=context.ledger,
        delta=plan.facts.delta,
        rng=context.rng,
        sampling=Sampling(
            n_public=plan.facts.records if plan.facts.declared else None,
            groups=records.groups,
            max_rows_per_user=plan.rows_each,
        ),
        step=StepOptions(
            micro_batch=micro_batch,
            learning_rates=plan.absolute_learning_rates,
            ema=plan.ema,
        ),
        charging=Charging(
            block=plan.steps if checkpoints is None else None,
            limit=plan.facts.epsilon,
            run=context.run,
        ),
        checkpoints=checkpoints,
    ) as training:
        for step in training:
            context.progress("steps", step.number, plan.steps)
    context.take_over(training.entries, steps=training.steps_done)
    return training


def _losses(out: Tensor, y: Tensor, classified: bool) -> Tensor:
    if classified:
        return functional.cross_entropy(out, y, reduction="none", ignore_index=-1)
    if out.shape != y.shape:
        raise InvalidArgument("network", tuple(out.shape), f"one with outputs {tuple(y.shape)}")
    return 0.5 * (out - y).square().sum(1)
