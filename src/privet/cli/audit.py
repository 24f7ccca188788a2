"""`privet audit`: a promise attacked, of a method or of a finished run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli._data import Folder, of_run
from privet.cli._run import Json, one_line_errors, print_json, progress_bar
from privet.errors import InvalidArgument, MissingFile

if TYPE_CHECKING:
    from privet.audit import Finding
    from privet.cli._attacked import Attacked
    from privet.guarantee import Adjacency, Protects
    from privet.noise import Source

CANARIES, TRIALS = 5_000, 20_000
NO_BUDGET = 1e3
"""The epsilon of controls: the same recipe without privacy."""


@one_line_errors()
def audit(
    target: Annotated[
        str,
        typer.Argument(
            help="dpsgd, adaptive-laplace, pate, residual, autoencoder, or the folder of a run."
        ),
    ],
    reading: Annotated[str, typer.Option(help="Of a method: sound, or published.")] = "sound",
    epsilon: Annotated[float, typer.Option(help="The budget at which a method is audited.")] = 1.0,
    delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-5,
    trials: Annotated[int, typer.Option(help="Draws a side of releases made once.")] = TRIALS,
    seed: Annotated[int, typer.Option(help="Of the audit's own coins and noise.")] = 0,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Attack a promise: claimed, proved, audited, and what to make of it.

    A method's releases are drawn again and again on neighbours; DP-SGD is trained with canaries in
    it. A run is trained once more by its recipe, with canaries that are in or out by a coin.
    """
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
    _check.count("trials", trials, minimum=1000)
    _check.count("seed", seed, minimum=0)
    run = Path(target)
    if run.is_dir():
        with progress_bar(show=not as_json) as progress:
            progress("training with canaries", 0, 1)
            finding = _of_run(run, folder, seed)
    else:
        if run.suffix or len(run.parts) > 1:
            raise MissingFile(run, "give the folder of a finished `privet train` run, or a method")
        with progress_bar(show=not as_json) as progress:
            progress(f"auditing {target}", 0, 1)
            finding = _of_method(target, reading, epsilon, delta, trials, seed)
    if as_json:
        print_json({"target": target, **finding.to_dict()})
        return
    for line in _lines(finding):
        typer.echo(line)


def _of_method(
    method: str, reading: str, epsilon: float, delta: float, trials: int, seed: int
) -> Finding:
    from privet.experiments.audit_methods import Budget, audit_method
    from privet.noise import seeded

    budget = Budget(epsilon=epsilon, delta=delta, trials=trials, rng=seeded(seed))
    return audit_method(method, reading, budget)


def _of_run(run: Path, folder: Path | None, seed: int) -> Finding:
    """The run's recipe once more, with canaries; beside it the same without privacy.

    Auto-encoders and PATE are audited where they release, at the run's budget.
    """
    from privet.cli._attacked import config_of, opened
    from privet.noise import seeded

    config, (claimed, proved, promised) = config_of(run), _promised(run)
    method, name = config["method"], f"{config['method']} on {config['data']}, as in {run}"
    if method in ("autoencoder", "pate"):
        reading = config["reading"]
        found = _of_method(method, reading, config["epsilon"], config["delta"], TRIALS, seed)
        what = f"{name}: its releases at that budget, not its records"
        return replace(found, what=what, claimed=claimed, proved=proved)
    attacked, rng = opened(run, config, folder), seeded(seed).child("audit")
    if method == "dpsgd":
        found = _by_dirac_canaries(config, attacked, of_run(run, config, folder).shape, rng)
    else:
        control = opened(run, config | {"epsilon": NO_BUDGET}, folder)
        found = _by_mislabelled_canaries(config["delta"], promised, attacked, control, rng)
    return replace(found, what=name, claimed=claimed, proved=proved)


