"""`privet train residual`: noisy inputs under a proof, or the paper's noisy ResNet."""

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

if TYPE_CHECKING:
    from privet.ledger import Ledger
    from privet.methods.residual import ResidualPerturbationClassifier


@one_line_errors()
def residual(
    data: Annotated[str, typer.Option(help="A data set's name (`privet data list`) or file.")],
    epsilon: Annotated[float, typer.Option(help="The budget; the published reading ignores it.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-5,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable noise, for experiments only.")
    ] = None,
    reading: Annotated[
        str, typer.Option(help="sound; or published, whose epsilon is a claim.")
    ] = "sound",
    members: Annotated[int, typer.Option(help="k of En_k.")] = 1,
    gamma: Annotated[float | None, typer.Option(help="Noise of the blocks.")] = None,
    input_noise: Annotated[
        float | None, typer.Option(help="pi of the published reading; gamma / 2 unless told.")
    ] = None,
    labels: Annotated[
        str, typer.Option(help="randomised, or public (protects features only).")
    ] = "randomised",
    noise_draws: Annotated[int, typer.Option(help="Draws averaged in a prediction.")] = 1,
    epochs: Annotated[int, typer.Option(help="Free in the sound reading.")] = 10,
    learning_rate: Annotated[float, typer.Option(help="Of SGD with momentum.")] = 0.02,
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
    """Residual networks on noisy inputs (residual-perturbation).

    The sound reading is local: at small epsilon it learns nothing from pictures.
    """
    begun = time.perf_counter()
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    _folder.new(out)
    from privet.methods.residual import ResidualPerturbationClassifier

    dataset = find(data, folder, label, bounds)
    if records is not None:
        dataset = dataset.subset(records)
    picture = len(dataset.shape) >= 2
    with progress_bar(show=not as_json) as progress:
        done = [0]

        def watch(epoch: int, network: Any) -> None:
            done[0] += 1
            progress("epochs", done[0], epochs * members)

        classifier = ResidualPerturbationClassifier(
            epsilon=epsilon, delta=delta, reading=reading, members=members, gamma=gamma,
            input_noise=input_noise, labels=labels, noise_draws=noise_draws, epochs=epochs,
            learning_rate=learning_rate, bounds=(0.0, 1.0), classes=range(dataset.n_classes),
            n_public=len(dataset.x_train), shape=dataset.shape if picture else None,
            ledger=_ledger(ledger, out, epsilon, delta, reading, labels), random_state=seed,
            watcher=watch,
        )  # fmt: skip
        classifier.fit(dataset.train_rows(), dataset.y_train)
    accuracy = float(classifier.score(dataset.test_rows(), dataset.y_test))
    config = {
        "method": "residual", "data": dataset.name, "reading": reading, "members": members,
        "gamma": gamma, "input_noise": classifier.plan_.budget.input_noise, "labels": labels,
        "radius": classifier.plan_.budget.radius, "noise_draws": noise_draws, "epochs": epochs,
        "learning_rate": learning_rate, "epsilon": epsilon, "delta": delta, "seed": seed,
        "noise": "secure" if seed is None else "seeded",
    }  # fmt: skip
    config |= remembered(out, data, label, bounds)
    answer = _leave(out, classifier, config, accuracy, time.perf_counter() - begun)
    if as_json:
        print_json(answer)
    else:
        claim = "" if classifier.claim_ is None else f"; {classifier.claim_}"
        typer.echo(f"{out}: test accuracy {accuracy:.2%}, {classifier.guarantee_}{claim}")


def _ledger(
    path: Path | None, out: Path, epsilon: float, delta: float, reading: str, labels: str
) -> Ledger | None:
    """The ledger named; or one of the run's own, whose cap is its budget, if it has one."""
    from privet.guarantee import Adjacency
    from privet.ledger import Ledger

    if path is not None:
        return Ledger.open(path)
    if reading != "sound":  # what is proved follows from gamma, and has no cap
        return None
    known = Adjacency.ADD_REMOVE if labels == "randomised" else Adjacency.REPLACE_ONE
    return _folder.ledger_of(None, out, epsilon, delta, adjacency=known)


def _leave(
    out: Path,
    classifier: ResidualPerturbationClassifier,
    config: dict[str, Any],
    accuracy: float,
    seconds: float,
) -> dict[str, Any]:
    """Write the folder of the run; returns what scripts may rely on."""
    from safetensors.torch import save

    state = {k: v.contiguous().clone() for k, v in classifier.model_.state_dict().items()}
    return _folder.leave(
        out,
        model=save(state, {"privet": json.dumps(config)}),
        config=config,
        metrics={"test_accuracy": accuracy, "seconds": seconds},
        guarantee=classifier.guarantee_,
        claim=classifier.claim_,
    )
