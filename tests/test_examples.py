"""Every example runs as its first lines say, is short, and prints what is promised."""

from __future__ import annotations

import runpy
from pathlib import Path

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
