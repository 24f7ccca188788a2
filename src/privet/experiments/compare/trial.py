"""One method, one seed: trained, attacked and audited."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from privet.audit import Canaries, Finding, OneRunAudit, membership
from privet.experiments.compare.bench import Bench
from privet.experiments.compare.entrants import LIMIT, Entrant
from privet.guarantee import Guarantee
from privet.ledger import Ledger
from privet.noise import seeded

Row = dict[str, Any]
GUESSES = 0.1
"""The share of the canaries whose coin is guessed; fixed before any score is seen."""


def trial(entrant: Entrant, bench: Bench, seed: int) -> Row:
    """Accuracy, what is claimed and proved, the membership attack, and the seconds of training."""
    x, y = bench.train()
    ledger = Ledger.in_memory(
        cap_epsilon=math.inf,
        cap_delta=bench.delta,
        adjacency=entrant.adjacency,
        unit=entrant.unit,
    )
    began = time.perf_counter()
    model = entrant.make(bench, seed, ledger).fit(x, y)
    seconds = time.perf_counter() - began
    x_test, y_test = bench.test()
    right = int((model.predict(x_test) == y_test).sum())
    found = attacked(model, bench)
    return {
        "method": entrant.name,
        "system": entrant.system,
        "seed": seed,
        "right": right,
        "asked": len(y_test),
        "seconds": seconds,
        "guarantee": _promise(model.guarantee_) if entrant.private else None,
        "claim": _promise(model.claim_) if entrant.private else None,
        "attack": found.to_dict(points=60),
        "spent": [
            {"what": e.what, "epsilon": _number(e.loss.epsilon(bench.delta))}
            for e in ledger.entries()
        ],
    }


def attacked(model: Any, bench: Bench) -> membership.MembershipFinding:
    """The loss attack: as many training records as there are test records, against these."""
    x_test, y_test = bench.test()
    x, y = (part[: len(y_test)] for part in bench.train())
    asked, labels = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    members = np.arange(len(asked)) < len(x)
    return membership.attack(model.predict_proba, asked, labels, members)[-1]


def audited(entrant: Entrant, bench: Bench, seed: int) -> Row:
    """What an attack on the promise found, beside the same attack where nothing is private."""
    if entrant.audit is None:
        finding = canaries_in_one_run(entrant, bench, seed)
    else:
        model = entrant.make(bench, seed, None).fit(*bench.train())
        finding = entrant.audit(model, bench, seed)
    return {"method": entrant.name, "seed": seed, "finding": finding.to_dict()}


def canaries_in_one_run(entrant: Entrant, bench: Bench, seed: int) -> Finding:
    """A one-run audit by mislabelled canaries; the control is the non-private limit."""
    x, y = bench.train()
    count = len(x) // 3
    canaries = Canaries.mislabelled(
        x, y, classes=len(bench.classes), count=count, rng=seeded(seed).child("canaries")
    )
    records = canaries.training_set(entrant.adjacency)
    began = time.perf_counter()
    model = entrant.make(bench, seed, None).fit(*records)
    seconds = time.perf_counter() - began
    without = LIMIT.make(bench, seed, None).fit(*records)
    return OneRunAudit(guesses=2 * max(1, round(GUESSES * count / 2)), delta=bench.delta).run(
        canaries.scores(model.predict_proba),
        canaries.included,
        what=f"{entrant.name} on {bench.dataset.name}",
        proved=model.guarantee_.epsilon,
        claimed=None if model.claim_ is None else model.claim_.epsilon,
        control=canaries.scores(without.predict_proba),
        seconds=seconds,
    )


def _promise(stated: Guarantee | None) -> dict[str, Any] | None:
    return None if stated is None else stated.to_dict() | {"text": str(stated)}


def _number(x: float) -> float | str:
    return x if math.isfinite(x) else "inf"
