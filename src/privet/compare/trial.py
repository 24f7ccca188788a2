"""One method, one seed: trained, attacked and audited."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from privet.audit import Canaries, Finding, OneRunAudit
from privet.compare.bench import Bench, View
from privet.compare.entrants import LIMIT, Entrant
from privet.compare.exposed import attacked
from privet.estimators import PrivateClassifier
from privet.guarantee import Guarantee
from privet.ledger import Ledger
from privet.noise import seeded
from privet.report.measures import of_classes

Row = dict[str, Any]
GUESSES = 0.1
"""The share of the canaries whose coin is guessed; fixed before any score is seen."""


def trial(
    entrant: Entrant, bench: Bench, seed: int, ledger: Ledger | None, *, references: int, kept: Path
) -> Row:
    """Accuracy, what is claimed and proved, membership attacks, and processor seconds."""
    records = bench.train(entrant.sees)
    model = entrant.make(bench, seed, ledger)
    began = time.process_time()
    model.fit(*records)
    seconds = time.process_time() - began
    x_test, y_test = bench.test(entrant.sees)
    right = int((model.predict(x_test) == y_test).sum())
    probabilities = np.asarray(model.predict_proba(x_test), dtype=np.float64)
    measured = of_classes(probabilities, y_test, bench.dataset.classes)
    attacks = attacked(model, entrant, bench, references=references, kept=kept)
    seen = None if entrant.relevance is None else entrant.relevance(model, bench)
    return {
        "method": entrant.name,
        "seed": seed,
        "right": right,
        "asked": len(y_test),
        "balanced_accuracy": measured["balanced_accuracy"],
        "auroc": measured["auroc"],
        "seconds": seconds,
        "guarantee": _promise(model.guarantee_) if entrant.promises else None,
        "claim": _promise(model.claim_) if entrant.promises else None,
        "attack": attacks[-1].to_dict(points=60),
        "attacks": [found.to_dict(points=0) for found in attacks],
        "relevance": seen,
        "plan": model.plan_.summary() if isinstance(model, PrivateClassifier) else None,
    }


def audited(entrant: Entrant, bench: Bench, seed: int, ledger: Ledger | None) -> Row:
    """What an attack on the promise found, beside the same attack where nothing is private."""
    if entrant.audit is None:
        finding = canaries_in_one_run(entrant, bench, seed, ledger)
    else:
        finding = entrant.audit(entrant.make(bench, seed, ledger), bench, seed)
    return {"method": entrant.name, "seed": seed, "finding": finding.to_dict()}


def canaries_in_one_run(
    entrant: Entrant, bench: Bench, seed: int, ledger: Ledger | None
) -> Finding:
    """A one-run audit by mislabelled canaries; the control is the non-private limit."""
    canaries, neighbours = (
        _canaries(bench, entrant.sees, seed),
        (entrant.adjacency, entrant.protects),
    )
    began = time.perf_counter()
    model = entrant.make(bench, seed, ledger).fit(*canaries.training_set(*neighbours))
    seconds = time.perf_counter() - began
    same = _canaries(bench, LIMIT.sees, seed)
    without = LIMIT.make(bench, seed, None).fit(*same.training_set(*neighbours))
    guesses = 2 * max(1, round(GUESSES * len(canaries.y) / 2))
    return OneRunAudit(guesses=guesses, delta=bench.delta).run(
        canaries.scores(model.predict_proba),
        canaries.included,
        what=f"{entrant.name} on {bench.dataset.name}",
        proved=model.guarantee_.epsilon,
        claimed=None if model.claim_ is None else model.claim_.epsilon,
        control=same.scores(without.predict_proba),
        seconds=seconds,
    )


def _canaries(bench: Bench, view: View, seed: int) -> Canaries:
    """The last third of the records; the same ones, with the same coins, in every view."""
    x, y = bench.train(view)
    rng, classes = seeded(seed).child("canaries"), len(bench.classes)
    return Canaries.mislabelled(x, y, classes=classes, count=len(x) // 3, rng=rng)


def _promise(stated: Guarantee | None) -> dict[str, Any] | None:
    return None if stated is None else stated.to_dict() | {"text": str(stated)}
