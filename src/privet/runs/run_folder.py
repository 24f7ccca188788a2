"""The folder of a run: model, config, guarantee, metrics and card, each written whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from privet import premises
from privet._atomic_files import write_json, write_whole
from privet._canonical_json import canonical_json, sha256_hex
from privet.data.domain import Domain
from privet.data.table_columns import TableColumns
from privet.errors import InvalidArgument
from privet.methods.train_method import TrainingResult
from privet.report.run_page import card, run_page
from privet.runs.guarantee_record import (
    GUARANTEE,
    GuaranteeRecord,
    Provenance,
    made_by,
    make_record,
)

FORMAT = 2
"""Of config.json and model.safetensors; 1 was that of privet 0.1."""
MODEL, CONFIG, METRICS, CARD, PAGE = (
    "model.safetensors",
    "config.json",
    "private/metrics.json",
    "README.md",
    "run.html",
)
WHERE = "private/data.json"
"""Where the records lie."""
NOTICE = "private/README.txt"
KEEP = (
    "Keep this folder: exact results on people kept for tests, whom no promise covers, and where "
    "the records lie. To publish is what the card beside it lists.\n"
)
DECLARATION = "declaration.json"
"""What was declared of a file of the user's own, as it was given."""


PUBLIC_TARGET = ("label", "classes", "class_weight", "class_prior", "target_bounds")
"""What the record says of the domain besides the ranges of a record."""
PUBLISHED = (MODEL, CONFIG, GUARANTEE, CARD, PAGE, DECLARATION)
"""What may be given to anybody; the last only where there is a file of the user's own."""


def require_empty_run(out: Path, name: str = "--out") -> None:
    """Refuse a folder with a finished run; nothing is made yet."""
    if (out / GUARANTEE).exists():
        raise InvalidArgument(name, str(out), "a folder without a run", "name another one")


def save(estimator: Any, folder: Path, *, given: Provenance) -> Path:
    """Write a fitted estimator to a folder that holds no run yet."""
    require_empty_run(folder, "folder")
    method, trained = estimator._method(), estimator.trained_
    config = {
        "method": method.name,
        "settings": method.settings_to_dict(),
        "data": "records of your own",
        "epsilon": trained.plan.facts.epsilon,
        "delta": trained.plan.facts.delta,
        **target_of(estimator),
        **columns_to_config(getattr(estimator, "table_columns_", None)),
        "plan": estimator.plan_.summary(),
    }
    write_run(
        folder, trained, domain=estimator.domain_, config=config, metrics={}, given=given,
        measured=estimator.released_metrics_,
    )  # fmt: skip
    return folder


def columns_to_config(columns: TableColumns | None) -> dict[str, Any]:
    """How a person's table becomes records, for the config of a run; nothing where none was."""
    return {} if columns is None else {"columns": columns.to_dict()}


def target_of(estimator: Any) -> dict[str, Any]:
    """What is predicted: classes by name, or numbers in a range; nothing by a transformer."""
    if hasattr(estimator, "classes_"):
        weights, prior = estimator.decision_weights_, estimator.class_prior
        told = {"classes": np.asarray(estimator.classes_).tolist()}
        declared = None if prior is None else {str(k): float(p) for k, p in prior.items()}
        parts = {"class_weight": weights, "class_prior": declared}
        return told | {name: part for name, part in parts.items() if part}
    if not hasattr(estimator, "_range"):
        return {}
    low, high = estimator._range()
    return {"target_bounds": [low, high]}


