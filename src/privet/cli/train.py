"""`privet train METHOD`: a private model in a folder, with what it cost beside it.

A method is a word of this command by being in the catalogue; its options are its fields.
"""

from __future__ import annotations

import inspect
import time
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from privet import _check
from privet.cli import _output_folder
from privet.cli.console import Json, one_line_errors, print_json, show_progress
from privet.cli.data_options import Bounds, Folder, Label, describe_file, fingerprint_of
from privet.errors import InvalidArgument, MissingFile, PrivetError
from privet.methods.catalogue import method_names, method_type

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.ledger import CuratorKey
    from privet.methods.contract import Files, Method
    from privet.methods.train_method import TrainingResult
    from privet.runs import Provenance
    from privet.runs.training_task import Task


class MethodGroup(TyperGroup):
    """Commands that are made when they are asked for: a name of the catalogue is one."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The methods, ours first."""
        return list(method_names())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a method; a file without a declaration is told before it is imported."""
        with one_line_errors():
            _require_declaration(args)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command of one method, with its settings as options."""
        if name not in method_names():
            return None
        with one_line_errors():
            return _command(name)


def _require_declaration(args: list[str]) -> None:
    """Refuse `--data FILE` without `--bounds`: to import a method takes seconds."""
    given = {a: b for a, _, b in (one.partition("=") for one in args)}
    given |= {a: b for a, b in pairwise(args) if a.startswith("--")}
    data = Path(given.get("--data", ""))
    if data.suffix in (".csv", ".npz") and not {"--bounds", "--help"} & set(given):
        from privet.data.declarations import require_declaration

        require_declaration(data, None)


app = typer.Typer(
    name="train",
    cls=MethodGroup,
    help="Train a model privately; leaves a folder with the model and its guarantee.",
    no_args_is_help=True,
)


@app.callback()
def _methods() -> None:
    """Commands come from the catalogue."""


def shared_options(
    data: Annotated[str, typer.Option(help="A data set's name (`privet data list`) or file.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    epsilon: Annotated[
        float | None,
        typer.Option(help="The budget, all of it spent; left out where settings fix the noise."),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="At this delta; 0 where a method can do without.")
    ] = 1e-5,
    label: Label = None,
    bounds: Bounds = None,
    n_public: Annotated[
        int | None,
        typer.Option(help="Declared number of records, for add-remove; counted for zero-out."),
    ] = None,
    public: Annotated[
        int | None,
        typer.Option(help="So many of the last training inputs are public: what PATE asks about."),
    ] = None,
    features: Annotated[
        str,
        typer.Option(
            help="Public front end of pictures: auto, plain, scattering, scenes, strokes."
        ),
    ] = "auto",
    cache: Annotated[bool, typer.Option("--cache", help="Keep features, unprotected.")] = False,
    class_weights: Annotated[
        str | None,
        typer.Option(help="What missing a class costs: ill=5,well=1. Of what was released; free."),
    ] = None,
    release_metrics: Annotated[
        bool,
        typer.Option(
            "--release-metrics", help="Publish test results too, with noise, for a price."
        ),
    ] = False,
    metrics_epsilon: Annotated[
        float, typer.Option(help="That price, for each person kept for tests; delta is 0.")
    ] = 0.1,
    class_prior: Annotated[
        str | None,
        typer.Option(
            help="The public share of each class, ill=.1,well=.9: classes are served alike."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of arithmetic; by default one for small work.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The budget to charge; see `privet ledger init`.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable noise, for experiments only.")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Secret noise; the default without --seed.")
    ] = False,
    records: Annotated[
        int | None, typer.Option(help="Train on the first so many records only.")
    ] = None,
    folder: Folder = None,
    allow_vacuous: Annotated[
        bool,
        typer.Option("--anyway", help="Train even where noise outweighs all, or delta is 1/n."),
    ] = False,
    user: Annotated[
        str | None,
        typer.Option(help="Column that says whose a record is: people are protected and split."),
    ] = None,
    purpose: Annotated[str, typer.Option(help="What the model is for, for its record.")] = "",
    curator: Annotated[str, typer.Option(help="Who answers for it, for its record.")] = "",
    region: Annotated[str, typer.Option(help="Where the data are from, for its record.")] = "",
    justification: Annotated[
        str, typer.Option(help="Why this epsilon, and why these records, for its record.")
    ] = "",
    lawful_basis: Annotated[
        str, typer.Option(help="Why the records may be used, for its record.")
    ] = "",
    retention: Annotated[
        str, typer.Option(help="How long records and model are kept, for its record.")
    ] = "",
    recipients: Annotated[str, typer.Option(help="Who is given the model, for its record.")] = "",
    contact: Annotated[
        str, typer.Option(help="Whom somebody in the data can ask, for its record.")
    ] = "",
    who: Annotated[
        str | None, typer.Option(help="Who spends, for the ledger; by default user@host.")
    ] = None,
    also: Annotated[
        bool, typer.Option("--also", help="Charge a ledger that is bound to other data.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    as_json: Json = False,
) -> None:
    """The options that all trainings share."""


def _command(name: str) -> Any:
    """A click command made of the shared options and of the fields of the method."""
    from privet.settings import option_parameters, settings_from_options

    kind = method_type(name)
    own = option_parameters(kind)
    reading = [] if kind.files is None else option_parameters(kind.files)
    common = dict(inspect.signature(shared_options, eval_str=True).parameters)
    its_own = {p.name: common.pop(p.name).default for p in reading if p.name in common}

    def run(**given: Any) -> None:
        with one_line_errors():
            settings = settings_from_options(kind, {p.name: given.pop(p.name) for p in own})
            reading_options = {p.name: given.pop(p.name) for p in reading}
            files = (
                None
                if kind.files is None
                else kind.files(**settings_from_options(kind.files, reading_options))
            )
            train(kind, settings, files, **its_own, **given)

    command: Any = run
    command.__doc__ = inspect.getdoc(kind)
    command.__signature__ = inspect.Signature(
        [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in common.values()), *own, *reading]
    )
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, help=_help(kind))(command)
    return typer.main.get_command(single)


