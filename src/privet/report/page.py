"""One HTML file that needs no network: what was compared, promised, attacked and spent."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date
from html import escape
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from privet._files import write_whole
from privet._words import chance, number, odds
from privet.errors import InvalidArgument
from privet.guarantee import EXPERIMENT
from privet.loss import SampledGaussian
from privet.report import figures
from privet.report.figures import over_epsilon

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
            _members(results["rows"]),
            _promises(results["rows"]),
            _ledgers(results["ledgers"]),
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
        f"private, {facts['tested_on']:,} to test on, {facts['public_unlabelled']:,} treated "
        f"as public, without labels. {results['seeds']} seed"
        f"{'s' if results['seeds'] > 1 else ''}; {date.today():%-d %B %Y}.</p>"
        f'<p class="mark"><strong>{EXPERIMENT}</strong><br>All noise comes from seeds, so that the '
        "comparison can be repeated.</p>"
    )


def _words(results: Results) -> str:
    epsilon = results["epsilon"]
    return (
        "<h2>In plain words</h2>"
        "<p><strong>What is promised.</strong> A method with a <em>proved</em> epsilon releases a "
        "model that would look almost the same if any one person's record had not been used. "
        f"At epsilon {epsilon:g}, nothing that anybody concludes from the model about whether "
        f"somebody was in the data becomes more than {odds(epsilon)} times as likely, but for a "
        f"chance of about {chance(results['delta'])}. It holds against attackers with any "
        "knowledge and any computer, for as long as the ledger of these data stays within its "
        "cap.</p>"
        "<p><strong>To whom.</strong> To each unit named in the promise: mostly one record, for "
        "PATE all records of one teacher's site. A person with several records is covered only "
        "where the unit is the user.</p>"
        "<p><strong>What is not promised.</strong> That facts about groups stay hidden: the model "
        "is there to learn them. That the number of records, the declared ranges and the list of "
        "classes are secret: they are public. That a <em>claimed</em> epsilon holds: it is what a "
        "paper states, and an audit may have refuted it. An audit that finds little proves "
        "nothing; it can only refute.</p>"
    )


def _table(rows: Sequence[Results]) -> str:
    names = ("", "method", "accuracy", "claimed ε", "proved ε", "audited ε", "attack AUC",
             "TPR at 1%", "time", "verdict")  # fmt: skip
    head = "".join(f'<th scope="col"><button type="button">{n}</button></th>' for n in names)
    body = "".join(f"<tr>{_row(k, row)}</tr>" for k, row in enumerate(rows, 1))
    return (
        '<h2>The table</h2><div class="wide"><table data-sort>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        '<p class="small">Accuracy with its 95% interval. Claimed: what a paper states. Proved: '
        "what we can prove. Audited: what an attack has shown, a lower bound: the account of all "
        "that is released, with noise as wide as many runs show it to be. Verdict: "
        "<em>falsified</em> if audited is above the claim or the proof, "
        "<em>uninformative</em> if the audit could not have reached them, "
        "else <em>consistent</em>. AUC 0.5 is guessing. Time: of the processor in training, in "
        "multiples of the non-private limit. Click a heading to sort.</p>"
    )


def _row(k: int, row: Results) -> str:
    low, high = row["accuracy_interval"]
    cells = [
        f'<td data-value="{k}">{k}</td>',
        f"<td>{escape(row['method'])}<br><span class=small>{escape(row['system'])}</span></td>",
        f'<td data-value="{row["accuracy"]:.6f}">{row["accuracy"]:.1%}'
        f"<br><span class=small>{low:.1%} to {high:.1%}</span></td>",
    ]
    for kind in ("claimed", "proved", "audited"):
        value = row[f"{kind}_epsilon"]
        cells.append(f'<td data-value="{"" if value is None else value}">{number(value)}</td>')
    below, above = row["attack"]["auc_interval"]
    cells += [
        f'<td data-value="{row["attack_auc"]:.6f}">{row["attack_auc"]:.3f}'
        f"<br><span class=small>{below:.2f} to {above:.2f}</span></td>",
        f'<td data-value="{row["attack_tpr_at_1pct_fpr"]:.6f}">'
        f"{row['attack_tpr_at_1pct_fpr']:.3f}</td>",
    ]
    cells.append(f'<td data-value="{row["time_ratio"]:.6f}">{row["time_ratio"]:.1f}×</td>')
    verdict = escape(row["verdict"])
    words = (
        "" if row["in_words"] is None else (f"<span class=words>{escape(row['in_words'])}</span>")
    )
    cells.append(f'<td class="{verdict.replace(" ", "-")}">{verdict}{words}</td>')
    return "".join(cells)


def _members(rows: Sequence[Results]) -> str:
    """Every membership attack on every model, the headline last."""
    body = ""
    for row in rows:
        for found in row["attacks"]:
            cells = "".join(
                f"<td>{found[k]:.3f} <span class=small>{found[f'{k}_interval'][0]:.3f} to "
                f"{found[f'{k}_interval'][1]:.3f}</span></td>"
                for k in ("auc", "tpr_at_0.1pct_fpr", "tpr_at_1pct_fpr")
            )
            named = f"<td>{escape(row['method'])}</td><td>{escape(found['attack'])}</td>"
            body += f"<tr>{named}{cells}</tr>"
    return (
        '<h2>Who was in the training set?</h2><div class="wide"><table class="plain"><thead><tr>'
        "<th>method</th><th>attack</th><th>AUC</th><th>TPR at 0.1%</th><th>TPR at 1%</th></tr>"
        f"</thead><tbody>{body}</tbody></table></div>"
        '<p class="small">As many training records as test records, with 95% intervals. The last '
        "attack of each model is the one in the table above: fixed beforehand, never the best.</p>"
    )


def _pictures(results: Results) -> str:
    rows, delta = results["rows"], results["delta"]
    drawn = [figures.utility(rows), figures.roc(rows)]
    if len({row["epsilon"] for row in results.get("curves", ())}) > 1:
        drawn.insert(0, over_epsilon(results["curves"]))
    drawn += [figures.relevance(r, results["data"]) for r in rows if r["relevance"] is not None]
    if results["run"] is not None:
        run = SampledGaussian(**results["run"])
        drawn += [figures.budget(run, delta), figures.validity(run, delta)]
    body = "".join(
        f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"
        for picture, caption in drawn
    )
    return f'<h2>Pictures</h2><div class="pictures">{body}</div>'


def _promises(rows: Sequence[Results]) -> str:
    cards = []
    for row in rows:
        stated = row["guarantee"]
        if stated is None:
            continue
        premises = "".join(
            f"<li><em>{escape(a['backing'])}</em>: {escape(a['text'])}</li>"
            for a in stated["premises"]
        )
        claim = row["claim"]
        other = "" if claim is None else f"<p>Claimed: {escape(_said(claim))}</p>"
        theorem = (
            f'<p class="small">By: {escape(stated["theorem"])}</p>' if stated["theorem"] else ""
        )
        cards.append(
            f'<div class="card"><h3>{escape(row["method"])}</h3><p>{escape(_said(stated))}</p>'
            f"{other}{theorem}<ul>{premises}</ul></div>"
        )
    return (
        "<h2>The promises, and what they rest on</h2>"
        "<p>Of a release. Here all noise comes from the seed of its cell, so that the comparison "
        "can be repeated: whoever knows the seed can take it off again.</p>"
        f'<div class="cards">{"".join(cards)}</div>'
    )


def _said(stated: Results) -> str:
    """A promise in a line, without powers of ten."""
    parts = f"ε {number(stated['epsilon'])} per {stated['unit']}, {stated['adjacency']}"
    small = stated["delta"]
    return f"{parts}, {stated['standing']}" + (
        f"; but for a chance of {chance(small)}" if small else ""
    )


def _ledgers(ledgers: Sequence[Results]) -> str:
    body = "".join(_account(ledger) for ledger in ledgers)
    return (
        '<h2>The ledgers</h2><div class="wide"><table class="plain"><thead><tr><th>account</th>'
        f"<th>spent ε</th><th>charged</th></tr></thead><tbody>{body}</tbody></table></div>"
        '<p class="small">Files in the folder <code>ledgers</code>, their chains verified for this '
        "page; <code>privet ledger show FILE</code> reads one. Each training has an account of its "
        "own, as if it were the only one, and was charged before it released anything. One that "
        "was interrupted and run again was charged again. Whoever shows several of these models "
        "spends all of them: compose them in one ledger. Methods without a proof have no account: "
        "no finite cost could be charged.</p>"
    )


def _account(ledger: Results) -> str:
    lines = "<br>".join(
        f"{number(e['epsilon'])}: {escape(e['what'])}"
        f"{' (an attempt that was interrupted)' if e['interrupted'] else ''}"
        for e in ledger["entries"]
    )
    return (
        f"<tr><td>{escape(ledger['account'])}</td><td>{number(ledger['spent'])}</td>"
        f"<td>{lines}</td></tr>"
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
        f"{facts['features']} features, {len(facts['classes'])} classes",
        f"noise seeded by cell (an experiment, not a release); {results['seeds']} seeds",
        "this page is not private itself: accuracies, attacks, audits and the fingerprint come "
        "from the records without noise; keep it where the records are",
        f"Python {platform.python_version()}, {', '.join(installed)}",
    )
    return f"<h2>Settings</h2><ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"
