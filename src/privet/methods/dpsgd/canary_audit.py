"""DP-SGD audited by Dirac canaries: in one run, step by step, and by many runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from torch import nn

from privet.audit import (
    Finding,
    ManyRunsAudit,
    OneRunAudit,
    PerStepAudit,
    gaussian_one_run_bound,
    one_run_bound,
    trade_off_one_run_bound,
)
from privet.audit.one_run_audit import Rule
from privet.guarantee import Standing
from privet.methods.dpsgd.canaries import CanaryRun, fair_coins, train_with_canaries
from privet.methods.dpsgd.private import Training
from privet.methods.dpsgd.schedule import Schedule
from privet.noise import Source

CANARIES, GUESSES = 5_000, 300
"""Chosen by simulating normal scores at epsilon 8.7, before any run was audited."""
THREAT = "puts in canaries that own a coordinate, sees every noisy sum"
NO_NOISE = 0.02
"""The noise multiplier of controls."""
RULES: tuple[Rule, ...] = (one_run_bound, trade_off_one_run_bound, gaussian_one_run_bound)


@final
@dataclass(frozen=True, kw_only=True)
class AuditRecipe:
    """A recipe to be audited: records, a schedule, and how to make the model it starts from."""

    name: str
    x: Any
    y: Any
    schedule: Schedule
    model: Callable[[], nn.Module]
    delta: float = 1e-5

    def run(self, included: Any, rng: Source, *, copies: int = 1) -> CanaryRun:
        """Train once with these canaries in the data."""
        return train_with_canaries(
            self.model(), (self.x, self.y), self.schedule, included=included, rng=rng,
            delta=self.delta, copies=copies,
        )  # fmt: skip

    def without_noise(self) -> AuditRecipe:
        """The control: the same with hardly any noise."""
        return replace(self, schedule=replace(self.schedule, noise_multiplier=NO_NOISE))


def softmax_recipe(
    name: str, x: Any, y: Any, classes: int, schedule: Schedule, delta: float
) -> AuditRecipe:
    """A linear softmax model on these rows."""
    rows = np.asarray(x, dtype=np.float32).reshape(len(x), -1)
    return AuditRecipe(
        name=name, x=rows, y=y, schedule=schedule, delta=delta,
        model=lambda: nn.Linear(rows.shape[1], classes),
    )  # fmt: skip


def paper_claim(training: Training) -> float | None:
    """The paper's epsilon where it is no more than a claim."""
    claim = training.claim
    return None if claim is None or claim.standing is Standing.PROVED else claim.epsilon


def one_run(
    target: AuditRecipe,
    rng: Source,
    *,
    canaries: int = CANARIES,
    guesses: int = GUESSES,
    guesses_in: int | None = None,
    confidence: float = 0.95,
    rules: tuple[Rule, ...] = (trade_off_one_run_bound,),
) -> tuple[Finding, ...]:
    """Audit by one training with many canaries; a finding for each rule of guessing."""
    began = time.perf_counter()
    coins = fair_coins(canaries, rng)
    found = target.run(coins, rng.child("run"))
    control = target.without_noise().run(coins, rng.child("control"))
    seconds = time.perf_counter() - began
    promised = found.training.guarantee.epsilon
    return tuple(
        OneRunAudit(
            guesses=guesses, guesses_in=guesses_in, confidence=confidence, delta=target.delta,
            rule=rule,
        ).run(
            found.scores, coins, what=target.name, proved=promised,
            claimed=paper_claim(found.training), control=control.scores, seconds=seconds,
            threat=THREAT,
        )
        for rule in rules
    )  # fmt: skip


def per_step(target: AuditRecipe, rng: Source, *, canaries: int = 1000) -> Finding:
    """Audit every step: half of the canaries are in the data; each step is a trial for all."""
    began = time.perf_counter()
    coins = np.arange(canaries) % 2 == 0
    found = target.run(coins, rng.child("run"))
    control = target.without_noise().run(coins, rng.child("control"))
    return PerStepAudit(delta=target.delta).run(
        found.observations[found.in_batch], found.observations[~found.in_batch],
        what=target.name, account=found.account, proved=found.training.guarantee.epsilon,
        claimed=paper_claim(found.training),
        control=(control.observations[control.in_batch], control.observations[~control.in_batch]),
        seconds=time.perf_counter() - began,
    )  # fmt: skip


def many_runs(
    target: AuditRecipe,
    rng: Source,
    *,
    runs: int,
    copies: int = 1,
    watch: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> tuple[Finding, Finding]:
    """Audit by many trainings with a canary and without; read without and with a normal curve."""
    began = time.perf_counter()
    quiet = target.without_noise()

    def scores(kind: AuditRecipe, count: int, inside: bool, label: str) -> Any:
        out = np.empty(count)
        for i in range(count):
            watch(label, i, count)
            found = kind.run(np.array([inside]), rng.child(label, i), copies=copies)
            # k copies shift the sum k times as far; the sum over steps orders both alike
            out[i] = found.scores[0] if copies == 1 else found.observations.sum()
        return out

    inside = scores(target, runs, True, "runs with the canary")
    outside = scores(target, runs, False, "runs without it")
    control = scores(quiet, runs, True, "control in"), scores(quiet, runs, False, "control out")
    example = target.run(np.array([True]), rng.child("example")).training
    seconds = time.perf_counter() - began

    def finding(gaussian: bool) -> Finding:
        return ManyRunsAudit(copies=copies, delta=target.delta, gaussian=gaussian).run(
            inside, outside, what=target.name, proved=example.guarantee.epsilon,
            claimed=paper_claim(example), control=control, seconds=seconds,
            threat=THREAT,
        )  # fmt: skip

    return finding(False), finding(True)
