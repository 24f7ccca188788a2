"""A ledger file for every cell that spends: charged before the release, whoever is killed when.

A cell that is run again after a kill is charged again: what the first attempt drew may have been
seen. So an account holds at least what was released, and never forgets.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from privet.compare.bench import Bench
from privet.compare.entrants import Entrant
from privet.errors import LedgerError
from privet.guarantee import number_to_json
from privet.ledger import Entry, Ledger


def path_for(folder: Path, name: str, key: str) -> Path:
    """Where the account of a cell lies.

    >>> path_for(Path("out"), "pate: train, seed 0", "1f").name
    'pate-train-seed-0-1f.ledger'
    """
    return folder / f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{key}.ledger"


def opened(path: Path, entrant: Entrant, bench: Bench) -> Ledger:
    """The account, new or as an earlier attempt left it; it records and has no cap."""
    if path.exists() and path.stat().st_size == 0:  # killed while it was made: nothing was charged
        path.unlink()
    if path.exists():
        return Ledger.open(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return Ledger.create(
        path,
        cap_epsilon=math.inf,
        cap_delta=bench.delta,
        adjacency=entrant.adjacency,
        unit=entrant.unit,
        protects=entrant.protects,
        dataset=bench.dataset.fingerprint,
    )


def told(path: Path, name: str, before: int) -> dict[str, Any]:
    """A finished cell's account, its chain verified; `before` entries are of killed attempts."""
    if not path.exists():
        raise LedgerError(
            path, "is gone, and its cell was finished", "bring it back, or remove the whole folder"
        )
    ledger = Ledger.open(path)
    checked = ledger.verify()
    return {
        "account": name,
        "file": path.name,
        "spent": number_to_json(checked.spent),
        "head": checked.head,
        "entries": [_line(e, ledger.cap_delta, before) for e in ledger.entries()],
    }


def _line(entry: Entry, delta: float, before: int) -> dict[str, Any]:
    return {
        "what": entry.what,
        "epsilon": number_to_json(entry.loss.epsilon(delta)),
        "interrupted": entry.sequence <= before,
    }
