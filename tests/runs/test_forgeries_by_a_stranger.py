"""Forgeries by somebody who did not write the check, on folders that `privet train` left.

Each edits what it says, tells it on card and page, and seals the folder anew with the functions that
runs use. `test_forgeries.py` has those of whoever wrote the check.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from privet._atomic_files import write_json
from privet._canonical_json import sha256_hex
from privet.accounting import Pure, from_dict
from privet.accounting.trade_off import RATES
from privet.cli.main import main
from privet.guarantee import Guarantee
from privet.report.explanation import explain
from privet.runs import verify
from privet.runs.guarantee_record import consequences, made_by, read_record
from privet.runs.run_folder import (
    CARD,
    CONFIG,
    MODEL,
    PAGE,
    packed_config,
    render_record,
    seal,
    write_record,
)

pytestmark = pytest.mark.slow
Record = dict[str, Any]


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Runs of one curator: charged to a ledger, once more without it, and one with a seed."""
    folder = tmp_path_factory.mktemp("house")
    before = os.environ.get("PRIVET_CURATOR_KEY")
    os.environ["PRIVET_CURATOR_KEY"] = str(folder / "curator.key")
    assert not run("ledger", "init", folder / "clinic.ledger", "--epsilon", 20, "--delta", 1e-5)
    paid = ("--ledger", folder / "clinic.ledger", "--purpose", "triage", "--who", "ada")
    train = ("train", "dpsgd", "--data", "blobs", "--epsilon", 2, "--out")
    assert not run(*train, folder / "paid", *paid)
    assert not run(*train, folder / "unpaid", "--purpose", "triage")
    assert not run(*train, folder / "seeded", *paid, "--seed", 3)
    assert not run("train", "adaptive-laplace", "--data", "blobs", "--epsilon", 1, "--out",
                   folder / "laplace", *paid)  # fmt: skip
    yield folder
    if before is None:
        del os.environ["PRIVET_CURATOR_KEY"]
    else:
        os.environ["PRIVET_CURATOR_KEY"] = before


def copied(house: Path, name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(house / name, tmp_path / "forged"))


def sealed(folder: Path, record: Record) -> None:
    """The record, its line, card and page written as runs write them."""
    record["guarantee"]["text"] = str(Guarantee.from_dict(record["guarantee"]))
    write_record(folder, record)


def refused(folder: Path, *words: str, ledger: Path | None = None) -> None:
    """It is refused, and each word, the field among them, is in one of the problems."""
    problems = verify(folder, ledger=ledger).problems
    for word in words:
        assert any(word in p for p in problems), problems
    assert problems


def test_they_are_honest_before(house: Path) -> None:
    for name in ("paid", "seeded", "laplace"):
        assert verify(house / name, ledger=house / "clinic.ledger").ok
    for name in ("paid", "unpaid", "seeded", "laplace"):
        found = verify(house / name)
        assert found.ok and not any("does not name" in line for line in found.not_checked)


@pytest.mark.parametrize("other", [{"python": "3.13.0"}, {"commit": "1" * 40, "privet": "0.2"}])
def test_they_are_honest_on_another_machine(
    house: Path, monkeypatch: pytest.MonkeyPatch, other: Record
) -> None:
    """Another Python, or a later privet: less is compared, and what was not is said."""
    here = made_by() | other
    for module in ("verify", "statement_check"):
        monkeypatch.setattr(sys.modules[f"privet.runs.{module}"], "made_by", lambda: here)
    for name in ("paid", "seeded", "laplace"):
        found = verify(house / name, ledger=house / "clinic.ledger")
        assert found.ok, found.problems
        assert any("card and page" in line for line in found.not_checked)


# 1. The same epsilon from a loss with a better curve


