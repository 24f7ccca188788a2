"""A ledger as lines to read: one for each charge, and one for all charges of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from privet._formatting import percent

if TYPE_CHECKING:
    from privet.ledger import Ledger

Entries = Sequence[Mapping[str, Any]]
WIDE = 120
"""Columns of a terminal in which a line of the ledger is a row of a table, not two lines."""


@final
@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """A charge, or all charges of one run."""

    numbers: str
    what: str
    run: str
    purpose: str
    loss: str
    spent: float
    who: str
    when: str


def lines(entries: Entries, *, unfolded: bool = False) -> list[LedgerLine]:
    """One line for each run and for each charge without one, in the order of their first charge.

    >>> from privet.ledger import Ledger
    >>> from privet.accounting import Gaussian
    >>> ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5)
    >>> for k in range(3):
    ...     entry = ledger.charge(Gaussian(mu=0.1), what=f"training, block {k}", run="r1")
    >>> [(line.numbers, line.what) for line in lines(ledger.export()["entries"])]
    [('1-3', 'training, block: 3 charges')]
    """
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for e in entries:
        run = None if unfolded else e.get("run")
        groups.setdefault(e["sequence"] if run is None else run, []).append(e)
    return [_line(group) for group in groups.values()]


def _line(group: list[Mapping[str, Any]]) -> LedgerLine:
    from privet.ledger.releases import common_words

    first, last = group[0], group[-1]
    what, numbers = str(first["what"]), str(first["sequence"])
    if len(group) > 1:
        what = f"{common_words([str(e['what']) for e in group])}: {len(group)} charges"
        numbers += f"-{last['sequence']}"
    return LedgerLine(
        numbers=numbers,
        what=what,
        run=str(first.get("run") or ""),
        purpose=str(first.get("purpose") or ""),
        loss=describe_loss(compose_charges(group)),
        spent=float(last["spent"]),
        who=", ".join(dict.fromkeys(str(e["who"]) for e in group)),
        when=str(last["when"])[:16].replace("T", " "),
    )


def compose_charges(group: Entries) -> dict[str, Any]:
    """The loss of some charges together, as a dictionary."""
    from privet import accounting as losses

    return losses.compose([losses.from_dict(e["loss"]) for e in group]).to_dict()


def draw(ledger: Ledger, exported: Mapping[str, Any], last: int, *, run: str | None = None) -> None:
    """The budget as a bar, the last lines as a table; with `run` that run's charges one by one."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    spent, cap = float(exported["spent"]["epsilon"]), ledger.cap_epsilon
    console.print(f"[bold]{escape(ledger.name)}[/bold]", soft_wrap=True)
    per = f"per {ledger.unit.value}, {ledger.adjacency.value}"
    if math.isfinite(cap):
        rest = ledger.guarantee().standing_in_words
        console.print(
            f"promised: at most epsilon {cap:.4g} at delta {ledger.cap_delta:g}, {per}; {rest}",
            soft_wrap=True,
        )
    else:
        console.print(f"promised: nothing, there is no cap; delta {ledger.cap_delta:g}, {per}")
    console.print(
        f"spent until now: at most epsilon {ledger.odometer().epsilon:.4g}, for whoever stops "
        "or goes on by what was seen; the promise above is for the whole",
        soft_wrap=True,
    )
    full, empty = ("#", "-") if console.options.ascii_only else ("█", "░")
    share = min(1.0, spent / cap) if math.isfinite(cap) else 0.0
    width = max(10, min(40, console.width - 40))
    filled = round(share * width)
    colour = "green" if share < 0.5 else "yellow" if share < 0.9 else "red"
    console.print(
        f"[{colour}]{full * filled}[/]{empty * (width - filled)} "
        f"bookkeeping: epsilon {spent:.4g} of {cap:.4g} ({percent(share)})"
    )
    if ledger.dataset or ledger.is_backup:
        told = [f"data {escape(ledger.dataset)}"] if ledger.dataset else []
        console.print(", ".join([*told, *(["a backup"] if ledger.is_backup else [])]))
    for sub_cap, gone in ledger.sub_caps:
        console.print(f"{escape(str(sub_cap))}: {gone:.4g} of {sub_cap.epsilon:.4g}")
    entries = [e for e in exported["entries"] if run is None or e.get("run") == run]
    every = lines(entries, unfolded=run is not None)
    rows = every[len(every) - min(last, len(every)) :]
    if rows and console.width >= WIDE:
        console.print(_table(rows))
    for line in rows if console.width < WIDE else ():
        details = filter(None, (line.run, line.loss, f"by {line.who}"))
        why = f", for {line.purpose}" if line.purpose else ""
        first = f"{line.numbers:>7}  {line.when} UTC  spent {line.spent:<6.4g}  {line.what}{why}"
        console.print(escape(first), soft_wrap=True)
        console.print(escape(f"{'':>7}  {', '.join(details)}"), style="dim", soft_wrap=True)
    if len(rows) < len(every):
        console.print(f"{len(every) - len(rows)} earlier lines not shown")
    if any(line.numbers.count("-") for line in rows):
        console.print("a run is one line; `privet ledger show FILE --run NAME` unfolds it")
    console.print(f"head {exported['head']}", soft_wrap=True)
    console.print(
        "note the head elsewhere: a ledger restored from an older copy has forgotten charges, and "
        "only `privet ledger verify FILE --head NOTED` shows it",
        style="dim", soft_wrap=True,
    )  # fmt: skip


def _table(rows: list[LedgerLine]) -> Any:
    """The lines side by side, without the columns that none of them fills."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    columns = {
        "#": [line.numbers for line in rows],
        "what": [line.what for line in rows],
        "run": [line.run for line in rows],
        "purpose": [line.purpose for line in rows],
        "loss": [line.loss for line in rows],
        "spent": [f"{line.spent:.4g}" for line in rows],
        "who": [line.who for line in rows],
        "when (UTC)": [line.when for line in rows],
    }
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    for name in filled:
        right = name in ("#", "spent")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in zip(*filled.values(), strict=True):
        table.add_row(*map(escape, row))
    return table


def describe_loss(loss: dict[str, Any]) -> str:
    """A loss in a few words, from its dictionary.

    >>> describe_loss({"adjacency": "add-remove", "parts": [{"kind": "Gaussian", "mu": 0.5}]})
    'Gaussian mu=0.5'
    """
    return " + ".join(
        " ".join([p["kind"], *(f"{k}={_brief(v)}" for k, v in p.items() if k != "kind")])
        for p in loss["parts"]
    )


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return _brief(value[0]) if len(value) == 1 else f"[{len(value)} values]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
