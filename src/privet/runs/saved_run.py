"""A run that was saved: its model answers, its guarantee speaks, and nothing is trained."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privet import premises
from privet._formatting import small_table
from privet.data.declarations import columns_of_file
from privet.data.domain import Domain
from privet.data.table_columns import TableColumns
from privet.errors import InvalidArgument, MissingFile
from privet.features import Features
from privet.guarantee import Guarantee
from privet.methods.catalogue import model_type
from privet.methods.contract import Model
from privet.report.metrics import summarise_metrics, to_target_units
from privet.report.run_page import origin
from privet.runs.class_weights import class_offsets
from privet.runs.guarantee_record import GUARANTEE, GuaranteeRecord, read_record
from privet.runs.new_records import read_new_records, records_of_table
from privet.runs.run_folder import CONFIG, DECLARATION, FORMAT, METRICS, MODEL, WHERE, packed_config
from privet.runs.verify import UNSEALED, check_sealed, is_sealed

Array = NDArray[Any]


class UnsealedRun(UserWarning):
    """A run whose record has no seal: nothing shows whether it, or its model, was changed."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A model, what was declared for it, and what is promised; make one with `privet.load`."""

    folder: Path
    config: dict[str, Any] = field(repr=False)
    model: Model = field(repr=False)
    domain: Domain = field(repr=False)
    columns: TableColumns | None = field(default=None, repr=False)
    """How a person's table becomes records, where the run was trained on one."""
    guarantee: Guarantee
    claim: Guarantee | None = None
    metrics: dict[str, Any] = field(default_factory=dict, repr=False)
    record: GuaranteeRecord = field(default_factory=dict, repr=False)
    """guarantee.json, version 2: see `privet.runs.guarantee_record`."""

    @property
    def method(self) -> str:
        """The name of the method that trained it."""
        return str(self.config["method"])

    @cached_property
    def classes(self) -> Array:
        """The labels; those of a regression are none."""
        return np.asarray(self.config.get("classes", []))

    def outputs(self, X: Any) -> NDArray[np.float64]:
        """Logits, or numbers in [-1, 1]; X as for `predict`."""
        X = self.records(X)
        parts = [X[i : i + 8192] for i in range(0, len(X), 8192)]
        found = np.concatenate([self.model.outputs(self.domain.rows(part)) for part in parts])
        offsets = class_offsets(self.config.get("class_weight"), self.classes)
        return found if offsets is None else found + offsets

    def records(self, X: Any) -> Array:
        """The records in a frame, dict of columns, list of dicts, array or file, as an array."""
        if isinstance(X, str | Path):
            return read_new_records(self, Path(X)).x
        return records_of_table(self, X)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes; X as for `predict`."""
        return np.asarray(softmax(self.outputs(X), axis=1))

    def predict(self, X: Any) -> Array:
        """The most probable class of each record, or its number.

        X is an array of records, or a table (a pandas or polars frame, a dict of columns, a list of
        dicts) whose columns are found by their names, in any order and among others, with cells
        converted as they were declared; or the path of a file, read as `privet predict` does.
        """
        z = self.outputs(X)
        if "classes" in self.config:
            return np.asarray(self.classes[z.argmax(axis=1)])
        return to_target_units(z, self.config["target_bounds"])

    def _repr_html_(self) -> str:
        told = [*origin(self.record), ("measured", summarise_metrics(self.metrics) or "nothing")]
        head = small_table(f"{self.method}: {self.folder}", told)
        return head + self.guarantee._repr_html_()

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {self.method}, {self.guarantee})"


def load(folder: str | Path, *, features: Features | None = None, module: Any = None) -> Run:
    """The run in a folder that `privet train` or `clf.save(folder)` left.

    Reads JSON and arrays, runs no code of the folder's and trains nothing. `features` and `module`:
    an extractor or a torch network of your own, where the run was trained with one.

    Each file is read once, and refused unless it is the one that the record was sealed with; so is
    an epsilon below what the record's loss costs. A record of privet 0.1 has no seal: a warning
    says so, and the guarantee rests on a premise more. Somebody who forges a whole record and seals
    it anew is not noticed here: `privet verify` with a public key notices.

    >>> load("nowhere")
    Traceback (most recent call last):
    ...
    privet.errors.MissingFile: no such file: nowhere/config.json; give the folder of a finished ...
    """
    folder = Path(folder)
    contents = {
        name: (folder / name).read_bytes() for name in (CONFIG, MODEL) if (folder / name).exists()
    }
    if CONFIG not in contents and MODEL not in contents:
        raise MissingFile(folder / CONFIG, "give the folder of a finished `privet train` run")
    config = _private(folder, WHERE) | _parse_config(folder, contents)  # what is sealed wins
    for name in (MODEL, GUARANTEE):
        if not (folder / name).exists():
            raise MissingFile(folder / name, "the run has not finished")
    record = read_record(folder)
    guarantee = Guarantee.from_dict(record["guarantee"])
    if is_sealed(record):
        check_sealed(folder, record, contents)
    else:
        warnings.warn(f"{folder}: {UNSEALED}", UnsealedRun, stacklevel=2)
        guarantee = replace(guarantee, premises=(*guarantee.premises, premises.UNSEALED_RECORD))
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_arrays

    kind, settings = config["model"]["kind"], dict(config["model"]["settings"])
    if module is not None:
        settings["module"] = module
    try:
        arrays = load_arrays(contents[MODEL])
    except SafetensorError as e:
        raise InvalidArgument(MODEL, str(folder / MODEL), "a safetensors file", str(e)) from None
    claim = record["claim"]
    return Run(
        folder=folder,
        config=config,
        model=model_type(kind, config["method"]).from_state(arrays, settings),
        domain=_domain(config["domain"], features),
        columns=_columns(folder, config),
        guarantee=guarantee,
        claim=None if claim is None else Guarantee.from_dict(claim),
        metrics=_private(folder, METRICS),
        record=record,
    )


def _parse_config(folder: Path, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """config.json of a run of this version; what the model has of it, where only that was given.

    Where the records lie is in the folder private, which their owner keeps.
    """
    path = folder / CONFIG
    try:
        config = (
            json.loads(contents[CONFIG]) if CONFIG in contents else packed_config(contents[MODEL])
        )
    except (AttributeError, ValueError, RecursionError) as e:
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


def _private(folder: Path, name: str) -> dict[str, Any]:
    """What the owner of the records has besides; nothing for everybody else."""
    path = folder / name
    try:
        return dict(json.loads(path.read_bytes())) if path.exists() else {}
    except (TypeError, ValueError, RecursionError) as e:
        raise InvalidArgument(name, str(path), "JSON", str(e)) from None


def _columns(folder: Path, config: dict[str, Any]) -> TableColumns | None:
    """How a table becomes records; runs of before had it in their declaration alone."""
    if "columns" in config:
        return TableColumns.from_dict(config["columns"])
    declared = folder / DECLARATION
    if "files" in config or not declared.exists():
        return None
    return columns_of_file(declared)


def _domain(d: dict[str, Any], features: Features | None) -> Domain:
    from privet.features.extractor_json import features_from_dict

    if features is None and d["has_features"]:
        if d["features"] is None:
            raise InvalidArgument(
                "features", None, "given: the extractor is one of your own",
                "privet.load(folder, features=extractor)",
            )  # fmt: skip
        features = features_from_dict(d["features"])
    bounds = tuple(d["bounds"]) if isinstance(d["bounds"], list) else d["bounds"]
    return Domain(shape=tuple(d["shape"]), bounds=bounds, features=features, fill=d.get("fill"))
