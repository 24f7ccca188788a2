"""The folder of a run as an attacker sees it: records, members, the model, and its recipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from privet.audit.membership import confidence, confidence_of_logits
from privet.cli._data import of_run
from privet.errors import InvalidArgument, MissingFile

if TYPE_CHECKING:
    from privet.audit.membership.references import Read, Train
    from privet.data import Dataset

Config = dict[str, Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Attacked:
    """Training records first (the members), then test records."""

    x: Any
    y: Any
    members: Any
    classes: tuple[str, ...]
    answer: Callable[[Any], Any]
    read: Read
    """What makes confidences of the answers: they are logits or probabilities."""
    train: Train
    """The same recipe on other records, for reference models."""


def config_of(run: Path) -> Config:
    """What a run of `privet train` was asked to do."""
    config = settings_of(run)
    if "data" not in config:
        raise InvalidArgument(
            "run", str(run), "one of `privet train`, with its data",
            "students of `privet pate` are attacked in Python, by those who have the shards",
        )  # fmt: skip
    return config


def settings_of(run: Path) -> Config:
    """What is written about the model in a folder."""
    path = run / "config.json"
    if not path.exists():
        raise MissingFile(path, "give the folder of a finished `privet train` run")
    try:
        config = json.loads(path.read_text())
    except ValueError as e:
        raise InvalidArgument("config.json", str(path), "JSON", str(e)) from None
    if not isinstance(config, dict) or "method" not in config:
        raise InvalidArgument("config.json", str(path), "that of a run, with its method")
    if not (run / "model.safetensors").exists():
        raise MissingFile(run / "model.safetensors", "the run has not finished")
    return config


def opened(run: Path, config: Config, folder: Path | None) -> Attacked:
    """The run with its data, its released model and its recipe."""
    found = seen(run, config, of_run(run, config, folder))
    if config["method"] != "pate":
        return found
    # the last training inputs were public questions that no teacher saw: neither members nor others
    n = int(found.members.sum())
    kept = np.r_[0 : n - int(config["queries"]), n : len(found.y)]
    return replace(found, x=found.x[kept], y=found.y[kept], members=found.members[kept])


def seen(run: Path, config: Config, dataset: Dataset) -> Attacked:
    """The released model of a run, looking at these records."""
    match config["method"]:
        case "dpsgd":
            return _dpsgd(run, config, dataset)
        case "adaptive-laplace":
            return _adaptive_laplace(run, config, dataset)
        case "residual":
            return _residual(run, config, dataset)
        case "pate":
            return _pate(run, config, dataset)
        case "autoencoder":
            return _autoencoder(run, config, dataset)
        case other:
            raise InvalidArgument(
                "run",
                other,
                "one of dpsgd, adaptive-laplace, residual, pate, autoencoder",
                "other models: use Python, see the guide on membership attacks",
            )


def _attacked(
    dataset: Dataset, rows: tuple[Any, Any], answer: Callable[[Any], Any], read: Read, train: Train
) -> Attacked:
    n = len(rows[0])
    return Attacked(
        x=np.concatenate(rows),
        y=np.concatenate([dataset.y_train, dataset.y_test]),
        members=np.arange(n + len(rows[1])) < n,
        classes=dataset.classes,
        answer=answer,
        read=read,
        train=train,
    )


def _dpsgd(run: Path, config: Config, dataset: Dataset) -> Attacked:
    from safetensors.torch import load_file

    from privet.cli._rows import centred
    from privet.cli.train import method_of
    from privet.methods.base import PublicFacts
    from privet.methods.dpsgd import Wishes
    from privet.methods.dpsgd.linear import LinearHead
    from privet.nets.networks import SmallCNN
    from privet.noise import seeded

    rows = centred(dataset, config["model"], config["features"], False)
    wishes = Wishes(
        steps=config["steps"],
        sample_rate=config["sample_rate"],
        clipping_bound=config["clipping_bound"],
        learning_rate=config["learning_rate"],
        momentum=config["momentum"],
    )

    def train(x: Any, y: Any, seed: int) -> Callable[[Any], Any]:
        method = method_of(config["model"], dataset, wishes)
        facts = PublicFacts(
            records=len(x),
            features=x.shape[1],
            outputs=dataset.n_classes,
            epsilon=config["epsilon"],
            delta=config["delta"],
        )
        release = method.fit(x, y, method.plan(facts), ledger=None, rng=seeded(seed))
        return _logits(release.model)

    model: Any
    if config["model"] == "linear":
        model = LinearHead(features=rows[0].shape[1], outputs=dataset.n_classes, constant=0.0)
    else:
        model = SmallCNN(shape=dataset.shape, classes=dataset.n_classes)
    model.load_state_dict(load_file(run / "model.safetensors"))
    return _attacked(dataset, rows, _logits(model), confidence_of_logits, train)


def _logits(model: Any) -> Callable[[Any], Any]:
    """A torch model's answers, a thousand records at a time."""
    import torch

    model.eval()

    def answer(x: Any) -> Any:
        with torch.no_grad():
            parts = [
                model(torch.from_numpy(np.ascontiguousarray(x[i : i + 1000])))
                for i in range(0, len(x), 1000)
            ]
        return torch.cat(parts).double().numpy()

    return answer


