"""One HTML file that needs no network: what was compared, promised, attacked and spent."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from html import escape
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from privet._files import write_whole
from privet.errors import InvalidArgument
from privet.report.charts import COLOURS, Axis, Line, Mark, chart, legend, powers

Results = dict[str, Any]
VERSIONS = ("privet", "torch", "numpy", "scipy", "scikit-learn")


def write(results: Results, path: Path) -> Path:
    """Write the page of a comparison, whole or not at all."""
    try:
        write_whole(path, html(results))
    except OSError as e:
        raise InvalidArgument("page", str(path), "a file that can be written", str(e)) from None
    return path


def html(results: Results) -> str:
    """The page as text."""
    facts = results["data"]
    files = resources.files("privet.report")
    style, script = (files.joinpath(f"page.{kind}").read_text() for kind in ("css", "js"))
    title = f"privet: {facts['name']} at epsilon {results['epsilon']:g}"
    body = "".join(
        (
            _head(results),
            _words(results),
            _table(results["rows"]),
            _pictures(results),
            _promises(results["rows"]),
            _spent(results["rows"]),
            _settings(results),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{style}</style>'
        f"</head><body>{body}<script>{script}</script></body></html>\n"
    )


def _head(results: Results) -> str:
    facts = results["data"]
    return (
        f"<h1>{escape(facts['name'])}: every method at epsilon {results['epsilon']:g}</h1>"
        f'<p class="lead">{escape(facts["about"])}. {facts["records"]:,} records treated as '
        f"private, {facts['tested_on']:,} to test on, {facts['public_unlabelled']:,} public and "
        f"unlabelled. delta {results['delta']:g}; {results['seeds']} seed"
        f"{'s' if results['seeds'] > 1 else ''}.</p>"
    )


def _words(results: Results) -> str:
    epsilon = results["epsilon"]
    return (
        "<h2>In plain words</h2>"
        "<p><strong>What is promised.</strong> A method with a <em>proved</em> epsilon releases a "
        "model that would look almost the same if any one person's record had not been used. "
        f"At epsilon {epsilon:g}, nothing that anybody concludes from the model about whether "
        f"somebody was in the data becomes more than {_odds(epsilon)} times as likely, but for a "
        f"chance of about {results['delta']:g}. It holds against attackers with any knowledge and "
        "any computer, for as long as the ledger of these data stays within its cap.</p>"
        "<p><strong>To whom.</strong> To each unit named in the promise: mostly one record, for "
        "PATE all records of one teacher's site. A person with several records is covered only "
        "where the unit is the user.</p>"
        "<p><strong>What is not promised.</strong> That facts about groups stay hidden: the model "
        "is there to learn them. That the number of records, the declared ranges and the list of "
        "classes are secret: they are public. That a <em>claimed</em> epsilon holds: it is what a "
        "paper states, and an audit may have refuted it. An audit that finds little proves "
        "nothing; it can only refute.</p>"
    )


def _odds(epsilon: float) -> str:
    return f"{2.718281828459045**epsilon:.2g}" if epsilon < 20 else "a vast number of"


def _table(rows: Sequence[Results]) -> str:
    names = ("method", "accuracy", "claimed ε", "proved ε", "audited ε", "attack AUC",
             "TPR at 1%", "time", "verdict")  # fmt: skip
    head = "".join(f'<th scope="col"><button type="button">{n}</button></th>' for n in names)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return (
        '<h2>The table</h2><div class="wide"><table data-sort>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        '<p class="small">Accuracy with its 95% interval. Claimed: what a paper states. Proved: '
        "what we can prove. Audited: what an attack has shown (a lower bound, 95%), by canaries in "
        "one training run. Verdict: <em>falsified</em> if audited is above the claim (or the proof "
        "where nothing is claimed), <em>uninformative</em> if the audit could not have reached it, "
        "else <em>consistent</em>. AUC 0.5 is guessing. Time: training, in multiples of the "
        "non-private limit. Click a heading to sort.</p>"
    )


def _row(row: Results) -> str:
    low, high = row["accuracy_interval"]
    cells = [
        f"<td>{escape(row['method'])}<br><span class=small>{escape(row['system'])}</span></td>",
        f'<td data-value="{row["accuracy"]:.6f}">{row["accuracy"]:.1%}'
        f"<br><span class=small>{low:.1%} to {high:.1%}</span></td>",
    ]
    for kind in ("claimed", "proved", "audited"):
        value = row[f"{kind}_epsilon"]
        cells.append(f'<td data-value="{"" if value is None else value}">{number(value)}</td>')
    cells += [
        f'<td data-value="{row[key]:.6f}">{row[key]:.3f}</td>'
        for key in ("attack_auc", "attack_tpr_at_1pct_fpr")
    ]
    cells.append(f'<td data-value="{row["time_ratio"]:.6f}">{row["time_ratio"]:.1f}×</td>')
    verdict = escape(row["verdict"])
    cells.append(f'<td class="{verdict.replace(" ", "-")}">{verdict}</td>')
    return "".join(cells)


def number(value: float | str | None) -> str:
    """An epsilon as a person reads it.

    >>> number("inf"), number(None), number(0.98765)
    ('∞', '–', '0.988')
    """
    if value is None:
        return "–"
    return "∞" if value == "inf" else f"{float(value):.3g}"


def _pictures(results: Results) -> str:
    rows = results["rows"]
    figures = [
        _figure(*_utility(rows)),
        _figure(*_roc(rows)),
        *(_figure(svg, caption, paper=True) for svg, caption in results.get("pictures", ())),
    ]
    return f'<h2>Pictures</h2><div class="pictures">{"".join(figures)}</div>'


def _figure(picture: str, caption: str, *, paper: bool = False) -> str:
    kind = ' class="paper"' if paper else ""
    return f"<figure{kind}>{picture}<figcaption>{caption}</figcaption></figure>"


def _utility(rows: Sequence[Results]) -> tuple[str, str]:
    x = Axis(low=0.05, high=1e6, log=True, label="epsilon (right edge: no bound)",
             ticks=[*powers(-1, 5), (1e6, "∞")])  # fmt: skip
    y = Axis(low=0.0, high=1.0, label="accuracy", ticks=[(k / 5, f"{20 * k}%") for k in range(6)])
    marks, entries = [], []
    for row, colour in zip(rows, _colours(rows), strict=True):
        entries.append((row["method"], colour, False))
        for kind, hollow in (("proved", False), ("claimed", True)):
            value = row[f"{kind}_epsilon"]
            if value is None:
                continue
            at = float(value)
            name = f"{row['method']}: {row['accuracy']:.1%}, {kind} epsilon {number(value)}"
            marks.append(Mark(x=at, y=row["accuracy"], name=name, colour=colour, hollow=hollow))
    picture = chart("accuracy against epsilon", x, y, marks=marks)
    return picture + legend(entries), "Accuracy against epsilon: full proved, hollow only claimed."


def _roc(rows: Sequence[Results]) -> tuple[str, str]:
    axis = {"low": 1e-3, "high": 1.0, "log": True, "ticks": powers(-3, 0)}
    x = Axis(label="false-positive rate", **axis)  # type: ignore[arg-type]
    y = Axis(label="true-positive rate", **axis)  # type: ignore[arg-type]
    lines = [
        Line(
            points=[
                (f, t)
                for f, t in zip(
                    row["attack"]["roc"]["fpr"], row["attack"]["roc"]["tpr"], strict=True
                )
                if f > 0
            ],
            name=f"{row['method']}: AUC {row['attack_auc']:.3f}",
            colour=colour,
        )
        for row, colour in zip(rows, _colours(rows), strict=True)
    ]
    picture = chart("membership attack", x, y, lines=lines, diagonal=True)
    caption = "Who was in the training set? The loss attack on each model; dashed: guessing."
    return picture + legend([(row["method"], c, False) for row, c in
                             zip(rows, _colours(rows), strict=True)]), caption  # fmt: skip


def _colours(rows: Sequence[Results]) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(rows))]


def _promises(rows: Sequence[Results]) -> str:
    cards = []
    for row in rows:
        stated = row["guarantee"]
        if stated is None:
            continue
        premises = "".join(
            f"<li><em>{escape(a['backing'])}</em>: {escape(a['text'])}</li>"
            for a in stated["assumptions"]
        )
        claim = row["claim"]
        other = "" if claim is None else f"<p>Claimed: {escape(claim['text'])}</p>"
        theorem = (
            f'<p class="small">By: {escape(stated["theorem"])}</p>' if stated["theorem"] else ""
        )
        cards.append(
            f'<div class="card"><h3>{escape(row["method"])}</h3><p>{escape(stated["text"])}</p>'
            f"{other}{theorem}<ul>{premises}</ul></div>"
        )
    return f'<h2>The promises, and what they rest on</h2><div class="cards">{"".join(cards)}</div>'


def _spent(rows: Sequence[Results]) -> str:
    body = "".join(
        f"<tr><td>{escape(row['method'])}</td><td>{number(entry['epsilon'])}</td>"
        f"<td>{escape(entry['what'])}</td></tr>"
        for row in rows
        for entry in row["spent"]
    )
    return (
        '<h2>The ledger</h2><div class="wide"><table><thead><tr><th>method</th><th>epsilon of this '
        f"release</th><th>what</th></tr></thead><tbody>{body}</tbody></table></div>"
        '<p class="small">Each method has a ledger of its own here, as if it were the only one. '
        "Whoever releases several of these models spends all of them: compose them in one "
        "ledger.</p>"
    )


def _settings(results: Results) -> str:
    installed = []
    for name in VERSIONS:
        try:
            installed.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    facts = results["data"]
    lines = (
        f"data fingerprint <code>{escape(facts['fingerprint'])}</code>",
        f"{facts['features']} features, {facts['classes']} classes",
        f"noise seeded by cell (an experiment, not a release); {results['seeds']} seeds",
        "this page is not private itself: accuracies, attacks, audits and the fingerprint come "
        "from the records without noise; keep it where the records are",
        f"Python {platform.python_version()}, {', '.join(installed)}",
    )
    return f"<h2>Settings</h2><ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"
