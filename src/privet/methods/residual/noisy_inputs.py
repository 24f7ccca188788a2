"""Train on noisy inputs: the part of residual perturbation that a proof survives for.

Symbols: R radius, pi input noise, E draws of the noisy inputs, n public number of slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import _check, premises
from privet import loss as losses
from privet.bounds import Bounded, Sensitivity, categories, clip_l2
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency, Guarantee, Protects
from privet.ledger import Entry, Ledger, Scope
from privet.mechanisms import RandomisedResponse
from privet.mechanisms.base import ratio_up
from privet.methods.base import Method, PublicFacts, Release, check_per_record
from privet.methods.residual.budgets import NoisyInputBudget
from privet.methods.residual.ensemble import Ensemble
from privet.methods.residual.training import Training, Watcher
from privet.noise import Source

Array = NDArray[Any]
Build = Callable[[PublicFacts, int], nn.Module]
"""A new network for these public facts, initialised from a seed."""

_BLOCK = 2048


class Labels(Enum):
    """What is done for labels, which input noise does not touch."""

    RANDOMISED = "randomised"
    """Randomised response: the guarantee covers the whole record."""
    PUBLIC = "public"
    """Nothing: the guarantee covers features only, and labels are assumed public."""


@final
@dataclass(frozen=True, kw_only=True)
class InputPlan:
    """Noise for inputs and labels, and what it costs, from public facts."""

    facts: PublicFacts
    budget: NoisyInputBudget
    answers: RandomisedResponse | None
    """How labels answer; None when they are public."""
    redrawn: bool
    """Whether every epoch of every member has noise of its own."""

    @property
    def adjacency(self) -> Adjacency:
        """Records in public slots hide their number; public labels do not."""
        return Adjacency.REPLACE_ONE if self.answers is None else Adjacency.ADD_REMOVE

    @property
    def loss(self) -> losses.PrivacyLoss:
        """Of all noisy inputs and answers together."""
        inputs = self.budget.loss(self.adjacency)
        if self.answers is None:
            return inputs
        labels = losses.Pure(epsilon_each=self.answers.epsilon, adjacency=self.adjacency)
        return losses.compose([inputs, labels])

    @property
    def guarantee(self) -> Guarantee:
        """What is proved."""
        mechanism = self.budget.mechanism
        theorem = f"{mechanism.theorem} on inputs; all that follows is post-processing"
        radius = f"inputs are clipped to L2 norm {self.budget.radius:g}"
        rests_on = [premises.bound(radius), mechanism.law, premises.SECRET_KEY]
        if self.answers is None:
            rests_on.append(premises.PUBLIC_LABELS)
        else:
            theorem += f"; {self.answers.theorem} on labels"
            rests_on.append(premises.slots(self.facts.records))
        return replace(
            self.loss.guarantee(self.facts.delta, theorem=theorem),
            protects=Protects.FEATURES if self.answers is None else Protects.RECORD,
            premises=tuple(rests_on),
        )


@final
@dataclass(frozen=True, kw_only=True)
class NoisyInputs(Method[Ensemble, InputPlan]):
    """The sound reading: inputs clipped to R, one noisy copy for all epochs and members.

    pi = 2R / mu for the budget's mu; labels by randomised response with a share of epsilon. Under
    add-remove adjacency n public slots are filled: records in random order, then null records (0,
    with a label drawn uniformly), and what is left over is dropped. Adding, removing or replacing
    a record then changes one slot, by at most 2R and one answer, when orders are coupled so that
    the other slots agree.

    **Guarantee** `plan(...).guarantee`: every record by itself is protected before training (a
    local guarantee), so network, epochs, members and block noise cost nothing.

    **Assumes** that `facts` are public.

    residual-perturbation, Theorem 1, as far as its proof goes.
    """

    radius: float
    build: Build
    labels: Labels = Labels.RANDOMISED
    label_share: float = 0.3
    redraw: bool = False
    members: int = 1
    training: Training = field(default_factory=Training)
    noise_draws: int = 1
    watcher: Watcher | None = None

    def plan(self, facts: PublicFacts) -> InputPlan:
        """The least input noise for the budget."""
        epsilon = _check.positive("epsilon", facts.epsilon) * (1.0 - 2.0**-40)
        delta = _check.open_unit("delta", facts.delta)
        answers, rest = None, epsilon
        if self.labels is Labels.RANDOMISED:
            share = _check.open_unit("label_share", self.label_share)
            answers = RandomisedResponse(classes=facts.outputs, epsilon=share * epsilon)
            rest = epsilon - answers.epsilon
        draws = self.members * self.training.epochs if self.redraw else 1
        radius = _check.positive("radius", self.radius)
        scale = ratio_up(2.0 * radius * math.sqrt(draws), losses.gaussian_mu(rest, delta))
        for _ in range(50):  # rounding and the accountant's own error ask for a little more
            budget = NoisyInputBudget(
                radius=radius, input_noise=scale, draws=draws, dimension=facts.features
            )
            plan = InputPlan(facts=facts, budget=budget, answers=answers, redrawn=self.redraw)
            over = plan.loss.epsilon(delta) / facts.epsilon - 1.0
            if over <= 0.0:
                return plan
            scale *= 1.0 + 2.0 * over + 1e-9
        raise Unattainable(f"no input noise meets epsilon {facts.epsilon:g} at delta {delta:g}")

    def fit(
        self, x: Array, y: Array, plan: InputPlan, *, ledger: Ledger | None, rng: Source
    ) -> Release[Ensemble]:
        """Train members on noisy rows and class numbers; test inputs stay as they are."""
        return _fit(self, x, y, plan, ledger=ledger, rng=rng)


def noisy(
    rows: Array, budget: NoisyInputBudget, rng: Source, *, adjacency: Adjacency
) -> NDArray[np.float32]:
    """One noisy copy of clipped rows: what training may look at."""
    out = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        clipped = clip_l2(rows[start : start + _BLOCK], budget.radius)
        each = Sensitivity(l1=math.inf, l2=2.0 * budget.radius)
        part = Bounded(
            value=clipped.units.astype(np.float64) * clipped.spacing,
            add_remove=each,
            replace_one=each,
            premise=clipped.premise,
            spacing=clipped.spacing,
        )
        out[start : start + _BLOCK] = budget.mechanism.release(
            part, rng=rng.child("rows", start), adjacency=adjacency
        )
    return out


def fill_slots(
    rows: Array, labels: Array, plan: InputPlan, rng: Source
) -> tuple[Array, NDArray[np.int64], NDArray[np.bool_]]:
    """Rows and labels in the public slots, in random order, and which slots are null records."""
    slots, there = plan.facts.records, len(rows)
    missing = max(slots - there, 0)
    order = rng.permutation(there + missing)[:slots]
    filled = np.concatenate([rows, np.zeros((missing, rows.shape[1]))])[order]
    known = np.concatenate([labels, np.zeros(missing)])[order].astype(np.int64)
    return filled, known, order >= there


def _fit(
    method: NoisyInputs,
    x: Array,
    y: Array,
    plan: InputPlan,
    *,
    ledger: Ledger | None,
    rng: Source,
) -> Release[Ensemble]:
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    if rows.shape[1] != plan.facts.features:
        raise InvalidArgument(
            "x", rows.shape, f"rows of {plan.facts.features} features, as planned"
        )
    entries: tuple[Entry, ...] = ()
    if ledger is not None:
        check_per_record(ledger)
        scope = Scope(secret=rng.secret)
        what = "noisy inputs (residual perturbation)"
        entries = (ledger.charge(plan.loss, what=what, scope=scope),)
    rows, labels = _with_answers(rows, y, plan, rng.child("labels"))
    targets = torch.from_numpy(labels)

    def drawn(source: Source) -> Tensor:
        return torch.from_numpy(noisy(rows, plan.budget, source, adjacency=plan.adjacency))

    shared = None if plan.redrawn else drawn(rng.child("inputs"))
    networks = []
    for member in range(_check.count("members", method.members)):
        source = rng.child("member", member)

        def inputs(epoch: int, source: Source = source) -> Tensor:
            if shared is not None:
                return shared
            return drawn(source.child("epoch", epoch))

        start, order = (int(v) for v in source.child("seeds").integers(2**31, 2))
        training = replace(method.training, seed=order)
        network = method.build(plan.facts, start)
        networks.append(training.run(network, inputs, targets, method.watcher))
    model = Ensemble(networks, input_noise=0.0, noise_draws=method.noise_draws)
    return Release(
        model=model.eval(),
        guarantee=plan.guarantee,
        claim=None,
        entries=entries,
        steps=method.members * method.training.epochs,
    )


def _with_answers(
    rows: Array, y: Array, plan: InputPlan, rng: Source
) -> tuple[Array, NDArray[np.int64]]:
    """Rows and the labels that training may look at."""
    if plan.answers is None:
        return rows, categories(y, plan.facts.outputs).values.copy()
    rows, known, null = fill_slots(rows, np.asarray(y), plan, rng.child("slots"))
    said = plan.answers.release(categories(known, plan.facts.outputs), rng=rng.child("answers"))
    drawn = rng.child("null").integers(plan.facts.outputs, len(known))
    return rows, np.where(null, drawn, said)