def test_a_better_curve_at_the_same_epsilon(house: Path, tmp_path: Path) -> None:
    """Pure privacy of the same epsilon: nothing changes but what happens at smaller deltas."""
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    stated = Guarantee.from_dict(record["guarantee"])
    loss = Pure(epsilon_each=stated.epsilon + 1e-4)
    follows, curve = consequences(stated, loss), loss.trade_off()
    record["mechanism"] |= {"loss": loss.to_dict(), **follows["mechanism"]}
    points = [{"epsilon": loss.epsilon(p["delta"]), "delta": p["delta"]}
              for p in record["curve"]["points"]]  # fmt: skip
    record["curve"] = {**follows["curve"], "points": points}
    record["guarantee"]["epsilon"] = loss.epsilon(1e-5)
    record["attacker"] = [
        {"false_positive_rate": a, "true_positive_rate_at_most": curve.tpr(a)[1]} for a in RATES
    ]
    record["explanation"] = explain(curve, epsilon=loss.epsilon(1e-5), delta=1e-5).to_dict()
    sealed(folder, record)
    refused(folder, "loss")


# 2. A record that says it is of version 1, which had no loss


def test_a_record_that_plays_version_1(house: Path, tmp_path: Path) -> None:
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    record["migrated_from"] = 1
    record["mechanism"] |= {"loss": None, "releases": None, "publication": None}
    record["guarantee"] |= {"epsilon": 0.1, "unit": "user", "premises": []}
    record["curve"]["points"] = [{"epsilon": 0.1, "delta": 1e-5}]
    del record["explanation"]
    record["attacker"], record["ledger"] = [], None
    sealed(folder, record)
    refused(folder, "loss")


# 3. The model of another training under the record of a paid one


def test_two_models_for_one_charge(house: Path, tmp_path: Path) -> None:
    """The settings are the same, so the header is; the ledger was charged for one model."""
    folder = copied(house, "paid", tmp_path)
    shutil.copy(house / "unpaid" / MODEL, folder / MODEL)
    sealed(folder, read_record(folder))
    refused(folder, "run", "the model", ledger=house / "clinic.ledger")
    refused(folder, "run")


# 4. The other way round: an unpaid run whose record names the charges of a paid one


def test_the_charges_of_another_run(house: Path, tmp_path: Path) -> None:
    folder = copied(house, "unpaid", tmp_path)
    (folder / "run.ledger").unlink(missing_ok=True)
    record = read_record(folder)
    record["ledger"] = read_record(house / "paid")["ledger"]
    record["date"] = read_record(house / "paid")["date"]
    sealed(folder, record)
    refused(folder, "ledger", ledger=house / "clinic.ledger")


# 5. A seed in config.json that the header denies; classes in another order


@pytest.mark.parametrize(
    ("name", "value"), [("noise", "secure"), ("seed", None), ("classes", ["c", "b", "a"])]
)
def test_config_is_not_the_models(house: Path, tmp_path: Path, name: str, value: Any) -> None:
    """`load` reads classes from config.json: turned round, every prediction is another."""
    folder = copied(house, "seeded", tmp_path)
    config = json.loads((folder / CONFIG).read_text())
    assert config[name] != value
    write_json(folder / CONFIG, config | {name: value})
    sealed(folder, read_record(folder))
    refused(folder, name)


def test_config_has_something_more(house: Path, tmp_path: Path) -> None:
    """A weight of a class moves every prediction towards it."""
    folder = copied(house, "paid", tmp_path)
    config = json.loads((folder / CONFIG).read_text())
    write_json(folder / CONFIG, config | {"class_weight": {"a": 100.0}})
    sealed(folder, read_record(folder))
    refused(folder, "class_weight")


# 6. Rates moved, so that the same numbers say something milder


@pytest.mark.parametrize(
    ("part", "before"),
    [("attacker", "false_positive_rate"), ("beliefs", "prior"), ("guesses", "before")],
)
def test_the_same_bounds_at_other_rates(
    house: Path, tmp_path: Path, part: str, before: str
) -> None:
    """'Finds 3.4% when 1 in 33 is accused wrongly': a harmless attacker of the same share."""
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    told = record["explanation"]
    for each in told[part]:
        each[before] = 0.9 * max(v for k, v in each.items() if k != before)
    from privet.report.explanation import Explanation

    record["explanation"] = Explanation.from_dict(told).to_dict()
    sealed(folder, record)
    refused(folder, "explanation")


@pytest.mark.parametrize("part", ["attacker", "curve"])
def test_nothing_said_of_attackers(house: Path, tmp_path: Path, part: str) -> None:
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    if part == "attacker":
        record["attacker"] = record["attacker"][-1:]
    else:
        record["curve"]["points"] = record["curve"]["points"][-1:]
    sealed(folder, record)
    refused(folder, part)


