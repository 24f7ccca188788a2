"""DP-SGD of a linear head on public features, its clipped sums in closed form.

The formula of `linear_head` needs no per-example engine, no check whether examples mix and no room
for rounding; the loop is that of every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet import mechanisms, tuned_defaults
from privet.accounting import Gaussian
from privet.data.records import PublicFacts, Records
from privet.gradients import ClippedSum
from privet.guarantee import Unit
from privet.ledger import fingerprint
from privet.methods.contract import InputFeatures, Method, ReleaseContext, setting
from privet.methods.dpsgd.checkpoints import Checkpoints, RunIdentity, checkpoints_in
from privet.methods.dpsgd.confidence_temperature import confidence_rows, temperature
from privet.methods.dpsgd.distributed import SingleProcess, current_processes
from privet.methods.dpsgd.dpsgd_loop import DPSGDLoop
from privet.methods.dpsgd.equal_recalls import SHIFTS, moved_by, rarity, recall_rows, shift
from privet.methods.dpsgd.linear_head import (
    Examples,
    LinearHead,
    add_softmax,
    add_squares,
    rows_at_a_time,
)
from privet.methods.dpsgd.network_dpsgd import fit_network
from privet.methods.dpsgd.noise_addition import make_ready
from privet.methods.dpsgd.optimizer_step import OptimizerStep
from privet.methods.dpsgd.samplers import PoissonSampler
from privet.methods.dpsgd.settings_and_plan import DPSGDPlan, DPSGDSettings
from privet.methods.released_models import LinearModel
from privet.noise import Source
from privet.sensitivity import clip_l2

Add = Callable[[Tensor, Examples, float, Tensor, int], None]


@final
@dataclass(frozen=True, kw_only=True)
class LinearDPSGD(DPSGDSettings, Method[DPSGDPlan]):
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
    input_features: ClassVar[InputFeatures] = InputFeatures.ANY
    regression: ClassVar[bool] = True
    protects_users: ClassVar[bool] = True

    centre: float = setting(
        tuned_defaults.LINEAR_CENTRE,
        help="Share of the budget for the mean of the rows and for how sure answers may be.",
    )

    def plan(self, facts: PublicFacts) -> DPSGDPlan:
        """Full-batch gradient descent with momentum on rows of the unit ball.

        mu n is the signal that the budget leaves of the data; the number of steps and the learning
        rate are powers of it (benchmarks/choose_settings.py says how they were found). Small
        clipping bounds were best throughout: near the optimum most gradients are small, and noise
        is proportional to the bound.
        """
        fixed = self.fixed_schedule(facts, bound=tuned_defaults.LINEAR_BOUND)
        # 5 to 400 steps and a rate of .1 at least are guards, for n mu below 25 or above 4e5
        signal = max(self.signal(facts), 1.0)
        ruled = int(
            min(
                400,
                max(
                    5, math.ceil(tuned_defaults.LINEAR_STEPS * signal**tuned_defaults.LINEAR_POWER)
                ),
            )
        )
        steps = fixed.steps if fixed else self.steps or ruled
        rule = max(0.1, tuned_defaults.LINEAR_RATE * signal / steps)
        rate = self.learning_rate or (rule if facts.outputs > 1 else tuned_defaults.SQUARES_RATE)
        centred = self.centre > 0.0 and facts.unit is Unit.RECORD and fixed is None
        centre_mu = facts.mu * math.sqrt(self.centre) if centred else 0.0
        closed = facts.unit is Unit.RECORD and current_processes().world == 1
        uneven = facts.prior is not None and bool(rarity(facts.prior).any())
        shift_mu = facts.mu * math.sqrt(tuned_defaults.SHIFT_SHARE)
        shift_mu *= centred and closed and uneven
        extra_mu = math.hypot(centre_mu, shift_mu)
        schedule = fixed or self.schedule_for(
            facts,
            steps=steps,
            sample_rate=1.0,
            bound=tuned_defaults.LINEAR_BOUND,
            extra_loss=Gaussian(mu=extra_mu) if extra_mu else None,
        )
        own = self.table_rates(fixed)
        return DPSGDPlan(
            facts=facts,
            schedule=schedule,
            learning_rates=rate * (1.0 - np.arange(steps) / steps) if own is None else own,
            momentum=self.momentum if own is None else 0.0,
            centre_mu=centre_mu,
            shift_mu=shift_mu,
            constant=tuned_defaults.LINEAR_CONSTANT,
            rows_each=self.rows_of(facts),
            closed=closed,
        )

    def fit(self, records: Records, plan: DPSGDPlan, context: ReleaseContext) -> LinearModel:
        """The private mean, then all steps: in closed form, or of users through the engine."""
        x = torch.from_numpy(np.ascontiguousarray(records.rows.ball()))
        head = LinearHead(features=x.shape[1], outputs=plan.facts.outputs, constant=plan.constant)
        if plan.serves_classes_alike:  # recalls are released and kept beside the confidence
            more = torch.full((len(SHIFTS),), math.nan, dtype=torch.float64)
            head.confidence = torch.cat([head.confidence, more])
        checkpoints = checkpoints_in(context, plan.steps)
        self._centre(head, x, plan, context, checkpoints)
        classified = plan.facts.outputs > 1
        if not plan.closed:
            fit_network(head, x, records, plan, context, checkpoints, None)
            return self._model(head, plan)
        y = plan.targets(records)
        examples = head.examples(x, y.clamp(min=0) if classified else y)
        rows, _, squares, scales = examples
        null = torch.from_numpy(records.rows.null)
        rows[null], squares[null], scales[null] = 0.0, 0.0, 0.0  # a null record has no gradient
        add = add_softmax if classified else add_squares
        finish = partial(self._confidence, head, examples, plan, context)
        descend(head, examples, add, plan, context, checkpoints, finish)
        return self._model(head, plan)

    def _confidence(
        self,
        head: LinearHead,
        examples: Examples,
        plan: DPSGDPlan,
        context: ReleaseContext,
        save: Callable[[], object],
    ) -> None:
        """Release how sure and how often right the head is, once; paid for before the steps.

        A run that ends between this and its last checkpoint goes without: new noise would be a
        second release.
        """
        if len(plan.extra_losses) < 2 or not bool(head.confidence.isnan().any()):
            return
        if context.rng.secret:
            head.confidence.fill_(math.inf)
            save()
        rows = confidence_rows(head.linear.weight, examples)
        mean = _noisy_mean(rows, plan, plan.confidence_scale, context.noise("confidence"))
        if plan.serves_classes_alike:
            weight = head.linear.weight.detach().double()
            scaled = weight / self._temperature(mean.numpy(), plan)
            rows = recall_rows(scaled, examples, plan.facts.prior or ())
            recalls = _noisy_mean(rows, plan, plan.recall_scale, context.noise("recalls"))
            mean = torch.cat([mean, recalls])
        head.confidence.copy_(mean)

    def _temperature(self, mean: NDArray[np.float64], plan: DPSGDPlan) -> float:
        noise = plan.confidence_scale(len(mean)) / plan.facts.records
        return temperature(mean, outputs=plan.facts.outputs, noise=noise)

    def _model(self, head: LinearHead, plan: DPSGDPlan) -> LinearModel:
        weight, prior = head.linear.weight.detach().double(), plan.facts.prior
        offset, measured = np.zeros(1), bool(head.confidence.isfinite().all())
        if measured:
            weight = weight / self._temperature(head.confidence.numpy()[:5], plan)
        if plan.serves_classes_alike and prior is not None:
            noise = plan.recall_scale(len(SHIFTS)) / plan.facts.records
            recalls = head.confidence.numpy()[5:]
            offset = moved_by(prior, shift(recalls, prior=prior, noise=noise) if measured else 1.0)
        intercept = weight[:, -1] * plan.constant - weight[:, :-1] @ head.mean.double()
        return LinearModel(
            weights=weight[:, :-1].T.numpy().copy(), intercept=intercept.numpy() + offset,
            view="ball",
        )  # fmt: skip

    def _centre(
        self,
        head: LinearHead,
        x: Tensor,
        plan: DPSGDPlan,
        context: ReleaseContext,
        checkpoints: Checkpoints | None,
    ) -> None:
        """Release the mean of the rows, or take it from the checkpoint where it was released."""
        if plan.centre_mu == 0.0:
            return
        for part, what in zip(
            plan.extra_losses, ("mean of the features", "confidence", "recalls"), strict=False
        ):
            context.charge(part, what=f"DP-SGD, {what}")
        found = None if checkpoints is None else checkpoints.read()
        if found is not None:
            head.mean.copy_(found[0]["model/mean"])
            return
        head.mean.copy_(_noisy_mean(x, plan, plan.centre_scale, context.noise("mean")))


def _noisy_mean(
    x: Tensor, plan: DPSGDPlan, scale_of: Callable[[int], float], rng: Source
) -> Tensor:
    """The released sum of rows clipped to the unit ball, over the public number of records.

    A part at a time bounds the memory: sums of multiples of the spacing are exact in float64, so
    the parts do not change the value.
    """
    total = clip_l2(np.zeros((1, x.shape[1])), 1.0).sum()
    parts = (clip_l2(part.numpy(), 1.0).sum().value for part in x.split(rows_at_a_time(x.shape[1])))
    total = replace(total, value=sum(parts, start=total.value))
    mechanism = mechanisms.GaussianMechanism(scale=scale_of(total.dimension))
    return torch.from_numpy(mechanism.release(total, rng=rng) / plan.facts.records)


def descend(
    head: LinearHead,
    examples: Examples,
    add: Add,
    plan: DPSGDPlan,
    context: ReleaseContext,
    checkpoints: Checkpoints | None,
    finish: Callable[[Callable[[], object]], None],
) -> None:
    """Make all steps of the plan with sums in closed form; a run that has checkpoints goes on.

    `finish` is called after them, with what saves the head; what it leaves there is saved too.

    **Guarantee**: what `plan.loss` says of the steps. One example moves a sum by at most C, exactly
    (docs/theory/summation.md).
    """
    schedule, facts, rng = plan.schedule, plan.facts, context.rng
    declared = facts.records if facts.declared else None
    sampler = PoissonSampler(n=len(examples[0]), rates=schedule.rates, rng=rng, n_public=declared)
    weight, size = head.linear.weight, rows_at_a_time(examples[0].shape[1])
    optimizer = torch.optim.SGD(
        [weight], lr=1.0, momentum=plan.momentum, nesterov=plan.momentum > 0.0
    )
    make_ready(context.noise("ready"))
    loop = DPSGDLoop(
        identity=RunIdentity(
            schedule=schedule,
            sampler=sampler,
            rng=rng,
            data=lambda key: fingerprint(*(t.numpy() for t in examples), key=key),
            model=[("linear.weight", list(weight.shape)), ("C", 1.0)],
            micro_batch=size,
        ),
        total=ClippedSum.zeros(dict(head.named_parameters()), capacity=sampler.capacity),
        sensitivity=lambda bound: bound,
        descent=OptimizerStep(head, optimizer, learning_rates=plan.absolute_learning_rates),
        ledger=context.ledger,
        # twenty charges at most, which each wait for the disk
        block=plan.steps if checkpoints is None else max(checkpoints.every, -(-plan.steps // 20)),
        limit=(facts.epsilon, facts.delta),
        run=context.run,
        checkpoints=checkpoints,
        processes=SingleProcess(),
    )
    with loop:
        for t in loop:
            total = loop.total.gradients["linear.weight"]
            for rows in torch.from_numpy(sampler.indices(t)).split(size):
                if len(rows):
                    add(weight, select_rows(examples, rows), loop.bound, total, sampler.capacity)
            loop.complete(t)
            context.progress("steps", loop.steps_done, plan.steps)
    finish(loop.save)
    loop.save()
    context.take_over(tuple(loop.charges.entries), steps=loop.steps_done)


def select_rows(examples: Examples, rows: Tensor) -> Examples:
    """Some of the examples, by ascending numbers; a view where they are neighbours."""
    if len(rows) and int(rows[-1] - rows[0]) + 1 == len(rows):
        first = int(rows[0])
        return tuple(t[first : first + len(rows)] for t in examples)
    return tuple(t[rows] for t in examples)
