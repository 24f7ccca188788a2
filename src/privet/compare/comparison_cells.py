"""The cells of a comparison: a method trained and attacked with one seed, or its promise audited.

Each cell that releases something has a ledger file, charged before the release, whoever is killed
when. A cell that is run again after a kill is charged again: what the first attempt drew may have
been seen. So an account holds at least what was released, and never forgets.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from privet.audit import Canaries, Finding, OneRunAudit, membership
from privet.audit.membership.quantile_regression import FEWEST
from privet.compare.comparison_data import ComparisonData, View
from privet.compare.participants import LIMIT, Participant
from privet.errors import LedgerError
from privet.estimators import PrivateClassifier
from privet.guarantee import Guarantee, number_to_json
from privet.jobs import cache_path, cached_json
from privet.ledger import Ledger
from privet.noise import seeded
from privet.report.metrics import class_metrics

Row = dict[str, Any]
VERSION = 12
"""Of what a cell means: cells kept by another version are run again."""
REFERENCES = 8
"""Reference models of a membership attack: every record is in half of them. Fewer tell members
apart less well; each costs a training."""
OWN_REFERENCES = 5_000
"""The most records for which every recipe has references of its own: beyond, trainings of eight
models for each row would take most of the time, and all rows share those of the limit's recipe."""
GUESSES = 0.1
"""The share of the canaries whose coin is guessed; fixed before any score is seen."""
SEEDS_OF_A_SPLIT = 1000
"""Seeds of noise that each split has for itself, so that no two repetitions share their noise."""
_BASELINE_FITS, _BASELINE_SECONDS = 9, 3.0
"""The limit takes milliseconds on small data: it is timed so often, within so many seconds."""


