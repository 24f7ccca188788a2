"""The folder of a run: model, config, guarantee, metrics and card, each written whole."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from privet import premises
from privet._files import canonical, replacing, write_json, write_whole
from privet.data.rows import Domain
from privet.errors import InvalidArgument
from privet.methods.promise import Trained
from privet.report.card import card, run_page
from privet.runs.record import GUARANTEE, Given, Record, describe

FORMAT = 2
"""Of config.json and model.safetensors; 1 was that of privet 0.1."""
MODEL, CONFIG, METRICS, CARD, PAGE = (
    "model.safetensors",
    "config.json",
    "metrics.json",
    "README.md",
    "run.html",
)
DATA_KEY = "data.key"
"""The key of the data's fingerprint: with it, who can guess all records but one can confirm it."""


def has_no_run(out: Path, name: str = "--out") -> None:
    """Refuse a folder with a finished run; nothing is made yet."""
    if (out / GUARANTEE).exists():
        raise InvalidArgument(name, str(out), "a folder without a run", "name another one")


def save(estimator: Any, folder: Path, *, given: Given) -> Path:
    """Write a fitted estimator to a folder that holds no run yet."""
    has_no_run(folder, "folder")
    method, trained = estimator._method(), estimator.trained_
    config = {
        "method": method.name,
        "settings": method.settings_to_dict(),
        "data": "records of your own",
        "epsilon": trained.plan.facts.epsilon,
        "delta": trained.plan.facts.delta,
        "noise": "seeded" if premises.SECRET_SEED in trained.guarantee.premises else "secure",
        **target_of(estimator),
        "plan": estimator.plan_.summary(),
    }
    write_run(folder, trained, domain=estimator.domain_, config=config, metrics={}, given=given)
    return folder


def target_of(estimator: Any) -> dict[str, Any]:
    """What is predicted: classes by name, or numbers in a range; nothing by a transformer."""
    if hasattr(estimator, "classes_"):
        weights = {str(k): float(w) for k, w in (estimator.class_weight or {}).items()}
        told = {"classes": np.asarray(estimator.classes_).tolist()}
        return told | ({"class_weight": weights} if weights else {})
    if not hasattr(estimator, "_range"):
        return {}
    low, high = estimator._range()
    return {"target_bounds": [low, high]}


def write_run(
    folder: Path,
    trained: Trained,
    *,
    domain: Domain,
    config: dict[str, Any],
    metrics: dict[str, Any],
    given: Given,
    here: dict[str, Any] | None = None,
    fingerprint: str | None = None,
) -> dict[str, Any]:
    """Write everything, the record last; returns what scripts may rely on.

    `here` is where the records lie: in config.json, but neither in the model nor on its card.
    `fingerprint`: of the records, which the record has under a key that stays in `data.key`.
    """
    arrays, settings = trained.model.state()
    whole = {
        "format": FORMAT,
        "privet": version("privet"),
        **config,
        "domain": domain_to_dict(domain),
        "model": {"kind": type(trained.model).__name__, "settings": settings},
    }
    folder.mkdir(parents=True, exist_ok=True)
    record = describe(
        run=trained.run,
        guarantee=trained.guarantee,
        claim=trained.claim,
        loss=trained.loss,
        entries=trained.entries,
        account=trained.account,
        config=config,
        domain=_as_declared(whole),
        data={
            "name": config["data"],
            "records": trained.plan.facts.records,
            "fingerprint": None if fingerprint is None else _keyed(folder, fingerprint),
        },
        measured=metrics,
        given=given,
    )
    write_whole(folder / MODEL, _packed(arrays, whole))
    write_json(folder / CONFIG, whole | {"run": trained.run} | (here or {}))
    write_json(folder / METRICS, metrics)
    record = write_record(folder, record)
    promise = {k: record[k] for k in ("guarantee", "claim", "status", "run")}
    return {"method": config["method"], "data": config["data"], **metrics, **promise,
            "out": str(folder)}  # fmt: skip


def write_record(folder: Path, record: Record) -> Record:
    """The card and the page that tell a record, then the record, sealed; it is not signed yet."""
    for name, text in told_by(record).items():
        write_whole(folder / name, text)
    names = (MODEL, CONFIG, METRICS, CARD, PAGE)
    record = sealed(record, {name: file_digest(folder / name) for name in names})
    write_json(folder / GUARANTEE, record)
    return record


def digest_of(record: Mapping[str, Any]) -> str:
    """SHA-256 of everything in a record but its seal and its signature."""
    rest = {k: v for k, v in record.items() if k not in ("digest", "signature")}
    return hashlib.sha256(canonical(rest)).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sealed(record: Mapping[str, Any], files: Mapping[str, str]) -> Record:
    """The record with the digests of the files beside it, and its own; a signature is dropped."""
    whole = {k: v for k, v in record.items() if k not in ("digest", "signature")}
    whole["files"] = dict(files)
    return {**whole, "digest": digest_of(whole)}


def told_by(record: Record) -> dict[str, str]:
    """What is written from a record alone, and must say what it says: the card and the page."""
    bare = {k: v for k, v in record.items() if k not in ("files", "digest", "signature")}
    return {CARD: card(bare), PAGE: run_page(bare)}


def _as_declared(config: dict[str, Any]) -> dict[str, Any]:
    told = ("label", "classes", "class_weight", "target_bounds")
    return {**config["domain"], **{k: config[k] for k in told if k in config}}


def _keyed(folder: Path, fingerprint: str) -> str:
    """The fingerprint under a secret key of its own, which is kept for the owner's eyes."""
    key = secrets.token_bytes(32)
    with replacing(folder / DATA_KEY, mode=0o600) as file:
        file.write(key.hex().encode())
    return "hmac-sha256:" + hmac.new(key, fingerprint.encode(), hashlib.sha256).hexdigest()


def _packed(arrays: dict[str, Any], config: dict[str, Any]) -> bytes:
    from safetensors.numpy import save as packed

    plain = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
    return bytes(packed(plain, metadata={"privet": json.dumps(config)}))


def domain_to_dict(domain: Domain) -> dict[str, Any]:
    """What is declared about a record, as JSON."""
    from privet.nets.features.describe import features_to_dict

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
