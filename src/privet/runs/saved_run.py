"""A run that was saved: its model answers, its guarantee speaks, and nothing is trained."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privet._words import small_table
from privet.data.rows import Domain
from privet.errors import InvalidArgument, MissingFile
from privet.guarantee import Guarantee
from privet.methods.catalogue import model_type
from privet.methods.contract import Model
from privet.nets.features import Features
from privet.report.card import origin
from privet.report.measures import from_unit, in_words
from privet.runs.folder import CONFIG, FORMAT, METRICS, MODEL
from privet.runs.record import GUARANTEE, Record, read_record
from privet.runs.weights import class_offsets

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A model, what was declared for it, and what is promised; make one with `privet.load`."""

    folder: Path
    config: dict[str, Any] = field(repr=False)
    model: Model = field(repr=False)
    domain: Domain = field(repr=False)
    guarantee: Guarantee
    claim: Guarantee | None = None
    metrics: dict[str, Any] = field(default_factory=dict, repr=False)
    record: Record = field(default_factory=dict, repr=False)
    """guarantee.json, version 2: see `privet.runs.record`."""

    @property
    def method(self) -> str:
        """The name of the method that trained it."""
        return str(self.config["method"])

    @cached_property
    def classes(self) -> Array:
        """The labels; those of a regression are none."""
        return np.asarray(self.config.get("classes", []))

    def outputs(self, X: Array) -> NDArray[np.float64]:
        """Logits, or numbers in [-1, 1]."""
        X = np.asarray(X)
        parts = [X[i : i + 8192] for i in range(0, len(X), 8192)]
        found = np.concatenate([self.model.outputs(self.domain.rows(part)) for part in parts])
        offsets = class_offsets(self.config.get("class_weight"), self.classes)
        return found if offsets is None else found + offsets

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes."""
        return np.asarray(softmax(self.outputs(X), axis=1))

    def predict(self, X: Array) -> Array:
        """The most probable class of each record, or its number."""
        z = self.outputs(X)
        if "classes" in self.config:
            return np.asarray(self.classes[z.argmax(axis=1)])
        return from_unit(z, self.config["target_bounds"])

    def _repr_html_(self) -> str:
        told = [*origin(self.record), ("measured", in_words(self.metrics) or "nothing")]
        head = small_table(f"{self.method}: {self.folder}", told)
        return head + self.guarantee._repr_html_()

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {self.method}, {self.guarantee})"


def load(folder: str | Path, *, features: Features | None = None, module: Any = None) -> Run:
    """The run in a folder that `privet train` or `clf.save(folder)` left.

    Reads JSON and arrays, runs no code of the folder's and trains nothing. `features` and `module`:
    an extractor or a torch network of your own, where the run was trained with one.

    >>> load("nowhere")
    Traceback (most recent call last):
    ...
    privet.errors.MissingFile: no such file: nowhere/config.json; give the folder of a finished ...
    """
    folder = Path(folder)
    config = read_config(folder)
    for name in (MODEL, GUARANTEE):
        if not (folder / name).exists():
            raise MissingFile(folder / name, "the run has not finished")
    from safetensors.numpy import load_file

    kind, settings = config["model"]["kind"], dict(config["model"]["settings"])
    if module is not None:
        settings["module"] = module
    model = model_type(kind, config["method"]).from_state(load_file(folder / MODEL), settings)
    record, metrics = read_record(folder), folder / METRICS
    claim = record["claim"]
    return Run(
        folder=folder,
        config=config,
        model=model,
        domain=_domain(config["domain"], features),
        guarantee=Guarantee.from_dict(record["guarantee"]),
        claim=None if claim is None else Guarantee.from_dict(claim),
        metrics=json.loads(metrics.read_text()) if metrics.exists() else {},
        record=record,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a run of this version; what the model has of it, where only that was given.

    Where the records lie is in config.json alone, which their owner may keep.
    """
    path = folder / CONFIG
    if not path.exists() and not (folder / MODEL).exists():
        raise MissingFile(path, "give the folder of a finished `privet train` run")
    try:
        config = json.loads(path.read_text() if path.exists() else _packed_config(folder))
    except ValueError as e:
        raise InvalidArgument("config.json", str(path), "JSON", str(e)) from None
    if not isinstance(config, dict) or "method" not in config:
        raise InvalidArgument("config.json", str(path), "that of a run, with its method")
    if config.get("format") != FORMAT:
        made = config.get("privet", "0.1")
        raise InvalidArgument(
            "run", str(folder), f"one of format {FORMAT}",
            f"privet {made} made it: train it again, or read it with that version",
        )  # fmt: skip
    return config


def _packed_config(folder: Path) -> str:
    from safetensors import safe_open

    with safe_open(folder / MODEL, framework="np") as file:
        return str((file.metadata() or {}).get("privet", "{}"))


def _domain(d: dict[str, Any], features: Features | None) -> Domain:
    from privet.nets.features.describe import features_from_dict

    if features is None and d["has_features"]:
        if d["features"] is None:
            raise InvalidArgument(
                "features", None, "given: the extractor is one of your own",
                "privet.load(folder, features=extractor)",
            )  # fmt: skip
        features = features_from_dict(d["features"])
    bounds = tuple(d["bounds"]) if isinstance(d["bounds"], list) else d["bounds"]
    return Domain(shape=tuple(d["shape"]), bounds=bounds, features=features, fill=d.get("fill"))
