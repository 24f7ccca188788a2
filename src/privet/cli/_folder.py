"""The folder of a run: model, config, guarantee, metrics and card, each written whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet._files import write_json, write_whole
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.guarantee import Adjacency, Guarantee, Unit
    from privet.ledger import Ledger


KNOWN = "the number of records, and which of them are kept for tests, are public"
SEEDED = "nobody knows or guesses the seed of the noise: this is an experiment, not a release"


def new(out: Path) -> None:
    """Make the folder of a new run; one with a finished run is left alone."""
    if (out / "guarantee.json").exists():
        raise InvalidArgument("--out", str(out), "a folder without a run", "name another one")
    make(out)


def make(out: Path) -> None:
    """Make the folder, or say why not."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InvalidArgument("--out", str(out), "a folder that can be made", str(e)) from None
    if not os.access(out, os.W_OK):
        raise InvalidArgument("--out", str(out), "a folder that can be written to")


def ledger_of(
    path: Path | None, out: Path, epsilon: float, delta: float, **terms: Adjacency | Unit
) -> Ledger:
    """The ledger named, or one of the run's own whose cap is its budget."""
    from privet.ledger import Ledger

    if path is not None:
        return Ledger.open(path)
    own = out / "run.ledger"
    if own.exists():
        return Ledger.open(own)
    out.mkdir(parents=True, exist_ok=True)
    return Ledger.create(own, cap_epsilon=epsilon, cap_delta=delta, **terms)  # type: ignore[arg-type]


def leave(
    out: Path,
    *,
    model: bytes,
    config: dict[str, Any],
    metrics: dict[str, Any],
    guarantee: Guarantee,
    claim: Guarantee | None,
) -> dict[str, Any]:
    """Write everything, the guarantee last; returns what scripts may rely on.

    A command counts the records of a file and sets some apart for tests by that count, so that one
    record more or less could send others to the other part: the guarantee says that it rests on it.
    """
    from privet.methods.base import assuming
    from privet.report.card import card

    seeded = (SEEDED,) if config.get("noise") == "seeded" else ()
    guarantee = assuming(guarantee, KNOWN, *seeded)
    out.mkdir(parents=True, exist_ok=True)
    promise = {
        "guarantee": guarantee.to_dict(),
        "claim": None if claim is None else claim.to_dict(),
    }
    text = card(config, metrics, promise["guarantee"] or {}, promise["claim"])
    write_whole(out / "model.safetensors", model)
    write_whole(out / "README.md", text)
    for name, value in (("config", config), ("metrics", metrics), ("guarantee", promise)):
        write_json(out / f"{name}.json", value)
    about = {"method": config["method"], "data": config["data"]}
    return {**about, **metrics, **promise, "out": str(out)}