def _promised(run: Path) -> tuple[float | None, float, tuple[Adjacency, Protects]]:
    """What the run's own guarantee.json claims and proves; the neighbours of the smaller one."""
    from privet.guarantee import Adjacency, Protects

    path = run / "guarantee.json"
    if not path.exists():
        raise MissingFile(path, "the run has not finished")
    try:
        found = json.loads(path.read_text())
        proved, claim = found["guarantee"], found["claim"]
        claimed = None
        if claim is not None and claim["standing"] == "claimed":
            claimed = float(claim["epsilon"])
        most = float(proved["epsilon"])
        stated = claim if claimed is not None and claimed < most else proved
        return claimed, most, (Adjacency(stated["adjacency"]), Protects(stated["protects"]))
    except (ValueError, KeyError, TypeError) as e:
        raise InvalidArgument("guarantee.json", str(path), "that of a run", str(e)) from None


def _by_dirac_canaries(
    config: dict[str, Any], attacked: Attacked, shape: tuple[int, ...], rng: Source
) -> Finding:
    """The gradient steps of the run, by the plan that its settings give."""
    from privet.experiments.audit_dpsgd import Target, one_run
    from privet.methods.base import PublicFacts
    from privet.methods.dpsgd import Wishes, linear_plan, network_plan
    from privet.methods.dpsgd.linear import LinearHead

    x, y = attacked.x[attacked.members], attacked.y[attacked.members]
    outputs = len(attacked.classes)
    facts = PublicFacts(
        records=len(x), features=x.shape[1], outputs=outputs, epsilon=config["epsilon"],
        delta=config["delta"],
    )  # fmt: skip
    wished = ("steps", "sample_rate", "clipping_bound", "learning_rate", "momentum")
    wishes = Wishes(**{name: config[name] for name in wished})
    linear = config["model"] == "linear"
    plan = linear_plan(facts, wishes) if linear else network_plan(facts, wishes)
    planned, stated = float(plan.schedule.noise_multipliers[0]), config["noise_multiplier"]
    if not math.isclose(planned, stated, rel_tol=1e-6):
        raise InvalidArgument(
            "config.json", f"noise multiplier {stated:g}", f"{planned:g}, which its settings give"
        )

    def model() -> Any:
        if linear:
            return LinearHead(features=x.shape[1], outputs=outputs, constant=plan.constant)
        from privet.nets.networks import SmallCNN

        return SmallCNN(shape=shape, classes=outputs)

    target = Target(
        name="", x=x, y=y, schedule=plan.schedule, model=model, delta=config["delta"]
    )  # fmt: skip
    (found,) = one_run(target, rng, canaries=CANARIES)
    return found


def _by_mislabelled_canaries(
    delta: float,
    promised: tuple[Adjacency, Protects],
    attacked: Attacked,
    control: Attacked,
    rng: Source,
) -> Finding:
    """A third of the records mislabelled, each in by a coin; the model's answers are the scores."""
    import numpy as np

    from privet.audit import Canaries, OneRunAudit, trade_off_one_run_bound

    inside = attacked.members
    x, y = attacked.x[inside], attacked.y[inside].astype(np.int64)
    count = len(x) // 3
    canaries = Canaries.mislabelled(x, y, classes=len(attacked.classes), count=count, rng=rng)

    seed = int(rng.child("seed").integers(2**31, 1)[0])

    def scores(recipe: Attacked) -> Any:
        answer = recipe.train(*canaries.training_set(*promised), seed)
        return recipe.read(answer(canaries.x), canaries.y)

    return OneRunAudit(
        guesses=2 * max(1, count // 20), delta=delta, rule=trade_off_one_run_bound
    ).run(scores(attacked), canaries.included, what="", proved=0.0, control=scores(control))


def _lines(f: Finding) -> list[str]:
    """A finding for the terminal."""

    def number(x: float | None) -> str:
        return "none" if x is None else f"{x:.3g}"

    kind = "parametric" if f.parametric else "no shape assumed"
    return [
        f"{f.what}: {f.verdict.value}",
        f"  claimed {number(f.claimed)}, proved {number(f.proved)}, audited {number(f.audited)}"
        f" at delta {f.delta:g} ({f.confidence:.3g} confidence, {kind})",
        f"  could have found {number(f.ceiling)}; the control without noise shows "
        f"{number(f.control)}",
        f"  {f.method}; the attacker {f.threat}",
    ]
