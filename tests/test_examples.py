"""Every example runs as its first lines say, is short, and prints what is promised."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
SAYS = {
    "attack.py": "RMIA, wrong label: AUC",  # of a model without any promise
    "audit.py": "proved",
    "compare.py": "falsified",
}
PROMISE = "-DP per "


def test_every_method_has_one() -> None:
    methods = {
        p.name for p in (FOLDER.parent / "src" / "privet" / "methods").iterdir() if p.is_dir()
    }
    names = {p.stem for p in EXAMPLES}
    for method in methods - {"__pycache__"}:
        assert any(name.startswith(method) for name in names), f"no example of {method}"


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 150
    assert f"\npython examples/{path.name}\n" in text
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert SAYS.get(path.name, PROMISE) in capsys.readouterr().out


NOTEBOOKS = sorted((FOLDER / "notebooks").glob("*.ipynb"))


def test_the_notebooks_are_there_and_hold_no_outputs() -> None:
    assert {p.stem for p in NOTEBOOKS} == {"tabular", "pictures", "causal_lm_lora", "from_opacus"}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert not any(cell.get("outputs") for cell in cells)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # as a reader sees them
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its cells of code run in their order, and a promise is printed."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for k, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {k}", "exec"), names)
    assert PROMISE in capsys.readouterr().out
