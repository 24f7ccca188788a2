"""`privet train pate`: teachers on shards of a data set, a student on its public part."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from privet import _check
from privet.cli import _folder
from privet.cli._data import Bounds, Label, remembered
from privet.cli._data import dataset as find
from privet.cli._pate import noise_source, one_of, shard_ledger
from privet.cli._run import one_line_errors, print_json, progress_bar
from privet.cli.train import _front
from privet.errors import InvalidArgument


@one_line_errors()
def pate(
    data: Annotated[str, typer.Option(help="A data set's name (`privet data list`) or file.")],
    epsilon: Annotated[float, typer.Option(help="The budget, all of which is spent.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-5,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable noise, for experiments only.")
    ] = None,
    teachers: Annotated[
        int | None, typer.Option(help="K; one for twelve records, at most 1000, unless told.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="N; the last N training inputs count as public.")
    ] = None,
    features: Annotated[
        str, typer.Option(help="Public front end: auto, plain, scattering, strokes.")
    ] = "auto",
    cache: Annotated[
        bool, typer.Option("--cache", help="Keep features on disk, unprotected.")
    ] = False,
    reading: Annotated[
        str, typer.Option(help="sound, or published (the paper's noise).")
    ] = "sound",
    folder: Annotated[Path | None, typer.Option(help="Where data sets lie.")] = None,
    records: Annotated[
        int | None, typer.Option(help="Train on the first so many records only.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes for the teachers.")] = 1,
    backend: Annotated[str, typer.Option(help="joblib's: loky, threading, ray, dask.")] = "loky",
    label: Label = None,
    bounds: Bounds = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The budget to charge: replace-one, per teacher shard.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Many teachers, one student (PATE): the student sees noisy answers on public inputs alone.

    The labels of the public inputs are not used, and no teacher sees these inputs.
    """
    begun = time.perf_counter()
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    one_of("--reading", reading, ("sound", "published"))
    _folder.new(out)
    from safetensors.torch import save
    from sklearn.linear_model import LogisticRegression

    from privet.methods.base import assuming
    from privet.methods.pate import PATE, EstimatorLearner, IdentityReducer
    from privet.methods.pate.students import flat_student

    dataset = find(data, folder, label, bounds)
    if records is not None:
        dataset = dataset.subset(records)
    n, classes = len(dataset.y_train), dataset.n_classes
    public = max(100, min(1000, n // 10)) if queries is None else _check.count("queries", queries)
    count = max(2, min(1000, n // 12)) if teachers is None else _check.count("teachers", teachers)
    if public + count > n:
        raise InvalidArgument("--queries", public, f"so few that {n} records leave one a teacher")
    x_train, x_test = _rows(dataset, features, cache)
    private_x, private_y = x_train[: n - public], dataset.y_train[: n - public]
    own = shard_ledger(ledger, out / "run", epsilon, delta)
    with progress_bar(show=not as_json) as told:
        method = PATE(
            teachers=EstimatorLearner(
                estimator=LogisticRegression(C=10.0, max_iter=200), classes=classes
            ),
            student=flat_student(
                input_shape=x_train.shape[1:], target_shape=(classes,), learning_rate=3e-3
            ),
            reducer=IdentityReducer(shape=(classes,)),
            epsilon=epsilon,
            delta=delta,
            ledger=own,
            reading=reading,
            backend=backend,
            workers=workers,
            watcher=lambda done, of: told("teachers", done, of),
        )
        shards = [(private_x[k::count], private_y[k::count]) for k in range(count)]
        release = method.fit(shards, x_train[n - public :], rng=noise_source(seed))
    predict: Any = release.model.predict
    accuracy = float((predict(x_test).argmax(axis=1) == dataset.y_test).mean())
    guarantee = assuming(release.guarantee, f"the last {public} training inputs are public")
    config = {
        "method": "pate",
        "data": dataset.name,
        "features": features,
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "noise": "secure" if seed is None else "seeded",
        "teachers": count,
        "queries": public,
        "reading": reading,
        "noise_on_the_mean": release.model.noise,
        **remembered(out, data, label, bounds),
    }
    answer = _folder.leave(
        out,
        model=save(predict.module.state_dict(), {"privet": json.dumps(config)}),
        config=config,
        metrics={"test_accuracy": accuracy, "seconds": time.perf_counter() - begun},
        guarantee=guarantee,
        claim=release.claim,
    )
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{out}: test accuracy {accuracy:.2%}, {guarantee}")


def _rows(dataset: Any, features: str, cache: bool) -> tuple[Any, Any]:
    """Training and test rows, or public features of them, at most some hundreds of numbers."""
    front = _front(dataset, features, cache)
    if front is None:
        return dataset.train_rows(), dataset.test_rows()
    if front.n_features > 1000:
        from privet.nets.features import Cached, RandomProjection

        projected = front.then(RandomProjection(n_inputs=front.n_features, n_features=500))
        front = Cached(projected) if cache else projected
    return front.transform(dataset.train_rows()), front.transform(dataset.test_rows())