def write_run(
    folder: Path,
    trained: TrainingResult,
    *,
    domain: Domain,
    config: dict[str, Any],
    metrics: dict[str, Any],
    given: Provenance,
    here: dict[str, Any] | None = None,
    data: Mapping[str, str] | None = None,
    measured: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write everything, the record last; returns what scripts may rely on.

    `here` is where the records lie. It and the metrics, which are exact, go to the folder private.
    `data`: the identity of the records under a curator's key, and which key that is. `measured`:
    measures that were released with noise, for the record.
    """
    arrays, settings = trained.model.state()
    named = {"fingerprint": None, "curator_key": None} if data is None else dict(data)
    seeded = premises.SECRET_SEED in trained.guarantee.premises
    whole = {
        "format": FORMAT,
        "privet": version("privet"),
        "noise": "seeded" if seeded else "secure",
        "origin": _origin(folder, trained, named["fingerprint"], by_lot=not seeded),
        **config,
        "plan_inputs": trained.metadata.get("plan_inputs"),
        "stopped_early": trained.steps < trained.metadata.get("steps", 0),
        "domain": domain_to_dict(domain),
        "model": {"kind": type(trained.model).__name__, "settings": settings},
    }
    folder.mkdir(parents=True, exist_ok=True)
    record = make_record(
        run=trained.run,
        guarantee=trained.guarantee,
        claim=trained.claim,
        loss=trained.loss,
        entries=trained.entries,
        account=trained.account,
        config=config,
        domain=_declared_domain(whole),
        data={
            "name": config["data"],
            "records": trained.plan.facts.records,
            **named,
        },
        given=given,
        measured=measured,
    )
    write_whole(folder / MODEL, _packed(arrays, whole))
    write_json(folder / CONFIG, whole | {"run": trained.run})
    write_private(folder, {METRICS: metrics, WHERE: here or {}})
    record = write_record(folder, record)
    promise = {k: record[k] for k in ("guarantee", "claim", "status", "run")}
    released = {} if measured is None else {"released_metrics": dict(measured)}
    return {"method": config["method"], "data": config["data"], **metrics, **released, **promise,
            "out": str(folder)}  # fmt: skip


def _origin(
    folder: Path, trained: TrainingResult, fingerprint: str | None, *, by_lot: bool
) -> dict[str, Any]:
    """What ties a model to one training: `verify` holds the record against it.

    Names that are drawn `by_lot` stay out of a seeded model, which is the same every time, and so
    does the name of the data, which changes with every record.
    """
    declared = folder / DECLARATION
    digest = sha256_hex(declared.read_bytes()) if declared.exists() else None
    origin = {"made_by": made_by(), "declaration": digest}
    if not by_lot:
        return origin
    account = trained.account
    return origin | {
        "fingerprint": fingerprint, "run": trained.run,
        "ledger": account["identity"], "head": account["head"],
    }  # fmt: skip


def write_private(folder: Path, contents: Mapping[str, Any]) -> None:
    """What must not be published, in a folder of its own with a notice; other users cannot look."""
    for name, value in contents.items():
        write_json(folder / name, value)
    write_whole(folder / NOTICE, KEEP)
    (folder / NOTICE).parent.chmod(0o700)


def write_record(folder: Path, record: GuaranteeRecord, *, date: str = "") -> GuaranteeRecord:
    """The card and the page that tell a record, then the record, sealed; it is not signed yet.

    With a `date` all three have it in their names, and those without stay as they are.
    """
    for name, text in render_record(record).items():
        write_whole(folder / dated(name, date), text)
    names = [MODEL, CONFIG, dated(CARD, date), dated(PAGE, date)]
    names += [DECLARATION] * (folder / DECLARATION).exists()
    record = seal(record, {name: sha256_hex((folder / name).read_bytes()) for name in names})
    write_json(folder / dated(GUARANTEE, date), record)
    return record


def dated(name: str, date: str) -> str:
    """The name of a file of a later record.

    >>> dated("run.html", "2026-11-18T17-20-00Z"), dated("run.html", "")
    ('run.2026-11-18T17-20-00Z.html', 'run.html')
    """
    stem, suffix = name.rsplit(".", 1)
    return f"{stem}.{date}.{suffix}" if date else name


def later_records(folder: Path) -> list[Path]:
    """Records that evidence was added to after the first was signed, the oldest first."""
    return sorted(folder.glob(dated(GUARANTEE, "*")))


def record_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of everything in a record but its seal and its signature."""
    rest = {k: v for k, v in record.items() if k not in ("digest", "signature")}
    return sha256_hex(canonical_json(rest))


def seal(record: Mapping[str, Any], files: Mapping[str, str]) -> GuaranteeRecord:
    """The record with the digests of the files beside it, and its own; a signature is dropped."""
    whole = {k: v for k, v in record.items() if k not in ("digest", "signature")}
    whole["files"] = dict(files)
    return {**whole, "digest": record_digest(whole)}


def render_record(record: GuaranteeRecord) -> dict[str, str]:
    """What is written from a record alone, and must say what it says: the card and the page."""
    bare = {k: v for k, v in record.items() if k not in ("files", "digest", "signature")}
    return {CARD: card(bare), PAGE: run_page(bare)}


def _declared_domain(config: dict[str, Any]) -> dict[str, Any]:
    return {**config["domain"], **{k: config[k] for k in PUBLIC_TARGET if k in config}}


def _packed(arrays: dict[str, Any], config: dict[str, Any]) -> bytes:
    from safetensors.numpy import save as packed

    plain = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
    return bytes(packed(plain, metadata={"privet": json.dumps(config)}))


def packed_config(model: bytes) -> dict[str, Any]:
    """What a safetensors file, a length, a JSON header and data, says of its run."""
    size = int.from_bytes(model[:8], "little")
    header = json.loads(model[8 : 8 + size])
    return dict(json.loads(header.get("__metadata__", {}).get("privet", "{}")))


def domain_to_dict(domain: Domain) -> dict[str, Any]:
    """What is declared about a record, as JSON."""
    from privet.features.extractor_json import features_to_dict

    bounds: Any = domain.bounds
    if isinstance(bounds, tuple):
        bounds = [_shortest(side) for side in bounds]
    features = domain.features
    return {
        "shape": list(domain.shape),
        "bounds": bounds,
        "fill": None if domain.fill is None else _shortest(domain.fill),
        "features": None if features is None else features_to_dict(features),
        "has_features": features is not None,
    }


def _shortest(side: Any) -> Any:
    """One number where all columns have the same."""
    flat = np.asarray(side).ravel()
    return float(flat[0]) if len(flat) and (flat == flat[0]).all() else flat.tolist()
