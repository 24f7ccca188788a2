"""What the attacks find on the trained networks of a bench."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from privet.audit.membership import (
    RMIA,
    LiRA,
    References,
    ShadowAttack,
    confidence,
    evaluate,
    yeom,
)
from privet.experiments.residual.bench import Answers, Bench
from privet.experiments.residual.settings import Job
from privet.noise import seeded


def target_job(kind: Job, seed: int) -> Job:
    """The target of this seed: half 2s of D_target."""
    return replace(kind, part="target", half=2 * seed)


def shadow_job(seed: int) -> Job:
    """Its shadow, a plain network as in the paper: half 2s of D_shadow."""
    return Job(part="shadow", half=2 * seed)


def reference_jobs(bench: Bench, kind: Job, seed: int) -> list[Job]:
    """Networks of the target's own kind on halves of the other pairs."""
    others = [h for h in range(bench.settings.halves) if h // 2 != seed]
    chosen = others[: bench.settings.references]
    return [replace(kind, part="target", half=h) for h in chosen]


def outcome(bench: Bench, kind: Job, seed: int, members: int = 1) -> dict[str, Any]:
    """Accuracy of a target, and the paper's attack and the loss threshold on it."""
    job = target_job(kind, seed)
    inside, labels = bench.inside["target"][job.half], bench.part_labels("target")
    found = bench.ensemble(job, members)
    shadow = shadow_job(seed)
    attack = ShadowAttack().fit(
        bench.answers(shadow).part, bench.inside["shadow"][shadow.half], rng=seeded(seed)
    )
    thresholds = bench.settings.thresholds
    by_shadow = evaluate(attack.score(found.part), inside, attack="shadow", thresholds=thresholds)
    by_loss = evaluate(yeom(found.part, labels), inside, attack="loss")
    return {
        "seed": seed,
        "train_accuracy": _accuracy(found.part[inside], labels[inside]),
        "test_accuracy": _accuracy(found.test, bench.test_labels),
        "seconds": found.seconds,
        "control_auc": attack.control.auc.value,
        "shadow": by_shadow.to_dict(),
        "loss": by_loss.to_dict(),
    }


def by_reference(bench: Bench, kind: Job, seed: int) -> dict[str, Any]:
    """LiRA and RMIA on the same target, who may repeat questions to average the noise."""
    job = target_job(kind, seed)
    inside, labels = bench.inside["target"][job.half], bench.part_labels("target")
    jobs = reference_jobs(bench, kind, seed)
    known = [bench.answers(j) for j in jobs]

    def phi(answers: Answers) -> Any:
        return confidence(answers.repeated, labels)

    references = References(
        confidence=np.stack([phi(a) for a in known]),
        members=np.stack([bench.inside["target"][j.half] for j in jobs]),
    )
    mine = phi(bench.answers(job))
    return {
        name: evaluate(attack.score(mine, references), inside, attack=name).to_dict()
        for name, attack in (("lira", LiRA()), ("rmia", RMIA()))
    }


def _accuracy(probabilities: Any, labels: Any) -> float:
    return float((np.asarray(probabilities).argmax(1) == labels).mean())