# 7. Another file's identity: `verify --data` would say that it was trained on that


def test_the_identity_of_other_data(house: Path, tmp_path: Path) -> None:
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    noted = record["data"]["fingerprint"]
    record["data"]["fingerprint"] = noted[:-6] + "".join(reversed(noted[-6:]))
    assert record["data"]["fingerprint"] != noted
    sealed(folder, record)
    refused(folder, "data", ledger=house / "clinic.ledger")


# 8. What is left, and what one more would cost


@pytest.mark.parametrize(
    ("name", "value"),
    [("after_one_more", 2.1), ("odometer", 0.2), ("earlier_releases", 7), ("in_memory", True),
     ("dataset", "another clinic")],
)  # fmt: skip
def test_what_a_ledger_would_say(house: Path, tmp_path: Path, name: str, value: Any) -> None:
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    assert record["ledger"].get(name) != value
    record["ledger"][name] = value
    sealed(folder, record)
    refused(folder, name, ledger=house / "clinic.ledger")


def test_no_ledger_at_all(house: Path, tmp_path: Path) -> None:
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    record["ledger"] = None
    sealed(folder, record)
    refused(folder, "ledger")


# 9. Another machine made it, so card and page are not compared: they say anything


def test_a_card_that_says_anything(house: Path, tmp_path: Path) -> None:
    """Only the version of matplotlib is edited; then the card promises .01 to whole people."""
    folder = copied(house, "seeded", tmp_path)
    record = read_record(folder)
    record["made_by"]["matplotlib"] = "3.0.0"
    for name, text in render_record(record).items():
        (folder / name).write_text(text.replace("EXPERIMENT, NOT A RELEASE", "A release"))
    names = (MODEL, CONFIG, CARD, PAGE)
    record = seal(record, {name: sha256_hex((folder / name).read_bytes()) for name in names})
    write_json(folder / "guarantee.json", record)
    refused(folder, "made_by", CARD)


def test_another_commit_excuses_no_words(house: Path, tmp_path: Path) -> None:
    """The epsilon stays, the line that everybody reads says another."""
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    record["made_by"]["commit"] = "0" * 40
    record["guarantee"]["text"] = "(0.01, 1e-12)-DP per user, add-remove, proved"
    record["explanation"]["sentences"] = ["Nobody can learn anything."]
    record["covered"] = "Each person, with all records."
    write_record(folder, record)
    refused(folder, "made_by", "in words")


# 10. A second record beside a signed one


def test_evidence_beside_a_signed_record(house: Path, tmp_path: Path, capsys: Any) -> None:
    """The first record is signed and whole; an unsigned second one has a card of its own."""
    key, public = keys(tmp_path)
    folder = copied(house, "paid", tmp_path)
    assert not run("record", "sign", folder, "--key", key, "--name", "Dr. Kern")
    first = read_record(folder)
    assert verify(folder, key=public).verified
    date = "2026-11-18T23-00-00-000000Z"
    text = "consistent (99.9% confidence). An audit office looked at this model."
    later = {k: v for k, v in first.items() if k not in ("signature", "digest")}
    later |= {"adds_to": first["digest"], "evidence": [{
        "kind": "audit of the method", "date": "2026-11-18T23:00:00+00:00", "text": text,
        "verdict": "consistent"}]}  # fmt: skip
    write_record(folder, later, date=date)
    found = verify(folder, key=public)
    assert found.ok and found.unanswered == (f"guarantee.{date}.json",)
    assert not run("verify", folder, "--key", public)
    assert f"NOT guarantee.{date}.json" in capsys.readouterr().out
    assert any(f"guarantee.{date}.json" in line for line in found.not_checked)
    (folder / f"README.{date}.md").write_text("epsilon 0.01, says everybody")
    later = read_record(folder, f"guarantee.{date}.json")
    later = seal(later, {name: sha256_hex((folder / name).read_bytes())
                         for name in later["files"]})  # fmt: skip
    write_json(folder / f"guarantee.{date}.json", later)
    problems = verify(folder, key=public).problems
    assert any(f"README.{date}.md" in p for p in problems), problems