def _adaptive_laplace(run: Path, config: Config, dataset: Dataset) -> Attacked:
    from safetensors.torch import load_file

    from privet.cli.train_adaptive_laplace import prepared
    from privet.methods.adaptive_laplace import AdaptiveLaplaceClassifier, LinearRule

    reading, kind = config["reading"], config["kind"]
    x_train, x_test, settings = prepared(dataset, reading, kind, config["features"], False)

    def recipe(seed: int, epochs: int | None) -> AdaptiveLaplaceClassifier:
        return AdaptiveLaplaceClassifier(
            epsilon=config["epsilon"], delta=config["delta"], reading=reading, kind=kind,
            adaptive=config["adaptive"], epochs=epochs, classes=range(dataset.n_classes),
            random_state=seed, **settings,
        )  # fmt: skip

    def train(x: Any, y: Any, seed: int) -> Callable[[Any], Any]:
        answer: Callable[[Any], Any] = recipe(seed, config["epochs"]).fit(x, y).predict_proba
        return answer

    found = load_file(run / "model.safetensors")
    target = recipe(0, 1).fit(*_nothing(x_train, dataset))
    if isinstance(target.model_, LinearRule):
        weights, intercept = found["weights"].numpy(), found["intercept"].numpy()
        target.model_ = LinearRule(weights=weights, intercept=intercept)
    else:
        target.model_.network.load_state_dict(found)
    return _attacked(dataset, (x_train, x_test), target.predict_proba, confidence, train)


def _residual(run: Path, config: Config, dataset: Dataset) -> Attacked:
    from safetensors.torch import load_file

    from privet.methods.residual import ResidualPerturbationClassifier

    def recipe(seed: int, epochs: int, records: int) -> ResidualPerturbationClassifier:
        return ResidualPerturbationClassifier(
            epsilon=config["epsilon"], delta=config["delta"], reading=config["reading"],
            members=config["members"], gamma=config["gamma"], input_noise=config["input_noise"],
            radius=config["radius"], labels=config["labels"], noise_draws=config["noise_draws"],
            epochs=epochs, learning_rate=config["learning_rate"], bounds=(0.0, 1.0),
            classes=range(dataset.n_classes), n_public=records,
            shape=dataset.shape if len(dataset.shape) >= 2 else None, random_state=seed,
        )  # fmt: skip

    def train(x: Any, y: Any, seed: int) -> Callable[[Any], Any]:
        answer: Callable[[Any], Any] = (
            recipe(seed, config["epochs"], len(x)).fit(x, y).predict_proba
        )
        return answer

    rows = dataset.train_rows(), dataset.test_rows()
    blank = _nothing(rows[0], dataset)
    target = recipe(0, 1, len(blank[1])).fit(*blank)
    target.model_.load_state_dict(load_file(run / "model.safetensors"))
    return _attacked(dataset, rows, target.predict_proba, confidence, train)


def _autoencoder(run: Path, config: Config, dataset: Dataset) -> Attacked:
    from safetensors.numpy import load_file

    from privet.cli.train_autoencoder import prepared
    from privet.methods.autoencoder import PrivateAutoencoderClassifier

    x_train, x_test, limits = prepared(dataset, config["reading"], config["features"], False)

    def recipe(seed: int, epochs: int) -> PrivateAutoencoderClassifier:
        return PrivateAutoencoderClassifier(
            epsilon=config["epsilon"], delta=config["delta"], reading=config["reading"],
            layers=tuple(config["layers"]), bounds=limits, classes=range(dataset.n_classes),
            epochs=epochs, random_state=seed,
        )  # fmt: skip

    def train(x: Any, y: Any, seed: int) -> Callable[[Any], Any]:
        answer: Callable[[Any], Any] = recipe(seed, config["epochs"]).fit(x, y).predict_proba
        return answer

    target = recipe(0, 1).fit(*_nothing(x_train, dataset))
    target.model_ = target.model_.with_state(load_file(run / "model.safetensors"))
    return _attacked(dataset, (x_train, x_test), target.predict_proba, confidence, train)


def _pate(run: Path, config: Config, dataset: Dataset) -> Attacked:
    from safetensors.torch import load_file

    from privet.cli._rows import few
    from privet.cli.train_pate import taught
    from privet.methods.pate.students import flat_student
    from privet.noise import seeded

    rows = few(dataset, config["features"], False)[:2]
    shape, classes = rows[0].shape[1:], (dataset.n_classes,)
    student = flat_student(input_shape=shape, target_shape=classes).module
    student.load_state_dict(load_file(run / "model.safetensors"))
    public = rows[0][len(rows[0]) - int(config["queries"]) :]

    def train(x: Any, y: Any, seed: int) -> Callable[[Any], Any]:
        release = taught(
            (x, y),
            public,
            classes=dataset.n_classes,
            teachers=min(config["teachers"], len(x)),
            rng=seeded(seed),
            epsilon=config["epsilon"],
            delta=config["delta"],
            reading=config["reading"],
        )
        module: Any = release.model.predict
        return _logits(module.module)

    return _attacked(dataset, rows, _logits(student), confidence_of_logits, train)


def _nothing(rows: Any, dataset: Dataset) -> tuple[Any, Any]:
    """A blank record of each class: makes a model of the right shape, whose weights then go."""
    blank = np.zeros((dataset.n_classes, *rows.shape[1:]), dtype=rows.dtype)
    return blank, np.arange(dataset.n_classes)
