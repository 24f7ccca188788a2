"""Numbers and promises as people say them, no 1e-05 on a page; and small tables for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
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

    >>> odds(1.0), odds(8.0), odds(25.0)
    ('2.7', '2,981', 'a vast number of')
    """
    times = math.exp(min(float(epsilon), 700.0))
    if times >= 1e6:
        return "a vast number of"
    return f"{times:.2g}" if times < 100.0 else f"{times:,.0f}"


def points(share: float) -> str:
    """A small share in percentage points.

    >>> points(1e-5), points(0.0003)
    ('0.001', '0.03')
    """
    return f"{Decimal(f'{100.0 * share:.2g}'):f}"


def percent(share: float) -> str:
    """A share as a percentage without a tail of digits.

    >>> percent(0.0001), percent(0.27182), percent(0.999), percent(0.999987)
    ('0.01%', '27%', '99.9%', '99.999%')
    """
    shown = 100.0 * share
    if 99.0 < shown < 100.0:  # what is not certain is never called so
        return f"{min(shown, 99.999):.3f}".rstrip("0").rstrip(".") + "%"
    return f"{shown:.2g}%" if shown < 10.0 else f"{shown:.0f}%"


def promise_in_words(promise: Facts) -> str:
    """What an (epsilon, delta) says, for somebody who has never seen one."""
    epsilon = promise["epsilon"]
    if epsilon == "inf":
        return "Nothing is promised: no bound could be proved."
    about, left = {
        "record": ("one record", "that record had been left out"),
        "user": ("one person", "all of that person's records had been left out"),
        "teacher shard": (
            "one teacher's part of the records", "all of that part had been other records"),
    }.get(str(promise["unit"]), (f"one {promise['unit']}", "it had been left out"))  # fmt: skip
    if promise["adjacency"] == "replace-one" and promise["unit"] != "teacher shard":
        left = f"{about} had been another one"
    small = promise["delta"]
    but = "" if small == 0 else f", plus at most {points(small)} percentage points"
    return (
        f"Any conclusion someone draws about {about} from this model is at most {odds(epsilon)} "
        f"times as likely as if {left}{but}."
    )


def standing_in_words(standing: str, backings: Sequence[str]) -> str:
    """A standing, and what it rests on: "proved" alone only where every premise is enforced.

    >>> standing_in_words("proved", ["enforced"])
    'proved'
    >>> standing_in_words("proved", ["assumed", "assumed", "tested", "enforced"])
    'proved, if 2 assumed and 1 tested premises hold'
    >>> standing_in_words("proved", ["tested"]), standing_in_words("claimed", ["assumed"])
    ('proved, if 1 tested premise holds', 'claimed')
    """
    counts = {kind: backings.count(kind) for kind in ("assumed", "tested")}
    if standing != "proved" or not any(counts.values()):
        return standing
    rest = " and ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    return f"{standing}, if {rest} premise{' holds' if sum(counts.values()) == 1 else 's hold'}"


def standing_of(promise: Facts) -> str:
    """What `standing_in_words` says of a promise that is a mapping."""
    return standing_in_words(promise["standing"], [p["backing"] for p in promise["premises"]])


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