def keys(tmp_path: Path) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    )
    (tmp_path / "key.pub").write_bytes(
        key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    )
    return tmp_path / "key.pem", tmp_path / "key.pub"


# 11. Signatures


def test_a_signature_of_another_record(house: Path, tmp_path: Path) -> None:
    """A model that somebody did sign lends its signature to one that nobody did."""
    key, public = keys(tmp_path)
    signed = shutil.copytree(house / "laplace", tmp_path / "signed")
    assert not run("record", "sign", signed, "--key", key, "--name", "Dr. Kern")
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder) | {"signature": read_record(signed)["signature"]}
    write_json(folder / "guarantee.json", record)
    refused(folder, "signature")
    assert not verify(folder, key=public).verified


def test_a_signature_by_a_namesake(house: Path, tmp_path: Path) -> None:
    _, public = keys(tmp_path)
    (tmp_path / "other").mkdir()
    mine, _ = keys(tmp_path / "other")
    folder = copied(house, "paid", tmp_path)
    assert not run("record", "sign", folder, "--key", mine, "--name", "Dr. Kern")
    found = verify(folder, key=public)
    assert not found.verified and any("another key" in p for p in found.problems)


def test_a_signature_older_than_its_record(house: Path, tmp_path: Path) -> None:
    """Whoever signs cannot have read what was written later."""
    key, _ = keys(tmp_path)
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    record["date"] = "2031-01-01T00:00:00+00:00"
    sealed(folder, record)
    assert run("record", "sign", folder, "--key", key) == 2
    refused(folder, "date")


# 12. Numbers that nobody paid for, and words inside


def test_exact_results_as_noised_ones(house: Path, tmp_path: Path) -> None:
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    record["measured"] = {"test_accuracy": 1.0}
    sealed(folder, record)
    refused(folder, "measured")


@pytest.mark.parametrize(
    ("where", "name"),
    [(("guarantee",), "certified_by"), (("given",), "approved_by"), (("data",), "anonymous"),
     (("trust", "actors", 0), "checked"), (("evidence",), "kind"), (("mechanism",), "note")],
)  # fmt: skip
def test_words_of_its_own_further_in(
    house: Path, tmp_path: Path, where: tuple[Any, ...], name: str
) -> None:
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    part: Any = record
    for step in where:
        part = part[step]
    if isinstance(part, list):
        part.append({"kind": "seal of approval", "verdict": "consistent", "text": "approved",
                     "date": "2026-11-18T23:00:00+00:00"})  # fmt: skip
    else:
        part[name] = "the authority"
    sealed(folder, record)
    refused(folder, name)


def test_premises_in_another_order(house: Path, tmp_path: Path) -> None:
    """What is only assumed is put last, where nobody reads."""
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    record["guarantee"]["premises"].reverse()
    sealed(folder, record)
    refused(folder, "premises")


def test_a_premise_by_another_name(house: Path, tmp_path: Path) -> None:
    folder = copied(house, "paid", tmp_path)
    record = read_record(folder)
    for p in record["guarantee"]["premises"]:
        if p["about"] == "people":
            p["about"] = "persons"
    sealed(folder, record)
    refused(folder, "people")


# The model's header as well


def rewrite_header(folder: Path, forge: Callable[[Record], None]) -> None:
    model = folder / MODEL
    raw = model.read_bytes()
    config = packed_config(raw)
    forge(config)
    model.write_bytes(save_arrays(load_arrays(raw), metadata={"privet": json.dumps(config)}))
    whole = json.loads((folder / CONFIG).read_text())
    write_json(folder / CONFIG, whole | config)


@pytest.mark.parametrize("how", ["plan_inputs", "objects"])
def test_a_header_of_which_no_plan_can_be_made(house: Path, tmp_path: Path, how: str) -> None:
    """Then the statement cannot be made again, and premises may say anything."""
    folder = copied(house, "paid", tmp_path)

    def forge(config: Record) -> None:
        if how == "objects":
            config["plan_inputs"]["objects"] = ["reducer"]
        else:
            config["plan_inputs"] = None

    rewrite_header(folder, forge)
    record = read_record(folder)
    for p in record["guarantee"]["premises"]:
        if p["about"] == "people":
            p.update(text="each person has one record, as a notary checked", backing="enforced")
    sealed(folder, record)
    refused(folder, "people")


