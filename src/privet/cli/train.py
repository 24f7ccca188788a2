"""`privet train METHOD`: a private model in a folder, with what it cost beside it.

A method is a word of this command by being in the catalogue; its options are its fields.
"""

from __future__ import annotations

import inspect
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from privet import _check
from privet.cli import _folder
from privet.cli._data import Bounds, Folder, Label, remembered
from privet.cli._run import Json, one_line_errors, print_json, watched
from privet.errors import InvalidArgument, MissingFile, PrivetError
from privet.methods.catalogue import method_names, method_type

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.methods.contract import Files, Method
    from privet.methods.promise import Trained
    from privet.runs import Given
    from privet.runs.training import Task


class MethodGroup(TyperGroup):
    """Commands that are made when they are asked for: a name of the catalogue is one."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The methods, ours first."""
        return list(method_names())

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command of one method, with its settings as options."""
        if name not in method_names():
            return None
        with one_line_errors():
            return _command(name)


app = typer.Typer(
    name="train",
    cls=MethodGroup,
    help="Train a model privately; leaves a folder with the model and its guarantee.",
    no_args_is_help=True,
)


@app.callback()
def _methods() -> None:
    """Commands come from the catalogue."""


def shared(
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
        str, typer.Option(help="Public front end of pictures: auto, plain, scattering, strokes.")
    ] = "auto",
    cache: Annotated[bool, typer.Option("--cache", help="Keep features, unprotected.")] = False,
    class_weights: Annotated[
        str | None,
        typer.Option(help="What missing a class costs: ill=5,well=1. Of what was released; free."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of arithmetic; one for small work unless told.")
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
    anyway: Annotated[
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
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    as_json: Json = False,
) -> None:
    """The options that all trainings share."""


def _command(name: str) -> Any:
    """A click command made of the shared options and of the fields of the method."""
    from privet.cli._options import given_settings, parameters_of

    kind = method_type(name)
    own = parameters_of(kind)
    reading = [] if kind.files is None else parameters_of(kind.files)
    common = dict(inspect.signature(shared, eval_str=True).parameters)
    its_own = {p.name: common.pop(p.name).default for p in reading if p.name in common}

    def run(**given: Any) -> None:
        with one_line_errors():
            settings = given_settings(kind, {p.name: given.pop(p.name) for p in own})
            told = {p.name: given.pop(p.name) for p in reading}
            files = None if kind.files is None else kind.files(**given_settings(kind.files, told))
            train(kind, settings, files, **its_own, **given)

    told: Any = run
    told.__doc__ = inspect.getdoc(kind)
    told.__signature__ = inspect.Signature(
        [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in common.values()), *own, *reading]
    )
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, help=_help(kind))(told)
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
    threads: int | None,
    ledger: Path | None,
    seed: int | None,
    secure: bool,
    records: int | None,
    folder: Path | None,
    anyway: bool,
    user: str | None,
    purpose: str,
    curator: str,
    region: str,
    resume: bool,
    as_json: bool,
) -> None:
    """One training: what can be refused is refused before anything is read or charged."""
    begun = time.perf_counter()
    if epsilon is not None:
        _check.positive("--epsilon", epsilon)
    _check.delta_or_zero("--delta", delta)
    if seed is not None:
        _check.count("--seed", seed, minimum=0)
    if secure and seed is not None:
        raise InvalidArgument("--secure", "with --seed", "one of the two")
    _folder_is_right(out, resume)

    from privet.data import load
    from privet.ledger import Ledger
    from privet.runs import Given
    from privet.runs.training import task_of
    from privet.runs.weights import read_weights
    from privet.threads import threads as threads_of

    method = kind(**settings)
    if epsilon is None and not method.fixes_noise:
        raise InvalidArgument("--epsilon", None, "a budget", "no setting here fixes the noise")
    if files is None or not files.takes(Path(data)):
        files, found = None, load(data, folder, label=label, declaration=bounds, user=user)
    else:
        method, found = files.training(Path(data), bounds, method)
    if records is not None:
        found = found.subset(_check.count("--records", records))
    _can_predict(kind, found)
    weights = None if class_weights is None else read_weights(class_weights)
    own = bounds is not None or files is not None
    task = task_of(
        method, found, features=features, cache=cache, public=public, own=own, class_weight=weights
    )
    busy = partial(threads_of, threads, numbers=task.numbers)
    rows = task.unmade(n_public=n_public)
    if epsilon is None:
        epsilon = method.fixed_epsilon(rows.facts(epsilon=1.0, delta=delta).units, delta)
        assert epsilon is not None
    plan = task.plan(rows, epsilon=epsilon, delta=delta, anyway=anyway)
    if task.domain.features is not None:
        with busy(), watched(show=not as_json) as progress:
            rows = task.records(n_public=n_public, progress=progress)
    with _folder.begun(out), busy(), watched(show=not as_json) as progress:
        account = out / _folder.OWN_LEDGER if ledger is None else Ledger.open(ledger)
        try:
            done = task.train(
                rows, plan, rng=seed, ledger=account, progress=progress, folder=out,
                resume=resume, purpose=purpose,
            )  # fmt: skip
        except KeyboardInterrupt:
            raise PrivetError(_interrupted(out)) from None
    here = {} if not own else remembered(out, data, label, bounds, files)
    target: dict[str, Any] = {"classes": list(found.classes)}
    if found.target_bounds is not None:
        target = {"target_bounds": list(found.target_bounds)}
    config = {
        "method": done.told["method"],
        "settings": done.told["settings"],
        **target,
        "noise": "secure" if seed is None else "seeded",
        "data": found.name,
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "features": features,
        **({"public": task.public} if task.public else {}),
        **({} if label is None else {"label": label}),
        **({} if user is None else {"user": user}),
        **({} if weights is None else {"class_weight": weights}),
        "plan": done.told["plan"],
    }
    given = Given(purpose=purpose, curator=curator, region=region)
    _leave(out, task, done, config, given, here, begun, as_json)


def _interrupted(out: Path) -> str:
    """What is left after Ctrl-C."""
    if (out / "checkpoint.safetensors").exists():
        return (
            f"interrupted; what was done is kept: the same command with --resume goes on in {out}"
        )
    return "interrupted; what was charged stays charged, and this method cannot be resumed"


def _can_predict(kind: type[Method[Any]], found: Dataset) -> None:
    """Refuse numbers to predict where a method knows classes only."""
    if found.target_bounds is None or kind.regression:
        return
    can = ", ".join(name for name in method_names() if method_type(name).regression)
    raise InvalidArgument("method", kind.name, f"one that predicts numbers: {can}")


def _folder_is_right(out: Path, resume: bool) -> None:
    """Known before torch is imported, so told at once."""
    from privet.runs.folder import has_no_run

    has_no_run(out)
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
    done: Trained,
    config: dict[str, Any],
    given: Given,
    here: dict[str, Any],
    begun: float,
    as_json: bool,
) -> None:
    """Write the folder and say what came out."""
    from privet.runs.folder import write_run

    metrics: dict[str, Any] = {
        **task.measure(done),
        "seconds": time.perf_counter() - begun,
        "steps": done.steps,
        "stopped_early": done.steps < done.told["steps"],
    }
    answer = write_run(
        out, done, domain=task.domain, config=config, metrics=metrics, given=given, here=here,
        fingerprint=task.dataset.fingerprint,
    )  # fmt: skip
    if as_json:
        print_json(answer)
        return
    typer.echo(f"{out}: {task.told(done, metrics)}")
    if metrics["stopped_early"]:
        typer.echo(
            f"it ended at its budget after {done.steps} of {done.told['steps']} steps, "
            "some of which were paid for twice; for all of them train again in a new --out with "
            "what is left"
        )
