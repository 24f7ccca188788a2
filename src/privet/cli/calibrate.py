"""`privet calibrate`: the noise, the steps or the rate for a target epsilon, or of attacks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli._quick_start import leave_out_fortran
from privet.cli.account import (
    Count,
    Delta,
    Json,
    Neighbours,
    NoiseMultiplier,
    SampleRate,
    Schedule,
    Steps,
    check_picture_path,
    read_loss,
)
from privet.cli.console import one_line_errors, print_json, show_progress
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency

if TYPE_CHECKING:
    from privet.accounting import SampledGaussian
    from privet.accounting.attack_calibration import AttackTarget
    from privet.accounting.calibration import CalibratedSetting


@one_line_errors()
def calibrate(
    epsilon: Annotated[
        float | None, typer.Option(help="The target; never passed.", show_default=False)
    ] = None,
    advantage: Annotated[
        float | None, typer.Option(help="Or: what no attack's TPR - FPR may pass.")
    ] = None,
    tpr: Annotated[
        float | None, typer.Option(help="Or: what no attack may find, with --fpr.")
    ] = None,
    fpr: Annotated[float | None, typer.Option(help="The false alarms of that attack.")] = None,
    delta: Delta = 1e-5,
    sample_rate: SampleRate = None,
    noise_multiplier: NoiseMultiplier = None,
    steps: Steps = None,
    schedule: Schedule = None,
    records: Count = None,
    adjacency: Neighbours = Adjacency.ADD_REMOVE,
    plot: Annotated[
        Path | None, typer.Option(help="Draw epsilon over the run (.png, .svg or .pdf).")
    ] = None,
    closed_form: Annotated[
        bool, typer.Option("--closed-form", help="The noise that Zhao's closed form claims to do.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give two of --sample-rate, --noise-multiplier, --steps; the third is found.

    With --schedule, the least common factor on its noise multipliers is found. For a target of
    attacks (--advantage, or --tpr and --fpr) it is the noise.
    """
    if plot is not None:
        check_picture_path(plot)
    _check.open_unit("delta", delta)
    attack = _attack_target(epsilon, advantage, tpr, fpr)
    if attack is not None:
        if closed_form:
            raise InvalidArgument("--closed-form", True, "left out: it has no target of attacks")
        if noise_multiplier is not None:
            raise InvalidArgument(
                "--noise-multiplier", noise_multiplier, "left out: it is what is found"
            )
        plan = read_loss(
            sample_rate, None if schedule else 1.0, steps, schedule, adjacency, records
        )
        _for_attack(attack, plan, schedule is not None, delta, plot, as_json)
        return
    epsilon = _check.positive("epsilon", epsilon)
    if closed_form:
        given = {"--noise-multiplier": noise_multiplier, "--schedule": schedule, "--plot": plot}
        if (extra := [name for name, value in given.items() if value is not None]) or not (
            sample_rate and steps
        ):
            raise InvalidArgument(
                "--closed-form",
                f"with {', '.join(extra) or 'less'}",
                "given with --sample-rate and --steps",
            )
        _claim_noise(
            epsilon, delta, _check.unit("sample_rate", sample_rate), steps, adjacency, as_json
        )
        return
    found, what, answer = _find(
        epsilon, delta, sample_rate, noise_multiplier, steps, schedule, adjacency, records
    )
    if plot is not None:
        from privet.report import plots

        plots.save(plots.accountants(found.loss, delta), plot)
    if as_json:
        guarantee = found.loss.guarantee(delta).to_dict()
        print_json(answer | {"found": what, "epsilon": found.epsilon, "guarantee": guarantee})
        return
    typer.echo(
        f"{what.replace('_', ' ')} {answer[what]:.6g}: epsilon {found.epsilon:.6g} "
        f"of {epsilon:g} at delta {delta:g}, {adjacency.value}, proved"
    )


def _attack_target(
    epsilon: float | None, advantage: float | None, tpr: float | None, fpr: float | None
) -> AttackTarget | None:
    """The target of attacks that the options state; None where it is an epsilon."""
    given = [
        name
        for name, value in (("--epsilon", epsilon), ("--advantage", advantage), ("--tpr", tpr))
        if value is not None
    ]
    if len(given) != 1 or (tpr is None) != (fpr is None):
        named = [*given, *(["--fpr"] if fpr is not None else [])]
        raise InvalidArgument(
            "the target",
            ", ".join(named) or "nothing",
            "one of --epsilon, --advantage, or --tpr with --fpr",
        )
    if epsilon is not None:
        return None
    leave_out_fortran()
    from privet.accounting.attack_calibration import AttackTarget

    return AttackTarget(most=_require(advantage if tpr is None else tpr), fpr=fpr)


