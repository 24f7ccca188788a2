"""The card and the page of a run: what the model is, what is promised of it, and what is not.

`card` is Markdown; `run_page` is a sheet of A4 for whoever signs, and one click deeper for the
engineer. Both are written from the record alone (guarantee.json), so that `privet verify` can tell
whether they still say what the record says.
"""

from __future__ import annotations

import json
from typing import Any

from privet._formatting import Facts, chance, not_met, number, promise_in_words, standing_of
from privet.guarantee import EXPERIMENT
from privet.report.officer_words import believed, claim_in_words
from privet.report.rendering import render_html, render_markdown

FIELDS = (
    "purpose", "curator", "contact", "lawful_basis", "retention", "recipients", "region",
    "justification",
)  # fmt: skip
"""What only people can say, in the order of a page; each is shown, also where it was not given."""
_MEASURES = {
    "test_accuracy": "accuracy", "balanced_accuracy": "balanced accuracy",
    "mean_absolute_error": "mean absolute error", "r2": "R2",
}  # fmt: skip
UNKNOWN = (
    "This is what was charged to this ledger. What was charged on the same data in another ledger, "
    "or released without one, no card can know: ask the curator, whose key finds all runs on these "
    "data (privet verify --data)."
)


def card(record: Facts) -> str:
    """The card as Markdown."""
    return render_markdown("card.md.j2", **_shared_values(record))


def run_page(record: Facts) -> str:
    """One HTML file that needs no network."""
    return render_html(
        "run.html.j2",
        **_shared_values(record),
        lead=_lead(record),
        headline=_headline(record),
        origin_in_short=[
            (k, v if len(v) < 60 or k in record["given"] else f"{v[:28]}…")
            for k, v in origin(record)
        ],
        figure=_curve(record),
        loss=json.dumps(record["mechanism"]["loss"]),
    )


def _shared_values(record: Facts) -> dict[str, Any]:
    promise = record["guarantee"]
    return {
        "title": f"{record['mechanism']['method']} on {record['data']['name']}",
        "record": record,
        "promise": promise,
        "meaning": promise_in_words(promise),
        "experiment": EXPERIMENT,
        "unmet": not_met(promise),
        "origin": origin(record),
        "evidence": evidence(record),
        "explanation": record.get("explanation"),
        "believed": believed(promise),
        "claimed": claim_in_words(record["claim"]),
        "releases": (record["ledger"] or {}).get("releases") or [],
        "spending": _spending(record),
        "measured": released_metrics(record["measured"].get("test")),
        "unknown_spending": UNKNOWN,
        "settings": settings(record),
    }


def origin(record: Facts) -> list[tuple[str, str]]:
    """Who made it, for what, when, from which data, by which software and accountant."""
    made, data, account, given = (record[k] for k in ("made_by", "data", "ledger", "given"))
    commit = f", commit {made['commit'][:12]}" if made.get("commit") else ""
    facts: list[tuple[str, Any]] = [
        *((name.replace("_", " "), given.get(name) or "not given") for name in FIELDS),
        ("date", record["date"] and record["date"][:16].replace("T", " ") + " UTC"),
        ("run", record["run"]),
        ("records", None if data["records"] is None else f"{data['records']:,}"),
        ("identity of the data", data["fingerprint"] or "not recorded: no curator's key"),
        ("made by", f"privet {made['privet']}{commit}"),
    ]
    if account is not None:
        cap = account["cap"]["epsilon"]
        limit = "no cap" if cap == "inf" else f"cap {number(cap)}"
        gone = " (in memory, gone)" if account["in_memory"] else ""
        entries = account["entries"]
        numbers = f"{entries[0]['sequence']} to {entries[-1]['sequence']}"
        facts += [
            ("ledger", f"{account['identity']}{gone}"),
            ("ledger head", account["head"]),
            ("entries of this run", numbers if len(entries) > 1 else str(entries[0]["sequence"])),
            ("spent in this ledger", f"epsilon {number(account['spent'])}, {limit}"),
        ]
    return [(name, str(value)) for name, value in facts if value]


