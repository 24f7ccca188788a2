"""A model card: what the model in a folder is, what is promised of it, and what is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privet.report.measures import in_markdown

Facts = Mapping[str, Any]


def card(config: Facts, metrics: Facts, guarantee: Facts, claim: Facts | None) -> str:
    """The card as Markdown.

    >>> promise = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "add-remove", "unit": "record",
    ...            "protects": "record", "standing": "proved", "theorem": "T", "premises": []}
    >>> print(card({"method": "dpsgd", "data": "digits"}, {"test_accuracy": 0.9}, promise,
    ...            None).splitlines()[0])
    # dpsgd on digits
    """
    sections = (
        f"# {config['method']} on {config['data']}",
        _measured(metrics),
        "## What is promised",
        _promise(guarantee),
        _premises(guarantee),
        "## What is only claimed",
        "Nothing." if claim is None else f"The paper states: {_promise(claim)}",
        "## What is not promised",
        "That facts about groups stay hidden: a model is there to learn them. That the number of "
        "records, the declared ranges and the classes are secret: they are public. That the test "
        "accuracy above, or anything else computed from the records outside the ledger, is "
        "private.",
        "## Settings",
        "\n".join(f"- {name}: {value}" for name, value in config.items()),
    )
    return "\n\n".join(sections) + "\n"


def _promise(p: Facts) -> str:
    epsilon = p["epsilon"]
    if epsilon == "inf":
        return f"**No bound is proved** ({p['theorem'] or 'no theorem applies'})."
    return (
        f"**epsilon {epsilon:.4g}, delta {p['delta']:g}** per {p['unit']} ({p['adjacency']}), "
        f"protecting {_protected(str(p['protects']))}; {p['standing']}: {p['theorem']}."
    )


def _protected(what: str) -> str:
    return "the whole record" if what == "record" else what


def _premises(p: Facts) -> str:
    lines = [f"- {a['backing']}: {a['text']}" for a in p["premises"]]
    return "\n".join(["It rests on:", "", *lines]) if lines else "It rests on nothing further."


def _measured(metrics: Facts) -> str:
    return "\n\n".join(filter(None, (in_markdown(metrics), "Trained by privet.")))
