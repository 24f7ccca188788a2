"""Pictures of membership attacks: ROC curves on logarithmic axes, where the few show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from privet.audit.membership import MembershipFinding
from privet.errors import InvalidArgument
from privet.report.plots import CLAIM, EXACT, INK, MOMENTS, MUTED, RENYI, plain

COLOURS = (EXACT, CLAIM, RENYI, MOMENTS, INK, "#7b5ea7")


def roc(
    findings: Sequence[MembershipFinding], *, title: str = "Who was in the training set?"
) -> Figure:
    """Each attack's curve with its limits at the low false-positive rates, and chance.

    A straight axis shows the average record; the records that a model memorised are the left end
    of a logarithmic one.
    """
    if not findings:
        raise InvalidArgument("findings", findings, "at least one")
    figure = Figure(figsize=(7.4, 5.6), layout="constrained")
    axes = figure.subplots()
    least = 0.5 / max(f.non_members for f in findings)
    floor = 0.5 / max(f.members for f in findings)
    for finding, colour in zip(findings, np.resize(np.array(COLOURS), len(findings)), strict=True):
        fpr, tpr = finding.thinned(400)
        label = f"{finding.attack}: AUC {finding.auc.value:.3f}"
        axes.step(
            np.maximum(fpr, least),
            np.maximum(tpr, floor),
            where="post",
            color=str(colour),
            linewidth=2.0,
            label=label,
        )
        for rate, found in finding.tpr_at.items():
            if rate >= least and found.low > 0.0:
                axes.vlines(
                    rate,
                    max(found.low, floor),
                    found.high,
                    color=str(colour),
                    linewidth=4,
                    alpha=0.35,
                )
    chance = np.geomspace(least, 1.0, 50)
    axes.plot(chance, chance, "--", color=MUTED, linewidth=1.2, label="chance")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(least, 1.0)
    axes.set_ylim(min(floor, least), 1.05)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
    plain(axes, title, x="non-members called members", y="members found")
    axes.legend(frameon=False, loc="lower right", labelcolor=INK)
    return figure
