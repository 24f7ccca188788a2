"""A model card: what the model in a folder is, what is promised of it, and what is not.

It is written from the record alone (guarantee.json), so that `privet verify` can tell whether it
still says what the record says.
"""

from __future__ import annotations

import json
from typing import Any

from privet._words import Facts, chance, not_met, number, percent, promise_in_words
from privet.guarantee import EXPERIMENT
from privet.report.measures import in_markdown


def card(record: Facts) -> str:
    """The card as Markdown."""
    promise = record["guarantee"]
    sections = [
        f"# {record['mechanism']['method']} on {record['data']['name']}",
        *_mark(promise),
        _measured(record["measured"]),
        "## What is promised",
        f"{_promise(promise)} {promise_in_words(promise)}",
        f"**Who is covered.** {record['covered']} Neighbours are {record['neighbours']}.",
        _attackers(record),
        _premises(promise),
        "## What is only claimed",
        "Nothing." if record["claim"] is None else f"The paper states: {_promise(record['claim'])}",
        "## What is not promised",
        "\n".join(f"- {line}" for line in record["not_protected"]),
        "## Where it comes from",
        "\n".join(f"- {name}: {value}" for name, value in origin(record)),
        "## Evidence",
        "\n".join(f"- {line}" for line in evidence(record)) or "None was added to this record.",
        "## Settings",
        "\n".join(f"- {name}: {value}" for name, value in settings(record)),
        "`privet verify FOLDER` checks that this card, the model, the record and the ledger belong "
        "together. To publish: model.safetensors, guarantee.json, this card and run.html; "
        "keep the rest.",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def origin(record: Facts) -> list[tuple[str, str]]:
    """Who, what for, when, from what, by what and paid by what."""
    made, data, paid, given = (record[k] for k in ("made_by", "data", "ledger", "given"))
    commit = f", commit {made['commit'][:12]}" if made.get("commit") else ""
    found: list[tuple[str, Any]] = [
        ("purpose", given["purpose"] or "not given"),
        ("curator", given["curator"] or "not given"),
        ("region", given["region"]),
        ("justification", given["justification"]),
        ("date", record["date"] and record["date"][:16].replace("T", " ") + " UTC"),
        ("run", record["run"]),
        ("records", None if data["records"] is None else f"{data['records']:,}"),
        ("fingerprint of the data", data["fingerprint"]),
        ("made by", f"privet {made['privet']}{commit}"),
        ("trust", "central: noise is added by whoever holds the records"),
    ]
    if paid is not None:
        cap = (
            "no cap" if paid["cap"]["epsilon"] == "inf" else f"cap {number(paid['cap']['epsilon'])}"
        )
        entries = paid["entries"]
        numbers = f"{entries[0]['sequence']} to {entries[-1]['sequence']}"
        found += [
            ("ledger", f"{paid['identity']}{' (in memory, gone)' if paid['in_memory'] else ''}"),
            ("ledger head", paid["head"]),
            ("entries of this run", numbers if len(entries) > 1 else str(entries[0]["sequence"])),
            ("spent on these data so far", f"epsilon {number(paid['spent'])}, {cap}"),
        ]
    return [(name, str(value)) for name, value in found if value]


def evidence(record: Facts) -> list[str]:
    """Verdicts of audits and attacks that were added to the record."""
    return [f"{e['kind']}, {e['date'][:10]}: {e['text']}" for e in record["evidence"]]


def settings(record: Facts) -> list[tuple[str, str]]:
    """Domain and mechanism, as they are written in the record."""
    m = record["mechanism"]
    parts = {**record["domain"], **m["settings"], **m["plan"]}
    return [(k, v if isinstance(v, str) else json.dumps(v)) for k, v in parts.items()]


def _mark(promise: Facts) -> list[str]:
    why = not_met(promise)
    return [f"**{EXPERIMENT}.** Not met: {'; '.join(why)}."] if why else []


def _promise(p: Facts) -> str:
    epsilon = p["epsilon"]
    if epsilon == "inf":
        return f"**No bound is proved** ({p['theorem'] or 'no theorem applies'})."
    parts = "the whole record" if p["protects"] == "record" else p["protects"]
    shown = f"epsilon {epsilon:.4g}, delta {p['delta']:g} ({chance(p['delta'])})"
    bold = f"**{shown}**" if p.get("release", True) else shown
    return (
        f"{bold} per {p['unit']} ({p['adjacency']}), protecting {parts}; {p['standing']}: "
        f"{p['theorem']}."
    )


def _attackers(record: Facts) -> str:
    told = ", ".join(
        f"{percent(a['true_positive_rate_at_most'])} at {percent(a['false_positive_rate'])}"
        for a in record["attacker"]
    )
    return (
        "**What no attacker exceeds.** Of those whose record was used, nobody finds a larger share "
        f"than this at a given share of false alarms: {told}."
    )


def _premises(p: Facts) -> str:
    lines = [f"- {a['backing']}: {a['text']}" for a in p["premises"]]
    return "\n".join(["It rests on:", "", *lines]) if lines else "It rests on nothing further."


def _measured(metrics: Facts) -> str:
    return "\n\n".join(filter(None, (in_markdown(metrics), "Trained by privet.")))
