"""What all experiments share: options from fields, cells kept once, one line for what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from privet.cli.main import main
from privet.errors import InvalidArgument
from privet.jobs import Cell
from privet_papers import EXPERIMENTS, experiment_named
from privet_papers.experiment import Experiment, Settings, plain, setting
from privet_papers.result_tables import RunRecord, Table, update_pages, with_results


@dataclass(frozen=True, kw_only=True)
class ToySettings(Settings):
    """Of an experiment that squares."""

    power: int = setting(2, help="The power.", least=1)
    numbers: tuple[int, ...] = setting((1, 2), help="What is raised.", option="number", picks=True)
    word: str = setting("a", help="A word.", among=("a", "b"))
    factor: float = 1.0


class Toy(Experiment[ToySettings]):
    """Powers of numbers."""

    name = "toy"
    brief = True
    quick: ClassVar = {"one": ToySettings()}
    computed: ClassVar[list[int]] = []

    def cells(self) -> Iterator[Cell]:
        """One a number."""
        for n in self.settings.numbers:
            yield Cell(f"{n}", partial(self._raised, n))

    def _raised(self, n: int, told: Any) -> dict[str, Any]:
        def run() -> dict[str, Any]:
            told(f"at {n}")
            self.computed.append(n)
            return {"number": n, "found": n**self.settings.power}

        return self.kept(n, run)

    def collect(self, found: list[Any]) -> dict[str, Any]:
        """The rows."""
        return {"rows": found}

    def draw(self, results: dict[str, Any]) -> list[Path]:
        """Nothing."""
        return []

    def tables(self, results: dict[str, Any]) -> list[Table]:
        """The numbers."""
        return [Table.of("Powers", ("n", "found"), [list(r.values()) for r in results["rows"]])]


def test_cells_are_computed_once_and_settings_that_pick_them_repeat_nothing(tmp_path: Path) -> None:
    Toy.computed.clear()
    told: list[tuple[str, int, int]] = []
    Toy(ToySettings(), tmp_path).run(lambda *a: told.append(a))
    assert told == [
        ("1", 0, 2), ("at 1", 0, 2), ("2", 1, 2), ("at 2", 1, 2), ("tables and figures", 2, 2),
        ("done", 2, 2),
    ]  # fmt: skip
    Toy(ToySettings(numbers=(1, 2, 3)), tmp_path).run()
    assert Toy.computed == [1, 2, 3]
    Toy(ToySettings(factor=2.0), tmp_path).run()  # a cell may depend on it
    assert Toy.computed == [1, 2, 3, 1, 2]
    assert (tmp_path / "tables.md").read_text().endswith("| 1 | 1 |\n| 2 | 4 |\n\n")
    assert r"2 & 4 \\" in (tmp_path / "tables.tex").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["settings"]["factor"] == 2.0


def test_another_version_computes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Toy.computed.clear()
    Toy(ToySettings(), tmp_path).run()
    monkeypatch.setattr(Toy, "version", 2)
    Toy(ToySettings(), tmp_path).run()
    assert Toy.computed == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"power": 0}, "power must be at least 1"), ({"word": "c"}, "word must be one of a; b")],
)
def test_settings_are_checked_by_their_fields(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        ToySettings().given(**wrong)


def test_the_command_has_an_option_for_each_setting_with_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("privet_papers.cli.EXPERIMENTS", {"toy": ""})
    monkeypatch.setattr("privet_papers.cli.experiment_named", lambda name: Toy)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as leaving:
            main(["reproduce", "toy", "--out", str(tmp_path), *words])
        return (int(leaving.value.code or 0), *capsys.readouterr())

    said = run("--power", "3", "--number", "2", "--number", "3", "--number", "2")[1]
    assert "| 2 | 8 |\n| 3 | 27 |\n" in said
    assert json.loads(run("--json")[1])["rows"] == [
        {"number": 1, "found": 1}, {"number": 2, "found": 4}
    ]  # fmt: skip
    code, _, error = run("--power", "0")
    assert code == 2 and error == "error: power must be at least 1, got 0\n"
    for word in (
        "--factor",
        "--paper",
        "--scale",
        "--data",
    ):  # no help, no paper settings, one data set
        assert run(word, "1")[0] == 2


def test_the_papers_scale_says_first_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("privet_papers.cli.EXPERIMENTS", {"toy": ""})
    monkeypatch.setattr("privet_papers.cli.experiment_named", lambda name: Toy)
    monkeypatch.setattr(Toy, "paper", {"one": ToySettings(numbers=(1, 2, 3))})
    told = []
    for seconds in (5 * 86_400.0, 7_000.0, 30.0):
        monkeypatch.setattr(Toy, "expected_seconds", lambda self, s=seconds: s)
        with pytest.raises(SystemExit) as leaving:
            main(["reproduce", "toy", "--paper", "--out", str(tmp_path)])
        out, error = capsys.readouterr()
        assert leaving.value.code == 0 and "| 3 | 9 |\n" in out
        told.append(error.partition(";")[0])
    start = "expected on this machine: "
    assert told == [f"{start}5 days", f"{start}117 minutes", f"{start}30 seconds"]


def test_the_expected_time_is_shared_by_jobs_but_not_by_more_than_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy(ToySettings(), tmp_path)
    assert toy.expected_time(2) is None
    monkeypatch.setattr(Toy, "expected_seconds", lambda self: 60.0)
    monkeypatch.setattr("privet_papers.experiment._cores", lambda: 4)
    assert [toy.expected_time(jobs) for jobs in (1, 2, 4, 64)] == [60.0, 30.0, 15.0, 15.0]
    assert toy.default_jobs() == 1
    monkeypatch.setattr(Toy, "brief", False)
    assert toy.default_jobs() == 4


@pytest.mark.parametrize("scale", [[], ["--paper"]])
def test_the_same_command_goes_on_where_it_was_killed(
    scale: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("privet_papers.cli.EXPERIMENTS", {"toy": ""})
    monkeypatch.setattr("privet_papers.cli.experiment_named", lambda name: Toy)
    monkeypatch.setattr(Toy, "paper", {"one": ToySettings(numbers=(1, 2, 3))})
    monkeypatch.setattr(Toy, "expected_seconds", lambda self: 5.0 * 86_400.0)
    whole, found = Toy._raised, []

    def killed(self: Toy, n: int, told: Any) -> dict[str, Any]:
        if n == 2 and not found:
            raise KeyboardInterrupt
        return whole(self, n, told)

    monkeypatch.setattr(Toy, "_raised", killed)
    Toy.computed.clear()
    for _ in range(2):
        with pytest.raises(SystemExit) as leaving:
            main(["reproduce", "toy", *scale, "--out", str(tmp_path)])
        found.append(leaving.value.code)
        assert ("expected on this machine: 5 days" in capsys.readouterr().err) == bool(scale)
        assert Toy.computed == ([1] if len(found) == 1 else [1, 2, 3] if scale else [1, 2])
    assert found[0] != 0 and found[1] == 0


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_paper_starts_from_settings_of_its_data(name: str) -> None:
    kind = experiment_named(name)
    assert kind.name == name
    for choices in (kind.quick, kind.paper):
        for data, settings in choices.items():
            assert len(kind.quick) == 1 or settings.data == data
            json.dumps(plain(settings), allow_nan=False)
    options = [f for f in fields(settings) if "help" in f.metadata]
    assert options and all(f.metadata["help"].endswith(".") for f in options)
    names = [
        f.metadata["option"] if isinstance(f.metadata["option"], str) else f.name for f in options
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "data"), [("adaptive-laplace", "mnist"), ("pate", "spheres")])
def test_what_a_cell_needs_is_made_before_it_once(name: str, data: str, tmp_path: Path) -> None:
    if name == "pate":
        pytest.importorskip("monai")
    kind = experiment_named(name)
    before: list[str] = []
    shared: set[str] = set()
    needed: set[str] = set()
    for cell in kind(kind.quick[data], tmp_path).cells():
        assert set(cell.needs) <= set(before) and cell.name not in before
        before.append(cell.name)
        needed |= set(cell.needs)
        shared |= {cell.name} if cell.shared else set()
    assert shared and shared <= needed


def test_a_scale_makes_sizes_larger_up_to_the_papers() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Sizes(Settings):
        records: int = 100
        pool: int = 4
        widths: tuple[int, ...] = (8, 16)
        rate: float = 0.1
        seeds: int = setting(1, help="Seeds.", picks=True)

    paper = Sizes(records=250, pool=1, widths=(64, 20), rate=0.5, seeds=9)
    assert Sizes().scaled(paper, 2) == Sizes(records=200, pool=2, widths=(16, 20))
    assert Sizes().scaled(paper, 9) == Sizes(records=250, pool=1, widths=(64, 20))


def test_a_long_run_keeps_its_command_and_hours_and_pages_show_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("privet_papers.cli.EXPERIMENTS", {"toy": ""})
    monkeypatch.setattr("privet_papers.cli.experiment_named", lambda name: Toy)
    monkeypatch.setattr(Toy, "paper", {"one": ToySettings(power=5)})
    words = ["reproduce", "toy", "--scale", "2", "--out", str(tmp_path), "--record"]
    monkeypatch.setattr("sys.argv", ["privet", *words[:4]])
    with pytest.raises(SystemExit) as leaving:
        main([*words, str(tmp_path / "toy.json")])
    assert leaving.value.code == 0 and "expected on this machine" in capsys.readouterr().err
    kept = RunRecord.read(tmp_path / "toy.json")
    assert kept.command == "privet reproduce toy --scale 2" and kept.settings["power"] == 4
    assert kept.tables[0].rows == (("1", "1"), ("2", "16")) and kept.processor_hours >= 0.0
    assert len((tmp_path / "processor_seconds.tsv").read_text().splitlines()) == 2
    page = "# Page\n<!-- results: toy.json -->\nold\n<!-- end of results -->\nrest\n"
    shown = with_results(page, tmp_path)
    assert "| 2 | 16 |" in shown and "old" not in shown and shown.endswith("-->\nrest\n")
    with pytest.raises(SystemExit):
        main(["reproduce", "toy", "--scale", "2", "--paper"])
    assert "left out with --paper" in capsys.readouterr().err


def test_the_pages_show_the_results_that_are_kept(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for part in ("docs/papers", "papers/results"):
        shutil.copytree(root / part, tmp_path / part)
    assert update_pages(tmp_path) == []
