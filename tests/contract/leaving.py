"""All that a fitted estimator keeps and saves, as plain text and bytes that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from privet.ledger import Entry
from privet.mechanisms import transcript
from privet.methods.conforming import Messages

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
    made = transcript.Transcript()
    for k, data in enumerate((first, second)):
        watch = transcript.recorded() if k == 0 else transcript.replayed(made)
        heard = Messages()
        with watch as seen, heard.listening():
            model = make().fit(*data)
        made = seen if k == 0 else made
        model.save(folder / f"{k}")
        files = sorted((folder / f"{k}").rglob("*"))
        left.append(
            shown(model)
            | {f"file {f.name}": f.read_bytes() for f in files if f.is_file()}
            | {"answers": model.predict_proba(asked).tobytes()}
        )
        told.append((heard.warned, heard.printed))
    names = sorted(left[0].keys() | left[1].keys())
    found = [f"{n} differs" for n in names if left[0].get(n) != left[1].get(n)]
    return found + (["warnings or prints differ"] if told[0] != told[1] else [])
