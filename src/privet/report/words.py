"""Numbers and promises as people say them: no 1e-05 on a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from privet._html import chance

Facts = Mapping[str, Any]


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