def _spending(record: Facts) -> str:
    """What the ledger held when this was written, and what the same training would cost again."""
    account = record["ledger"] or {}
    if not account.get("releases"):
        return ""
    n = len(account["releases"]) + account["earlier_releases"]
    cap = account["cap"]["epsilon"]
    limit = "without a cap" if cap == "inf" else f"of at most {number(cap)}"
    releases = "This release is the only one" if n == 1 else f"{n} releases with this one"
    text = (
        f"{releases}: epsilon {number(account['spent'])} {limit} "
        f"({number(account['odometer'])}, if somebody may stop or go on after seeing results)."
    )
    if account["earlier_releases"]:
        text += f" The last {len(account['releases'])} are listed."
    after = account.get("after_one_more")
    if after is None:
        return text
    over = cap != "inf" and float(after) > float(cap)
    return (
        f"{text} The same training once more would bring it to {number(after)}"
        f"{', which the ledger would refuse' if over else ''}."
    )


def released_metrics(found: Facts | None) -> str:
    """What was released of how good the model is, in a line; empty where nothing was.

    >>> exact = {"epsilon": 0.1, "delta": 0.0}
    >>> released_metrics({"r2": 0.5, "noise_deviation": {"r2": 0.1}, "guarantee": exact})
    'R2 0.5 (noise 0.1); released at epsilon 0.1 for each person kept for tests.'
    """
    if found is None:
        return ""
    off = found["noise_deviation"]
    shown = ", ".join(
        f"{text} {found[k]:.1%} (noise {off[k]:.1%})"
        if k.endswith("accuracy")
        else f"{text} {found[k]:.4g} (noise {off[k]:.2g})"
        for k, text in _MEASURES.items()
        if k in found
    )
    price = number(found["guarantee"]["epsilon"])
    return f"{shown}; released at epsilon {price} for each person kept for tests."


def evidence(record: Facts) -> list[str]:
    """Verdicts of audits and attacks that were added to the record."""
    return [f"{e['kind']}, {e['date'][:10]}: {e['text']}" for e in record["evidence"]]


def settings(record: Facts) -> list[tuple[str, str]]:
    """Domain and mechanism, as they are written in the record."""
    m = record["mechanism"]
    parts = {**record["domain"], **m["settings"], **m["plan"]}
    return [(k, v if isinstance(v, str) else json.dumps(v)) for k, v in parts.items()]


def _lead(record: Facts) -> str:
    given = record["given"]
    parts = [given["purpose"], given["curator"], (record["date"] or "")[:10]]
    return " · ".join(part for part in parts if part) or "purpose and curator were not given"


def _headline(record: Facts) -> list[tuple[str, str]]:
    promise, account = record["guarantee"], record["ledger"]
    standing = standing_of(promise) if promise["release"] else "if all premises were met"
    cells = [
        (f"ε {number(promise['epsilon'])}", f"per {promise['unit']}, {standing}"),
        (chance(promise["delta"]), "the chance δ that the promise leaves out"),
        ("each " + promise["unit"], "is what is covered, not a group of them"),
    ]
    if account is not None:
        cap = account["cap"]["epsilon"]
        of = "" if cap == "inf" else f" of {number(cap)}"
        cells.append(
            (f"ε {number(account['spent'])}{of}", "spent in this ledger, this model included")
        )
    return cells


def _curve(record: Facts) -> dict[str, Any]:
    """Every (epsilon, delta) that holds, as a picture with its caption."""
    from privet.report import plots

    points = [
        (float(q["epsilon"]), q["delta"])
        for q in record["curve"]["points"]
        if q["epsilon"] != "inf" and q["delta"] >= plots.SMALLEST_DELTA
    ]
    mu = record["curve"]["mu"]
    law = "" if mu is None else f" It is that of a Gaussian release with mu {mu:.3g}."
    variant = record["curve"]["variant"].capitalize()
    return {
        "svg": plots.to_svg(plots.privacy_curve(points), "delta over epsilon"),
        "caption": f"{variant}: every pair on the curve holds.{law}",
        "legend": [],
        "maps": [],
    }
