"""What a membership attack found: areas and rates with their limits, by class and by group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from privet import _check
from privet._words import small_table
from privet.audit.membership import _rows, intervals
from privet.audit.membership._rows import Floats, Mask
from privet.audit.membership.intervals import Estimate
from privet.errors import InvalidArgument

LOW_RATES = (0.001, 0.01)
"""The false-positive rates at which a true-positive rate is always told."""


@final
@dataclass(frozen=True, kw_only=True)
class AtThreshold:
    """An attack that says "member" from a threshold on, which was fixed beforehand.

    `precision` is at the share of members among the scored records; its limits follow from those
    of recall and false-positive rate, at alpha/2 each.
    """

    threshold: float
    recall: Estimate
    false_positive_rate: Estimate
    precision: Estimate

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        rates = ("recall", "false_positive_rate", "precision")
        return {"threshold": self.threshold} | _flat({r: getattr(self, r) for r in rates})


@final
@dataclass(frozen=True, kw_only=True)
class MembershipFinding:
    """How well scores tell members from non-members of one model's training set.

    `auc` has DeLong limits; the rates at a given false-positive rate have exact limits that allow
    for the choice of the threshold; rates at fixed thresholds are Clopper-Pearson. All limits are
    for records drawn anew *for this model and this attack*; another training run is another
    target. Limits of classes and groups are each for itself, not for all at once.

    >>> scores = np.array([3.0, 2.0, 1.5, 1.0, 0.5, 0.0])
    >>> found = evaluate(scores, np.array([True, True, False, True, False, False]), attack="mine")
    >>> print(found)
    mine: AUC 0.889 [0.261, 0.995], TPR at 1% FPR 0.667 [0, 1] (3 members, 3 others)
    """

    attack: str
    members: int
    non_members: int
    confidence: float
    auc: Estimate
    tpr_at: Mapping[float, Estimate]
    thresholds: tuple[AtThreshold, ...] = ()
    by_class: Mapping[str, MembershipFinding] = field(default_factory=dict)
    by_group: Mapping[str, MembershipFinding] = field(default_factory=dict)
    roc: tuple[Floats, Floats] = field(repr=False, compare=False)
    """False- and true-positive rates of every threshold, rising from (0, 0) to (1, 1)."""

    def to_dict(self, *, points: int = 200) -> dict[str, Any]:
        """A JSON-ready mapping: numbers under their names, limits under `..._interval`.

        `points`: so many of the ROC curve at most, evenly spread on a logarithmic axis.
        """
        named = {"auc": self.auc}
        named |= {f"tpr_at_{100 * f:g}pct_fpr": e for f, e in self.tpr_at.items()}
        out: dict[str, Any] = {"attack": self.attack} | _flat(named)
        out |= {
            "members": self.members,
            "non_members": self.non_members,
            "confidence": self.confidence,
            "thresholds": [t.to_dict() for t in self.thresholds],
            "by_class": {k: f.to_dict(points=0) for k, f in self.by_class.items()},
            "by_group": {k: f.to_dict(points=0) for k, f in self.by_group.items()},
        }
        if points:
            fpr, tpr = self.thinned(points)
            out["roc"] = {"fpr": fpr.tolist(), "tpr": tpr.tolist()}
        return out

    def thinned(self, points: int) -> tuple[Floats, Floats]:
        """The ROC curve at so many false-positive rates at most, as a step function."""
        fpr, tpr = self.roc
        wanted = np.concatenate([[0.0], np.geomspace(0.5 / self.non_members, 1.0, points)])
        last = np.unique(np.searchsorted(fpr, wanted, side="right") - 1)
        return fpr[last], tpr[last]

    def _repr_html_(self) -> str:
        rates = [(f"found at {f:.1%} false alarms", e) for f, e in self.tpr_at.items()]
        rows = [("area under the curve (0.5 is guessing)", self.auc), *rates]
        people = f"{self.members:,} members, {self.non_members:,} others"
        return small_table(self.attack, rows, note=people)

    def __str__(self) -> str:
        rates = ", ".join(f"TPR at {100 * f:g}% FPR {e}" for f, e in list(self.tpr_at.items())[-1:])
        return (
            f"{self.attack}: AUC {self.auc}, {rates} "
            f"({self.members:,} members, {self.non_members:,} others)"
        )


def evaluate(
    scores: Any,
    members: Any,
    *,
    attack: str = "attack",
    thresholds: Sequence[float] = (),
    classes: Any = None,
    groups: Any = None,
    false_positive_rates: Sequence[float] = LOW_RATES,
    confidence: float = 0.95,
) -> MembershipFinding:
    """Compare scores (higher speaks for membership) with the truth.

    `thresholds` must have been fixed before these scores were seen (on shadow models, say); the
    best of several on the same scores is not an attack but hindsight. `classes`, `groups`: one
    entry a record, for results by class (the label) and by group (any partition).

    **Guarantee** rates: the stated confidence, for independent records; area: asymptotically.

    >>> rng = np.random.default_rng(1)
    >>> nothing = evaluate(rng.normal(size=2000), np.arange(2000) < 1000)
    >>> nothing.auc.low < 0.5 < nothing.auc.high
    True
    """
    s = _rows.scores("scores", scores)
    m = _rows.members("members", members, len(s))
    rates = [_check.open_unit("false_positive_rates", f) for f in false_positive_rates]
    alpha = 1.0 - _check.open_unit("confidence", confidence)

    def finding(s: Floats, m: Mask) -> MembershipFinding:
        inside, outside = s[m], s[~m]
        return MembershipFinding(
            attack=attack,
            members=len(inside),
            non_members=len(outside),
            confidence=confidence,
            auc=intervals.area(inside, outside, alpha),
            tpr_at={f: intervals.at_false_positive_rate(inside, outside, f, alpha) for f in rates},
            thresholds=tuple(_at(float(t), inside, outside, alpha) for t in thresholds),
            roc=_curve(s, m),
        )

    def by(name: str, partition: Any) -> dict[str, MembershipFinding]:
        """A finding for each part that has members and non-members."""
        parts = np.asarray(partition)
        if parts.shape != s.shape:
            raise InvalidArgument(name, parts.shape, f"one entry for each of {len(s)} records")
        places = {str(part): parts == part for part in np.unique(parts)}
        both = {k: here for k, here in places.items() if m[here].any() and not m[here].all()}
        return {k: finding(s[here], m[here]) for k, here in both.items()}

    return replace(
        finding(s, m),
        by_class={} if classes is None else by("classes", classes),
        by_group={} if groups is None else by("groups", groups),
    )


def _at(t: float, inside: Floats, outside: Floats, alpha: float) -> AtThreshold:
    hits, alarms = int((inside >= t).sum()), int((outside >= t).sum())
    n1, n0 = len(inside), len(outside)
    r, f = (intervals.rate(k, n, alpha / 2.0) for k, n in ((hits, n1), (alarms, n0)))

    def precision(recall: float, false: float) -> float:
        right, wrong = n1 * recall, n0 * false
        return right / (right + wrong) if right + wrong > 0.0 else math.nan

    value = precision(r.value, f.value)
    low, high = precision(r.low, f.high), precision(r.high, f.low)
    return AtThreshold(
        threshold=t,
        recall=intervals.rate(hits, n1, alpha),
        false_positive_rate=intervals.rate(alarms, n0, alpha),
        precision=Estimate(value=value, low=low, high=high),
    )


def _curve(s: Floats, m: Mask) -> tuple[Floats, Floats]:
    """Every corner of the empirical ROC curve; tied scores are passed in one step."""
    order = np.argsort(-s, kind="stable")
    falling = s[order]
    ends = np.append(np.flatnonzero(falling[1:] != falling[:-1]), len(s) - 1)
    hits = np.cumsum(m[order])[ends]
    alarms = ends + 1 - hits
    tpr = np.concatenate([[0.0], hits / hits[-1]])
    fpr = np.concatenate([[0.0], alarms / alarms[-1]])
    return fpr, tpr


def _flat(named: Mapping[str, Estimate]) -> dict[str, Any]:
    """value under the name, [low, high] under name_interval; what is undefined is null."""

    def number(x: float) -> float | None:
        return None if math.isnan(x) else x

    out: dict[str, Any] = {}
    for name, e in named.items():
        out[name] = number(e.value)
        out[f"{name}_interval"] = [number(e.low), number(e.high)]
    return out
