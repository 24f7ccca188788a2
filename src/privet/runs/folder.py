"""The folder of a run: model, config, guarantee, metrics and card, each written whole."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from privet._files import write_json, write_whole
from privet.data.records import Domain
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee
from privet.methods.contract import Model, settings_of
from privet.report.card import card

FORMAT = 2
"""Of config.json and model.safetensors; 1 was that of privet 0.1."""
MODEL, CONFIG, GUARANTEE, METRICS, CARD = (
    "model.safetensors",
    "config.json",
    "guarantee.json",
    "metrics.json",
    "README.md",
)


def has_no_run(out: Path, name: str = "--out") -> None:
    """Refuse a folder with a finished run; nothing is made yet."""
    if (out / GUARANTEE).exists():
        raise InvalidArgument(name, str(out), "a folder without a run", "name another one")


def save(estimator: Any, folder: Path) -> Path:
    """Write a fitted estimator to a folder that holds no run yet."""
    has_no_run(folder, "folder")
    method = estimator._method()
    config = {
        "method": method.name,
        "settings": settings_of(method),
        "data": "records of your own",
        "epsilon": estimator.epsilon,
        "delta": estimator.delta,
        "noise": "seeded" if isinstance(estimator.random_state, int) else "secure",
        **target_of(estimator),
        "plan": estimator.plan_.summary(),
    }
    write_run(
        folder,
        model=estimator.model_,
        domain=estimator.domain_,
        config=config,
        metrics={},
        guarantee=estimator.guarantee_,
        claim=estimator.claim_,
    )
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
    *,
    model: Model,
    domain: Domain,
    config: dict[str, Any],
    metrics: dict[str, Any],
    guarantee: Guarantee,
    claim: Guarantee | None,
    here: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write everything, the guarantee last; returns what scripts may rely on.

    `here` is where the records lie: in config.json, but neither in the model nor on its card.
    """
    arrays, settings = model.state()
    whole = {
        "format": FORMAT,
        "privet": version("privet"),
        **config,
        "domain": domain_to_dict(domain),
        "model": {"kind": type(model).__name__, "settings": settings},
    }
    promise = {
        "guarantee": guarantee.to_dict(),
        "claim": None if claim is None else claim.to_dict(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / MODEL, _packed(arrays, whole))
    write_whole(folder / CARD, card(whole, metrics, promise["guarantee"] or {}, promise["claim"]))
    write_json(folder / CONFIG, whole | (here or {}))
    write_json(folder / METRICS, metrics)
    write_json(folder / GUARANTEE, promise)
    return {"method": config["method"], "data": config["data"], **metrics, **promise,
            "out": str(folder)}  # fmt: skip


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
