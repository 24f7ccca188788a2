"""Files that sites and coordinator exchange: safetensors with a JSON note, nothing pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet._atomic_files import write_whole
from privet.errors import InvalidArgument, MissingFile
from privet.guarantee import Guarantee
from privet.methods.pate.autoencoder_reducer import AutoencoderReducer
from privet.methods.pate.pca_reducer import PCAReducer
from privet.methods.pate.reducers import IdentityReducer, Reducer
from privet.methods.pate.target_spaces import space_from_dict

Array = NDArray[Any]
FORMAT = 1


class UnreadableFile(ValueError):
    """The file is no safetensors file with a note of ours."""


def write_tensors(path: str | Path, tensors: dict[str, Array], note: dict[str, Any]) -> Path:
    """Write the file, in place of the one that may be there."""
    from safetensors.numpy import save

    path = Path(path)
    plain = {k: np.ascontiguousarray(v) for k, v in tensors.items()}
    if not plain:  # safetensors needs something to hold
        plain = {"nothing": np.zeros(1)}
    write_whole(path, save(plain, metadata={"privet": json.dumps(note, allow_nan=False)}))
    return path


def open_tensors(path: Path) -> tuple[Any, dict[str, Any]]:
    """A handle that reads tensors as they are asked for, and the note."""
    import safetensors

    open_file: Any = safetensors.safe_open
    try:
        file = open_file(path, framework="numpy")
        note = json.loads((file.metadata() or {})["privet"])
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OSError) as e:
        raise UnreadableFile(str(e)) from None
    if not isinstance(note, dict):
        raise UnreadableFile("its note is no mapping")
    return file, note


def write_reducer(reducer: Reducer, path: str | Path) -> Path:
    """A fitted reducer for all sites; `read_reducer` gives the same map, under the same name."""
    note = {
        "format": FORMAT,
        "kind": type(reducer).__name__,
        "name": reducer.name,
        "settings": reducer.settings(),
    }
    return write_tensors(path, reducer.tensors(), note)


def read_reducer(path: str | Path) -> Reducer:
    """The reducer in a file, which is refused unless it still has the name it was given."""
    tensors, note = _read(path, "a reducer", "make it with `privet pate reducer`")
    try:
        reducer = _build_reducer(note["kind"], tensors, note["settings"])
        name = note["name"]
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise InvalidArgument("reducer", str(path), "a file that holds a whole reducer") from None
    if reducer.name != name:
        raise InvalidArgument(
            "reducer", str(path), "as it was written", "its content and its name disagree"
        )
    return reducer


def _build_reducer(kind: str, tensors: dict[str, Array], settings: dict[str, Any]) -> Reducer:
    match kind:
        case "IdentityReducer":
            return IdentityReducer(**_common_settings(settings))
        case "PCAReducer":
            learned = {name: tensors[name] for name in ("mean", "basis", "variances")}
            return PCAReducer(**(_common_settings(settings) | learned))
        case "AutoencoderReducer":
            return AutoencoderReducer.from_parts(tensors, settings)
        case _:
            raise InvalidArgument("kind", kind, "IdentityReducer, PCAReducer or AutoencoderReducer")


def _common_settings(settings: dict[str, Any]) -> dict[str, Any]:
    shape, space = tuple(settings["shape"]), space_from_dict(settings["space"])
    return {"shape": shape, "space": space, "length": settings["length"]}


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class LabelFile:
    """The noisy labels of an aggregation with what was paid for them: public."""

    labels: Array = field(repr=False)
    codes: Array = field(repr=False)
    noise: float
    queries: str
    """The hash of the public inputs that they belong to, in their order."""
    reducer: str
    guarantee: Guarantee
    claim: Guarantee | None = None
    payment: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Who was asked, what it cost, and the ledger's entry and state: for the student's record."""

    def write(self, path: str | Path) -> Path:
        """A file for whoever trains the student."""
        note = {
            "format": FORMAT,
            "kind": "labels",
            "noise": self.noise,
            "queries": self.queries,
            "reducer": self.reducer,
            "guarantee": self.guarantee.to_dict(),
            "claim": None if self.claim is None else self.claim.to_dict(),
            "paid": dict(self.payment),
        }
        return write_tensors(path, {"labels": self.labels, "codes": self.codes}, note)

    @classmethod
    def read(cls, path: str | Path) -> LabelFile:
        """The labels in a file."""
        tensors, note = _read(path, "labels", "make it with `privet pate aggregate`")
        try:
            return cls(
                labels=tensors["labels"],
                codes=tensors["codes"],
                noise=float(note["noise"]),
                queries=str(note["queries"]),
                reducer=str(note["reducer"]),
                guarantee=Guarantee.from_dict(note["guarantee"]),
                claim=None if note["claim"] is None else Guarantee.from_dict(note["claim"]),
                payment=note.get("paid", {}),
            )
        except (KeyError, TypeError, ValueError):
            raise InvalidArgument("labels", str(path), "a whole file of labels") from None


def _read(path: str | Path, what: str, hint: str) -> tuple[dict[str, Array], dict[str, Any]]:
    path = Path(path)
    if not path.is_file():
        raise MissingFile(path, hint)
    try:
        file, note = open_tensors(path)
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        kind = note["format"]
    except (UnreadableFile, KeyError):
        raise InvalidArgument("file", str(path), what, hint) from None
    if kind != FORMAT:
        raise InvalidArgument("file", str(path), f"of format {FORMAT}, not {kind}")
    return tensors, note
