"""`privet train pate`: teachers on shards of a data set, a student on its public part."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check, premises
from privet.cli._pate import one_of
from privet.cli._rows import few
from privet.cli._run import one_line_errors, progress_bar
from privet.cli._training import Asked, Cache, Features, training
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.methods.base import Release
    from privet.noise import Source


@one_line_errors()
@training
def pate(
    asked: Asked,
    teachers: Annotated[
        int | None, typer.Option(help="K; one for twelve records, at most 1000, unless told.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="N; the last N training inputs count as public.")
    ] = None,
    features: Features = "auto",
    cache: Cache = False,
    reading: Annotated[
        str, typer.Option(help="sound, or published (the paper's noise).")
    ] = "sound",
    workers: Annotated[int, typer.Option(help="Processes for the teachers.")] = 1,
    backend: Annotated[str, typer.Option(help="joblib's: loky, threading, ray, dask.")] = "loky",
) -> None:
    """Many teachers, one student (PATE): the student sees noisy answers on public inputs alone.

    The labels of the public inputs are not used, and no teacher sees these inputs. A ledger must be
    replace-one, per teacher shard.
    """
    _check.open_unit("--delta", asked.delta)
    one_of("--reading", reading, ("sound", "published"))
    from safetensors.torch import save

    from privet.guarantee import Adjacency, Unit
    from privet.methods.base import assuming, source_of

    dataset = asked.dataset()
    n, classes = len(dataset.y_train), dataset.n_classes
    public = max(100, min(1000, n // 10)) if queries is None else _check.count("--queries", queries)
    count = max(2, min(1000, n // 12)) if teachers is None else _check.count("--teachers", teachers)
    if public + count > n:
        raise InvalidArgument(
            "--queries", public, f"so few that {n} records leave one a teacher",
            f"{public} are asked about and {count} teachers learn",
        )  # fmt: skip
    asked.check_enough(count, classes, what="teachers")
    x_train, x_test, _ = few(dataset, features, cache)
    charged = asked.charged(adjacency=Adjacency.REPLACE_ONE, unit=Unit.SHARD)
    with progress_bar(show=not asked.as_json) as told, charged as ledger:
        release = taught(
            (x_train[: n - public], dataset.y_train[: n - public]),
            x_train[n - public :],
            classes=classes,
            teachers=count,
            rng=source_of(asked.seed),
            epsilon=asked.epsilon,
            delta=asked.delta,
            ledger=ledger,
            reading=reading,
            backend=backend,
            workers=workers,
            watcher=lambda done, of: told("teachers", done, of),
        )
    predict: Any = release.model.predict
    asked.leave(
        "pate",
        dataset,
        partial(save, predict.module.state_dict()),
        settings={
            "features": features, "teachers": count, "queries": public, "reading": reading,
            "noise_on_the_mean": release.model.noise,
        },
        accuracy=float((predict(x_test).argmax(axis=1) == dataset.y_test).mean()),
        guarantee=assuming(
            release.guarantee, premises.public_inputs(f"the last {public} training inputs")
        ),
        claim=release.claim,
    )  # fmt: skip


def taught(
    private: tuple[Any, Any],
    public: Any,
    *,
    classes: int,
    teachers: int,
    rng: Source,
    **settings: Any,
) -> Release[Any]:
    """A linear student of logistic teachers, the k-th of whom has every K-th private record."""
    from sklearn.linear_model import LogisticRegression

    from privet.methods.pate import PATE, EstimatorLearner, IdentityReducer
    from privet.methods.pate.students import flat_student

    method = PATE(
        teachers=EstimatorLearner(
            estimator=LogisticRegression(C=10.0, max_iter=200), classes=classes
        ),
        student=flat_student(
            input_shape=public.shape[1:], target_shape=(classes,), learning_rate=3e-3
        ),
        reducer=IdentityReducer(shape=(classes,)),
        **settings,
    )
    x, y = private
    return method.fit([(x[k::teachers], y[k::teachers]) for k in range(teachers)], public, rng=rng)
