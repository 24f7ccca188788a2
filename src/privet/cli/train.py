"""`privet train`: a private model in a folder, with what it cost beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli._rows import centred
from privet.cli._run import one_line_errors
from privet.cli._training import Asked, Cache, Features, training
from privet.errors import InvalidArgument, MissingFile

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.methods.base import Release
    from privet.methods.dpsgd import PrivateLinear, PrivateNetwork, Training

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
@training
def dpsgd(
    asked: Asked,
    secure: Annotated[
        bool, typer.Option("--secure", help="Secret noise; the default without --seed.")
    ] = False,
    model: Annotated[str, typer.Option(help="linear, or cnn (pictures, end to end).")] = "linear",
    features: Features = "auto",
    cache: Cache = False,
    steps: Annotated[int | None, typer.Option(help="By rule unless told.")] = None,
    sample_rate: Annotated[float | None, typer.Option(help="By rule unless told.")] = None,
    clipping_bound: Annotated[float | None, typer.Option(help="By rule unless told.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="By rule unless told.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
) -> None:
    """Clipped, noised gradients (tight-privacy-cost), priced by exact accounting.

    The same command with --resume goes on after a crash: a seeded run as if it had never stopped, a
    secure one with new noise, charging again for what it makes again.
    """
    _check.open_unit("--delta", asked.delta)
    if secure and asked.seed is not None:
        raise InvalidArgument("--secure", "with --seed", "one of the two")
    _folder_is_right(asked.out, resume)
    from safetensors.torch import save

    from privet.methods.base import PublicFacts, source_of
    from privet.methods.dpsgd import Checkpoints, Wishes
    from privet.methods.enough import linear_numbers

    dataset = asked.dataset()
    x_train, x_test = centred(dataset, model, features, cache)
    asked.check_enough(len(x_train), linear_numbers(dataset.n_features, dataset.n_classes))
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
        epsilon=asked.epsilon,
        delta=asked.delta,
    )
    method = method_of(model, dataset, wishes)
    plan = method.plan(facts)
    checkpoints = Checkpoints(folder=asked.out, every=max(1, plan.schedule.steps // 10))
    bar = _progress(plan.schedule.steps, show=not asked.as_json)
    with asked.charged() as ledger, bar as watcher:
        release = replace(method, watcher=watcher, checkpoints=checkpoints).fit(
            x_train, dataset.y_train, plan, ledger=ledger, rng=source_of(asked.seed)
        )
    state = {k: v.contiguous().clone() for k, v in release.model.state_dict().items()}
    asked.leave(
        "dpsgd",
        dataset,
        partial(save, state),
        settings={
            "model": model,
            "features": features,
            "steps": plan.schedule.steps,
            "sample_rate": float(plan.schedule.rates[0]),
            "clipping_bound": float(plan.schedule.bounds[0]),
            "noise_multiplier": float(plan.schedule.noise_multipliers[0]),
            "learning_rate": float(plan.learning_rates[0]),
            "momentum": plan.momentum,
            "centre_mu": plan.centre_mu,
        },
        accuracy=_accuracy(release, x_test, dataset),
        guarantee=release.guarantee,
        claim=release.claim,
        steps=release.steps,
        stopped_early=release.steps < plan.schedule.steps,
    )


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


def method_of(model: str, dataset: Dataset, wishes: Any) -> PrivateLinear | PrivateNetwork:
    """DP-SGD on a linear head, or on a small network from a public start."""
    from privet.methods.dpsgd import PrivateLinear, PrivateNetwork
    from privet.nets.networks import SmallCNN

    if model == "linear":
        return PrivateLinear(wishes=wishes)
    import torch

    torch.manual_seed(0)  # where training starts is public
    network = SmallCNN(shape=dataset.shape, classes=dataset.n_classes)
    return PrivateNetwork(network=network, wishes=wishes)


@contextmanager
def _progress(steps: int, *, show: bool) -> Iterator[Callable[[Training], None]]:
    """A bar with the epsilon charged so far; only on a terminal. The exact loss is not shown."""
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
            facts = f"epsilon {spent[charges]:.3f}"
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
