"""A ledger as a page: what is promised, what is spent, when, by whom and for what, what is left.

The guarantee stands first, the bookkeeping second. The page names people and purposes, so it is for
whoever keeps the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from privet._formatting import chance, number, percent
from privet.accounting import Gaussian, PrivacyLoss, Pure, compose, gaussian_mu
from privet.guarantee import Adjacency
from privet.ledger import Ledger, LedgerRelease
from privet.report.ledger_export import release_row
from privet.report.rendering import render_html

NEXT = (0.1, 0.5, 1.0, 2.0)
"""Budgets of a next release whose cost a page tells: from a table to a model."""


def ledger_page(ledger: Ledger) -> str:
    """One HTML file that needs no network."""
    releases, cap = ledger.releases(), ledger.cap_epsilon
    promise, meter, spent = ledger.guarantee(), ledger.odometer(), ledger.spent()
    name = ledger.dataset or ledger.name.rsplit("/", 1)[-1]
    return render_html(
        "ledger.html.j2",
        title=f"The privacy budget of {name}",
        ledger=ledger,
        headline=_headline(ledger, meter.epsilon, spent),
        promised=_promise(ledger),
        premises=[(p.backing.value, p.text) for p in promise.premises],
        figure=_spending(ledger, releases) if releases else None,
        by_person=_grouped(ledger, releases, "person", lambda r: r.who),
        by_purpose=_grouped(ledger, releases, "purpose", lambda r: r.purpose or "not given"),
        sub_caps=[(str(cap), number(spent), number(cap.epsilon)) for cap, spent in ledger.sub_caps],
        releases=[release_row(r, ledger.cap_delta) for r in releases],
        left="" if math.isinf(cap) else number(max(0.0, cap - spent)),
        following=_following(ledger, releases),
        statement=ledger.statement(),
    )


def _promise(ledger: Ledger) -> str:
    """What all releases together promise."""
    if math.isinf(ledger.cap_epsilon):
        return (
            "This ledger records without refusing: it has no cap, and promises nothing by itself."
        )
    return (
        f"Whatever was and will be released through this ledger, all of it together stays within "
        f"epsilon {number(ledger.cap_epsilon)} per {ledger.unit.value}, but for a chance of "
        f"{chance(ledger.cap_delta)}. A charge that would pass it is refused."
    )


def _headline(ledger: Ledger, meter: float, spent: float) -> list[tuple[str, str]]:
    cap = ledger.cap_epsilon
    cells = [
        (f"ε {number(cap)}", f"is promised at most, per {ledger.unit.value}"),
        (f"ε {number(meter)}", "spent until now, by a bound that holds whenever it is read"),
        (chance(ledger.cap_delta), "the chance δ that the promise leaves out"),
    ]
    share = "" if math.isinf(cap) else f", {percent(spent / cap)} of the cap"
    return [*cells, (f"ε {number(spent)}", f"sum of the charges: bookkeeping{share}")]


def _grouped(
    ledger: Ledger, releases: list[LedgerRelease], kind: str, key: Callable[[LedgerRelease], str]
) -> list[tuple[str, int, str, str]]:
    """Name, number of releases, what they cost together, and the cap of this person or purpose."""
    groups: dict[str, list[LedgerRelease]] = {}
    for release in releases:
        groups.setdefault(key(release), []).append(release)
    caps = {cap.name: number(cap.epsilon) for cap, _ in ledger.sub_caps if cap.kind == kind}
    relation = ledger.adjacency.of_losses
    return [
        (name, len(group), number(_together(group, relation, ledger.cap_delta)),
         caps.get(name, "none of its own"))
        for name, group in groups.items()
    ]  # fmt: skip


def _together(group: list[LedgerRelease], relation: Adjacency, delta: float) -> float:
    parts = [e.loss_to_compose for release in group for e in release.entries]
    return compose(parts, adjacency=relation).epsilon(delta)


def _following(ledger: Ledger, releases: list[LedgerRelease]) -> list[tuple[str, str]]:
    """What typical next releases would bring the sum to, or that they would be refused."""
    delta, relation = ledger.cap_delta, ledger.adjacency.of_losses
    wanted: list[tuple[str, PrivacyLoss]] = []
    if releases:
        parts = [e.loss_to_compose for e in releases[-1].entries]
        wanted.append(("the last release once more", compose(parts, adjacency=relation)))
    for epsilon in NEXT:
        loss: PrivacyLoss = (
            Gaussian(mu=gaussian_mu(epsilon, delta), adjacency=relation)
            if delta
            else Pure(epsilon_each=epsilon, adjacency=relation)
        )
        wanted.append((f"a model or table at epsilon {number(epsilon)}", loss))
    told = []
    for name, following in wanted:
        after = ledger.epsilon_after(following)
        refused = "" if after <= ledger.cap_epsilon else ", so it is refused"
        told.append((name, f"ε {number(after)}{refused}"))
    return told


def _spending(ledger: Ledger, releases: list[LedgerRelease]) -> dict[str, Any]:
    """The sum of the charges over time, under the cap, as a picture with its caption."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    from privet.report import plots

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    times = [_day_number(r) for r in releases]
    spent = [r.spent for r in releases]
    axes.step([times[0], *times], [0.0, *spent], where="post", color=plots.EXACT, linewidth=2.6)
    axes.plot(times, spent, "o", color=plots.EXACT, markersize=5)
    cap = ledger.cap_epsilon
    if math.isfinite(cap):
        axes.axhline(cap, color=plots.CLAIM, linewidth=1.8, linestyle="--")
        axes.annotate(
            f"the cap, {number(cap)}", (times[0], cap), (0, 5), textcoords="offset points",
            color=plots.INK,
        )  # fmt: skip
    axes.set_ylim(0.0, 1.15 * (cap if math.isfinite(cap) else max(spent)))
    hour = 1.0 / 24.0  # at least two hours are shown: the charges of a minute would fill the width
    axes.set_xlim(times[0] - hour, max(times[-1], times[0] + hour) + hour)
    locator: Any = AutoDateLocator(minticks=2, maxticks=5)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter: Any = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    first, last = releases[0].date, releases[-1].date
    plots.plain(
        axes, "", x=f"UTC, {first}" + f" to {last}" * (first != last), y="epsilon, sum of charges"
    )
    when = f"on {first}" if first == last else f"from {first} to {last}"
    alt = (
        f"Epsilon spent over time: {len(releases)} release{'s' * (len(releases) != 1)} {when}, "
        f"{number(spent[-1])} in the end, under a cap of {number(cap)}"
    )
    return {
        "svg": plots.to_svg(figure, alt), "caption": f"{alt}.", "legend": [], "maps": [],
    }  # fmt: skip


def _day_number(release: LedgerRelease) -> float:
    """When it was last charged, as matplotlib counts days."""
    from matplotlib import dates

    number_of: Any = dates.date2num
    return float(number_of(datetime.fromisoformat(release.entries[-1].when)))
