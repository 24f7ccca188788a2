"""DP-SGD of a linear head on public features: the sum in closed form, its noise, one step.

A loop of its own: the formula of `linear` needs no per-example engine, no check whether examples
mix and no room for rounding. Sampling, charging, noise and checkpoints are those of every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from privet import chosen, mechanisms
from privet.bounds import clip_l2
from privet.data.records import PublicFacts, Records
from privet.guarantee import Unit
from privet.ledger import fingerprint
from privet.loss import Gaussian
from privet.methods.contract import Front, Method, Spending, setting
from privet.methods.dpsgd import checkpoint as saved
from privet.methods.dpsgd.distributed import current
from privet.methods.dpsgd.linear import (
    Examples,
    LinearHead,
    add_softmax,
    add_squares,
    at_a_time,
    confidence_rows,
    temperature,
)
from privet.methods.dpsgd.network_method import fit_network
from privet.methods.dpsgd.plan import DPSGDPlan, DPSGDSettings
from privet.methods.dpsgd.release import make_ready, release_sum_
from privet.methods.dpsgd.sampling import PoissonSampler
from privet.methods.models import LinearModel
from privet.noise import Source

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
        fixed = self.fixed_schedule(facts, bound=chosen.LINEAR_BOUND)
        signal = max(self.signal(facts), 1.0)
        ruled = int(min(400, max(5, math.ceil(chosen.LINEAR_STEPS * signal**chosen.LINEAR_POWER))))
        steps = fixed.steps if fixed else self.steps or ruled
        rule = max(0.1, chosen.LINEAR_RATE * signal / steps)
        rate = self.learning_rate or (rule if facts.outputs > 1 else chosen.SQUARES_RATE)
        centred = self.centre > 0.0 and facts.unit is Unit.RECORD and fixed is None
        centre_mu = facts.mu * math.sqrt(self.centre) if centred else 0.0
        schedule = fixed or self.schedule_for(
            facts,
            steps=steps,
            sample_rate=1.0,
            bound=chosen.LINEAR_BOUND,
            beside=Gaussian(mu=centre_mu) if centre_mu else None,
        )
        own = self.table_rates(fixed)
        return DPSGDPlan(
            facts=facts,
            schedule=schedule,
            learning_rates=rate * (1.0 - np.arange(steps) / steps) if own is None else own,
            momentum=self.momentum if own is None else 0.0,
            centre_mu=centre_mu,
            constant=0.1,
            rows_each=self.rows_of(facts),
            closed=facts.unit is Unit.RECORD and current().world == 1,
        )

    def fit(self, records: Records, plan: DPSGDPlan, spending: Spending) -> LinearModel:
        """The private mean, then all steps: in closed form, or of users through the engine."""
        x = torch.from_numpy(np.ascontiguousarray(records.rows.ball()))
        head = LinearHead(features=x.shape[1], outputs=plan.facts.outputs, constant=plan.constant)
        checkpoints = saved.kept_by(spending, plan.steps)
        self._centre(head, x, plan, spending, checkpoints)
        classified = plan.facts.outputs > 1
        if not plan.closed:
            fit_network(head, x, records, plan, spending, checkpoints, None)
            return self._model(head, plan)
        y = plan.targets(records)
        examples = head.examples(x, y.clamp(min=0) if classified else y)
        rows, _, squares, scales = examples
        null = torch.from_numpy(records.rows.null)
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
        rows = confidence_rows(head.linear.weight, examples)
        mean = _noisy_mean(rows, plan, plan.confidence_scale, spending.noise("confidence"))
        head.confidence.copy_(mean)

    def _model(self, head: LinearHead, plan: DPSGDPlan) -> LinearModel:
        weight = head.linear.weight.detach().double()
        if bool(head.confidence.isfinite().all()):
            noise = plan.confidence_scale(len(head.confidence)) / plan.facts.records
            mean, outputs = head.confidence.numpy(), plan.facts.outputs
            weight = weight / temperature(mean, outputs=outputs, noise=noise)
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
        checkpoints: saved.Checkpoints | None,
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
        head.mean.copy_(_noisy_mean(x, plan, plan.centre_scale, spending.noise("mean")))


def _noisy_mean(
    x: Tensor, plan: DPSGDPlan, scale_of: Callable[[int], float], rng: Source
) -> Tensor:
    """The released sum of rows clipped to the unit ball, over the public number of records.

    A part at a time bounds the memory: sums of multiples of the spacing are exact in float64, so
    the parts do not change the value.
    """
    total = clip_l2(np.zeros((1, x.shape[1])), 1.0).sum()
    parts = (clip_l2(part.numpy(), 1.0).sum().value for part in x.split(at_a_time(x.shape[1])))
    total = replace(total, value=sum(parts, start=total.value))
    mechanism = mechanisms.Gaussian(scale=scale_of(total.dimension))
    return torch.from_numpy(mechanism.release(total, rng=rng) / plan.facts.records)


def descend(
    head: LinearHead,
    examples: Examples,
    add: Add,
    plan: DPSGDPlan,
    spending: Spending,
    checkpoints: saved.Checkpoints | None,
    finish: Callable[[Callable[[], None]], None],
) -> None:
    """All steps of the plan, each charged before it is made; a run kept in files goes on.

    `finish` is called after them, with what keeps the head; what it leaves there is kept too.

    **Guarantee**: what `plan.loss` says of the steps. One example moves a sum by at most C, exactly
    (docs/theory/summation.md), and the sum is released by `release_sum_` alone.
    """
    schedule, facts, rng = plan.schedule, plan.facts, spending.rng
    declared = facts.records if facts.declared else None
    sampler = PoissonSampler(n=len(examples[0]), rates=schedule.rates, rng=rng, n_public=declared)
    weight, size = head.linear.weight, at_a_time(examples[0].shape[1])
    total = torch.zeros_like(weight, dtype=torch.float64, requires_grad=False)
    optimizer = torch.optim.SGD(
        [weight], lr=1.0, momentum=plan.momentum, nesterov=plan.momentum > 0.0
    )
    kept = saved.Kept(model=head, optimizer=optimizer)
    make_ready(spending.noise("ready"))
    done, releasing, before = 0, False, None
    if checkpoints is not None:
        same = saved.sameness(
            schedule,
            sampler,
            rng,
            lambda key: fingerprint(*(t.numpy() for t in examples), key=key),
            model=[("linear.weight", list(weight.shape)), ("C", 1.0)],
            micro_batch=size,
        )
        before = checkpoints.read()
    if before is not None:
        tensors, found = before
        saved.check_same(checkpoints, same, found["same"])
        kept.restore(tensors, found)
        done = int(found["step"])

    def save() -> None:
        if checkpoints is not None:
            tensors, told = kept.state()
            checkpoints.write(tensors, told | {"run": spending.run, "step": done, "same": same})

    save()
    meter = saved.Meter(
        ledger=spending.ledger,
        sampler=sampler,
        noise_multipliers=schedule.noise_multipliers,
        run=spending.run,
        secret=rng.secret,
        block=plan.steps if checkpoints is None else max(checkpoints.every, -(-plan.steps // 20)),
        start=done,
        resumed=before is not None,
        limit=(facts.epsilon, facts.delta),
    )
    try:
        while done < plan.steps and meter.covers(done):
            t, bound = done, float(schedule.bounds[done])
            total.zero_()
            for rows in torch.from_numpy(sampler.indices(t)).split(size):
                if len(rows):
                    add(weight, taken(examples, rows), bound, total, sampler.capacity)
            releasing = True
            release_sum_(
                total.view(-1),
                sensitivity=bound,
                noise_multiplier=float(schedule.noise_multipliers[t]),
                source=spending.noise("noise", t),
                rate=float(schedule.rates[t]),
            )
            weight.grad = (total / sampler.expected_batch(t)).to(weight.dtype)
            optimizer.param_groups[0]["lr"] = float(plan.absolute_learning_rates[t])
            optimizer.step()
            done, releasing = t + 1, False
            if checkpoints is not None and (done % checkpoints.every == 0 or done == plan.steps):
                save()
            spending.progress("steps", done, plan.steps)
    except KeyboardInterrupt:
        if not releasing:
            save()  # between two steps: what is saved was released
        raise
    finish(save)
    save()
    spending.take_over(tuple(meter.entries), steps=done)


def taken(examples: Examples, rows: Tensor) -> Examples:
    """Some of the examples, by ascending numbers; a view where they are neighbours."""
    if len(rows) and int(rows[-1] - rows[0]) + 1 == len(rows):
        first = int(rows[0])
        return tuple(t[first : first + len(rows)] for t in examples)
    return tuple(t[rows] for t in examples)
