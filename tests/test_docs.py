"""README and docs do what they say: every Python block and every `privet` line is run.

- ```python blocks of a page run in order, in one namespace;
- a ```text block that is a schedule is written to plan.csv;
- in ```shell and ```console blocks, lines that start with `privet` are run; `make` targets must exist;
- output shown in a ```console block is compared, apart from spacing.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from privet.cli.main import main

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts),
]
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


# What a page takes for granted: data, a model, a file that an earlier sentence speaks of.
SURROUNDINGS = {
    "docs/theory/ledger.md": """
import json
from pathlib import Path
from privet.ledger import Ledger
from privet.loss import SampledGaussian
q, z = 0.01, 1.0
ledger = Ledger.in_memory(cap_epsilon=9.0, cap_delta=1e-5)
ledger.charge(SampledGaussian(sample_rate=q, noise_multiplier=z, steps=300), what="earlier steps")
Path("ledger.json").write_text(json.dumps(ledger.export()))
""",
    "docs/methods/dpsgd.md": """
import torch
torch.manual_seed(0)
x, y = torch.rand(300, 4), torch.randint(0, 2, (300,))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
}


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m.group(1), m.group(2), text.count("\n", 0, m.start()) + 1)
        for m in _FENCE.finditer(text)
    ]


def _marks(page: Path) -> list[pytest.MarkDecorator]:
    """Pages that train a model or draw a map take their time."""
    slow = "methods" in page.parts or page.name in (
        "README.md",
        "from_opacus.md",
        "command_line.md",
        "accounting.md",
        "membership.md",
    )
    return [pytest.mark.slow] if slow else []


WITH_CODE = [
    pytest.param(p, id=str(p.relative_to(ROOT)), marks=_marks(p))
    for p in PAGES
    if any(b.language in ("python", "shell", "console") for b in blocks(p))
]


# a page may say json.load(open(...)), which leaves closing to Python
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("page", WITH_CODE)
def test_page(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    names: dict[str, object] = {"__name__": "__docs__"}
    exec(SURROUNDINGS.get(str(page.relative_to(ROOT)), ""), names)
    for block in blocks(page):
        where = f"{page.name} line {block.line}"
        if block.language == "python":
            exec(compile(block.text, where, "exec"), names)
        elif block.text.startswith("sample_rate,"):
            Path("plan.csv").write_text(block.text)
        elif block.language == "shell":
            for line in block.text.splitlines():
                _run(line, None, where, capsys)
        elif block.language == "console":
            for call in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                line, _, shown = call.partition("\n")
                _run(line, shown, where, capsys)


def _run(line: str, shown: str | None, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "make":
        for target in words[1:]:
            assert f"\n{target}: " in (ROOT / "Makefile").read_text(), f"{where}: no {target}"
        return
    assert words[0] == "privet", f"{where}: only privet and make are run, not {words[0]}"
    capsys.readouterr()
    with pytest.raises(SystemExit) as leaving:
        main(words[1:])
    captured = capsys.readouterr()
    refused = bool(shown) and str(shown).startswith("error: ")
    assert leaving.value.code == (2 if refused else 0), f"{where}: {captured.err}"
    if shown and shown.strip():
        assert _plain(captured.out + captured.err) == _plain(shown), where


def _plain(text: str) -> list[str]:
    """Lines without spacing and without the length of rules."""
    lines = (re.sub("─+", "─", " ".join(line.split())) for line in text.splitlines())
    return [line for line in lines if line]


def test_commands_on_the_start_pages_are_found() -> None:
    """The test above would pass on pages without a single block."""
    kinds = [b.language for b in blocks(ROOT / "README.md")]
    assert kinds.count("python") == 1
    assert kinds.count("shell") == 2
    example = next(b for b in blocks(ROOT / "README.md") if b.language == "python")
    assert len([line for line in example.text.splitlines() if line]) <= 12


def test_relative_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            found = (page.parent / target).exists() or "_generated" in target
            assert found, f"{page.relative_to(ROOT)}: {target}"
