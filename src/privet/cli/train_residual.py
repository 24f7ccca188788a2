"""`privet train residual`: noisy inputs under a proof, or the paper's noisy ResNet."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from privet import _check
from privet.cli._run import one_line_errors, progress_bar
from privet.cli._training import Asked, training
from privet.errors import InvalidArgument

READINGS = ("sound", "published")
LABELS = ("randomised", "public")


@one_line_errors()
@training
def residual(
    asked: Asked,
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
) -> None:
    """Residual networks on noisy inputs (residual-perturbation).

    The sound reading is local: at small epsilon it learns nothing from pictures. The published one
    ignores epsilon: what is proved of it follows from gamma.
    """
    _check.open_unit("--delta", asked.delta)
    for name, value, allowed in (("--reading", reading, READINGS), ("--labels", labels, LABELS)):
        if value not in allowed:
            raise InvalidArgument(name, value, f"one of {', '.join(allowed)}")
    from safetensors.torch import save

    from privet.guarantee import Adjacency
    from privet.methods.residual import ResidualPerturbationClassifier

    dataset = asked.dataset()
    sound = reading == "sound"
    if sound:
        asked.check_enough(len(dataset.y_train), dataset.n_classes, growth=0.5)
    adjacency = Adjacency.ADD_REMOVE if labels == "randomised" else Adjacency.REPLACE_ONE
    has_ledger = sound or asked.ledger is not None
    charged = asked.charged(adjacency=adjacency) if has_ledger else asked.uncharged()
    with progress_bar(show=not asked.as_json) as progress, charged as ledger:
        done = [0]

        def watch(epoch: int, network: Any) -> None:
            done[0] += 1
            progress("epochs", done[0], epochs * members)

        classifier = ResidualPerturbationClassifier(
            epsilon=asked.epsilon, delta=asked.delta, reading=reading, members=members,
            gamma=gamma, input_noise=input_noise, labels=labels, noise_draws=noise_draws,
            epochs=epochs, learning_rate=learning_rate, bounds=(0.0, 1.0),
            classes=range(dataset.n_classes), n_public=len(dataset.x_train),
            shape=dataset.shape if len(dataset.shape) >= 2 else None, ledger=ledger,
            random_state=asked.seed, watcher=watch,
        )  # fmt: skip
        classifier.fit(dataset.train_rows(), dataset.y_train)
    state = {k: v.contiguous().clone() for k, v in classifier.model_.state_dict().items()}
    budget = classifier.plan_.budget
    asked.leave(
        "residual",
        dataset,
        partial(save, state),
        settings={
            "reading": reading, "members": members, "gamma": gamma,
            "input_noise": budget.input_noise, "labels": labels, "radius": budget.radius,
            "noise_draws": noise_draws, "epochs": epochs, "learning_rate": learning_rate,
        },
        accuracy=float(classifier.score(dataset.test_rows(), dataset.y_test)),
        guarantee=classifier.guarantee_,
        claim=classifier.claim_,
    )  # fmt: skip
