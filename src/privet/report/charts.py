"""Small pictures written as SVG by hand: they follow the page's colours, light or dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import final

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 18, 16, 52
Point = tuple[float, float]
SIZE = 8.5
"""Radius of a mark, which has a number in it."""


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
    """A point with a number in it and a name; hollow for what is only claimed."""

    x: float
    y: float
    name: str
    colour: str
    text: str = ""
    hollow: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """A polyline with a name."""

    points: Sequence[tuple[float, float]]
    name: str
    colour: str
    width: float = 2.2
    dashed: bool = False


def chart(
    title: str,
    x: Axis,
    y: Axis,
    *,
    marks: Sequence[Mark] = (),
    lines: Sequence[Line] = (),
    diagonal: bool = False,
    behind: str | None = None,
) -> str:
    """A picture with two axes; what a screen reader says is the title.

    `behind`: the address of a picture that fills the frame.
    """
    parts = []
    if behind is not None:
        w, h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        parts.append(
            f'<image href="{behind}" x="{LEFT}" y="{TOP}" width="{w}" height="{h}" '
            'preserveAspectRatio="none"/>'
        )
    parts += _frame(x, y)
    if diagonal:
        low, high = max(x.low, y.low), min(x.high, y.high)
        parts.append(
            f'<polyline class="diagonal" points="{_path(x, y, [(low, low), (high, high)])}"/>'
        )
    parts += [_line(x, y, line) for line in lines]
    wanted = [_place(x, y, mark.x, mark.y) for mark in marks]
    parts += map(_mark, marks, wanted, _apart(wanted))
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def bars(title: str, values: Sequence[tuple[str, float]], colour: str) -> str:
    """A bar for each name, the longest as wide as there is room."""
    step, names = 22, 190
    longest = max((v for _, v in values), default=0.0) or 1.0
    parts = []
    for k, (name, value) in enumerate(values):
        top, size = k * step + 4, value / longest * (WIDTH - names - 60)
        parts.append(
            f'<text x="{names - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{names}" y="{top}" width="{size:.1f}" height="{step - 6}" rx="2" '
            f'fill="{colour}"/><text x="{names + size + 6:.1f}" y="{top + 13}">{value:.1%}</text>'
        )
    height = step * len(values) + 8
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def legend(entries: Sequence[tuple[str, str, str]]) -> str:
    """Colours with their names: (text in the dot, name, colour)."""
    items = (
        f'<li><span class="dot" style="--c:{colour}">{escape(text)}</span>{escape(name)}</li>'
        for text, name, colour in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def powers(low: int, high: int) -> list[tuple[float, str]]:
    """Ticks at powers of ten.

    >>> [text for _, text in powers(-1, 3)]
    ['0.1', '1', '10', '100', '10³']
    """
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return [
        (10.0**k, f"{10.0**k:g}" if -4 <= k <= 2 else f"10{str(k).translate(raised)}")
        for k in range(low, high + 1)
    ]


def round_ticks(high: float, count: int = 5) -> list[tuple[float, str]]:
    """Ticks from 0 at steps of 1, 2 or 5 times a power of ten.

    >>> [text for _, text in round_ticks(1.3)]
    ['0', '0.5', '1']
    >>> [text for _, text in round_ticks(4700.0)]
    ['0', '1,000', '2,000', '3,000', '4,000']
    """
    raw = high / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= raw)
    return [(k * step, f"{k * step:,.10g}") for k in range(int(high / step) + 1)]


def _place(x: Axis, y: Axis, a: float, b: float) -> tuple[float, float]:
    return (
        LEFT + x.at(a) * (WIDTH - LEFT - RIGHT),
        HEIGHT - BOTTOM - y.at(b) * (HEIGHT - TOP - BOTTOM),
    )


def _path(x: Axis, y: Axis, points: Sequence[tuple[float, float]]) -> str:
    return " ".join("{:.1f},{:.1f}".format(*_place(x, y, *p)) for p in points)


def _line(x: Axis, y: Axis, line: Line) -> str:
    dashes = ' stroke-dasharray="7 5"' if line.dashed else ""
    return (
        f'<polyline class="line" stroke="{line.colour}" stroke-width="{line.width:g}"{dashes} '
        f'points="{_path(x, y, line.points)}"><title>{escape(line.name)}</title></polyline>'
    )


def _mark(mark: Mark, there: Point, here: Point) -> str:
    """At `here`; with a thin line to where it belongs."""
    (cx, cy), (x, y) = here, there
    look = f'class="hollow" stroke="{mark.colour}"' if mark.hollow else f'fill="{mark.colour}"'
    ink = mark.colour if mark.hollow else "#fff"
    moved = (
        ""
        if here == there
        else f'<line stroke="{mark.colour}" x1="{x:.1f}" y1="{y:.1f}" x2="{cx:.1f}" y2="{cy:.1f}"/>'
        f'<rect x="{x - 2.5:.1f}" y="{y - 2.5:.1f}" width="5" height="5" rx="2.5" '
        f'fill="{mark.colour}"/>'
    )
    return (
        f'<g><title>{escape(mark.name)}</title>{moved}<circle cx="{cx:.1f}" cy="{cy:.1f}" '
        f'r="{SIZE:g}" stroke-width="1.8" {look}/><text class="number" style="fill:{ink}" '
        f'x="{cx:.1f}" y="{cy + 3.6:.1f}" text-anchor="middle">{escape(mark.text)}</text></g>'
    )


def _apart(wanted: Sequence[Point]) -> list[Point]:
    """Places of marks; one that would hide another is moved sideways, no further than it must."""
    placed: list[Point] = []
    for x, y in wanted:
        moves = (sign * step for step in range(WIDTH) for sign in (1.0, -1.0))
        placed.append(
            next(
                (x + move, y)
                for move in moves
                if LEFT + SIZE <= x + move <= WIDTH - SIZE
                and all(math.hypot(x + move - a, y - b) >= 1.9 * SIZE for a, b in placed)
            )
        )
    return placed


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
        f'<text class="label" transform="translate(14 {height}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.label)}</text>"
    )
    return out