def _help(kind: type[Any]) -> str:
    """What the method's docstring says before its mathematics."""
    text = inspect.getdoc(kind) or ""
    return text.split("**Guarantee**")[0].split(">>>")[0].strip()


def train(
    kind: type[Method[Any]],
    settings: dict[str, Any],
    files: Files | None = None,
    *,
    data: str,
    epsilon: float | None,
    out: Path,
    delta: float,
    label: str | None,
    bounds: Path | None,
    n_public: int | None,
    public: int | None,
    features: str,
    cache: bool,
    class_weights: str | None,
    release_metrics: bool,
    metrics_epsilon: float,
    class_prior: str | None,
    threads: int | None,
    ledger: Path | None,
    seed: int | None,
    secure: bool,
    records: int | None,
    folder: Path | None,
    allow_vacuous: bool,
    user: str | None,
    purpose: str,
    curator: str,
    region: str,
    justification: str,
    lawful_basis: str,
    retention: str,
    recipients: str,
    contact: str,
    who: str | None,
    also: bool,
    resume: bool,
    as_json: bool,
) -> None:
    """One training: what can be refused is refused before anything is read or charged."""
    start = time.perf_counter()
    if epsilon is not None:
        _check.positive("--epsilon", epsilon)
    _check.delta_or_zero("--delta", delta)
    if seed is not None:
        _check.count("--seed", seed, minimum=0)
    if secure and seed is not None:
        raise InvalidArgument("--secure", "with --seed", "one of the two")
    _folder_is_right(out, resume)

    from privet.data import load
    from privet.data.data_folder import data_folder
    from privet.gradients import keep_freed_memory
    from privet.ledger import Ledger
    from privet.methods.train_method import open_ledger
    from privet.runs import Provenance
    from privet.runs.class_weights import read_weights
    from privet.runs.run_folder import columns_to_config
    from privet.runs.training_task import task_of
    from privet.threads import threads as threads_of

    keep_freed_memory()  # this process is ours, and is there to train
    method = kind(**settings)
    if epsilon is None and not method.fixes_noise:
        raise InvalidArgument("--epsilon", None, "a budget", "no setting here fixes the noise")
    if files is not None and not files.takes(Path(data)):
        there = data_folder(folder) / data  # by its name, as data sets are
        data = str(there) if files.takes(there) else data
    if files is None or not files.takes(Path(data)):
        files, found = None, load(data, folder, label=label, declaration=bounds, user=user)
    else:
        method, found = files.read_training(Path(data), bounds, method)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    key = _curator_key()
    identity = None if key is None else key.identify(fingerprint_of(data, folder, found))
    if records is not None:
        found = found.subset(_check.count("--records", records))
    _can_predict(kind, found)
    weights, prior = read_weights(class_weights), read_weights(class_prior, "--class-prior")
    own = bounds is not None or files is not None
    task = task_of(
        method, found, features=features, cache=cache, public=public, own=own,
        class_weight=weights, class_prior=prior,
    )  # fmt: skip
    busy = partial(threads_of, threads, numbers=task.numbers)
    rows = task.records_without_features(n_public=n_public)
    if epsilon is None:
        epsilon = method.fixed_epsilon(rows.facts(epsilon=1.0, delta=delta).units, delta)
        assert epsilon is not None
    plan = task.plan(rows, epsilon=epsilon, delta=delta, allow_vacuous=allow_vacuous)
    if outlook := plan.expectation():
        typer.echo(f"note: {outlook}", err=True)
    if task.domain.features is not None:
        with busy(), show_progress(bar=not as_json) as progress:
            rows = task.records(n_public=n_public, progress=progress)
    released = None
    with _output_folder.new_run_folder(out), busy(), show_progress(bar=not as_json) as progress:
        own_ledger = out / _output_folder.OWN_LEDGER
        account = open_ledger(own_ledger, plan) if ledger is None else Ledger.open(ledger)
        account.who, account.data, account.admits_other_data = who, identity, also
        account.check_data(identity)
        if release_metrics:
            given_ledger = None if ledger is None else account
            paid = task.metrics_release(metrics_epsilon, ledger=given_ledger)
            paid.require(given_ledger, plan.loss)
        try:
            done = task.train(
                rows, plan, rng=seed, ledger=account, progress=progress, folder=out,
                resume=resume, purpose=purpose,
            )  # fmt: skip
        except KeyboardInterrupt:
            raise PrivetError(_interruption_message(out)) from None
        if release_metrics:
            of_tests = paid.own_ledger(out) if ledger is None else account
            released = task.release_metrics(paid, done, ledger=of_tests, rng=seed)
    weights = task.decision_weights(plan)
    here = {} if not own else describe_file(out, data, label, bounds)
    reading: dict[str, Any] = {} if files is None else asdict(files)  # type: ignore[call-overload]
    if files is not None:
        here["places"] = {k: reading.pop(k) for k in files.places}
    target: dict[str, Any] = {"classes": list(found.classes)}
    if found.target_bounds is not None:
        target = {"target_bounds": list(found.target_bounds)}
    config = {
        "method": done.metadata["method"],
        "settings": done.metadata["settings"],
        **target,
        "data": found.name,
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "features": features,
        **columns_to_config(found.columns),
        **({"public": task.public} if task.public else {}),
        **({} if files is None else {"files": reading}),
        **({} if label is None else {"label": label}),
        **({} if user is None else {"user": user}),
        **({} if weights is None else {"class_weight": weights}),
        **({} if prior is None else {"class_prior": prior}),
        "plan": done.metadata["plan"],
    }
    given = Provenance(
        purpose=purpose, curator=curator, region=region, justification=justification,
        lawful_basis=lawful_basis, retention=retention, recipients=recipients, contact=contact,
    )  # fmt: skip
    named = None if key is None else {"fingerprint": str(identity), "curator_key": key.name}
    _leave(out, task, done, config, given, here, named, released, start, as_json)


