"""Words in pictures do not lie on each other, nor outside the picture."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from privet.accounting import SampledGaussian
from privet.accounting.closed_form_validity import validity_map

plots = pytest.importorskip("privet.report.plots", reason="pip install 'privet[plot]'")


def words(figure):
    """Every text of a figure with what it covers, in pixels, after it was laid out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    found = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in found]


def collisions(figure):
    told = words(figure)
    return [
        (a, b)
        for (a, x), (b, y) in combinations(told, 2)
        if x.shrunk(0.9, 0.8).overlaps(y.shrunk(0.9, 0.8)) and a != b
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "noise", "steps"),
    [(0.01, 3.8, 10_000), (1.0, 2.17, 2000), (1.0, 40.0, 100), (0.5, 0.6, 30)],
)
def test_accountants(rate, noise, steps):
    loss = SampledGaussian(sample_rate=rate, noise_multiplier=noise, steps=steps)
    figure = plots.accountants(loss, 1e-5, points=5)
    assert collisions(figure) == []
    left = figure.axes[0]
    for text in left.texts:
        assert -0.01 <= text.xy[1] <= 1.01, text.get_text()


@pytest.mark.slow
def test_the_map():
    found = validity_map(
        steps=1000,
        delta=1e-5,
        sample_rates=np.geomspace(1e-4, 1, 9),
        noise_multipliers=np.geomspace(0.3, 30, 9),
    )
    assert collisions(plots.validity_map(found)) == []


def test_the_reducers_curve():
    from privet.methods.pate import PCAReducer
    from privet.report.plots import error_curve

    rng = np.random.default_rng(0)
    targets = 1 / (1 + np.exp(-rng.normal(size=(200, 5)) @ rng.normal(size=(5, 60))))
    from privet.methods.pate import UnitBox

    fitted = PCAReducer.fit(targets, noise=0.05, space=UnitBox())
    assert collisions(error_curve(fitted.curve, fitted.dimension)) == []
