"""`privet train adaptive-laplace`: noise once, or shaped by relevance, and what it cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli._rows import few
from privet.cli._run import one_line_errors
from privet.cli._training import Asked, Cache, Features, training
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.data import Dataset

KINDS = ("moments", "network")
READINGS = ("sound", "published", "released")


@one_line_errors()
@training
def adaptive_laplace(
    asked: Asked,
    reading: Annotated[
        str, typer.Option(help="sound; or published or released, whose epsilon is a claim.")
    ] = "sound",
    kind: Annotated[
        str, typer.Option(help="moments (one-shot, linear), or network (deep, shaped noise).")
    ] = "moments",
    features: Features = "auto",
    cache: Cache = False,
    identical: Annotated[
        bool, typer.Option("--identical", help="Identical noise: no shaping by relevance.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Free: they cost no privacy.")] = None,
) -> None:
    """Noise placed by relevance, once, whatever the number of epochs (Adaptive Laplace Mechanism).

    The published readings charge no ledger: what can be proved of them is often nothing.
    """
    for name, value, allowed in (("--kind", kind, KINDS), ("--reading", reading, READINGS)):
        if value not in allowed:
            raise InvalidArgument(name, value, f"one of {', '.join(allowed)}")
    if epochs is not None:
        _check.count("--epochs", epochs)
    import numpy as np
    from safetensors.numpy import save

    from privet.methods.adaptive_laplace import AdaptiveLaplaceClassifier, LinearRule
    from privet.methods.enough import linear_numbers

    dataset = asked.dataset()
    x_train, x_test, settings = prepared(dataset, reading, kind, features, cache)
    sound = reading == "sound"
    if sound:
        asked.check_enough(len(x_train), linear_numbers(dataset.n_features, dataset.n_classes))
    with asked.charged() if sound else asked.uncharged() as ledger:
        classifier = AdaptiveLaplaceClassifier(
            epsilon=asked.epsilon, delta=asked.delta, reading=reading, kind=kind,
            adaptive=not identical, epochs=epochs, classes=range(dataset.n_classes),
            random_state=asked.seed, ledger=ledger, **settings,
        ).fit(x_train, dataset.y_train)  # fmt: skip
    model = classifier.model_
    if isinstance(model, LinearRule):
        state = {"weights": model.weights, "intercept": model.intercept}
    else:
        state = {k: v.numpy() for k, v in model.network.state_dict().items()}
    asked.leave(
        "adaptive-laplace",
        dataset,
        partial(save, {k: np.ascontiguousarray(v) for k, v in state.items()}),
        settings={
            "reading": reading, "kind": kind, "features": features, "adaptive": not identical,
            "epochs": epochs,
        },
        accuracy=float(classifier.score(x_test, dataset.y_test)),
        guarantee=classifier.guarantee_,
        claim=classifier.claim_,
    )  # fmt: skip


def prepared(
    dataset: Dataset, reading: str, kind: str, features: str, cache: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """Training and test rows in [0, 1], or of public features, and what the estimator is told."""
    told: dict[str, Any] = {"bounds": (0.0, 1.0)}
    if reading != "sound":
        return dataset.train_rows(), dataset.test_rows(), told
    if kind == "network":
        from privet.dpsgd import PrivateNetwork

        told["trainer"] = PrivateNetwork(network=_network(dataset))
        return dataset.train_rows(), dataset.test_rows(), told
    x_train, x_test, extracted = few(dataset, features, cache)
    return x_train, x_test, {"bounds": 1.0} if extracted else told


def _network(dataset: Dataset) -> Any:
    """A small network, from a public start."""
    import torch

    from privet.nets.networks import SmallCNN

    with torch.random.fork_rng():
        torch.manual_seed(0)
        if len(dataset.shape) >= 2 and min(dataset.shape[:2]) >= 16:
            return SmallCNN(shape=dataset.shape, classes=dataset.n_classes)
        wide = torch.nn.Linear(dataset.n_features, 64)
        return torch.nn.Sequential(wide, torch.nn.Tanh(), torch.nn.Linear(64, dataset.n_classes))