@final
@dataclass(frozen=True, kw_only=True)
class ComparisonCell:
    """One training or audit of one method, on one split with one seed; its result is kept."""

    task: str
    participant: Participant
    seed: int
    data: ComparisonData
    out: Path
    references: int = REFERENCES

    def __str__(self) -> str:
        split = f"split {self.data.split}, " if self.data.split else ""
        return f"{self.participant.name}: {self.task}, {split}seed {self.seed}"

    @property
    def key(self) -> list[Any]:
        """Everything that its result depends on."""
        data = self.data
        facts: list[Any] = [data.dataset.fingerprint, data.split, data.epsilon, data.delta]
        if self.task == "train" and data.split == 0:
            facts.append(self.references)
        return [VERSION, self.task, self.participant.name, self.seed, *facts]

    @property
    def path(self) -> Path:
        """The file of its result."""
        return cache_path(self.out / "cells", self.key)

    @property
    def charges(self) -> bool:
        """Whether it releases something about the records; audits of made-up neighbours do not."""
        return self.participant.charged and (self.task == "train" or self.participant.audit is None)

    @property
    def ledger_path(self) -> Path:
        """The file of its account, named for people and by its key."""
        name = re.sub("[^a-z0-9]+", "-", str(self).lower()).strip("-")
        return self.out / "ledgers" / f"{name}-{self.path.stem[:8]}.ledger"

    def result(self) -> Row:
        """Read from its file, or computed now; charged before anything is released."""
        return cached_json(self.path.parent, self.key, self._compute)

    def run(self, tell: Any) -> None:
        """Compute the result for its file, in a worker; a solver's warnings show in its score."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.result()

    def _compute(self) -> Row:
        ledger = self._open_ledger() if self.charges else None
        before, begin = 0 if ledger is None else len(ledger), time.process_time()
        compute = self._train_and_attack if self.task == "train" else self._audit
        row = compute(ledger)
        return row | {"charged_before": before, "processor_seconds": time.process_time() - begin}

    def _train_and_attack(self, ledger: Ledger | None) -> Row:
        """Accuracy, what is claimed and proved, processor seconds; attacks on the first split."""
        participant, data = self.participant, self.data
        records = data.train(participant.view)
        noise = data.split * SEEDS_OF_A_SPLIT + self.seed
        model = participant.make(data, noise, ledger)
        begin = time.process_time()
        model.fit(*records)
        times = [time.process_time() - begin]
        while participant is LIMIT and len(times) < _BASELINE_FITS:
            if sum(times) > _BASELINE_SECONDS:
                break
            begin = time.process_time()
            model.fit(*records)
            times.append(time.process_time() - begin)
        x_test, y_test = data.test(participant.view)
        right = model.predict(x_test) == y_test
        probabilities = np.asarray(model.predict_proba(x_test), dtype=np.float64)
        metrics = class_metrics(probabilities, y_test, data.dataset.classes)
        own = data.split == 0
        attacks = self._attack(model) if own else ()
        relevance = participant.relevance if own else None
        return {
            "method": participant.name,
            "split": data.split,
            "seed": self.seed,
            "right": int(right.sum()),
            "asked": len(y_test),
            "answers": np.packbits(right).tobytes().hex(),
            "balanced_accuracy": metrics["balanced_accuracy"],
            "auroc": metrics["auroc"],
            "seconds": float(np.median(times)),
            "guarantee": _promise(model.guarantee_) if participant.promises else None,
            "claim": _promise(model.claim_) if participant.promises else None,
            "attack": attacks[-1].to_dict(points=60) if attacks else None,
            "attacks": [finding.to_dict(points=0) for finding in attacks],
            "relevance": None if relevance is None else relevance(model, data),
            "plan": model.plan_.summary() if isinstance(model, PrivateClassifier) else None,
        }

    def _audit(self, ledger: Ledger | None) -> Row:
        """What an attack on the promise found, beside the same attack where nothing is private."""
        participant = self.participant
        if participant.audit is None:
            finding = audit_by_canaries(participant, self.data, self.seed, ledger)
        else:
            model = participant.make(self.data, self.seed, ledger)
            finding = participant.audit(model, self.data, self.seed)
        return {"method": participant.name, "seed": self.seed, "finding": finding.to_dict()}

    def _attack(self, model: Any) -> tuple[membership.MembershipFinding, ...]:
        """As many training records as there are test records, against these; the headline last.

        The regression of the quantile attack learns from the public third of the test set.
        """
        data, view = self.data, self.participant.view
        (x, y), (x_test, y_test) = data.train(view), data.test(view)
        n = min(len(y), len(y_test))
        inputs, labels = np.concatenate([x[:n], x_test]), np.concatenate([y[:n], y_test])
        strangers = data.public(view), data.dataset.y_test[: data.cut]
        enough = len(strangers[1]) >= FEWEST
        return membership.attack(
            model.predict_proba,
            inputs,
            labels,
            np.arange(len(inputs)) < n,
            references=self._reference_models() if self.references else None,
            strangers=strangers if enough else None,
        )

    def _reference_models(self) -> membership.References:
        """Models of the row's own recipe on random halves of all records, shared by all seeds.

        A row may name another whose models serve it too. Beyond `OWN_REFERENCES` records all rows
        share those of the limit's recipe, on the records asked about.
        """
        data, participant = self.data, self.participant
        many = data.records > OWN_REFERENCES
        recipe = LIMIT if many else participant.calibrated_by or participant
        (x, y), (x_test, y_test) = data.train(recipe.view), data.test(recipe.view)
        n = min(len(y), len(y_test))
        if many and participant is not LIMIT:
            x, y = x[:n], y[:n]
        facts = [recipe.name, data.dataset.fingerprint, data.epsilon, data.delta, len(y)]
        name = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
        references = membership.train_references(
            lambda X, y, seed: recipe.make(data, seed, None).fit(X, y).predict_proba,
            np.concatenate([x, x_test]),
            np.concatenate([y, y_test]),
            self.references,
            seed=0,
            out=self.out / "references" / name,
            what=repr(facts),
            jobs=1,
        )
        return references.only(np.r_[:n, len(y) : len(y) + len(y_test)])

    def _open_ledger(self) -> Ledger:
        """The account, new or as an earlier attempt left it; it records and has no cap."""
        path = self.ledger_path
        if path.exists() and path.stat().st_size == 0:  # killed while it was made: nothing charged
            path.unlink()
        if path.exists():
            return Ledger.open(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return Ledger.create(
            path,
            cap_epsilon=math.inf,
            cap_delta=self.data.delta,
            adjacency=self.participant.adjacency,
            unit=self.participant.unit,
            protects=self.participant.protects,
            dataset=self.data.dataset.fingerprint,
        )

    def describe_ledger(self, charged_before: int) -> dict[str, Any]:
        """The account of a finished cell, its chain verified; the first entries of killed runs."""
        path = self.ledger_path
        if not path.exists():
            raise LedgerError(
                path, "is gone, and its cell was finished",
                "bring it back, or remove the whole folder",
            )  # fmt: skip
        ledger = Ledger.open(path)
        checked = ledger.verify()
        return {
            "account": str(self),
            "file": path.name,
            "spent": number_to_json(checked.spent),
            "head": checked.head,
            "entries": [
                {
                    "what": entry.what,
                    "epsilon": number_to_json(entry.loss.epsilon(ledger.cap_delta)),
                    "interrupted": entry.sequence <= charged_before,
                }
                for entry in ledger.entries()
            ],
        }


def audit_by_canaries(
    participant: Participant, data: ComparisonData, seed: int, ledger: Ledger | None
) -> Finding:
    """A one-run audit by mislabelled canaries; the control is the non-private limit."""
    neighbours = participant.adjacency, participant.protects
    canaries, same = (_canaries(data, p.view, seed) for p in (participant, LIMIT))
    begin = time.perf_counter()
    model = participant.make(data, seed, ledger).fit(*canaries.training_set(*neighbours))
    seconds = time.perf_counter() - begin
    control = LIMIT.make(data, seed, None).fit(*same.training_set(*neighbours))
    guesses = 2 * max(1, round(GUESSES * len(canaries.y) / 2))
    return OneRunAudit(guesses=guesses, delta=data.delta).run(
        canaries.scores(model.predict_proba),
        canaries.included,
        what=f"{participant.name} on {data.dataset.name}",
        proved=model.guarantee_.epsilon,
        claimed=None if model.claim_ is None else model.claim_.epsilon,
        control=same.scores(control.predict_proba),
        seconds=seconds,
    )


def _canaries(data: ComparisonData, view: View, seed: int) -> Canaries:
    """The last third of the records; the same ones, with the same coins, in every view."""
    x, y = data.train(view)
    rng, classes = seeded(seed).child("canaries"), len(data.classes)
    return Canaries.with_wrong_labels(x, y, classes=classes, count=len(x) // 3, rng=rng)


def _promise(guarantee: Guarantee | None) -> dict[str, Any] | None:
    return None if guarantee is None else guarantee.to_dict()
