"""`privet train adaptive-laplace`: noise once, or shaped by relevance, and what it cost."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli import _folder
from privet.cli._data import Bounds, Label, remembered
from privet.cli._data import dataset as find
from privet.cli._run import one_line_errors, print_json
from privet.cli.train import _front
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.methods.adaptive_laplace import AdaptiveLaplaceClassifier

KINDS = ("moments", "network")
READINGS = ("sound", "published", "released")


@one_line_errors()
def adaptive_laplace(
    data: Annotated[str, typer.Option(help="A data set's name (`privet data list`) or file.")],
    epsilon: Annotated[float, typer.Option(help="The budget, all of which is spent.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    delta: Annotated[float, typer.Option(help="At this delta; 0 for pure epsilon.")] = 1e-5,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable noise, for experiments only.")
    ] = None,
    reading: Annotated[
        str, typer.Option(help="sound; or published or released, whose epsilon is a claim.")
    ] = "sound",
    kind: Annotated[
        str, typer.Option(help="moments (one-shot, linear), or network (deep, shaped noise).")
    ] = "moments",
    features: Annotated[
        str, typer.Option(help="Public front end of moments: auto, plain, scattering, strokes.")
    ] = "auto",
    cache: Annotated[
        bool, typer.Option("--cache", help="Keep features on disk, unprotected.")
    ] = False,
    identical: Annotated[
        bool, typer.Option("--identical", help="Identical noise: no shaping by relevance.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Free: they cost no privacy.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where data sets lie.")] = None,
    records: Annotated[
        int | None, typer.Option(help="Train on the first so many records only.")
    ] = None,
    label: Label = None,
    bounds: Bounds = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The budget to charge; see `privet ledger init`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Noise placed by relevance, once, whatever the number of epochs (Adaptive Laplace Mechanism).

    The published readings charge no ledger: what can be proved of them is often nothing.
    """
    begun = time.perf_counter()
    _check.positive("epsilon", epsilon)
    _check.delta_or_zero("delta", delta)
    for name, value, allowed in (("--kind", kind, KINDS), ("--reading", reading, READINGS)):
        if value not in allowed:
            raise InvalidArgument(name, value, f"one of {', '.join(allowed)}")
    if ledger is not None and reading != "sound":
        raise InvalidArgument("--ledger", str(ledger), "left out for the published readings")
    _folder.new(out)
    from privet.methods.adaptive_laplace import AdaptiveLaplaceClassifier

    dataset = find(data, folder, label, bounds)
    if records is not None:
        dataset = dataset.subset(records)
    x_train, x_test, settings = _prepared(dataset, reading, kind, features, cache)
    classifier = AdaptiveLaplaceClassifier(
        epsilon=epsilon, delta=delta, reading=reading, kind=kind, adaptive=not identical,
        epochs=epochs, classes=range(dataset.n_classes), random_state=seed,
        ledger=_folder.ledger_of(ledger, out, epsilon, delta) if reading == "sound" else None,
        **settings,
    )  # fmt: skip
    classifier.fit(x_train, dataset.y_train)
    accuracy = float(classifier.score(x_test, dataset.y_test))
    config = {
        "method": "adaptive-laplace", "data": dataset.name, "reading": reading, "kind": kind,
        "features": features, "adaptive": not identical, "epochs": epochs, "epsilon": epsilon,
        "delta": delta, "seed": seed, "noise": "secure" if seed is None else "seeded",
    }  # fmt: skip
    config |= remembered(out, data, label, bounds)
    answer = _leave(out, classifier, config, accuracy, time.perf_counter() - begun)
    if as_json:
        print_json(answer)
    else:
        claim = "" if classifier.claim_ is None else f"; {classifier.claim_}"
        typer.echo(f"{out}: test accuracy {accuracy:.2%}, {classifier.guarantee_}{claim}")


def _prepared(
    dataset: Dataset, reading: str, kind: str, features: str, cache: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """Training and test rows in [0, 1], or of public features, and what the estimator is told."""
    rows = dataset.train_rows(), dataset.test_rows()
    if reading != "sound":
        return *rows, {"bounds": (0.0, 1.0)}
    if kind == "network":
        from privet.dpsgd import PrivateNetwork

        return *rows, {"bounds": (0.0, 1.0), "trainer": PrivateNetwork(network=_network(dataset))}
    front = _front(dataset, features, cache)
    if front is None:
        return *rows, {"bounds": (0.0, 1.0)}
    from privet.nets.features import Cached, RandomProjection

    if front.n_features > 1000:  # the second moment has the square of that
        projected = front.then(RandomProjection(n_inputs=front.n_features, n_features=500))
        front = Cached(projected) if cache else projected
    return front.transform(rows[0]), front.transform(rows[1]), {"bounds": 1.0}


def _network(dataset: Dataset) -> Any:
    """A small network, from a public start."""
    import torch

    from privet.methods.dpsgd.networks import SmallCNN

    with torch.random.fork_rng():
        torch.manual_seed(0)
        if len(dataset.shape) >= 2 and min(dataset.shape[:2]) >= 16:
            return SmallCNN(shape=dataset.shape, classes=dataset.n_classes)
        wide = torch.nn.Linear(dataset.n_features, 64)
        return torch.nn.Sequential(wide, torch.nn.Tanh(), torch.nn.Linear(64, dataset.n_classes))


def _leave(
    out: Path,
    classifier: AdaptiveLaplaceClassifier,
    config: dict[str, Any],
    accuracy: float,
    seconds: float,
) -> dict[str, Any]:
    """Write the folder of the run; returns what scripts may rely on."""
    import numpy as np
    from safetensors.numpy import save

    from privet.methods.adaptive_laplace import LinearRule

    model = classifier.model_
    if isinstance(model, LinearRule):
        state = {"weights": model.weights, "intercept": model.intercept}
    else:
        state = {k: v.numpy() for k, v in model.network.state_dict().items()}
    kept = {k: np.ascontiguousarray(v) for k, v in state.items()}
    return _folder.leave(
        out,
        model=save(kept, {"privet": json.dumps(config)}),
        config=config,
        metrics={"test_accuracy": accuracy, "seconds": seconds},
        guarantee=classifier.guarantee_,
        claim=classifier.claim_,
    )
