"""What a membership attack found: areas and rates with their limits, by class and by group.

Symbols: n1 members, n0 non-members, alpha = 1 - confidence, ROC(f) the largest true-positive rate
of a rule "score > t" whose true false-positive rate is at most f.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from scipy import special, stats

from privet import _check
from privet._formatting import small_table
from privet.audit.epsilon_lower_bounds import clopper_pearson
from privet.audit.membership import input_checks
from privet.audit.membership.input_checks import Floats, Mask
from privet.errors import InvalidArgument

LOW_RATES = (0.001, 0.01)
"""The false-positive rates at which a true-positive rate is always given."""


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its confidence limits.

    >>> print(Estimate(value=0.5, low=0.4, high=0.61))
    0.5 [0.4, 0.61]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def rate(hits: int, trials: int, alpha: float) -> Estimate:
    """A rate with exact (Clopper-Pearson) limits.

    >>> print(rate(5, 100, 0.05))
    0.05 [0.0164, 0.113]
    """
    low, high = clopper_pearson(hits, trials, alpha / 2.0)
    return Estimate(value=hits / trials, low=low, high=high)


def area(inside: Floats, outside: Floats, alpha: float) -> Estimate:
    """The area under the ROC curve, P[member scores higher] + P[they tie] / 2.

    Limits: DeLong's variance on the logit scale. It is 0 when all pairs of a member and another
    compare alike (complete separation, or one score for all); then m = min(n1, n0) disjoint pairs
    give exact limits: another outcome has a probability of at most u = 1 - (alpha/2)^(1/m), so the
    area is between value (1 - u) and value + u (1 - value).

    **Assumes** enough records for the area to be nearly normal (some tens a side; tested).

    DeLong, DeLong and Clarke-Pearson, *Biometrics* 44 (1988), by ranks as Sun and Xu (2014).

    >>> print(area(np.array([2.0, 3.0, 4.0, 5.0]), np.array([1.0, 2.5, 0.0, 3.5]), 0.05))
    0.812 [0.329, 0.975]
    """
    n1, n0 = len(inside), len(outside)
    both = stats.rankdata(np.concatenate([inside, outside]))
    over_outside = (both[:n1] - stats.rankdata(inside)) / n0  # share of non-members below each
    under_inside = 1.0 - (both[n1:] - stats.rankdata(outside)) / n1
    value = float(over_outside.mean())
    variance = (over_outside.var(ddof=1) / n1 if n1 > 1 else math.inf) + (
        under_inside.var(ddof=1) / n0 if n0 > 1 else math.inf
    )
    if variance == 0.0 or value in (0.0, 1.0):
        u = 1.0 - (alpha / 2.0) ** (1.0 / min(n1, n0))
        low, high = value * (1.0 - u), value + u * (1.0 - value)
    elif math.isinf(variance):
        low, high = 0.0, 1.0
    else:
        width = -special.ndtri(alpha / 2.0) * math.sqrt(variance) / (value * (1.0 - value))
        low, high = (float(special.expit(special.logit(value) + s * width)) for s in (-1, 1))
    return Estimate(value=value, low=low, high=high)


def at_false_positive_rate(inside: Floats, outside: Floats, f: float, alpha: float) -> Estimate:
    """ROC(f): the true-positive rate at a false-positive rate of f.

    The value is read off the empirical curve: at most floor(f n0) non-members above the threshold.
    That threshold was chosen on the scores it is reported for, so plain limits of the rate would be
    too narrow. These are exact for any law of the scores: the share of all non-members above the
    k-th largest of n0 scores is Beta(k, n0 - k + 1), so two order statistics t' > t have
    FPR(> t') <= f and FPR(>= t) > f, each but for alpha/4; members are independent of them, so
    Clopper-Pearson limits at alpha/4 of the rates above t' and from t on enclose ROC(f).

    **Guarantee** [low, high] holds ROC(f) with probability 1 - alpha, for independent records; low
    is 0 where n0 non-members cannot show so small a rate (f n0 below about 4).

    >>> rng = np.random.default_rng(0)
    >>> print(at_false_positive_rate(rng.normal(2, 1, 5000), rng.normal(0, 1, 5000), 0.01, 0.05))
    0.374 [0.321, 0.418]
    """
    n1, n0 = len(inside), len(outside)
    falling = np.sort(outside)[::-1]
    members = np.sort(inside)

    def above(t: float) -> int:
        return n1 - int(np.searchsorted(members, t, side="right"))

    allowed = math.floor(f * n0 + 1e-9)
    value = above(falling[allowed]) / n1 if allowed < n0 else 1.0
    quarter = alpha / 4.0
    k = int(stats.binom.ppf(quarter, n0, f))  # P[Bin(n0, f) >= k] >= 1 - alpha/4
    low = clopper_pearson(above(falling[k - 1]), n1, quarter)[0] if k >= 1 else 0.0
    k = int(stats.binom.ppf(1.0 - quarter, n0, f)) + 1  # P[Bin(n0, f) < k] >= 1 - alpha/4
    high = 1.0
    if k <= n0:
        from_it_on = n1 - int(np.searchsorted(members, falling[k - 1], side="left"))
        high = clopper_pearson(from_it_on, n1, quarter)[1]
    return Estimate(value=value, low=min(low, value), high=max(high, value))


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
            fpr, tpr = self.thin_curve(points)
            out["roc"] = {"fpr": fpr.tolist(), "tpr": tpr.tolist()}
        return out

    def thin_curve(self, points: int) -> tuple[Floats, Floats]:
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
    s = input_checks.scores("scores", scores)
    m = input_checks.members("members", members, len(s))
    rates = [_check.open_unit("false_positive_rates", f) for f in false_positive_rates]
    alpha = 1.0 - _check.open_unit("confidence", confidence)

    def finding(s: Floats, m: Mask) -> MembershipFinding:
        inside, outside = s[m], s[~m]
        return MembershipFinding(
            attack=attack,
            members=len(inside),
            non_members=len(outside),
            confidence=confidence,
            auc=area(inside, outside, alpha),
            tpr_at={f: at_false_positive_rate(inside, outside, f, alpha) for f in rates},
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
    r, f = (rate(k, n, alpha / 2.0) for k, n in ((hits, n1), (alarms, n0)))

    def precision(recall: float, false: float) -> float:
        right, wrong = n1 * recall, n0 * false
        return right / (right + wrong) if right + wrong > 0.0 else math.nan

    value = precision(r.value, f.value)
    low, high = precision(r.low, f.high), precision(r.high, f.low)
    return AtThreshold(
        threshold=t,
        recall=rate(hits, n1, alpha),
        false_positive_rate=rate(alarms, n0, alpha),
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
