"""`privet train autoencoder`: learned layers from moments released once, and what they cost."""

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
from privet.cli._run import one_line_errors, print_json, progress_bar
from privet.cli.train import _front
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.methods.autoencoder import PrivateAutoencoderClassifier

READINGS = ("sound", "published")


@one_line_errors()
def autoencoder(
    data: Annotated[str, typer.Option(help="A data set's name (`privet data list`) or file.")],
    epsilon: Annotated[float, typer.Option(help="The budget, all of which is spent.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    delta: Annotated[float, typer.Option(help="At this delta; 0 for pure epsilon.")] = 1e-5,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable noise, for experiments only.")
    ] = None,
    reading: Annotated[
        str, typer.Option(help="sound; or published, whose epsilon is a claim.")
    ] = "sound",
    layers: Annotated[str, typer.Option(help="Units of each layer, such as 300 or 300,200.")] = "",
    features: Annotated[
        str, typer.Option(help="Public front end: auto, plain, scattering, strokes.")
    ] = "auto",
    cache: Annotated[
        bool, typer.Option("--cache", help="Keep features on disk, unprotected.")
    ] = False,
    epochs: Annotated[int, typer.Option(help="Of the published reading.")] = 50,
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
    """Auto-encoders from moments that are released once a layer (deep private auto-encoder).

    The published reading charges no ledger: nothing finite can be proved of it.
    """
    begun = time.perf_counter()
    _check.positive("epsilon", epsilon)
    _check.delta_or_zero("delta", delta)
    if reading not in READINGS:
        raise InvalidArgument("--reading", reading, f"one of {', '.join(READINGS)}")
    if ledger is not None and reading != "sound":
        raise InvalidArgument("--ledger", str(ledger), "left out for the published reading")
    _folder.new(out)
    sizes = _sizes(layers)
    from privet.methods.autoencoder import PrivateAutoencoderClassifier

    dataset = find(data, folder, label, bounds)
    if records is not None:
        dataset = dataset.subset(records)
    x_train, x_test, limits = _prepared(dataset, reading, features, cache)
    if not sizes:
        sizes = (min(300, x_train.shape[1]) if reading == "sound" else 20,)
    with progress_bar(show=not as_json) as progress:
        done: dict[str, int] = {}

        def watcher(what: str, size: int) -> None:
            done[what] = done.get(what, 0) + size
            progress(what, done[what], len(x_train))

        classifier = PrivateAutoencoderClassifier(
            epsilon=epsilon, delta=delta, reading=reading, layers=sizes, bounds=limits,
            classes=range(dataset.n_classes), epochs=epochs, random_state=seed, watcher=watcher,
            ledger=_folder.ledger_of(ledger, out, epsilon, delta) if reading == "sound" else None,
        ).fit(x_train, dataset.y_train)  # fmt: skip
    accuracy = float(classifier.score(x_test, dataset.y_test))
    config = {
        "method": "autoencoder", "data": dataset.name, "reading": reading, "layers": list(sizes),
        "features": features, "epochs": epochs, "epsilon": epsilon, "delta": delta, "seed": seed,
        "noise": "secure" if seed is None else "seeded",
    }  # fmt: skip
    config |= remembered(out, data, label, bounds)
    answer = _leave(out, classifier, config, accuracy, time.perf_counter() - begun)
    if as_json:
        print_json(answer)
    else:
        claim = "" if classifier.claim_ is None else f"; {classifier.claim_}"
        typer.echo(f"{out}: test accuracy {accuracy:.2%}, {classifier.guarantee_}{claim}")


def _sizes(layers: str) -> tuple[int, ...]:
    try:
        return tuple(_check.count("--layers", int(part)) for part in layers.split(",") if part)
    except ValueError:
        raise InvalidArgument("--layers", layers, "whole numbers with commas between") from None


def _prepared(
    dataset: Dataset, reading: str, features: str, cache: bool
) -> tuple[Any, Any, tuple[float, float] | float]:
    """Training and test rows in [0, 1], or of public features, and what bounds them."""
    rows = dataset.train_rows(), dataset.test_rows()
    front = None if reading != "sound" else _front(dataset, features, cache)
    if front is None:
        return *rows, (0.0, 1.0)
    from privet.nets.features import RandomProjection

    made = front.transform(rows[0]), front.transform(rows[1])
    if front.n_features > 1000:  # the second moment has the square of that
        fewer = RandomProjection(n_inputs=front.n_features, n_features=500)
        made = fewer.transform(made[0]), fewer.transform(made[1])
    return *made, 1.0


def _leave(
    out: Path,
    classifier: PrivateAutoencoderClassifier,
    config: dict[str, Any],
    accuracy: float,
    seconds: float,
) -> dict[str, Any]:
    """Write the folder of the run; returns what scripts may rely on."""
    import numpy as np
    from safetensors.numpy import save

    state = {k: np.ascontiguousarray(v) for k, v in classifier.model_.state().items()}
    return _folder.leave(
        out,
        model=save(state, {"privet": json.dumps(config)}),
        config=config,
        metrics={"test_accuracy": accuracy, "seconds": seconds},
        guarantee=classifier.guarantee_,
        claim=classifier.claim_,
    )
