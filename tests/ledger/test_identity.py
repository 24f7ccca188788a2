"""One identity of data: the same name in every run of a curator, and none for anybody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privet.accounting import Gaussian
from privet.cli.main import main
from privet.errors import BudgetExceeded, InvalidArgument, LedgerError, MissingFile
from privet.ledger import CuratorKey, Ledger, SubCap
from privet.ledger.curator_key import make_key, read_key

MINE, THEIRS = (CuratorKey(bytes([k]) * 32) for k in range(2))


def ledger(**terms: Any) -> Ledger:
    return Ledger.in_memory(cap_epsilon=10.0, cap_delta=1e-5, **terms)


def test_a_key_names_data_for_its_owner_alone() -> None:
    assert MINE.identify("sha256:ab") == MINE.identify("sha256:ab")
    assert MINE.identify("sha256:ab") != THEIRS.identify("sha256:ab")
    assert MINE.name != THEIRS.name and MINE.secret.hex() not in repr(MINE) + MINE.name


def test_a_key_is_made_once_and_for_its_owners_eyes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "curator.key"
    made = make_key(path)
    assert read_key(path) == made and path.stat().st_mode & 0o077 == 0
    assert [p.name for p in path.parent.iterdir()] == ["curator.key"]
    with pytest.raises(InvalidArgument, match="new names"):
        make_key(path)
    path.write_text("short")
    with pytest.raises(InvalidArgument, match="64 hexadecimal"):
        read_key(path)
    with pytest.raises(MissingFile, match="privet ledger key"):
        read_key(tmp_path / "none")


@pytest.mark.parametrize("named", [None, "clinic patients 2026"])
def test_the_first_charge_binds_a_ledger(named: str | None) -> None:
    """Attack: a ledger made for one data set takes a charge for another one."""
    book, first, other = ledger(dataset=named), MINE.identify("a"), MINE.identify("b")
    book.data = first
    assert book.charge(Gaussian(mu=0.1), what="x").dataset == first
    book.data = other
    with pytest.raises(LedgerError, match="bound to other data"):
        book.charge(Gaussian(mu=0.1), what="y")
    assert len(book) == 1
    book.admits_other_data = True
    assert book.charge(Gaussian(mu=0.1), what="y").dataset == other
    book.admits_other_data = False
    assert book.charge(Gaussian(mu=0.1), what="z").dataset == other  # it is one of its own now


def test_a_ledger_of_an_identity_is_bound_from_the_start() -> None:
    book = ledger(dataset=MINE.identify("a"))
    with pytest.raises(LedgerError, match="bound to other data"):
        book.charge(Gaussian(mu=0.1), what="x", dataset=MINE.identify("b"))


# Shares of the budget


def test_sub_caps_hold(tmp_path: Path) -> None:
    caps = [SubCap.parse("person:ada=1.0"), SubCap.parse("purpose:triage=2")]
    path = tmp_path / "b.ledger"
    book = Ledger.create(path, cap_epsilon=10.0, cap_delta=1e-5, sub_caps=caps)
    book.who, book.purpose = "ada", "triage"
    book.charge(Gaussian(mu=0.2), what="mean")
    assert not book.affords(Gaussian(mu=0.3))
    with pytest.raises(BudgetExceeded, match="person ada"):
        book.charge(Gaussian(mu=0.3), what="mean")
    book.who = "ben"
    assert book.affords(Gaussian(mu=0.3))
    book.charge(Gaussian(mu=0.3), what="mean")
    with pytest.raises(BudgetExceeded, match="purpose triage"):
        book.charge(Gaussian(mu=0.5), what="mean")
    book.purpose = "billing"
    book.charge(Gaussian(mu=0.5), what="mean")
    again = Ledger.open(path)
    spent = {str(cap): value for cap, value in again.sub_caps}
    assert spent["person ada"] == Gaussian(mu=0.2).epsilon(1e-5).__round__(12) or spent[
        "person ada"
    ] == pytest.approx(Gaussian(mu=0.2).epsilon(1e-5))
    together = Gaussian(mu=(0.2**2 + 0.3**2) ** 0.5)
    assert spent["purpose triage"] == pytest.approx(together.epsilon(1e-5))
    again.verify()


@pytest.mark.parametrize("text", ["ada=1", "person:=1", "person:ada", "person:ada=x", "dog:a=1"])
def test_a_sub_cap_that_is_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="person:NAME=EPSILON"):
        SubCap.parse(text)


# The command line


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    return int(left.value.code or 0)


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of patients, ranges, and a curator's key."""
    import numpy as np

    rng = np.random.default_rng(0)
    for name in ("clinic", "other"):
        rows = rng.integers(20, 90, size=400)
        lines = [f"{age},{'ill' if age > 55 else 'well'}" for age in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,state", *lines]) + "\n")
    declared = {"bounds": {"age": [20, 90]}, "classes": ["ill", "well"]}
    (tmp_path / "ranges.json").write_text(json.dumps(declared))
    monkeypatch.setenv("PRIVET_CURATOR_KEY", str(tmp_path / "curator.key"))
    return tmp_path


def train(clinic: Path, data: str, out: str, *more: str) -> int:
    return run(
        "train", "adaptive-laplace", "--data", str(clinic / data), "--label", "state", "--bounds",
        str(clinic / "ranges.json"), "--out", str(clinic / out), *more,
    )  # fmt: skip


@pytest.mark.slow
def test_the_same_data_under_three_ledgers(clinic: Path, capsys: Any) -> None:
    """All three have the same name; another curator's key tells nothing."""
    for name, epsilon in (("a", "1"), ("b", "8")):
        assert not run("ledger", "init", str(clinic / f"{name}.ledger"), "--epsilon", "9",
                       "--delta", "1e-5", "--dataset", "clinic patients 2026")  # fmt: skip
        assert not train(clinic, "clinic.csv", name, "--epsilon", epsilon, "--ledger",
                         str(clinic / f"{name}.ledger"))  # fmt: skip
    assert not train(clinic, "clinic.csv", "c", "--epsilon", "3", "--records", "200")
    records = [json.loads((clinic / n / "guarantee.json").read_text()) for n in "abc"]
    assert len({r["data"]["fingerprint"] for r in records}) == 1
    for name in "abc":
        assert not run("verify", str(clinic / name), "--data", str(clinic / "clinic.csv"))
        assert run("verify", str(clinic / name), "--data", str(clinic / "other.csv")) == 2
        assert "not those" in capsys.readouterr().err
        card = (clinic / name / "README.md").read_text()
        assert "spent in this ledger" in card and "in another ledger" in card
    assert train(clinic, "other.csv", "d", "--epsilon", "1", "--ledger",
                 str(clinic / "a.ledger")) == 2  # fmt: skip
    assert "bound to other data" in capsys.readouterr().err and not (clinic / "d").exists()
    assert not train(clinic, "other.csv", "d", "--epsilon", "1", "--ledger",
                     str(clinic / "a.ledger"), "--also", "--who", "ada")  # fmt: skip
    whole = json.loads((clinic / "d" / "guarantee.json").read_text())
    assert [r["what"] for r in whole["ledger"]["releases"]] == [
        records[0]["ledger"]["releases"][0]["what"]
    ] * 2
    assert Ledger.open(clinic / "a.ledger").entries()[-1].who == "ada"
    (clinic / "curator.key").unlink()
    assert run("verify", str(clinic / "a"), "--data", str(clinic / "clinic.csv")) == 2
    assert "privet ledger key" in capsys.readouterr().err
    assert not run("ledger", "key")
    assert run("verify", str(clinic / "a"), "--data", str(clinic / "clinic.csv")) == 2
    assert "another curator's key" in capsys.readouterr().err
