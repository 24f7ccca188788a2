"""Sphinx settings; the pictures are drawn from the code while the pages are built."""

from __future__ import annotations

import dataclasses
import inspect
import re
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


def draw() -> None:
    """Fill docs/_generated: the run, and the maps for three lengths of training."""
    from privet.accounting import SampledGaussian
    from privet.accounting.closed_form_validity import validity_map
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


ROOMS = {
    "estimators": ("estimators",),
    "dpsgd": ("dpsgd",),
    "runs": ("runs",),
    "guarantee": ("guarantee", "premises", "errors"),
    "accounting": (
        "accounting", "accounting.calibration", "accounting.accountant_comparison",
        "accounting.closed_form_validity",
        "accounting.closed_form",
    ),
    "ledger": ("ledger",),
    "noise": ("noise",),
    "sensitivity": ("sensitivity",),
    "mechanisms": ("mechanisms",),
    "data": ("data", "data.records", "data.domain"),
    "features": ("features",),
    "gradients": ("gradients",),
    "networks": ("networks.architectures", "networks.residual", "networks.relevance"),
    "methods": (
        "methods.contract", "methods.train_method", "methods.neighbour_replay",
        "methods.contract_checks", "methods.moments", "methods.pate", "methods.noisy_inputs",
        "methods.autoencoder",
    ),
    "audit": ("audit", "audit.membership", "audit.conformance"),
    "compare": ("compare",),
}  # fmt: skip
"""The pages of the reference, and the modules whose exports each of them lists."""


def write_reference() -> None:
    """Fill docs/reference: a page for every room, made from what the room exports."""
    folder = Path(__file__).parent / "reference"
    for room, modules in ROOMS.items():
        page = [f"# privet.{room}", ""]
        for name in modules:
            if name != room:
                page += [f"## privet.{name}", ""]
            page += ["```{eval-rst}", f".. automodule:: privet.{name}", "   :members:", "```", ""]
        text = "\n".join(page)
        file = folder / f"{room}.md"
        if not file.exists() or file.read_text() != text:  # untouched pages are not read again
            file.write_text(text)


write_reference()


def parameters(cls: type) -> list[str]:
    """A sentence for each setting of a dataclass, from its fields or its parents' docstrings."""
    sentences: dict[str, str] = {}
    for parent in reversed(cls.__mro__):
        listed = re.findall(
            r"^- ((?:`\w+`(?:, )?)+): (.*?)(?=^- |\Z|\n\n)",
            inspect.cleandoc(parent.__dict__.get("__doc__") or ""), re.DOTALL | re.MULTILINE,
        )  # fmt: skip
        for names, sentence in listed:
            sentences.update(dict.fromkeys(re.findall(r"\w+", names), " ".join(sentence.split())))
    own = re.findall(r"^- `(\w+)`", inspect.cleandoc(cls.__doc__ or ""), flags=re.MULTILINE)
    lines = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        said = field.metadata.get("help") or sentences.get(field.name)
        if field.init and said and field.name not in own and not field.name.startswith("_"):
            lines.append(f"- ``{field.name}``: {said}")
    return ["", "All settings:", "", *lines, ""] if lines else []


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
    if what == "class" and dataclasses.is_dataclass(thing):
        lines += parameters(thing)


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """What scikit-learn adds to every estimator is in its own pages."""
    added = name.startswith("set_") and name.endswith("_request")
    return True if added or name == "get_metadata_routing" else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-skip-member", skip)
