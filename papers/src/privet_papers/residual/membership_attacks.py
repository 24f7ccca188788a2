"""What the attacks find on the trained networks of a `ResidualRuns`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.audit.epsilon_lower_bounds import epsilon_bound
from privet.audit.membership import (
    RMIA,
    FittedShadowAttack,
    LiRA,
    References,
    ShadowAttack,
    confidence,
    evaluate,
    yeom,
)
from privet.audit.one_run_audit import OneRunAudit
from privet.noise import seeded
from privet_papers.residual.training_runs import (
    DELTA,
    Floats,
    NetworkAnswers,
    NetworkJob,
    ResidualRuns,
)


def target_job(kind: NetworkJob, seed: int) -> NetworkJob:
    """The target of this seed: half 2s of D_target."""
    return replace(kind, part="target", half=2 * seed)


def shadow_job(seed: int) -> NetworkJob:
    """Its shadow, a plain network as in the paper: half 2s of D_shadow."""
    return NetworkJob(part="shadow", half=2 * seed)


def same_kind_shadow_job(kind: NetworkJob, seed: int) -> NetworkJob:
    """The shadow of an attacker who knows how the target is trained: of the target's own kind."""
    return replace(kind, part="shadow", half=2 * seed)


def reference_jobs(runs: ResidualRuns, kind: NetworkJob, seed: int) -> list[NetworkJob]:
    """Networks of the target's own kind on halves of the other pairs."""
    others = [h for h in range(runs.settings.halves) if h // 2 != seed]
    chosen = others[: runs.settings.references]
    return [replace(kind, part="target", half=h) for h in chosen]


def attack_target(
    runs: ResidualRuns, kind: NetworkJob, seed: int, members: int = 1
) -> dict[str, Any]:
    """Accuracy of a target, and the paper's attack and the loss threshold on it."""
    job = target_job(kind, seed)
    inside, labels = runs.inside["target"][job.half], runs.part_labels("target")
    found = runs.ensemble(job, members)
    attack = _fit_shadow_attack(runs, shadow_job(seed), seed)
    thresholds = runs.settings.thresholds
    scores = attack.score(found.part)
    by_shadow = evaluate(scores, inside, attack="shadow", thresholds=thresholds)
    by_loss = evaluate(yeom(found.part, labels), inside, attack="loss")
    return {
        "seed": seed,
        "train_accuracy": _accuracy(found.part[inside], labels[inside]),
        "test_accuracy": _accuracy(found.test, runs.test_labels),
        "seconds": found.seconds,
        "control_auc": attack.control.auc.value,
        "lower_bound": epsilon_lower_bound(scores, inside),
        "shadow": by_shadow.to_dict(),
        "loss": by_loss.to_dict(),
    }


def epsilon_lower_bound(scores: Floats, inside: NDArray[np.bool_], delta: float = DELTA) -> float:
    """A lower bound of epsilon from the paper's attack, as Jagielski et al. take one (95%).

    Every second record on each side chooses the threshold, the others are counted. Records of one
    network stand for independent trainings, which is their assumption and not a proof.

    >>> rng = np.random.default_rng(0)
    >>> inside = np.arange(4000) % 2 == 0
    >>> epsilon_lower_bound(rng.normal(size=4000) + 2.0 * inside, inside) > 1.0
    True
    """
    member, other = scores[inside], scores[~inside]
    size = min(len(member), len(other)) // 2

    def bound(threshold: float, part: int) -> float:
        hits = [int((s[part::2][:size] >= threshold).sum()) for s in (member, other)]
        return epsilon_bound(hits[0], hits[1], size, delta=delta, alpha=0.05)

    candidates = np.quantile(scores, np.linspace(0.02, 0.98, 49))
    best = max((float(t) for t in candidates), key=lambda t: bound(t, 0))
    return bound(best, 1)


def pooled_lower_bound(
    runs: ResidualRuns, kind: NetworkJob, members: int, *, compared: bool
) -> dict[str, Any]:
    """The same from all networks of a kind together: the targets of all seeds, and references.

    Jagielski et al. train many networks; here each network's records are its trials, as in the
    paper. Where the stronger attacks were run, their reference networks are targets as well.
    """
    jobs = [target_job(kind, seed) for seed in range(runs.settings.seeds if compared else 1)]
    jobs += reference_jobs(runs, kind, 0) if compared else []
    jobs = list(dict.fromkeys(jobs))
    attack = _fit_shadow_attack(runs, shadow_job(0), 0)
    scores = [attack.score(runs.ensemble(job, members).part) for job in jobs]
    inside = [runs.inside["target"][job.half] for job in jobs]
    bound = epsilon_lower_bound(np.concatenate(scores), np.concatenate(inside))
    return {"pooled_lower_bound": bound, "pooled_networks": len(jobs)}


def run_stronger_attacks(runs: ResidualRuns, kind: NetworkJob, seed: int) -> dict[str, Any]:
    """Attacks on the same target that know its kind and may repeat questions to average the noise.

    "adapted" is the paper's attack with a shadow of the target's own kind; LiRA and RMIA have
    reference models of it. `audited_epsilon` is the lower bound of epsilon from LiRA's scores, a
    twentieth of the records guessed (section IV-F has such bounds, by Jagielski et al.'s method).
    It takes the halves for fair coins, which they are but for their fixed size.
    """
    job = target_job(kind, seed)
    inside, labels = runs.inside["target"][job.half], runs.part_labels("target")
    jobs = reference_jobs(runs, kind, seed)
    known = [runs.answers(j) for j in jobs]

    def phi(answers: NetworkAnswers) -> Any:
        return confidence(answers.repeated, labels)

    references = References(
        confidence=np.stack([phi(a) for a in known]),
        members=np.stack([runs.inside["target"][j.half] for j in jobs]),
    )
    mine = runs.answers(job)
    scores = {
        "adapted": _fit_shadow_attack(runs, same_kind_shadow_job(kind, seed), seed).score(
            mine.repeated
        ),
        "lira": LiRA().score(phi(mine), references),
        "rmia": RMIA().score(phi(mine), references),
    }
    found = {name: evaluate(s, inside, attack=name).to_dict() for name, s in scores.items()}
    audit = OneRunAudit(guesses=2 * max(1, len(inside) // 40))
    return found | {
        "audited_epsilon": audit.bound(scores["lira"], inside),
        "audit_ceiling": audit.ceiling(len(inside)),
    }


def _fit_shadow_attack(runs: ResidualRuns, shadow: NetworkJob, seed: int) -> FittedShadowAttack:
    """The paper's attack, taught by this shadow model."""
    known = runs.answers(shadow)
    inside = runs.inside["shadow"][shadow.half]
    return ShadowAttack().fit(known.repeated, inside, rng=seeded(seed))


def _accuracy(probabilities: Any, labels: Any) -> float:
    return float((np.asarray(probabilities).argmax(1) == labels).mean())
