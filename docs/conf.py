"""Sphinx settings; the pictures are drawn from the code while the pages are built."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

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
suppress_warnings = ["ref.python"]  # `Labels` are of PATE or of residual perturbation


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


ROOMS = (
    "estimators", "runs", "dpsgd", "guarantee", "premises", "ledger", "loss", "loss.compare",
    "loss.closed_form", "calibrate", "noise", "bounds", "mechanisms", "data", "data.records",
    "data.rows",
    "nets", "nets.features", "nets.networks", "methods.contract", "methods.promise",
    "methods.replay", "methods.conforming", "methods.pate",
    "methods.adaptive_laplace", "methods.residual", "methods.autoencoder",
    "methods.autoencoder.behaviour", "audit", "audit.membership", "audit.conformance", "compare",
    "errors",
)  # fmt: skip


def reference() -> str:
    """A section for every public module: its own first line, then all that it exports."""
    parts = []
    for room in ROOMS:
        module = import_module(f"privet.{room}")
        parts += [
            f"## privet.{room}",
            "",
            "```{eval-rst}",
            f".. automodule:: {module.__name__}",
            "   :members:",
            "```",
            "",
        ]
    return "\n".join(parts)


def fill(app: Any, page: str, source: list[str]) -> None:
    """The reference is made from the code."""
    if page == "reference":
        source[0] = source[0].replace("```{exports}\n```", reference())


def plain(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: what reStructuredText would read otherwise is mended."""
    out: list[str] = []
    fenced = doctest = False
    for line in lines:
        if line.strip() == "```":
            fenced = not fenced
            out += ["::", ""] if fenced else [""]
            continue
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line.strip()))
        if fenced or doctest:
            out.append(f"    {line}" if fenced else line)
            continue
        held = line.startswith(("- ", "  "))
        if line.strip() and out and out[-1].strip() and held != out[-1].startswith(("- ", "  ")):
            out.append("")
        parts = line.split("`")  # code stays as it is
        parts[::2] = [re.sub(r"(?<!\*)\*(?!\*)|\|", r"\\\g<0>", part) for part in parts[::2]]
        out.append("`".join(parts))
    lines[:] = out


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """What scikit-learn adds to every estimator is in its own pages."""
    added = name.startswith("set_") and name.endswith("_request")
    return True if added or name == "get_metadata_routing" else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-skip-member", skip)
