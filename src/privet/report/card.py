"""A run told to people: what the model is, what is promised of it, and what is not.

`card` is Markdown; `run_page` is a sheet of A4 for whoever signs, and one click deeper for the
engineer. Both are written from the record alone (guarantee.json), so that `privet verify` can tell
whether they still say what the record says.
"""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from typing import Any

from privet._words import Facts, chance, not_met, number, percent, promise_in_words
from privet.guarantee import EXPERIMENT
from privet.report.charts import Axis, Line, chart, powers, round_ticks
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


def run_page(record: Facts) -> str:
    """One HTML file that needs no network, written from the record alone."""
    name = f"{record['mechanism']['method']} on {record['data']['name']}"
    style = resources.files("privet.report").joinpath("page.css").read_text()
    promise = record["guarantee"]
    body = "".join(
        (
            f'<main class="sheet"><h1>{escape(name)}</h1>',
            f'<p class="lead">{escape(_lead(record))}</p>',
            _marked(promise),
            _headline(record),
            f"<h2>What it means</h2><p>{escape(promise_in_words(promise))}</p>",
            f"<p><strong>Who is covered.</strong> {escape(record['covered'])}</p>",
            _attacker(record),
            "<h2>What is not promised</h2>",
            _list(record["not_protected"]),
            "<h2>What has to be believed</h2>",
            _list(_believed(promise)) or "<p>Nothing.</p>",
            "<h2>Evidence</h2>",
            _list(evidence(record)) or "<p>No audit or attack was added to this record.</p>",
            "<h2>Where it comes from</h2>",
            _pairs(_short(record)),
            '<p class="signed">Approved by<span></span>Date<span></span></p></main>',
            _deeper(record),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(name)}</title><style>{style}</style>'
        f'</head><body class="run">{body}</body></html>\n'
    )


def _lead(record: Facts) -> str:
    told = [record["given"]["purpose"], record["given"]["curator"], (record["date"] or "")[:10]]
    return " · ".join(part for part in told if part) or "purpose and curator were not given"


def _marked(promise: Facts) -> str:
    why = not_met(promise)
    if not why:
        return ""
    return (
        f'<p class="mark"><strong>{EXPERIMENT}</strong><br>Not met: {escape("; ".join(why))}.</p>'
    )


def _headline(record: Facts) -> str:
    p = record["guarantee"]
    paid, accuracy = record["ledger"], record["measured"].get("test_accuracy")
    cells = [
        (f"ε {number(p['epsilon'])}", f"per {p['unit']}, {_standing(p)}"),
        (chance(p["delta"]), "the chance δ that it does not hold"),
    ]
    if paid is not None:
        cap = paid["cap"]["epsilon"]
        of = "" if cap == "inf" else f" of {number(cap)}"
        cells.append((f"ε {number(paid['spent'])}{of}", "spent on these data so far"))
    if accuracy is not None:
        balanced = record["measured"].get("balanced_accuracy")
        alike = "" if balanced is None else f"; {balanced:.1%} with classes alike"
        cells.append((f"{accuracy:.1%}", f"right on test records{alike}"))
    return '<ul class="facts">' + "".join(
        f"<li><b>{escape(value)}</b>{escape(what)}</li>" for value, what in cells
    ) + "</ul>"  # fmt: skip


def _standing(promise: Facts) -> str:
    return str(promise["standing"]) if promise["release"] else "if all premises were met"


def _attacker(record: Facts) -> str:
    rows = record["attacker"][1:4]
    told = "; ".join(
        f"{percent(a['true_positive_rate_at_most'])} of them at "
        f"{percent(a['false_positive_rate'])} false alarms"
        for a in rows
    )
    return (
        "<p><strong>What no attacker exceeds.</strong> Somebody who tries to tell whose record was "
        f"used finds at most {escape(told)}.</p>"
    )


def _believed(promise: Facts) -> list[str]:
    return [p["text"] for p in promise["premises"] if p["backing"] == "assumed"]


def _short(record: Facts) -> list[tuple[str, str]]:
    return [(k, v if len(v) < 60 else f"{v[:28]}…") for k, v in origin(record) if k != "trust"]


def _deeper(record: Facts) -> str:
    """For the engineer: closed on the screen, and left out of print unless it was opened."""
    p = record["guarantee"]
    premises = "".join(
        f"<tr><td>{escape(a['backing'])}</td><td>{escape(a['about'])}</td>"
        f"<td>{escape(a['text'])}</td></tr>"
        for a in p["premises"]
    )
    more = [
        "<h2>Theorem and premises</h2>",
        f"<p>{escape(p['theorem'])}; neighbours are {escape(record['neighbours'])}.</p>",
        '<div class="wide"><table class="premises"><thead><tr><th>how</th><th>about</th>'
        f"<th>premise</th></tr></thead><tbody>{premises}</tbody></table></div>",
        f"<h2>The whole curve</h2><figure>{_curve(record)}<figcaption>{escape(_of_curve(record))}"
        "</figcaption></figure>",
    ]
    if record["trust"] is not None:
        actors = (f"{a['who']}: sees {a['sees']}; {a['trust']}" for a in record["trust"]["actors"])
        more += ["<h2>Who sees what</h2>", _list(list(actors))]
    if record["defences"] is not None:
        defences = record["defences"]
        more += [
            "<h2>Defences</h2>",
            _list([*defences["floating_point"], f"timing: {defences['timing']}"]),
        ]
    prepared = [f"{a['how']}: {a['text']}" for a in record["preparation"]]
    more += ["<h2>Preparation and choices</h2>", _list(prepared)] if prepared else []
    more += [
        "<h2>Origin in full</h2>",
        _pairs(origin(record)),
        "<h2>Settings</h2>",
        _pairs(settings(record)),
        "<h2>Loss</h2>",
        f"<p><code>{escape(json.dumps(record['mechanism']['loss']))}</code></p>",
    ]
    return f"<details><summary>For the engineer</summary>{''.join(more)}</details>"


def _curve(record: Facts) -> str:
    points = [
        (float(q["epsilon"]), q["delta"])
        for q in record["curve"]["points"]
        if q["epsilon"] != "inf" and q["delta"] >= 1e-10
    ]
    whole = [k for k, (e, _) in enumerate(points) if e == 0.0]  # where epsilon is 0 the line ends
    points = points[: whole[0] + 1] if whole else points
    high = max([1.0, *(e for e, _ in points)]) * 1.05
    x = Axis(low=0.0, high=high, ticks=round_ticks(high), label="epsilon")
    y = Axis(low=1e-10, high=1.0, log=True, ticks=powers(-10, 0)[::2], label="delta")
    line = Line(points=points, name="every pair on it holds", colour="var(--accent)", width=2.6)
    return chart("delta over epsilon", x, y, lines=[line])


def _of_curve(record: Facts) -> str:
    mu = record["curve"]["mu"]
    told = "" if mu is None else f" It is that of a Gaussian release with mu {mu:.3g}."
    return f"{record['curve']['variant'].capitalize()}: every pair on the curve holds.{told}"


def _list(lines: list[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _pairs(pairs: list[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs)
    return f"<dl>{rows}</dl>"
