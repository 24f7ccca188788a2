"""`privet calibrate`: the noise, the steps or the rate for a target epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli._run import one_line_errors, print_json
from privet.cli._start import leave_out_fortran
from privet.cli.account import (
    Count,
    Delta,
    Json,
    Neighbours,
    NoiseMultiplier,
    SampleRate,
    Schedule,
    Steps,
    drawable,
)
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency

if TYPE_CHECKING:
    from privet.calibrate import Calibrated


@one_line_errors()
def calibrate(
    epsilon: Annotated[float, typer.Option(help="The target; never passed.")],
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
    as_json: Json = False,
) -> None:
    """Give two of --sample-rate, --noise-multiplier, --steps; the third is found.

    With --schedule, the least common factor on its noise multipliers is found.
    """
    if plot is not None:
        drawable(plot)
    _check.positive("epsilon", epsilon)
    _check.open_unit("delta", delta)
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


def _find(
    epsilon: float,
    delta: float,
    sample_rate: float | None,
    noise_multiplier: float | None,
    steps: int | None,
    schedule: Path | None,
    adjacency: Adjacency,
    records: int | None,
) -> tuple[Calibrated, str, dict[str, Any]]:
    """What was found, its name, and the whole setting."""
    leave_out_fortran()
    from privet import calibrate as search
    from privet.loss.schedule_file import load_phases

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
            sample_rate=_given(sample_rate),
            steps=int(_given(steps)),
            adjacency=adjacency,
        )
    elif steps is None:
        found = search.steps(
            epsilon=epsilon,
            delta=delta,
            sample_rate=_given(sample_rate),
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


def _given(value: float | None) -> float:
    assert value is not None
    return value
