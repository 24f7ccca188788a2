"""Figures 1 and 8: original, feature and recovered picture, with an attacker who learns beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.nets.residual import Strategy
from privet.noise import seeded
from privet.papers.drawing import panels, save
from privet.papers.residual.inversion import Flow, LearnedInversion, psnr, ssim

FLOWS = {
    "ODE (2)": Flow(),
    "SDE (3), gamma 1": Flow(gamma=1.0),
    "SDE (7), gamma 1": Flow(gamma=1.0, strategy=Strategy.MULTIPLICATIVE),
}
WAYS = ("backward Euler", "without noise", "learned")


def invert(
    pictures: NDArray[Any], *, own: int = 600, shown: int = 20
) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Mean PSNR and SSIM of each way back for each equation, and pictures of the first one.

    The first `shown` pictures (values in [0, 1]) are attacked; the attacker has the next `own`.
    """
    x = np.asarray(pictures[: shown + own], dtype=np.float64)
    rows: list[dict[str, Any]] = []
    seen = {"original": x[0]}
    for number, (name, flow) in enumerate(FLOWS.items()):
        rng = seeded(number)
        features = flow.forward(x, rng=rng.child("forward"))
        attack = LearnedInversion.fit(features[shown:], x[shown:])
        mine = features[:shown]
        found = (
            flow.backward(mine, rng=rng.child("backward")),
            flow.backward(mine, rng=rng.child("backward"), noisy=False),
            attack.recover(mine),
        )
        seen[f"{name}: feature"] = features[0]
        for way, back in zip(WAYS, found, strict=True):
            held = np.clip(back, 0.0, 1.0)
            seen[f"{name}: {way}"] = held[0]
            rows.append(
                {
                    "equation": name,
                    "way": way,
                    "psnr": float(np.mean([psnr(a, b) for a, b in zip(x, held, strict=False)])),
                    "ssim": float(np.mean([ssim(a, b) for a, b in zip(x, held, strict=False)])),
                }
            )
    return rows, seen


def picture(out: Path, rows: list[dict[str, Any]], shown: dict[str, NDArray[Any]]) -> list[Path]:
    """All panels side by side, one line an equation, with PSNR and SSIM below."""
    columns = ("original", "feature", *WAYS)
    figure, axes = panels(9.0, 2.1 * len(FLOWS), rows=len(FLOWS), columns=len(columns))
    numbers = {(r["equation"], r["way"]): f"{r['psnr']:.1f} dB, {r['ssim']:.2f}" for r in rows}
    for line, name in zip(axes, FLOWS, strict=True):
        for place, column in zip(line, columns, strict=True):
            one = shown["original" if column == "original" else f"{name}: {column}"]
            low, high = float(one.min()), float(one.max())
            inside = (one - low) / (high - low or 1.0) if column == "feature" else one
            place.imshow(inside, cmap="gray" if one.ndim == 2 else None, vmin=0.0, vmax=1.0)
            place.set_xticks([])
            place.set_yticks([])
            place.set_title(column, fontsize=8)
            place.set_xlabel(numbers.get((name, column), ""), fontsize=8)
        line[0].set_ylabel(name, fontsize=8)
    return save(figure, out / "inversion")