def _for_attack(
    target: AttackTarget,
    plan: SampledGaussian,
    scaled: bool,
    delta: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Find and show the noise that keeps attackers below a target."""
    from privet.accounting import attack_calibration

    with show_progress(bar=False) as progress:
        progress("looking for the noise", 0, 0)
        found = attack_calibration.scale_schedule(target, schedule=plan)
    if plot is not None:
        from privet.report import plots

        plots.save(plots.accountants(found.loss, delta), plot)
    what = "factor" if scaled else "noise_multiplier"
    guarantee = found.loss.guarantee(delta)
    name = "advantage" if target.fpr is None else "tpr"
    if as_json:
        print_json(
            {what: found.value, "found": what, name: found.reached, "fpr": target.fpr}
            | {"epsilon": guarantee.epsilon, "guarantee": guarantee.to_dict()}
        )
        return
    at = "" if target.fpr is None else f" at an fpr of {target.fpr:g}"
    typer.echo(
        f"{what.replace('_', ' ')} {found.value:.6g}: {name} at most {found.reached:.6g} of "
        f"{target.most:g}{at}, {plan.adjacency.value}, proved; epsilon {guarantee.epsilon:.6g} at "
        f"delta {delta:g}"
    )


def _claim_noise(
    epsilon: float, delta: float, rate: float, steps: int, adjacency: Adjacency, as_json: bool
) -> None:
    """Say the closed form's noise for a target, a claim, and what that noise is proved to cost."""
    from privet.accounting import SampledGaussian
    from privet.accounting.closed_form import closed_form_ratio

    noise = rate * math.sqrt(_check.count("steps", steps)) / closed_form_ratio(epsilon, delta)
    loss = SampledGaussian(
        sample_rate=rate, noise_multiplier=noise, steps=steps, adjacency=adjacency
    )
    proved = loss.guarantee(delta)
    if as_json:
        setting = {"sample_rate": rate, "noise_multiplier": noise, "steps": steps}
        claim = {"found": "noise_multiplier", "standing": "claimed", "claimed_epsilon": epsilon}
        print_json(setting | claim | {"epsilon": proved.epsilon, "guarantee": proved.to_dict()})
        return
    typer.echo(
        f"noise multiplier {noise:.6g}: epsilon {epsilon:g} at delta {delta:g} claimed by the "
        f"closed form, {proved.epsilon:.6g} proved, {adjacency.value}"
    )


def _find(
    epsilon: float,
    delta: float,
    sample_rate: float | None,
    noise_multiplier: float | None,
    steps: int | None,
    schedule: Path | None,
    adjacency: Adjacency,
    records: int | None,
) -> tuple[CalibratedSetting, str, dict[str, Any]]:
    """The missing number, its name, and the whole setting."""
    leave_out_fortran()
    from privet.accounting import calibration as search
    from privet.accounting.schedule_file import load_phases

    setting: dict[str, Any] = {
        "sample_rate": sample_rate,
        "noise_multiplier": noise_multiplier,
        "steps": steps,
    }
    open_ones = [name for name, value in setting.items() if value is None]
    if schedule is not None:
        if len(open_ones) < 3:
            raise InvalidArgument("the steps", "--schedule and others", "given in one way")
        found = search.scale_schedule(
            epsilon=epsilon, delta=delta, schedule=load_phases(schedule).loss(records, adjacency)
        )
        return found, "factor", {"factor": found.value}
    if len(open_ones) != 1:
        names = ", ".join("--" + n.replace("_", "-") for n in setting if n not in open_ones)
        raise InvalidArgument(
            "the setting",
            names or "nothing",
            "two of --sample-rate, --noise-multiplier and --steps, or a --schedule",
        )
    if noise_multiplier is None:
        found = search.noise_multiplier(
            epsilon=epsilon,
            delta=delta,
            sample_rate=_require(sample_rate),
            steps=int(_require(steps)),
            adjacency=adjacency,
        )
    elif steps is None:
        found = search.steps(
            epsilon=epsilon,
            delta=delta,
            sample_rate=_require(sample_rate),
            noise_multiplier=noise_multiplier,
            adjacency=adjacency,
        )
    else:
        found = search.sample_rate(
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            steps=steps,
            adjacency=adjacency,
        )
    value = int(found.value) if open_ones[0] == "steps" else found.value
    return found, open_ones[0], setting | {open_ones[0]: value}


def _require(value: float | None) -> float:
    assert value is not None
    return value
