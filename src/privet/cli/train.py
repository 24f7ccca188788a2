"""`privet train`: a private model in a folder, with what it cost beside it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli import _folder
from privet.cli._data import Bounds, Label, remembered
from privet.cli._data import dataset as find
from privet.cli._run import one_line_errors, print_json
from privet.errors import InvalidArgument, MissingFile

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.ledger import Ledger
    from privet.methods.base import Release
    from privet.methods.dpsgd import Checkpoints, PrivateLinear, PrivateNetwork, Training
    from privet.nets.features import Features

app = typer.Typer(
    name="train",
    help="Train a model privately; leaves a folder with the model and its guarantee.",
    no_args_is_help=True,
)


@app.callback()
def _methods() -> None:
    """Keeps `dpsgd` a word of its own even while it is the only method."""


@app.command()
@one_line_errors()
def dpsgd(
    data: Annotated[str, typer.Option(help="A data set's name (`privet data list`) or file.")],
    epsilon: Annotated[float, typer.Option(help="The budget, all of which is spent.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-5,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable noise, for experiments only.")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Secret noise; the default without --seed.")
    ] = False,
    model: Annotated[str, typer.Option(help="linear, or cnn (pictures, end to end).")] = "linear",
    features: Annotated[
        str,
        typer.Option(help="Public front end of a linear model: auto, plain, scattering, strokes."),
    ] = "auto",
    cache: Annotated[
        bool, typer.Option("--cache", help="Keep features on disk, unprotected.")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="Where data sets lie.")] = None,
    records: Annotated[
        int | None, typer.Option(help="Train on the first so many records only.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="By rule unless told.")] = None,
    sample_rate: Annotated[float | None, typer.Option(help="By rule unless told.")] = None,
    clipping_bound: Annotated[float | None, typer.Option(help="By rule unless told.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="By rule unless told.")] = None,
    label: Label = None,
    bounds: Bounds = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The budget to charge; see `privet ledger init`.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Clipped, noised gradients (tight-privacy-cost), priced by exact accounting.

    The same command with --resume goes on after a crash: a seeded run as if it had never stopped, a
    secure one with new noise, charging again for what it makes again.
    """
    begun = time.perf_counter()
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    if secure and seed is not None:
        raise InvalidArgument("--secure", "with --seed", "one of the two")
    _folder_is_right(out, resume)
    _folder.make(out)
    from privet import noise
    from privet.methods.base import PublicFacts
    from privet.methods.dpsgd import Checkpoints, Wishes

    dataset = find(data, folder, label, bounds)
    if records is not None:
        dataset = dataset.subset(records)
    x_train, x_test = _rows(dataset, model, features, cache)
    wishes = Wishes(
        steps=steps,
        sample_rate=sample_rate,
        clipping_bound=clipping_bound,
        learning_rate=learning_rate,
    )
    facts = PublicFacts(
        records=len(x_train),
        features=x_train.shape[1],
        outputs=dataset.n_classes,
        epsilon=epsilon,
        delta=delta,
    )
    method = _method(model, dataset, wishes)
    plan = method.plan(facts)
    config = {
        "method": "dpsgd",
        "data": dataset.name,
        "model": model,
        "features": features,
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "noise": "secure" if seed is None else "seeded",
        "steps": plan.schedule.steps,
        "sample_rate": float(plan.schedule.rates[0]),
        "clipping_bound": float(plan.schedule.bounds[0]),
        "noise_multiplier": float(plan.schedule.noise_multipliers[0]),
        "learning_rate": float(plan.learning_rates[0]),
        "momentum": plan.momentum,
        "centre_mu": plan.centre_mu,
        **remembered(out, data, label, bounds),
    }
    with _progress(plan.schedule.steps, show=not as_json) as watcher:
        release = _fit(
            method,
            watcher,
            Checkpoints(folder=out, every=max(1, plan.schedule.steps // 10)),
            (x_train, dataset.y_train),
            plan,
            _folder.ledger_of(ledger, out, epsilon, delta),
            noise.secure() if seed is None else noise.seeded(seed),
        )
    accuracy = _accuracy(release, x_test, dataset)
    answer = _leave(out, release, config, accuracy, time.perf_counter() - begun)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{out}: test accuracy {accuracy:.2%}, {release.guarantee}")


def _folder_is_right(out: Path, resume: bool) -> None:
    """Known before torch is imported, so told at once."""
    path = out / "checkpoint.safetensors"
    has_run = path.exists()
    if has_run and not resume:
        raise InvalidArgument(
            "--out", str(out), "a folder without a run", "add --resume to go on with this one"
        )
    if resume and not has_run:
        raise MissingFile(path, "there is no run to resume")


def _rows(dataset: Dataset, model: str, features: str, cache: bool) -> tuple[Any, Any]:
    """Training and test rows as the model sees them: public maps of each record by itself."""
    if model not in ("linear", "cnn"):
        raise InvalidArgument("--model", model, "linear or cnn")
    if model == "cnn":
        return 2.0 * dataset.train_rows() - 1.0, 2.0 * dataset.test_rows() - 1.0
    front = _front(dataset, features, cache)
    if front is not None:
        return front.transform(dataset.train_rows()), front.transform(dataset.test_rows())
    width = dataset.n_features**0.5
    return (2.0 * dataset.train_rows() - 1.0) / width, (2.0 * dataset.test_rows() - 1.0) / width


def _front(dataset: Dataset, features: str, cache: bool) -> Features | None:
    """The public extractor that was asked for; None for plain rows."""
    from privet.nets.features import Cached, handwriting, pictures

    drawn = len(dataset.shape) >= 2
    large = drawn and min(dataset.shape[:2]) >= 16
    if features == "auto":
        features = "scattering" if large else "plain"
    if features == "plain":
        return None
    if features not in ("scattering", "strokes"):
        raise InvalidArgument("--features", features, "auto, plain, scattering or strokes")
    if not drawn:
        raise InvalidArgument("--features", features, "plain for data that are not pictures")
    if features == "strokes" and dataset.shape != (28, 28):
        raise InvalidArgument("--features", features, "for pictures of 28x28 grey pixels")
    front = handwriting() if features == "strokes" else pictures(dataset.shape)
    return Cached(front) if cache else front


def _method(model: str, dataset: Dataset, wishes: Any) -> PrivateLinear | PrivateNetwork:
    from privet.methods.dpsgd import PrivateLinear, PrivateNetwork
    from privet.methods.dpsgd.networks import SmallCNN

    if model == "linear":
        return PrivateLinear(wishes=wishes)
    import torch

    torch.manual_seed(0)  # where training starts is public
    network = SmallCNN(shape=dataset.shape, classes=dataset.n_classes)
    return PrivateNetwork(network=network, wishes=wishes)


def _fit(
    method: PrivateLinear | PrivateNetwork,
    watcher: Callable[[Training], None],
    checkpoints: Checkpoints,
    data: tuple[Any, Any],
    plan: Any,
    ledger: Ledger,
    rng: Any,
) -> Release[Any]:
    from dataclasses import replace

    return replace(method, watcher=watcher, checkpoints=checkpoints).fit(
        *data, plan, ledger=ledger, rng=rng
    )


@contextmanager
def _progress(steps: int, *, show: bool) -> Iterator[Callable[[Training], None]]:
    """A bar with the loss of the last step and the epsilon charged so far; only on a terminal."""
    if not (show and sys.stderr.isatty()):
        yield lambda training: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[facts]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("steps", total=steps, facts="")
        spent = {0: 0.0}

        def watcher(training: Training) -> None:
            charges = len(training.entries)
            if charges not in spent:
                spent[charges] = training.epsilon_spent
            facts = f"loss {training.diagnostics.loss:.4f}, epsilon {spent[charges]:.3f}"
            bar.update(task, completed=training.steps_done, facts=facts)

        yield watcher


def _accuracy(release: Release[Any], x_test: Any, dataset: Dataset) -> float:
    import numpy as np
    import torch

    release.model.eval()
    with torch.no_grad():
        parts = [
            release.model(torch.from_numpy(np.ascontiguousarray(x_test[i : i + 1000]))).argmax(1)
            for i in range(0, len(x_test), 1000)
        ]
    return float((torch.cat(parts).numpy() == dataset.y_test).mean())


def _leave(
    out: Path, release: Release[Any], config: dict[str, Any], accuracy: float, seconds: float
) -> dict[str, Any]:
    """Write the folder of the run; returns what scripts may rely on."""
    from safetensors.torch import save

    state = {k: v.contiguous().clone() for k, v in release.model.state_dict().items()}
    metrics = {
        "test_accuracy": accuracy,
        "seconds": seconds,
        "steps": release.steps,
        "stopped_early": release.steps < int(config["steps"]),
    }
    return _folder.leave(
        out,
        model=save(state, metadata={"privet": json.dumps(config)}),
        config=config,
        metrics=metrics,
        guarantee=release.guarantee,
        claim=release.claim,
    )