def test_fewer_steps_in_header_and_record(house: Path, tmp_path: Path) -> None:
    """A training that ended early would have cost less; the ledger was charged for all of it."""
    folder = copied(house, "paid", tmp_path)
    rewrite_header(folder, lambda config: config.update(stopped_early=True))
    record = read_record(folder)
    loss = from_dict({**record["mechanism"]["loss"], "parts": [{"kind": "Gaussian", "mu": 0.1}]})
    stated = Guarantee.from_dict(record["guarantee"])
    record["guarantee"]["epsilon"] = loss.epsilon(1e-5)
    stated = Guarantee.from_dict(record["guarantee"])
    follows, curve = consequences(stated, loss), loss.trade_off()
    record["mechanism"] |= {"loss": loss.to_dict(), **follows["mechanism"]}
    record["curve"] = {**follows["curve"], "points": [
        {"epsilon": loss.epsilon(p["delta"]) if p["delta"] else "inf", "delta": p["delta"]}
        for p in record["curve"]["points"]]}  # fmt: skip
    record["attacker"] = [
        {"false_positive_rate": a, "true_positive_rate_at_most": curve.tpr(a)[1]} for a in RATES
    ]
    record["explanation"] = explain(curve, epsilon=stated.epsilon, delta=1e-5).to_dict()
    sealed(folder, record)
    refused(folder, "epsilon", ledger=house / "clinic.ledger")
    assert any("how many steps" in line for line in verify(folder).not_checked)


def test_a_ledger_made_for_the_occasion(house: Path, tmp_path: Path) -> None:
    """A new ledger with this training alone hides what was spent before it."""
    from privet.ledger import Ledger

    folder = copied(house, "laplace", tmp_path)  # the third release of its ledger
    record = read_record(folder)
    old = Ledger.open(house / "clinic.ledger")
    mine = [e for e in old.entries() if e.run == record["run"]]
    book = Ledger.create(tmp_path / "clean.ledger", cap_epsilon=20, cap_delta=1e-5,
                         adjacency=old.adjacency)  # fmt: skip
    book.who, book.purpose, book.data = "ada", "triage", mine[0].dataset
    new = [book.charge(e.loss, what=e.what, run=e.run, token=e.token, scope=e.scope)
           for e in mine]  # fmt: skip
    record["date"] = new[-1].when
    record["ledger"] = {
        **book.statement(), "after_one_more": record["ledger"]["after_one_more"],
        "entries": [{"sequence": e.sequence, "token": e.token, "hash": e.hash} for e in new],
    }  # fmt: skip
    sealed(folder, record)
    refused(folder, "ledger", ledger=tmp_path / "clean.ledger")


def test_a_ranges_file_of_another(house: Path, tmp_path: Path) -> None:
    """The declaration is published, and nothing in the folder tied it to the run."""
    import numpy as np

    rng = np.random.default_rng(0)
    rows = rng.integers(20, 90, size=400)
    lines = [f"{age},{'ill' if age > 55 else 'well'}" for age in rows]
    (tmp_path / "a.csv").write_text("\n".join(["age,state", *lines]) + "\n")
    (tmp_path / "ranges.json").write_text(
        json.dumps({"bounds": {"age": [20, 90]}, "classes": ["ill", "well"]})
    )
    assert not run("train", "adaptive-laplace", "--data", tmp_path / "a.csv", "--label", "state", "--bounds",
                   tmp_path / "ranges.json", "--epsilon", 1, "--out", tmp_path / "run")  # fmt: skip
    folder = tmp_path / "run"
    assert verify(folder).ok
    (folder / "declaration.json").write_text(
        json.dumps({"bounds": {"age": [0, 120]}, "classes": ["well", "ill"]})
    )
    refused(folder, "declaration.json")
    sealed(folder, read_record(folder))
    refused(folder, "declaration.json")


def test_a_paper_beside_it(house: Path, tmp_path: Path) -> None:
    """A file that the record does not name is told of: nobody answers for it."""
    folder = copied(house, "paid", tmp_path)
    (folder / "CERTIFICATE.html").write_text("epsilon 0.01")
    found = verify(folder)
    assert any("CERTIFICATE.html" in line for line in found.not_checked)
