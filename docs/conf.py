"""Sphinx settings; the pictures are drawn from the code while the pages are built."""

from __future__ import annotations

from importlib.metadata import version as installed
from pathlib import Path

project = "privet"
copyright = "the privet authors"
release = installed("privet")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_generated"]
html_theme = "furo"
html_title = "privet"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
default_role = "code"
# mathjax is the only thing fetched by a reader's browser
nitpicky = False


def draw() -> None:
    """Fill docs/_generated: the run, and the maps for three lengths of training."""
    from privet.loss import SampledGaussian
    from privet.loss.compare import validity_map
    from privet.report import plots

    out = Path(__file__).parent / "_generated"
    out.mkdir(exist_ok=True)
    run = SampledGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=10_000)
    if not (out / "accounting.png").exists():
        plots.save(plots.accountants(run, 1e-5), out / "accounting.png")
    for steps in (100, 10_000):
        file = out / f"map-{steps}.png"
        if not file.exists():
            plots.save(plots.validity_map(validity_map(steps=steps, delta=1e-5)), file)


draw()
