"""Who was in the training set of a row? Calibrated attacks, with references that rows share.

References are models of the row's own recipe on random halves of all records, and cost as many
trainings; a row may name another whose models serve it too. Beyond `OWN` records all rows share
those of the limit's recipe, on the records asked about.
What they say is kept in the comparison's folder, for all seeds and for the next call.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from privet.audit import membership
from privet.audit.membership.quantile import FEWEST
from privet.compare.bench import Bench
from privet.compare.entrants import LIMIT, Entrant

REFERENCES = 8
"""Models of each kind: every record is in half of them."""
OWN = 5_000
"""The most records for which every recipe has references of its own."""


def attacked(
    model: Any, entrant: Entrant, bench: Bench, *, references: int, kept: Path
) -> tuple[membership.MembershipFinding, ...]:
    """As many training records as there are test records, against these; the headline last.

    The regression of the quantile attack learns from the public third of the test set.
    """
    x_test, y_test = bench.test(entrant.sees)
    x, y = bench.train(entrant.sees)
    n = min(len(y), len(y_test))
    asked, labels = np.concatenate([x[:n], x_test]), np.concatenate([y[:n], y_test])
    strangers = bench.public(entrant.sees), bench.dataset.y_test[: bench.cut]
    enough = len(strangers[1]) >= FEWEST
    return membership.attack(
        model.predict_proba,
        asked,
        labels,
        np.arange(len(asked)) < n,
        references=_references(entrant, bench, references, kept) if references else None,
        strangers=strangers if enough else None,
    )


def _references(entrant: Entrant, bench: Bench, count: int, kept: Path) -> membership.References:
    many = bench.records > OWN
    recipe = LIMIT if many else entrant.calibrated_by or entrant
    (x, y), (x_test, y_test) = bench.train(recipe.sees), bench.test(recipe.sees)
    n = min(len(y), len(y_test))
    if many and entrant is not LIMIT:
        x, y = x[:n], y[:n]
    facts = [recipe.name, bench.dataset.fingerprint, bench.epsilon, bench.delta, len(y)]
    name = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    found = membership.train_references(
        lambda X, y, seed: recipe.make(bench, seed, None).fit(X, y).predict_proba,
        np.concatenate([x, x_test]),
        np.concatenate([y, y_test]),
        count,
        seed=0,
        out=kept / name,
        what=repr(facts),
        jobs=1,
    )
    return found.only(np.r_[:n, len(y) : len(y) + len(y_test)])
