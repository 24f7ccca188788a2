"""How values show themselves in a notebook: small tables, numbers as people say them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape


def number(value: float | str | None) -> str:
    """An epsilon as a person reads it.

    >>> number("inf"), number(None), number(0.98765), number(42179.7)
    ('∞', '–', '0.988', '42,180')
    """
    if value is None:
        return "–"
    if value == "inf" or float(value) == math.inf:
        return "∞"
    return f"{float(value):.3g}" if float(value) < 1000.0 else f"{float(value):,.0f}"


def chance(delta: float) -> str:
    """A small probability in words.

    >>> chance(1e-5), chance(3e-7), chance(0.0), chance(0.2)
    ('1 in 100,000', '1 in 3.3 million', 'none', '1 in 5')
    """
    if delta <= 0.0:
        return "none"
    odds = float(f"{1.0 / delta:.2g}")
    for size, word in ((1e9, " billion"), (1e6, " million")):
        if odds >= size:
            return f"1 in {odds / size:,.3g}{word}"
    return f"1 in {odds:,.10g}"


def small_table(
    title: str, rows: Iterable[tuple[str, object]], *, mark: str = "", note: str = ""
) -> str:
    """A title and a table of names and values, with the colours of the page it stands on.

    >>> small_table("a < b", [("c", 1)])[:53]
    '<div style="max-width:46em"><strong>a &lt; b</strong>'
    """
    cells = "".join(
        '<tr><td style="text-align:left;vertical-align:top;opacity:.7;white-space:nowrap">'
        f'{escape(name)}</td><td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in rows
    )
    bad = f'<br><strong style="color:#c0392b">{escape(mark)}</strong>' if mark else ""
    more = f"<br><small>{escape(note)}</small>" if note else ""
    return (
        f'<div style="max-width:46em"><strong>{escape(title)}</strong>{bad}{more}'
        f"<table>{cells}</table></div>"
    )
