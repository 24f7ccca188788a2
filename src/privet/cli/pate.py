"""`privet pate`: many sites, one student, by files alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli._pate_inputs import (
    SPACES,
    as_targets,
    check_choice,
    fit_reducer,
    local_teacher,
    one_hot,
    public_domain,
    read_array,
    target_space,
)
from privet.cli.console import Json, one_line_errors, print_json, show_progress
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.ledger import Ledger
    from privet.methods.pate import Aggregator

app = typer.Typer(
    name="pate",
    help="Many sites, one student: reducer, answer (at each site), aggregate, student.",
    no_args_is_help=True,
)

REDUCERS = ("pca", "autoencoder", "identity")
LEAST_SIGNAL = 0.1
"""Less of a code than this is not worth a budget: nine tenths of what students see are noise."""

Teachers = Annotated[int, typer.Option(help="K, how many sites answer.")]
Queries = Annotated[int, typer.Option(help="N, how many public inputs are answered in all.")]
Epsilon = Annotated[float, typer.Option(help="The budget for all N answers.")]
Delta = Annotated[float, typer.Option(help="At this delta.")]
Inputs = Annotated[
    Path, typer.Option(help="The public inputs: .npy, .npz with an array x, or a NIfTI folder.")
]
Classes = Annotated[
    int | None, typer.Option(help="How many, where targets are class numbers; the largest + 1.")
]
Voxels = Annotated[
    str | None, typer.Option("--grid", help="Of folders of NIfTI files: 32,56,40 voxels.")
]
ReducerFile = Annotated[Path, typer.Option(help="The file of `privet pate reducer`.")]


@app.command()
@one_line_errors()
def reducer(
    targets: Annotated[Path, typer.Option(help="Public targets: .npy, or .npz with an array y.")],
    teachers: Teachers,
    queries: Queries,
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="File to write.")],
    delta: Delta = 1e-5,
    kind: Annotated[str, typer.Option(help="pca, autoencoder or identity.")] = "pca",
    space: Annotated[
        str, typer.Option(help="probabilities (classes first), box ([0, 1]) or logits.")
    ] = "probabilities",
    classes: Classes = None,
    grid: Voxels = None,
    dimension: Annotated[
        int | None, typer.Option(help="Numbers in a code; pca chooses them by eq. 7 unless noisy.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Of the autoencoder.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the autoencoder's training; it is public.")] = 0,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the predicted error against the components (pca).")
    ] = None,
    as_json: Json = False,
) -> None:
    """At the coordinator: fit the map from targets to short codes, on public targets."""
    check_choice("--kind", kind, REDUCERS)
    check_choice("--space", space, SPACES)
    if picture is not None and kind != "pca":
        raise InvalidArgument("--picture", str(picture), "left out unless --kind is pca")
    from privet.methods.pate import PCAReducer, unit_noise, write_reducer

    noise = unit_noise(teachers=teachers, queries=queries, epsilon=epsilon, delta=delta)
    y = one_hot(read_array(targets, "y", grid), classes)
    fitted = fit_reducer(y, kind, target_space(space), noise, dimension, epochs, seed)
    write_reducer(fitted, out)
    report: dict[str, Any] = {
        "reducer": str(out),
        "name": fitted.name,
        "kind": kind,
        "target_shape": list(fitted.target_shape),
        "dimension": fitted.dimension,
        "radius": fitted.radius,
        "noise": noise * fitted.radius,
    }
    if isinstance(fitted, PCAReducer) and fitted.curve is not None:
        report["curve"] = fitted.curve.to_dict()
        if picture is not None:
            from privet.report.plots import error_curve, save

            report["picture"] = str(save(error_curve(fitted.curve, fitted.dimension), picture))
    if as_json:
        print_json(report)
        return
    typer.echo(
        f"{out}: targets of {list(fitted.target_shape)} as codes of {fitted.dimension} numbers, "
        f"length at most {fitted.radius:.4g}, noise {noise * fitted.radius:.4g}"
    )


@app.command()
@one_line_errors()
def answer(
    reducer: ReducerFile,
    inputs: Inputs,
    site: Annotated[str, typer.Option(help="The name of this site.")],
    out: Annotated[Path, typer.Option(help="File to write: clipped codes and nothing else.")],
    predictions: Annotated[
        Path | None, typer.Option(help="What your own teacher said about the inputs (.npy).")
    ] = None,
    shard: Annotated[
        Path | None, typer.Option(help="Or train one here: private .npz with arrays x and y.")
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="logistic, tree, forest, unet, or package.module:function; "
            "by default unet for volumes and forest for all else."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the teacher's training.")] = 0,
    grid: Voxels = None,
    teachers: Annotated[
        int | None, typer.Option(help="Add this site's share of the noise: K sites in all,")
    ] = None,
    missing: Annotated[int, typer.Option(help="of which so many may be missing,")] = 0,
    epsilon: Annotated[float | None, typer.Option(help="at this budget,")] = None,
    delta: Annotated[float, typer.Option(help="at this delta.")] = 1e-5,
    noise_seed: Annotated[
        int | None, typer.Option(help="Repeatable shares, for experiments only.")
    ] = None,
    as_json: Json = False,
) -> None:
    """At each site: ask the local teacher about the public inputs; write clipped codes."""
    if (predictions is None) == (shard is None):
        raise InvalidArgument("--predictions", predictions, "given, or else --shard")
    if (teachers is None) != (epsilon is None):
        raise InvalidArgument("--teachers", teachers, "given together with --epsilon, or neither")
    from privet.methods.pate import encode_predictions, hash_inputs, read_reducer

    codec = read_reducer(reducer)

    def read(path: Path, name: str) -> Any:
        return read_array(path, name, grid if path.is_dir() else None)

    x = read(inputs, "x")
    if predictions is not None:
        predicted = as_targets(read(predictions, "y"), codec)
    else:
        assert shard is not None
        records = read(shard, "x"), as_targets(read(shard, "y"), codec, labels=True)
        predicted = local_teacher(teacher, records[1], codec).train(*records, seed=seed)(x)
    answers = encode_predictions(
        site, predicted, reducer=codec, inputs_hash=hash_inputs(x), expected=len(x)
    )
    share = 0.0
    if teachers is not None and epsilon is not None:
        from privet.methods.pate import DistributedAggregator
        from privet.noise import secure, seeded

        shares = DistributedAggregator.for_budget(
            teachers=teachers,
            missing=missing,
            queries=len(x),
            epsilon=epsilon,
            delta=delta,
            radius=codec.radius,
            dimension=codec.dimension,
        )
        rng = secure() if noise_seed is None else seeded(noise_seed)
        answers, share = shares.add_share(answers, rng=rng), shares.share
    answers.write(out)
    h = answers.header
    if as_json:
        print_json({"answers": str(out), **h.to_dict()})
    else:
        with_noise = f", noise {share:.4g} of its own" if share else ", no noise: keep it safe"
        typer.echo(f"{out}: {h.rows} codes of {h.dimension} numbers from {site!r}{with_noise}")


@app.command()
@one_line_errors()
def aggregate(
    reducer: ReducerFile,
    answers: Annotated[list[Path], typer.Argument(help="The files of all sites.")],
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="File to write: noisy labels for the student.")],
    delta: Delta = 1e-5,
    teachers: Annotated[
        int | None, typer.Option(help="K; the number of files unless noisy. Fewer are refused.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="N of the whole budget, when these are only some of them.")
    ] = None,
    number: Annotated[int, typer.Option("--round", help="Number of this round, from 0.")] = 0,
    missing: Annotated[
        int | None, typer.Option(help="Sites added shares; so many of K may be missing.")
    ] = None,
    reading: Annotated[
        str, typer.Option(help="sound, or published (the paper's noise).")
    ] = "sound",
    ledger: Annotated[
        Path | None, typer.Option(help="The budget to charge: replace-one, per teacher shard.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable noise, for experiments only.")
    ] = None,
    allow_equal: Annotated[
        bool, typer.Option("--allow-equal", help="Two sites may send the very same answers.")
    ] = False,
    allow_vacuous: Annotated[
        bool, typer.Option("--anyway", help="Even where noise drowns all answers.")
    ] = False,
    as_json: Json = False,
) -> None:
    """At the coordinator: the noisy mean of all answers, charged before noise is drawn.

    Refuses by name a site that answered twice, by its name or by its numbers, another reducer's
    codes, other inputs, codes over the radius and files that were changed.
    """
    check_choice("--reading", reading, ("sound", "published"))
    _check.open_unit("delta", delta)
    if missing is not None and reading == "published":
        raise InvalidArgument("--reading", reading, "sound when sites add shares of the noise")
    from privet.methods.pate import (
        Aggregator,
        AnswerFile,
        DistributedAggregator,
        LabelFile,
        published_claim,
        read_reducer,
    )
    from privet.noise import secure, seeded

    codec = read_reducer(reducer)
    files = [AnswerFile(path) for path in answers]
    rows = files[0].header.rows
    sizes = {"teachers": teachers or len(files), "queries": queries or rows}
    budget: dict[str, Any] = {
        **sizes, "epsilon": epsilon, "delta": delta, "radius": codec.radius,
    }  # fmt: skip
    if reading == "published":
        plan = Aggregator.published(**budget)
    else:
        plan = Aggregator.for_budget(**budget, dimension=codec.dimension)
    if not allow_vacuous:
        check_signal(plan, codec.dimension, **sizes)
    account = open_shard_ledger(ledger, out, epsilon, delta)
    if missing is None:
        noisy = plan.release(
            files,
            rng=secure() if seed is None else seeded(seed),
            delta=delta,
            ledger=account,
            reducer=codec.name,
            number=number,
            allow_equal=allow_equal,
        )
    else:
        shares = DistributedAggregator.for_budget(
            **budget, missing=missing, dimension=codec.dimension
        )
        noisy = shares.release(files, delta=delta, ledger=account, reducer=codec.name)
    promise = noisy.guarantee
    assert noisy.entry is not None  # there is a ledger
    labels = LabelFile(
        labels=codec.decode(noisy.codes, noise=noisy.noise),
        codes=noisy.codes,
        noise=noisy.noise,
        queries=files[0].header.queries,
        reducer=codec.name,
        guarantee=promise,
        claim=published_claim(epsilon=epsilon, delta=delta) if reading == "published" else None,
        payment={
            "sites": [file.header.site for file in files],
            "entry": noisy.entry.body().decode(),
            "account": account.statement(),
        },
    )
    labels.write(out)
    report = {
        "labels": str(out),
        "sites": [file.header.site for file in files],
        "queries": rows,
        "noise": noisy.noise,
        "guarantee": promise.to_dict(),
        "claim": None if labels.claim is None else labels.claim.to_dict(),
        "spent": account.spent(),
        "ledger": account.name,
    }
    if as_json:
        print_json(report)
    else:
        typer.echo(f"{out}: {rows} labels, noise {noisy.noise:.4g}, {promise}")


@app.command()
@one_line_errors()
def student(
    labels: Annotated[Path, typer.Option(help="The file of `privet pate aggregate`.")],
    inputs: Inputs,
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    hidden: Annotated[
        int | None,
        typer.Option(
            help="Hidden units, 0 for a linear student; channels (8) for maps: then no U-Net."
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Free: they cost no privacy. By default 60; a U-Net has 400 steps."),
    ] = None,
    names: Annotated[
        str | None, typer.Option(help="Names of the classes, with commas between; numbers else.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Test records: .npz with arrays x and y (class numbers).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the student's training.")] = 0,
    grid: Voxels = None,
    as_json: Json = False,
) -> None:
    """Train a student on public inputs and noisy labels: post-processing, free of charge.

    Leaves a run: `privet.load`, `predict`, `audit` and `verify` take it. Inputs are scaled by the
    range of the public ones. Maps on the grid of the inputs get convolutions, volumes a U-Net where
    MONAI is installed.
    """
    from privet.methods.pate import LabelFile, hash_inputs
    from privet.methods.pate.label_file_student import training_result
    from privet.methods.pate.students import default_student
    from privet.methods.released_models import NetworkModel
    from privet.runs.guarantee_record import Provenance
    from privet.runs.run_folder import require_empty_run, write_run

    require_empty_run(out)
    noisy = LabelFile.read(labels)
    x = read_array(inputs, "x", grid)
    if hash_inputs(x) != noisy.queries:
        raise InvalidArgument("--inputs", str(inputs), "the inputs that the labels belong to")
    shape = noisy.labels.shape[1:]
    classes = [str(k) for k in range(shape[0])] if names is None else names.split(",")
    if len(classes) != shape[0]:
        raise InvalidArgument("--names", names, f"{shape[0]} of them")
    domain = public_domain(x)
    with show_progress(bar=not as_json) as progress:
        learner = default_student(
            input_shape=x.shape[1:], target_shape=shape, hidden=hidden, seed=seed, epochs=epochs,
            watcher=lambda done, of: progress("student", done, of),
        )  # fmt: skip
        predict: Any = learner.train(domain.rows(x).cube(), noisy.labels, seed=seed)
    trained = training_result(noisy, NetworkModel(network=predict.module, view="cube"), domain)
    metrics: dict[str, Any] = {"queries": len(x)}
    if test is not None:
        rows = domain.rows(read_array(test, "x"))
        guessed = trained.model.outputs(rows).argmax(axis=1)
        metrics["test_accuracy"] = float((guessed == read_array(test, "y")).mean())
    config = {
        "method": "pate",
        "data": f"answers of {len(noisy.payment['sites'])} sites about {len(x)} public inputs",
        "settings": {},
        "student": {"hidden": hidden, "epochs": epochs, "seed": seed},
        "classes": classes,
        "epsilon": noisy.guarantee.epsilon,
        "delta": noisy.guarantee.delta,
        "noise": "as the sites or the coordinator drew it",
        "plan": {"queries": len(x), "noise_on_codes": noisy.noise, "reducer": noisy.reducer},
        "asked_with": "arrays",
    }
    summary = write_run(
        out, trained, domain=domain, config=config, metrics=metrics, given=Provenance()
    )
    if as_json:
        print_json(summary)
    else:
        accuracy = f"test accuracy {metrics['test_accuracy']:.2%}, " if test is not None else ""
        typer.echo(f"{out}: {accuracy}{noisy.guarantee}")


def check_signal(plan: Aggregator, dimension: int, teachers: int, queries: int) -> None:
    """Refuse to spend where noise drowns what all teachers can say; from public sizes alone."""
    share = plan.signal_share(dimension)
    if share < LEAST_SIGNAL:
        raise InvalidArgument(
            "--epsilon", f"noise {plan.noise:.3g} on codes of length at most {plan.radius:.3g}",
            f"more, or more than {teachers} sites, or fewer than {queries} questions",
            f"at most {share:.0%} of an answer of {dimension} numbers could be heard, and all of "
            "the budget would be spent; --anyway spends it all the same",
        )  # fmt: skip


def open_shard_ledger(path: Path | None, out: Path, epsilon: float, delta: float) -> Ledger:
    """The ledger named, or one beside the labels whose cap is the budget."""
    from privet.guarantee import Adjacency, Unit
    from privet.ledger import Ledger

    if path is not None:
        return Ledger.open(path)
    beside = out.with_suffix(".ledger")
    if beside.exists():
        return Ledger.open(beside)
    beside.parent.mkdir(parents=True, exist_ok=True)
    return Ledger.create(
        beside,
        cap_epsilon=epsilon,
        cap_delta=delta,
        adjacency=Adjacency.REPLACE_ONE,
        unit=Unit.SHARD,
    )
