"""Numbers and promises as people say them, no 1e-05 on a page; and small tables for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

Facts = Mapping[str, Any]


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


def odds(epsilon: float | str) -> str:
    """e^epsilon in words.

    >>> odds(1.0), odds(25.0)
    ('2.7', 'a vast number of')
    """
    epsilon = float(epsilon)
    return f"{math.exp(epsilon):.2g}" if epsilon < 20 else "a vast number of"


def percent(share: float) -> str:
    """A share as a percentage without a tail of digits.

    >>> percent(0.0001), percent(0.27182), percent(0.999987)
    ('0.01%', '27%', '99.999%')
    """
    shown = 100.0 * share
    if shown > 99.9:
        return f"{min(shown, 99.999):.3f}%" if shown < 100.0 else "100%"
    return f"{shown:.2g}%" if shown < 10.0 else f"{shown:.0f}%"


def promise_in_words(promise: Facts) -> str:
    """What an (epsilon, delta) says, for somebody who has never seen one."""
    epsilon = promise["epsilon"]
    if epsilon == "inf":
        return "Nothing is promised: no bound could be proved."
    unit = {"record": "one person's record", "user": "one person with all records",
            "teacher shard": "one teacher's whole part of the data"}.get(
        str(promise["unit"]), f"one {promise['unit']}")  # fmt: skip
    small = promise["delta"]
    but = "" if small == 0 else f", but for a chance of {chance(small)}"
    return (
        f"Whatever anybody concludes from this model about {unit} is at most {odds(epsilon)} times "
        f"as likely as if the data had been without it{but}."
    )


def not_met(promise: Facts) -> list[str]:
    """The premises that are known not to hold."""
    return [p["text"] for p in promise["premises"] if p["backing"] == "not met"]


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
