"""What privacy numbers mean for one person, as a page to print: sentences, warnings, a picture."""

from __future__ import annotations

from collections.abc import Sequence

from privet._formatting import chance, number
from privet.accounting.trade_off import TradeOff
from privet.report import plots
from privet.report.explanation import Explanation
from privet.report.rendering import render_html


def explanation_page(
    told: Sequence[tuple[Explanation, TradeOff]], *, basis: str, mark: str = ""
) -> str:
    """One HTML file that needs no network; `mark` is that of an experiment, empty otherwise."""
    names = " and ".join(number(said.epsilon) for said, _ in told)
    left_out = " or ".join(dict.fromkeys(chance(said.delta) for said, _ in told))
    alt = f"What an attack finds and what somebody may come to believe, at most, at epsilon {names}"
    figure = plots.trade_offs([(said.epsilon, curve) for said, curve in told])
    caption = (
        f"{alt}. Left: of those whose record was used, how many an attack finds, for each share of "
        "the others that it accuses wrongly. Right: a belief before the release and after it. The "
        "dashed lines are where nothing is learned."
    )
    return render_html(
        "explain.html.j2",
        title=f"What epsilon {names} mean{'s' * (len(told) == 1)} for one person",
        lead=f"A chance of {left_out} is left out. Computed {basis}.",
        mark=mark,
        told=[said for said, _ in told],
        figure={"svg": plots.to_svg(figure, alt), "caption": caption, "legend": [], "maps": []},
    )
