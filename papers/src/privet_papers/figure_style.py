"""How figures of all papers are made and saved; matplotlib is loaded where something is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#22303c", "#66737f", "#dfe5ea"


def new_figure(
    width: float, height: float, *, rows: int = 1, columns: int = 1, **more: Any
) -> tuple[Figure, Any]:
    """A figure of this size in inches, and its panels, rows x columns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


def remove_frame(axes: Axes, *, grid: Literal["x", "y", "both"] | None = None) -> None:
    """Take away the frame, and make what is not data grey."""
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, which="both", length=0)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    if grid is not None:
        axes.grid(True, axis=grid, color=GRID, linewidth=0.8)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and PDF; returns the paths."""
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".pdf")]
    for path in paths:
        figure.savefig(path, dpi=130, facecolor="white", bbox_inches="tight")
    return paths
