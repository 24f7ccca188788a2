"""The steps of a linear head: the sum in closed form, its noise, one step of descent.

A loop of its own: the formula of `linear` needs no per-example engine, no check whether examples
mix and no room for rounding. Sampling, charging, noise and checkpoints are those of every run.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from privet.ledger import fingerprint
from privet.methods.contract import Spending
from privet.methods.dpsgd import checkpoint as saved
from privet.methods.dpsgd.charging import Meter
from privet.methods.dpsgd.linear import Examples, LinearHead
from privet.methods.dpsgd.plan import DPSGDPlan
from privet.methods.dpsgd.release import release_sum_
from privet.methods.dpsgd.run import sameness
from privet.methods.dpsgd.sampling import PoissonSampler
from privet.noise.tensor import make_ready

PART = 4096
"""Examples at a time: it bounds the memory, and sums are exact in any parts."""
Add = Callable[[Tensor, Examples, float, Tensor, int], None]


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
    weight = head.linear.weight
    total = torch.zeros_like(weight, dtype=torch.float64, requires_grad=False)
    optimizer = torch.optim.SGD(
        [weight], lr=1.0, momentum=plan.momentum, nesterov=plan.momentum > 0.0
    )
    kept = saved.Kept(model=head, optimizer=optimizer)
    make_ready()
    done, releasing, before = 0, False, None
    if checkpoints is not None:
        same = sameness(
            schedule,
            sampler,
            rng,
            lambda key: fingerprint(*(t.numpy() for t in examples), key=key),
            model=[("linear.weight", list(weight.shape)), ("C", 1.0)],
            micro_batch=PART,
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
    meter = Meter(
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
            for rows in torch.from_numpy(sampler.indices(t)).split(PART):
                if len(rows):
                    add(weight, taken(examples, rows), bound, total, sampler.capacity)
            releasing = True
            release_sum_(
                total.view(-1),
                sensitivity=bound,
                noise_multiplier=float(schedule.noise_multipliers[t]),
                source=rng.child("noise", t),
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
