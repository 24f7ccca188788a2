"""Reducers and noisy labels as files: safetensors, nothing pickled, meaning inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from numpy.typing import NDArray

from privet.errors import InvalidArgument, MissingFile
from privet.guarantee import Guarantee
from privet.methods.pate import storage
from privet.methods.pate.autoencoder import AutoencoderReducer
from privet.methods.pate.pca import PCAReducer
from privet.methods.pate.reducers import IdentityReducer, Reducer
from privet.methods.pate.targets import space_from_dict

Array = NDArray[Any]
FORMAT = 1


def write_reducer(reducer: Reducer, path: str | Path) -> Path:
    """A fitted reducer for all sites; `read_reducer` gives the same map, under the same name."""
    note = {
        "format": FORMAT,
        "kind": type(reducer).__name__,
        "name": reducer.name,
        "settings": reducer.settings(),
    }
    return storage.write(path, reducer.tensors(), note)


def read_reducer(path: str | Path) -> Reducer:
    """The reducer in a file, which is refused unless it still has the name it was given."""
    tensors, note = _read(path, "a reducer", "make it with `privet pate reducer`")
    try:
        reducer = _reducer(note["kind"], tensors, note["settings"])
        wanted = note["name"]
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise InvalidArgument("reducer", str(path), "a file that holds a whole reducer") from None
    if reducer.name != wanted:
        raise InvalidArgument(
            "reducer", str(path), "as it was written", "its content and its name disagree"
        )
    return reducer


def _reducer(kind: str, tensors: dict[str, Array], settings: dict[str, Any]) -> Reducer:
    match kind:
        case "IdentityReducer":
            return IdentityReducer(**_plain(settings))
        case "PCAReducer":
            learned = {name: tensors[name] for name in ("mean", "basis", "variances")}
            return PCAReducer(**(_plain(settings) | learned))
        case "AutoencoderReducer":
            return AutoencoderReducer.from_parts(tensors, settings)
        case _:
            raise InvalidArgument("kind", kind, "IdentityReducer, PCAReducer or AutoencoderReducer")


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    shape, space = tuple(settings["shape"]), space_from_dict(settings["space"])
    return {"shape": shape, "space": space, "length": settings["length"]}


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """What a student is taught with: public."""

    labels: Array = field(repr=False)
    codes: Array = field(repr=False)
    noise: float
    queries: str
    """The hash of the public inputs that they belong to, in their order."""
    reducer: str
    guarantee: Guarantee
    claim: Guarantee | None = None
    paid: Mapping[str, Any] = field(default_factory=dict, repr=False)
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
            "paid": dict(self.paid),
        }
        return storage.write(path, {"labels": self.labels, "codes": self.codes}, note)

    @classmethod
    def read(cls, path: str | Path) -> Labels:
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
                paid=note.get("paid", {}),
            )
        except (KeyError, TypeError, ValueError):
            raise InvalidArgument("labels", str(path), "a whole file of labels") from None


def _read(path: str | Path, what: str, hint: str) -> tuple[dict[str, Array], dict[str, Any]]:
    path = Path(path)
    if not path.is_file():
        raise MissingFile(path, hint)
    try:
        file, note = storage.opened(path)
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        kind = note["format"]
    except (storage.Unreadable, KeyError):
        raise InvalidArgument("file", str(path), what, hint) from None
    if kind != FORMAT:
        raise InvalidArgument("file", str(path), f"of format {FORMAT}, not {kind}")
    return tensors, note
