"""README and docs do what they say: every Python block and every `privet` line is run.

- ```python blocks of a page run in order, in one namespace; a comment behind a `print(...)` is what
  it prints (or has the same numbers; `about 0.91`: within 0.05), and so is a ```text block right behind them, line by line;
- a ```text block that is a schedule is written to plan.csv, a ```json block to bounds.json;
- in ```shell and ```console blocks, lines that start with `privet` are run; `make` targets must exist;
- output shown in a ```console block is compared, apart from spacing;
- commands in running text and in tables, many of which take hours, exist and know their options.
"""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from privet.cli.main import app, main

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts),
]
_NUMBER = re.compile(r"[-+]?[\d.]*\d(?:e[-+]?\d+)?")
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


# What a page takes for granted: data, a model, a file that an earlier sentence speaks of.
SURROUNDINGS = {
    "docs/theory/ledger.md": """
import json
from pathlib import Path
from privet.ledger import Ledger
from privet.accounting import SampledGaussian
q, z = 0.01, 1.0
ledger = Ledger.in_memory(cap_epsilon=9.0, cap_delta=1e-5)
ledger.charge(SampledGaussian(sample_rate=q, noise_multiplier=z, steps=300), what="earlier steps")
Path("ledger.json").write_text(json.dumps(ledger.export()))
""",
    "docs/guide/regression.md": """
from pathlib import Path
import numpy as np
draw = np.random.default_rng(0)
lines = ["id,age,marker,sex,cost"]
for i in range(600):
    age, marker = draw.integers(20, 90), draw.normal()
    lines.append(f"{i},{age},{marker:.3f},{'fm'[i % 2]},{20 * age + 300 * marker + 1000:.0f}")
Path("visits.csv").write_text("\\n".join(lines))
""",
    "docs/guide/your_own_data.md": """
from pathlib import Path
import numpy as np
draw = np.random.default_rng(0)
lines = ["id,age,marker,sex,outcome"]
for i in range(600):
    marker = draw.normal()
    state = "ill" if marker + 0.3 * draw.normal() > 0 else "well"
    lines.append(f"{i},{draw.integers(20, 90)},{marker:.3f},{'fm'[i % 2]},{state}")
Path("patients.csv").write_text("\\n".join(lines))
Path("new.csv").write_text("marker,age,sex\\n3.0,50,f\\n-3.0,50,m\\n")
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
    slow = {"methods", "tutorials"} & {*page.parts} or page.name in (
        "README.md",
        "from_opacus.md",
        "command_line.md",
        "accounting.md",
        "membership.md",
        "compare.md",
        "audit.md",
        "your_own_data.md",
    )
    return [pytest.mark.slow] if slow else []


WITH_CODE = [
    pytest.param(p, id=str(p.relative_to(ROOT)), marks=_marks(p))
    for p in PAGES
    if any(b.language in ("python", "shell", "console") for b in blocks(p))
]


@pytest.mark.slow
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
    module = types.ModuleType("__docs__")  # where dataclasses of a page look for their names
    monkeypatch.setitem(sys.modules, "__docs__", module)
    names = module.__dict__
    exec(SURROUNDINGS.get(str(page.relative_to(ROOT)), ""), names)
    printed: list[str] = []
    for block in blocks(page):
        where = f"{page.name} line {block.line}"
        if block.language == "python":
            printed = _python(block, where, names, capsys)
        elif block.language == "json":
            Path("bounds.json").write_text(block.text)
        elif block.text.startswith("sample_rate,"):
            Path("plan.csv").write_text(block.text)
        elif block.language == "text":
            for line in _plain(block.text):
                assert line in printed, f"{where}: {line!r} is not among {printed}"
        elif block.language == "shell":
            for line in block.text.splitlines():
                _run(line, None, where, capsys)
        elif block.language == "console":
            for call in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                line, _, shown = call.partition("\n")
                _run(line, shown, where, capsys)


def _python(
    block: Block, where: str, names: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Run the statements one by one; returns all lines printed."""
    lines, printed = block.text.splitlines(), []
    for statement in ast.parse(block.text).body:
        code = ast.Module([statement], type_ignores=[])
        ast.increment_lineno(code, block.line)
        capsys.readouterr()
        exec(compile(code, where, "exec", dont_inherit=True), names)
        out = _plain(capsys.readouterr().out)
        printed += out
        last = lines[(statement.end_lineno or 1) - block.line - 1]
        if last.startswith("print(") and (told := re.search(r"  # (.+)$", last)):
            _check_comment(told[1], " ".join(out), where)
    return printed


def _check_comment(told: str, out: str, where: str) -> None:
    if told.startswith("about "):
        assert abs(float(told.split()[1]) - float(out)) <= 0.05, f"{where}: {out}"
    else:
        same, promise = " ".join(told.split()) == out, "-DP per " in told
        alike = _NUMBER.findall(told) == _NUMBER.findall(out) != [] and not promise
        assert same or alike, f"{where}: {out}"


def _run(line: str, shown: str | None, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "make":
        for target in words[1:]:
            assert f"\n{target}: " in (ROOT / "Makefile").read_text(), f"{where}: no {target}"
        return
    if words == ["source", ".venv/bin/activate"]:  # what make makes
        assert "\nVENV   := .venv\n" in (ROOT / "Makefile").read_text()
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
    """Lines without spacing and the length of rules, and without progress ("2 s: ...")."""
    lines = (re.sub("─+", "─", " ".join(line.split())) for line in text.splitlines())
    return [line for line in lines if line and not re.match(r"\d+ s: ", line)]


def test_commands_on_the_start_pages_are_found() -> None:
    """The test above would pass on pages without a single block."""
    kinds = [b.language for b in blocks(ROOT / "README.md")]
    assert kinds.count("python") == 1
    assert kinds.count("shell") == 2
    example = next(b for b in blocks(ROOT / "README.md") if b.language == "python")
    assert len([line for line in example.text.splitlines() if line]) <= 12


def commands(start: str) -> list[tuple[str, str]]:
    """All commands in running text, each with its page; alternatives (a | b) one by one."""
    found = []
    for page in PAGES:
        text = re.sub(_FENCE, "", page.read_text(encoding="utf-8"))
        for command in re.findall(rf"`({start}[^`]*)`", text):
            plain = command.replace("\\|", "|")
            if (words := re.split(r"\s+\|\s+", plain))[1:]:
                stem, first = words[0].rsplit(" ", 1)
                found += [(page.name, f"{stem} {word}") for word in (first, *words[1:])]
            else:
                found.append((page.name, plain))
    return found


@pytest.mark.slow
def test_commands_in_text_exist_and_know_their_options() -> None:
    root: Any = typer.main.get_command(app)
    found = commands("privet ")
    assert len(found) > 40
    for page, command in found:
        where, known = root, set()
        for word in shlex.split(command.replace("[", "").replace("]", ""))[1:]:
            if word.startswith("-"):
                known |= {option for p in where.params for option in p.opts}
                assert word in known, f"{page}: {command}: no {word}"
            elif hasattr(where, "get_command") and word != "...":
                where = where.get_command(None, word)
                assert where is not None, f"{page}: {command}: no {word}"


@pytest.mark.slow
def test_benchmarks_in_text_exist_and_know_their_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They take minutes to hours, so here they are only asked for help."""
    helped: dict[str, str] = {}
    found = commands("python -m benchmarks")
    assert len(found) > 20
    for page, command in found:
        words = shlex.split(command)
        module = words[2]
        if module not in helped:
            monkeypatch.setattr(sys, "argv", [module, "--help"])
            monkeypatch.delitem(sys.modules, module, raising=False)  # another test may have it
            with pytest.raises(SystemExit) as leaving:
                runpy.run_module(module, run_name="__main__")
            assert not leaving.value.code
            helped[module] = capsys.readouterr().out
        for word in words[3:]:
            if word.startswith("--") or word.isalpha():
                for part in word.split("|"):
                    assert part in helped[module], f"{page}: {command}: no {part}"


def test_other_commands_in_text_exist() -> None:
    for page, command in [*commands("python -m pytest "), *commands("pytest ")]:
        for word in shlex.split(command):
            if word.startswith("tests"):
                assert (ROOT / word).exists(), f"{page}: {command}"
    for page, command in commands("python examples"):
        assert (ROOT / command.split()[1]).exists(), f"{page}: {command}"
    for page, command in commands("make "):
        assert f"\n{command.split()[1]}: " in (ROOT / "Makefile").read_text(), f"{page}: {command}"


@pytest.mark.parametrize("word", ["BatchNorm", "GPU", "user-level", "tune", "TensorBoard", "ONNX"])
def test_words_that_people_search_for_have_a_heading(word: str) -> None:
    headings = [
        line.lower()
        for page in PAGES
        for line in page.read_text().splitlines()
        if line.startswith("#")
    ]
    assert any(word.lower() in line for line in headings)
