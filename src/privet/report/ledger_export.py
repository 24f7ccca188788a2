"""The releases of a ledger as a table that spreadsheets open."""

from __future__ import annotations

import csv
import io
from typing import Any

from privet.ledger import Ledger, LedgerRelease

COLUMNS = ("date", "run", "what", "purpose", "who", "charges", "epsilon", "spent")


def releases_as_csv(ledger: Ledger) -> str:
    """A line for each release, for a spreadsheet; dates are UTC.

    >>> from privet.accounting import Gaussian
    >>> ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5)
    >>> entry = ledger.charge(Gaussian(mu=0.3), what="mean, age", who="ada")
    >>> print(releases_as_csv(ledger).splitlines()[1][10:])
    ,,"mean, age",,ada,1,1.1318,1.1318
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for release in ledger.releases():
        row = release_row(release, ledger.cap_delta)
        writer.writerow({k: _no_formula(row[k]) for k in COLUMNS})
    return file.getvalue()


def _no_formula(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple("=+-@\t\r")) else value


def release_row(release: LedgerRelease, delta: float) -> dict[str, Any]:
    """One release as a line of a table."""
    return {
        "date": release.date,
        "run": release.run or "",
        "what": release.what,
        "purpose": release.purpose or "",
        "who": release.who,
        "charges": len(release.entries),
        "epsilon": f"{release.epsilon(delta):.5g}",
        "spent": f"{release.spent:.5g}",
    }
