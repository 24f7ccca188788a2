"""All that a fitted estimator keeps and saves, as plain text and bytes that can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from privet.ledger import Entry
from privet.mechanisms import release_transcript
from privet.methods.contract_checks import Messages

Data = tuple[Any, Any]


def shown(thing: Any, path: str = "", seen: frozenset[int] = frozenset()) -> dict[str, Any]:
    """Every number, word and array that can be reached from a thing, by the way to it."""
    if id(thing) in seen:
        return {}
    seen = seen | {id(thing)}
    if isinstance(thing, Entry):  # its run, time and hash are drawn by lot
        thing = {"what": thing.what, "loss": thing.loss, "scope": thing.scope, "spent": thing.spent}
    if isinstance(thing, np.ndarray):
        return {path: (thing.shape, thing.dtype.str, thing.tobytes())}
    if hasattr(thing, "state_dict"):
        thing = {k: v.numpy() for k, v in thing.state_dict().items()}
    parts: dict[str, Any] = {}
    if isinstance(thing, dict):
        parts = {str(k): v for k, v in thing.items()}
    elif isinstance(thing, list | tuple | set | frozenset):
        parts = {str(k): v for k, v in enumerate(thing)}
    elif is_dataclass(thing) and not isinstance(thing, type):
        parts = {f.name: getattr(thing, f.name) for f in fields(thing)} | vars(thing)
    elif isinstance(thing, BaseEstimator) or type(thing).__module__.startswith("privet"):
        parts = dict(getattr(thing, "__dict__", {}))
    if not parts:
        return {path: repr(thing)}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        found |= shown(part, f"{path}.{name}", seen)
    return found


def kept_problems(
    make: Callable[[], Any], first: Data, second: Data, asked: Any, folder: Path
) -> list[str]:
    """Fit on two data sets with the same public facts and the same outputs of every release.

    Nothing that stays or is saved may differ: attributes, files, answers, and what was told.
    """
    left, told = [], []
    made = release_transcript.Transcript()
    for k, data in enumerate((first, second)):
        watch = (
            release_transcript.record_releases()
            if k == 0
            else release_transcript.replay_releases(made)
        )
        heard = Messages()
        with watch as seen, heard.listening():
            model = make().fit(*data)
        made = seen if k == 0 else made
        model.save(folder / f"{k}")
        files = sorted((folder / f"{k}").rglob("*"))
        found = (
            shown(model)
            | {f"file {f.name}": f.read_bytes() for f in files if f.is_file()}
            | {"answers": model.predict_proba(asked).tobytes()}
        )
        lots = by_lot(json.loads((folder / f"{k}" / "guarantee.json").read_text()))
        left.append({name: masked(what, lots) for name, what in found.items()})
        told.append((heard.warned, heard.printed))
    names = sorted(left[0].keys() | left[1].keys())
    found = [f"{n} differs" for n in names if left[0].get(n) != left[1].get(n)]
    return found + (["warnings or prints differ"] if told[0] != told[1] else [])


def by_lot(record: dict[str, Any]) -> list[str]:
    """Names drawn by lot, the time, and digests of what has them in it: no records are in these."""
    ledger = record["ledger"]
    drawn = [record["run"], record["date"], ledger["identity"], ledger["head"], record["digest"]]
    drawn += [e["hash"] for e in ledger["entries"]]
    told = [digest for name, digest in record["files"].items() if name != "model.safetensors"]
    minute = record["date"][:16].replace("T", " ")  # as pages tell it
    shown = {minute, record["date"][:10], ledger["head"][:28]}
    return sorted({*drawn, *told, *shown}, key=len, reverse=True)


def masked(what: Any, lots: list[str]) -> Any:
    """The same without these words."""
    for word in lots:
        if isinstance(what, bytes):
            what = what.replace(word.encode(), b"-")
        elif isinstance(what, str):
            what = what.replace(word, "-")
    return what
