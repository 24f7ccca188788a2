"""`privet train autoencoder`: learned layers from moments released once, and what they cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli._rows import few
from privet.cli._run import one_line_errors, progress_bar
from privet.cli._training import Asked, Cache, Features, training
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.data import Dataset

READINGS = ("sound", "published")


@one_line_errors()
@training
def autoencoder(
    asked: Asked,
    reading: Annotated[
        str, typer.Option(help="sound; or published, whose epsilon is a claim.")
    ] = "sound",
    layers: Annotated[str, typer.Option(help="Units of each layer, such as 300 or 300,200.")] = "",
    features: Features = "auto",
    cache: Cache = False,
    epochs: Annotated[int, typer.Option(help="Of the published reading.")] = 50,
) -> None:
    """Auto-encoders from moments that are released once a layer (deep private auto-encoder).

    The published reading charges no ledger: nothing finite can be proved of it.
    """
    if reading not in READINGS:
        raise InvalidArgument("--reading", reading, f"one of {', '.join(READINGS)}")
    sizes = _sizes(layers)
    import numpy as np
    from safetensors.numpy import save

    from privet.methods.autoencoder import PrivateAutoencoderClassifier
    from privet.methods.enough import linear_numbers

    dataset = asked.dataset()
    x_train, x_test, limits = prepared(dataset, reading, features, cache)
    sound = reading == "sound"
    if sound:
        asked.check_enough(len(x_train), linear_numbers(dataset.n_features, dataset.n_classes))
    if not sizes:
        sizes = (min(300, x_train.shape[1]) if sound else 20,)
    charged = asked.charged() if sound else asked.uncharged()
    with progress_bar(show=not asked.as_json) as progress, charged as ledger:
        done: dict[str, int] = {}

        def watcher(what: str, size: int) -> None:
            done[what] = done.get(what, 0) + size
            progress(what, done[what], len(x_train))

        classifier = PrivateAutoencoderClassifier(
            epsilon=asked.epsilon, delta=asked.delta, reading=reading, layers=sizes, bounds=limits,
            classes=range(dataset.n_classes), epochs=epochs, random_state=asked.seed,
            watcher=watcher, ledger=ledger,
        ).fit(x_train, dataset.y_train)  # fmt: skip
    state = {k: np.ascontiguousarray(v) for k, v in classifier.model_.state().items()}
    asked.leave(
        "autoencoder",
        dataset,
        partial(save, state),
        settings={
            "reading": reading, "layers": list(sizes), "features": features, "epochs": epochs,
        },
        accuracy=float(classifier.score(x_test, dataset.y_test)),
        guarantee=classifier.guarantee_,
        claim=classifier.claim_,
    )  # fmt: skip


def _sizes(layers: str) -> tuple[int, ...]:
    try:
        return tuple(_check.count("--layers", int(part)) for part in layers.split(",") if part)
    except ValueError:
        raise InvalidArgument("--layers", layers, "whole numbers with commas between") from None


def prepared(
    dataset: Dataset, reading: str, features: str, cache: bool
) -> tuple[Any, Any, tuple[float, float] | float]:
    """Training and test rows in [0, 1], or of public features, and what bounds them."""
    if reading != "sound":
        return dataset.train_rows(), dataset.test_rows(), (0.0, 1.0)
    x_train, x_test, extracted = few(dataset, features, cache)
    return x_train, x_test, 1.0 if extracted else (0.0, 1.0)