def _curator_key() -> CuratorKey | None:
    """The key that names the data in records and ledgers; made if this user has none yet."""
    from privet.ledger.curator_key import key_path, make_key, read_key

    path = key_path()
    if path.exists():
        return read_key(path)
    try:
        key = make_key(path)
    except OSError as e:
        typer.echo(f"no curator's key at {path} ({e.strerror}): the data stay unnamed", err=True)
        return None
    typer.echo(
        f"made a curator's key, {path}: keep it; it names your data in records and ledgers, and "
        "tells them to nobody else",
        err=True,
    )
    return key


def _interruption_message(out: Path) -> str:
    """The error message after Ctrl-C: whether the run can be resumed."""
    if (out / "checkpoint.safetensors").exists():
        return (
            f"interrupted; what was done is kept: the same command with --resume goes on in {out}"
        )
    return "interrupted; what was charged stays charged, and this method cannot be resumed"


def _can_predict(kind: type[Method[Any]], dataset: Dataset) -> None:
    """Refuse numbers to predict where a method knows classes only."""
    if dataset.target_bounds is None or kind.regression:
        return
    can = ", ".join(name for name in method_names() if method_type(name).regression)
    raise InvalidArgument("method", kind.name, f"one that predicts numbers: {can}")


def _folder_is_right(out: Path, resume: bool) -> None:
    """Refuse a folder that holds another run, before the slow import of torch."""
    from privet.runs.run_folder import require_empty_run

    require_empty_run(out)
    path = out / "checkpoint.safetensors"
    if path.exists() and not resume:
        raise InvalidArgument(
            "--out", str(out), "a folder without a run", "add --resume to go on with this one"
        )
    if resume and not path.exists():
        raise MissingFile(path, "there is no run to resume")


def _leave(
    out: Path,
    task: Task,
    result: TrainingResult,
    config: dict[str, Any],
    provenance: Provenance,
    file_config: dict[str, Any],
    data: dict[str, str] | None,
    released: dict[str, Any] | None,
    start: float,
    as_json: bool,
) -> None:
    """Write the folder and say what came out."""
    from privet.runs.run_folder import write_run

    metrics: dict[str, Any] = {
        **task.measure(result),
        "seconds": time.perf_counter() - start,
        "steps": result.steps,
        "stopped_early": result.steps < result.metadata["steps"],
    }
    answer = write_run(
        out, result, domain=task.domain, config=config, metrics=metrics, given=provenance,
        here=file_config, data=data, measured=released,
    )  # fmt: skip
    if as_json:
        print_json(answer)
        return
    typer.echo(f"{out}: {task.summary(result, metrics)}")
    if released is not None:
        from privet.report.run_page import released_metrics

        typer.echo(f"to publish, in the card: {released_metrics(released)}")
    if metrics["stopped_early"]:
        typer.echo(
            f"it ended at its budget after {result.steps} of {result.metadata['steps']} steps, "
            "some of which were paid for twice; for all of them train again in a new --out with "
            "what is left"
        )
