"""Small pictures written as SVG by hand: they follow the page's colours, light or dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import final

COLOURS = (
    "#6b7a88", "#1b6ca8", "#5b8c5a", "#a3be8c", "#7b5ea7", "#d1495b", "#e59866", "#2a9d8f",
    "#8bd3c7", "#c77d0a", "#3d405b", "#b56576",
)  # fmt: skip
WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 52


@final
@dataclass(frozen=True, kw_only=True)
class Axis:
    """A stretch of numbers drawn over a stretch of the picture, linear or logarithmic."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    label: str
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies between 0 and 1; values outside are moved to the edge."""
        f: Callable[[float], float] = math.log if self.log else float
        v = min(max(value, self.low), self.high)
        return (f(v) - f(self.low)) / (f(self.high) - f(self.low))


@final
@dataclass(frozen=True, kw_only=True)
class Mark:
    """A point with a name; hollow for what is only claimed."""

    x: float
    y: float
    name: str
    colour: str
    hollow: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """A polyline with a name."""

    points: Sequence[tuple[float, float]]
    name: str
    colour: str


def chart(
    title: str, x: Axis, y: Axis, *, marks: Sequence[Mark] = (), lines: Sequence[Line] = (),
    diagonal: bool = False,
) -> str:  # fmt: skip
    """A picture with two axes; what a screen reader says is the title."""
    parts = [*_frame(x, y)]
    if diagonal:
        low, high = max(x.low, y.low), min(x.high, y.high)
        ends = " ".join(_place(x, y, v, v) for v in (low, high))
        parts.append(f'<polyline class="diagonal" points="{ends}"/>')
    for line in lines:
        points = " ".join(_place(x, y, *p) for p in line.points)
        parts.append(
            f'<polyline class="line" stroke="{line.colour}" points="{points}">'
            f"<title>{escape(line.name)}</title></polyline>"
        )
    for mark in marks:
        cx, cy = _place(x, y, mark.x, mark.y).split(",")
        look = f'fill="none" stroke="{mark.colour}"' if mark.hollow else f'fill="{mark.colour}"'
        parts.append(
            f'<circle cx="{cx}" cy="{cy}" r="6" stroke-width="2.5" {look}>'
            f"<title>{escape(mark.name)}</title></circle>"
        )
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{body}</svg>'
    )


def legend(entries: Sequence[tuple[str, str, bool]]) -> str:
    """Names with their colours: (name, colour, hollow)."""
    items = (
        f'<li><span class="dot{" hollow" if hollow else ""}" style="--c:{colour}"></span>'
        f"{escape(name)}</li>"
        for name, colour, hollow in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def powers(low: int, high: int) -> list[tuple[float, str]]:
    """Ticks at powers of ten.

    >>> powers(-1, 1)
    [(0.1, '0.1'), (1.0, '1'), (10.0, '10')]
    """
    return [(10.0**k, f"{10.0**k:g}") for k in range(low, high + 1)]


def _place(x: Axis, y: Axis, a: float, b: float) -> str:
    px = LEFT + x.at(a) * (WIDTH - LEFT - RIGHT)
    py = HEIGHT - BOTTOM - y.at(b) * (HEIGHT - TOP - BOTTOM)
    return f"{px:.1f},{py:.1f}"


def _frame(x: Axis, y: Axis) -> list[str]:
    out = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value, text in x.ticks:
        px = LEFT + x.at(value) * (right - LEFT)
        out.append(f'<line class="grid" x1="{px:.1f}" x2="{px:.1f}" y1="{TOP}" y2="{bottom}"/>')
        out.append(f'<text x="{px:.1f}" y="{bottom + 20}" text-anchor="middle">{text}</text>')
    for value, text in y.ticks:
        py = bottom - y.at(value) * (bottom - TOP)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{py:.1f}" y2="{py:.1f}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{py + 4:.1f}" text-anchor="end">{text}</text>')
    middle = (LEFT + right) / 2
    out.append(
        f'<text class="label" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(x.label)}</text>"
    )
    height = (TOP + bottom) / 2
    out.append(
        f'<text class="label" transform="translate(16 {height}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.label)}</text>"
    )
    return out
