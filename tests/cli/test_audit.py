"""`privet audit`: methods, runs, JSON and one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privet.accounting import Gaussian
from privet.cli.main import main
from privet.guarantee import Guarantee
from privet.methods.catalogue import method_names
from privet.runs.guarantee_record import read_record
from privet.runs.run_folder import write_record

KEYS = {"claimed", "proved", "audited", "ceiling", "verdict", "control", "confidence", "threat"}


def audit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as leaving:
        main(["audit", *arguments])
    out = capsys.readouterr()
    return int(leaving.value.code or 0), out.out, out.err


@pytest.mark.parametrize(
    ("method", "verdict"),
    [
        pytest.param("dpsgd", "falsified", marks=pytest.mark.slow),
        ("pate", "consistent"),
        pytest.param("residual", "uninformative", marks=pytest.mark.slow),
        ("autoencoder", "falsified"),
        pytest.param("adaptive-laplace", "falsified", marks=pytest.mark.slow),
    ],
)
def test_published_algorithms(capsys, method: str, verdict: str) -> None:
    """Each audit errs with 5% at most; the seed is fixed."""
    words = (method, "--reading", "published", "--trials", "10000", "--json")
    code, out, _ = audit(capsys, *words)
    found = json.loads(out)
    assert code == 0 and set(found) >= KEYS
    assert found["verdict"] == verdict and found["audited"] > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("method", method_names())
def test_methods_hold_and_are_seen_without_noise(capsys, method: str) -> None:
    """At epsilon 8: what is audited is below what is proved and well above nothing.

    The bound errs with 5% at most; the seed is fixed. The control is the same method with hardly
    any noise.
    """
    code, out, _ = audit(capsys, method, "--epsilon", "8", "--trials", "100", "--json")
    found = json.loads(out)
    assert code == 0 and set(found) >= KEYS
    assert found["audited"] <= found["proved"] <= 8.0
    assert found["control"] > found["proved"]


@pytest.mark.slow
def test_text(capsys) -> None:
    code, out, _ = audit(capsys, "adaptive-laplace", "--trials", "100")
    assert code == 0 and out.startswith("adaptive-laplace: all that it releases: ")
    assert "claimed none, proved 1, audited" in out and "the control without noise" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody",), "a run folder, or one of dpsgd"),
        (("runs/missing",), "no such file: runs/missing"),
        (("pate", "--reading", "kind"), "--reading must be sound or published"),
        (("pate", "--epsilon", "-1"), "epsilon"),
        (("pate", "--trials", "5"), "trials"),
    ],
)
def test_errors_are_one_line(capsys, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = audit(capsys, *arguments)
    assert code == 2 and not out
    assert err.startswith("error: ") and err.count("\n") == 1 and words in err


def test_folders_that_are_no_runs(capsys, tmp_path: Path) -> None:
    assert "config.json" in audit(capsys, str(tmp_path))[2]
    (tmp_path / "config.json").write_text('{"method": "dpsgd", "data": "digits"}')
    assert "privet 0.1 made it" in audit(capsys, str(tmp_path))[2]
    (tmp_path / "config.json").write_text('{"format": 2, "method": "dpsgd", "data": "digits"}')
    assert "has not finished" in audit(capsys, str(tmp_path))[2]
    code, _, err = audit(capsys, str(tmp_path))
    assert code == 2 and err.count("\n") == 1


@pytest.mark.slow
def test_a_run(capsys, tmp_path: Path) -> None:
    """Its method at its own budget; the verdict is on what the run itself states."""
    run = tmp_path / "run"
    words = ["--data", "blobs", "--epsilon", "4", "--seed", "1", "--out", str(run)]
    with pytest.raises(SystemExit):
        main(["train", "adaptive-laplace", *words])
    code, out, err = audit(capsys, str(run), "--trials", "100", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["proved"] <= 4.0 and 1.0 < found["audited"] < found["control"]
    promise, loss = read_record(run), Gaussian(mu=0.003)
    promise["mechanism"]["loss"] = loss.to_dict()
    promise["guarantee"]["epsilon"] = loss.epsilon(1e-5)
    promise["guarantee"]["text"] = str(Guarantee.from_dict(promise["guarantee"]))
    write_record(run, promise)  # sealed anew, and nothing in it contradicts itself
    again = json.loads(audit(capsys, str(run), "--trials", "100", "--json")[1])
    assert again["verdict"] == "falsified"
