"""What follows from a comparison, in three sentences that are computed from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Budgets = Mapping[float, Sequence[Row]]
"""The rows of each epsilon."""
_NAMED = 4
"""Methods that a sentence names: it says of longer lists how many more there are."""


def by_budget(results: Mapping[str, Any]) -> dict[float, list[Row]]:
    """The rows at each epsilon that was compared, the smallest first, at the delta of the last."""
    rows = results.get("curves") or results["rows"]
    mine = [row for row in rows if row["delta"] == results["delta"]]
    return {e: [r for r in mine if r["epsilon"] == e] for e in sorted({r["epsilon"] for r in mine})}


def conclusions(results: Mapping[str, Any]) -> list[str]:
    """Who is best under a proof, who did not learn, and what audits refuted."""
    budgets = by_budget(results)
    best = _best_alone(budgets) if len(budgets) == 1 else _best_at_each(budgets)
    return [best, _learning(budgets), _refuted(budgets)]


def _best_alone(budgets: Budgets) -> str:
    ((epsilon, rows),) = budgets.items()
    best = _best(rows)
    if best is None:
        return f"No method that learned has a proof at epsilon {epsilon:g}."
    low, high = best["accuracy_interval"]
    said = (
        f"At epsilon {epsilon:g} the most accurate method with a proof is {best['method']}: "
        f"{best['accuracy']:.1%} right ({low:.1%} to {high:.1%})"
    )
    if best["to_limit"] is not None:
        said += f", {_apart(best['to_limit'])}"
    equals = _equals(rows)
    return said + (f"; {names(equals)} cannot be told apart from it." if equals else ".")


def _apart(difference: Row) -> str:
    """How far from the model without privacy, in points, with the interval.

    >>> _apart({"mean": -0.083, "low": -0.1, "high": -0.06})
    '8.3 points (6.0 to 10.0) below no privacy'
    >>> _apart({"mean": -0.01, "low": -0.03, "high": 0.01})
    'not told apart from no privacy (-3.0 to +1.0 points)'
    """
    mean, low, high = (100 * difference[k] for k in ("mean", "low", "high"))
    if low <= 0.0 <= high:
        return f"not told apart from no privacy ({low:+.1f} to {high:+.1f} points)"
    least, most = sorted((abs(low), abs(high)))
    side = "below" if mean < 0 else "above"
    return f"{abs(mean):.1f} points ({least:.1f} to {most:.1f}) {side} no privacy"


def _best_at_each(budgets: Budgets) -> str:
    parts, before = [], None
    for epsilon, rows in budgets.items():
        best = _best(rows)
        if best is None:
            parts.append(f"none at epsilon {epsilon:g}")
            continue
        equals = len(_equals(rows))
        told = f", not told apart from {equals} other{'s' if equals > 1 else ''}" if equals else ""
        name = "" if best["method"] == before else f"{best['method']} "
        before = best["method"]
        parts.append(f"{name}at {epsilon:g} ({best['accuracy']:.1%}{told})")
    free = [row["accuracy"] for rows in budgets.values() for row in rows if not row["private"]]
    reached = f"; without privacy {max(free):.1%} is reached" if free else ""
    return f"The most accurate method with a proof, by epsilon: {', '.join(parts)}{reached}."


def _best(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row["best"] and row["learned"]), None)


def _equals(rows: Sequence[Row]) -> list[str]:
    """Methods with a proof whose paired difference to the best may be nothing."""
    return [
        row["method"]
        for row in rows
        if row["within_budget"] and row["to_best"] is not None and row["to_best"]["high"] >= 0.0
    ]


def _learning(budgets: Budgets) -> str:
    """Who did not learn; a list that is the same at each epsilon is told once."""
    failed = {e: [r["method"] for r in rows if not r["learned"]] for e, rows in budgets.items()}
    first = next(iter(budgets.values()))
    guess = f"guessing ({first[0]['guessing']:.1%})"
    if not any(failed.values()):
        return f"Every method learned: all are told apart from {guess}."
    lists = {tuple(found) for found in failed.values()}
    if len(lists) == 1:
        (found,) = lists
        where = " at any epsilon" if len(budgets) > 1 else ""
        return (
            f"{len(found)} of {len(first)} did not learn{where}, not told apart from {guess}: "
            f"{names(found)}."
        )
    parts = [f"{names(found)} at {e:g}" for e, found in failed.items() if found]
    return f"Did not learn, not told apart from {guess}: {'; '.join(parts)}."


def _refuted(budgets: Budgets) -> str:
    def methods(verdict: str) -> list[str]:
        found = [r["method"] for rows in budgets.values() for r in rows if r["verdict"] == verdict]
        return list(dict.fromkeys(found))

    false, mute = methods("falsified"), methods("uninformative")
    rest = [m for m in methods("consistent") if m not in (*false, *mute)]
    if not (false or mute or rest):
        return "No method makes a promise, so there was none to audit."
    said = f"Audits refuted what is stated of {names(false)}" if false else "Audits refuted nothing"
    if rest:
        said += f"; {len(rest)} promise{'s' if len(rest) > 1 else ''} withstood, which proves none"
    if mute:
        said += f"; of {names(mute)} the audit says nothing"
    return said + "."


def names(methods: Sequence[str]) -> str:
    """A list in a sentence, the first few by name.

    >>> names(["a"]), names(["a", "b", "c"]), names(list("abcdef"))
    ('a', 'a, b and c', 'a, b, c and 3 more')
    """
    shown = list(methods)
    if len(shown) > _NAMED:
        shown = [*shown[: _NAMED - 1], f"{len(shown) - _NAMED + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
