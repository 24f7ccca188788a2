"""A ledger takes only what its own terms speak of: unit, neighbours, part, whose noise."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privet import premises
from privet.accounting import Gaussian, Pure, SampledGaussian
from privet.errors import Incomparable, InvalidArgument, TokenReused
from privet.guarantee import Adjacency, Protects, Unit
from privet.ledger import Ledger, Scope
from privet.mechanisms import GaussianMechanism as GaussianNoise
from privet.noise import secure, seeded
from privet.sensitivity import clip_l2

CAP = {"cap_epsilon": 5.0, "cap_delta": 1e-5}
TOTAL = clip_l2(np.full((10, 2), 0.1), 1.0).sum()


@pytest.mark.parametrize("ledger_unit", Unit)
@pytest.mark.parametrize("unit", Unit)
def test_a_charge_is_for_the_unit_of_its_ledger(ledger_unit: Unit, unit: Unit) -> None:
    """A per-user ledger took a per-record release and stated "per user, proved"."""
    ledger = Ledger.in_memory(**CAP, unit=ledger_unit)
    if unit is ledger_unit:
        entry = ledger.charge(Gaussian(mu=0.1), what="x", scope=Scope(unit=unit))
        assert entry.scope == Scope(unit=unit)
        return
    with pytest.raises(Incomparable, match=f"per {ledger_unit.value} with per {unit.value}"):
        ledger.charge(Gaussian(mu=0.1), what="x", scope=Scope(unit=unit))
    assert len(ledger) == 0


def test_a_release_without_a_word_is_per_record() -> None:
    ledger = Ledger.in_memory(**CAP, unit=Unit.USER)
    with pytest.raises(Incomparable, match="per user with per record"):
        ledger.charge(Gaussian(mu=0.1), what="x")
    source = seeded(0)
    with pytest.raises(Incomparable, match="per user with per record"):
        GaussianNoise(scale=9.0).release(TOTAL, rng=source, ledger=ledger)
    assert np.array_equal(source.uint64(4), seeded(0).uint64(4))  # nothing was drawn
    GaussianNoise(scale=9.0).release(replace(TOTAL, unit=Unit.USER), rng=secure(), ledger=ledger)
    assert ledger.guarantee().unit is Unit.USER


A, Z, R = Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


@pytest.mark.parametrize(
    ("ledger", "loss", "stated", "taken"),
    [
        (A, A, None, True), (A, A, A, True), (A, A, Z, False), (A, R, None, False),
        (Z, A, None, True), (Z, A, A, True), (Z, A, Z, True), (Z, R, None, False), (Z, R, R, False),
        (R, R, None, True), (R, R, R, True), (R, A, None, False), (R, A, Z, False),
        (R, A, R, False), (Z, R, Z, False),
        (Z, Z, None, True), (Z, Z, Z, True), (A, Z, None, False), (A, Z, A, False), (Z, Z, A, False),
        (R, Z, None, False),
    ],
)  # fmt: skip
def test_zero_out_takes_add_remove_and_nobody_else_mixes(
    ledger: Adjacency, loss: Adjacency, stated: Adjacency | None, taken: bool
) -> None:
    book = Ledger.in_memory(**CAP, adjacency=ledger)
    if taken:
        book.charge(Gaussian(mu=0.1, adjacency=loss), what="x", scope=Scope(adjacency=stated))
        assert book.guarantee().adjacency is ledger
        assert book.spent() == pytest.approx(Gaussian(mu=0.1).epsilon(1e-5))
    else:
        with pytest.raises(Incomparable):
            book.charge(Gaussian(mu=0.1, adjacency=loss), what="x", scope=Scope(adjacency=stated))


def test_losses_of_both_relations_are_composed() -> None:
    """An add-remove loss and one priced for zero-out, on a ledger for zero-out."""
    ledger = Ledger.in_memory(**CAP)
    ledger.charge(SampledGaussian(sample_rate=0.1, noise_multiplier=2.0, steps=5), what="x")
    late = SampledGaussian(sample_rate=0.1, noise_multiplier=2.0, steps=4, adjacency=Z)
    expected = SampledGaussian(sample_rate=0.1, noise_multiplier=2.0, steps=9).epsilon(1e-5)
    assert ledger.epsilon_after(late) == pytest.approx(expected)
    assert ledger.affords(late)
    assert ledger.charge(late, what="y").loss.adjacency is Z
    assert ledger.spent() == ledger.verify().spent == pytest.approx(expected)


def test_a_new_ledger_is_for_zero_out_neighbours(tmp_path: Path) -> None:
    assert Ledger.create(tmp_path / "l", **CAP).adjacency is Z
    assert Ledger.in_memory(**CAP).guarantee().adjacency is Z


def test_labels_and_records_are_not_confused() -> None:
    labels = Ledger.in_memory(**CAP, protects=Protects.LABELS)
    labels.charge(Pure(epsilon_each=0.1), what="x", scope=Scope(protects=Protects.LABELS))
    assert labels.guarantee().protects is Protects.LABELS
    with pytest.raises(Incomparable):
        labels.charge(Pure(epsilon_each=0.1), what="x")
    with pytest.raises(Incomparable):
        Ledger.in_memory(**CAP).charge(
            Pure(epsilon_each=0.1), what="x", scope=Scope(protects=Protects.LABELS)
        )


def test_a_seed_is_a_premise_of_everything_charged_with_it() -> None:
    ledger = Ledger.in_memory(**CAP)
    GaussianNoise(scale=9.0).release(TOTAL, rng=secure(), ledger=ledger)
    ledger.charge(Gaussian(mu=0.1), what="by hand")
    assert premises.SECRET_NOISE in ledger.guarantee().premises
    assert premises.SECRET_SEED not in ledger.guarantee().premises
    GaussianNoise(scale=9.0).release(TOTAL, rng=seeded(1), ledger=ledger)
    for stated in (ledger.guarantee(), ledger.odometer()):
        assert premises.SECRET_SEED in stated.premises
        assert premises.SECRET_NOISE not in stated.premises
    assert [e.scope.secret for e in ledger.entries() if e.scope] == [True, None, False]


def test_a_token_stands_for_its_scope_too() -> None:
    ledger = Ledger.in_memory(**CAP)
    ledger.charge(Gaussian(mu=0.1), what="x", token="t", scope=Scope(secret=True))
    with pytest.raises(TokenReused, match="another loss, scope or data set"):
        ledger.charge(Gaussian(mu=0.1), what="x", token="t", scope=Scope(secret=False))


def test_bad_scopes_are_one_line_errors() -> None:
    for bad in ({"unit": "user"}, {"adjacency": "zero-out"}, {"protects": "labels"}):
        with pytest.raises(InvalidArgument):
            Scope(**bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="scope must be a Scope"):
        Ledger.in_memory(**CAP).charge(Gaussian(mu=0.1), what="x", scope="user")  # type: ignore[arg-type]


def test_a_file_of_format_1_still_opens_and_goes_on(tmp_path: Path) -> None:
    """Byte for byte as privet wrote it before: no scope, no run, add-remove, format 1."""
    path = tmp_path / "old.ledger"
    Ledger.create(path, **CAP)  # for its tables
    shared = {"dataset": None, "who": "ada@host", "version": "0.1.0"}

    def sha(value: object) -> tuple[str, str]:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        return text, hashlib.sha256(text.encode()).hexdigest()

    terms, genesis = sha(
        shared
        | {"cap_epsilon": 5.0, "cap_delta": 1e-5, "adjacency": "add-remove", "unit": "record"}
        | {"identity": "0" * 32, "created": "2026-01-01T00:00:00.000000+00:00"}
    )
    body, head = sha(
        shared
        | {"sequence": 1, "what": "mean", "loss": Gaussian(mu=0.3).to_dict(), "token": "t"}
        | {"spent": 1.13, "process": 7, "when": "2026-01-01T00:00:01.000000+00:00"}
        | {"previous": genesis}
    )
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute("SELECT sql FROM sqlite_schema WHERE name='terms_stay'")
    (trigger,) = triggers.fetchone()
    connection.execute("DROP TRIGGER terms_stay")
    connection.execute("UPDATE terms SET body = ?", (terms,))
    connection.execute(trigger)
    connection.execute("INSERT INTO entries VALUES (1, ?, ?)", (body, head))
    connection.execute("UPDATE head SET count = 1, hash = ?", (head,))
    connection.execute("PRAGMA user_version=1")
    connection.close()

    ledger = Ledger.open(path)
    (old,) = ledger.entries()
    assert old.scope is None
    assert old.run is None
    assert old.body().decode() == body
    assert ledger.adjacency is A
    exported = ledger.export()
    assert sha(exported["terms"])[1] == exported["genesis"]
    assert ledger.charge(Gaussian(mu=0.3), what="again", token="t").sequence == 1
    assert ledger.charge(Gaussian(mu=0.3), what="next", run="r").sequence == 2
    assert Ledger.open(path).entries()[1].run == "r"
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()
