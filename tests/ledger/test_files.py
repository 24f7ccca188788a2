"""Files that are not ledgers, cannot be used as ledgers, or were tampered with."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from privet.accounting import Gaussian
from privet.errors import (
    LedgerError,
    LedgerLocked,
    LedgerTampered,
    MissingFile,
    NotALedger,
    PrivetError,
)
from privet.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    ledger = Ledger.create(path, cap_epsilon=3.0, cap_delta=1e-5, dataset="census")
    for i in range(4):
        ledger.charge(Gaussian(mu=0.2), what=f"release {i}", who="ada", token=f"t{i}")
    return path


def edit(path: Path, *statements: str) -> None:
    """What somebody with write access and the sqlite3 shell could do."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def foreign(path: Path) -> None:
    path.unlink()
    edit(path, "CREATE TABLE t (a)")


def other_application(path: Path) -> None:
    edit(path, "PRAGMA application_id=1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (lambda p: p.unlink(), MissingFile, "no such file"),
        (lambda p: (p.unlink(), p.mkdir()), NotALedger, "is a directory"),
        (lambda p: p.write_bytes(b""), NotALedger, "is empty"),
        (lambda p: p.write_bytes(b"hello"), NotALedger, "is not an SQLite database"),
        (lambda p: p.write_bytes(b"a,b\n1,2\n" * 5000), NotALedger, "is not an SQLite database"),
        (lambda p: p.write_bytes(random.Random(1).randbytes(9999)), NotALedger, "not an SQLite"),
        (foreign, NotALedger, "is an SQLite database but not a privet ledger"),
        (other_application, NotALedger, "not a privet ledger"),
        (
            lambda p: edit(p, "PRAGMA user_version=9"),
            NotALedger,
            "format 9, this privet reads 1 to 2",
        ),
        (lambda p: edit(p, "DROP TABLE head"), LedgerError, "no such table"),
        (lambda p: p.write_bytes(p.read_bytes()[:5000]), LedgerTampered, "damaged"),
    ],
)
def test_each_wrong_file_has_its_own_line(
    path: Path, spoil: Callable[[Path], object], kind: type[PrivetError], message: str
) -> None:
    spoil(path)
    with pytest.raises(kind, match=message) as caught:
        Ledger.open(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_create_never_overwrites(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="is already there"):
        Ledger.create(path, cap_epsilon=1.0, cap_delta=1e-5)
    with pytest.raises(LedgerError, match="is already there"):
        Ledger.create(path.parent, cap_epsilon=1.0, cap_delta=1e-5)
    with pytest.raises(LedgerError, match="cannot be created: No such file"):
        Ledger.create(path.parent / "no" / "l.db", cap_epsilon=1.0, cap_delta=1e-5)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["ledger.db"]


def test_create_does_not_adopt_the_log_of_a_deleted_ledger(path: Path) -> None:
    path.rename(path.with_name("ledger.db-wal"))
    with pytest.raises(LedgerError, match=r"ledger\.db-wal of an earlier database"):
        Ledger.create(path, cap_epsilon=1.0, cap_delta=1e-5)


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "büdget ?mode=ro#1 %20.db"
    Ledger.create(path, cap_epsilon=1.0, cap_delta=1e-5)
    Ledger.open(str(path)).charge(Gaussian(mu=0.1), what="größe ≤ 3 \N{PILE OF POO}\n\0")
    assert Ledger.open(path).entries()[0].what == "größe ≤ 3 \N{PILE OF POO}\n\0"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_locked_file_says_so(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    ledger = Ledger.open(path, timeout=0.1)
    assert ledger.spent() > 0  # readers do not wait for a writer
    with pytest.raises(LedgerLocked, match=r"after 0\.1 s; let it finish"):
        ledger.charge(Gaussian(mu=0.1), what="x")
    holder.execute("ROLLBACK")
    holder.close()
    ledger.charge(Gaussian(mu=0.1), what="x")


@pytest.mark.slow
def test_a_short_lock_is_waited_for(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, holder.execute, ["ROLLBACK"])
    timer.start()
    Ledger.open(path, timeout=20.0).charge(Gaussian(mu=0.1), what="x")
    timer.join()
    holder.close()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="file modes and fork")
def test_a_read_only_file_or_folder_says_so() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder, path = Path(name), Path(name) / "ledger.db"
        Ledger.create(path, cap_epsilon=3.0, cap_delta=1e-5)
        for folder_mode, file_mode in ((0o777, 0o444), (0o555, 0o666), (0o777, 0), (0o666, 0o666)):
            path.chmod(file_mode)
            folder.chmod(folder_mode)
            message = _as_nobody(path)
            folder.chmod(0o777)
            assert message.startswith("LedgerError: ledger ")
            assert "read-only" in message or "cannot be opened" in message
            assert "\n" not in message
        path.chmod(0o666)
        assert _as_nobody(path) == "charged"


def _as_nobody(path: Path) -> str:
    """The error of a charge by a user without rights of root, from a child process."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            Ledger.open(path).charge(Gaussian(mu=0.1), what="x")
            text = "charged"
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        os.write(writable, text.encode())
        os._exit(0)
    os.close(writable)
    os.waitpid(child, 0)
    with os.fdopen(readable) as pipe:
        return pipe.read()


UNLOCK = ("DROP TRIGGER entries_stay", "DROP TRIGGER entries_remain", "DROP TRIGGER terms_stay")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "entry"),
    [
        ("UPDATE entries SET body = replace(body, 'release 1', 'release X') WHERE sequence = 2", 2),
        ("UPDATE entries SET body = replace(body, '\"mu\":0.2', '\"mu\":0.1') WHERE sequence=3", 3),
        ("UPDATE entries SET hash = 'x' WHERE sequence = 1", 1),
        ("UPDATE entries SET body = NULL WHERE sequence = 1", None),
        ("UPDATE entries SET body = 7 WHERE sequence = 4", 4),
        ("DELETE FROM entries WHERE sequence = 2", 2),
        ("DELETE FROM entries WHERE sequence = 4", 4),
        ("DELETE FROM entries", 1),
        ("UPDATE entries SET sequence = 9 WHERE sequence = 4", 4),
        ("INSERT INTO entries SELECT 5, body, hash FROM entries WHERE sequence = 4", 5),
        ("UPDATE head SET count = 3", 4),
        ("UPDATE head SET hash = 'x'", None),
        ("DELETE FROM head", None),
        ("UPDATE terms SET body = replace(body, '3.0', '9.0')", 1),
        ("UPDATE terms SET body = 'x'", None),
        ("DELETE FROM terms", None),
    ],
)
def test_an_edit_is_reported_with_its_entry(path: Path, statement: str, entry: int | None) -> None:
    open_before = Ledger.open(path)
    try:
        edit(path, *UNLOCK, statement)
    except sqlite3.IntegrityError:  # NOT NULL held
        return
    with pytest.raises(LedgerTampered) as caught:
        Ledger.open(path)
    assert caught.value.entry == entry
    with pytest.raises(LedgerTampered):
        open_before.verify()


def test_the_tables_refuse_edits(path: Path) -> None:
    for statement in (
        "UPDATE entries SET body = 'x'",
        "DELETE FROM entries",
        "UPDATE terms SET body = 'x'",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=r"append-only|are fixed"):
            edit(path, statement)
    edit(path, UNLOCK[0])
    with pytest.raises(LedgerTampered, match="triggers"):
        Ledger.open(path).verify()


def test_a_ledger_that_went_back_in_time_is_noticed_by_who_saw_it(path: Path) -> None:
    old = path.with_name("old.db")
    shutil.copy(path, old)
    ledger = Ledger.open(path)
    noted = ledger.charge(Gaussian(mu=0.2), what="the fifth").hash
    shutil.copy(old, path)
    with pytest.raises(LedgerTampered, match="speaks of 4 entries, its chain of 5"):
        ledger.charge(Gaussian(mu=0.2), what="the fifth, again")
    # a newcomer cannot know, unless the head was noted
    newcomer = Ledger.open(path)
    newcomer.verify()
    with pytest.raises(LedgerTampered, match="noted head"):
        newcomer.verify(head=noted)


def test_a_noted_head_may_be_an_earlier_one(path: Path) -> None:
    ledger = Ledger.open(path)
    hashes = [ledger.export()["genesis"], *(e.hash for e in ledger.entries())]
    assert [ledger.verify(head=h).since for h in hashes] == [4, 3, 2, 1, 0]
    assert ledger.verify().since is None


def test_the_export_can_be_checked_without_privet(path: Path) -> None:
    exported = json.loads(json.dumps(Ledger.open(path).export()))

    def sha256(value: object) -> str:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    head = sha256(exported["terms"])
    assert head == exported["genesis"]
    for number, entry in enumerate(exported["entries"], start=1):
        assert entry["sequence"] == number
        assert entry["previous"] == head
        head = sha256({k: v for k, v in entry.items() if k != "hash"})
        assert entry["hash"] == head
    assert head == exported["head"]
    assert exported["count"] == 4


@pytest.mark.slow
def test_a_flipped_bit_is_reported_or_changes_nothing(path: Path, tmp_path: Path) -> None:
    """Every byte of every row is covered; elsewhere a flip is reported or without any effect.

    Rows are terms, head and entries. For the rest of the file (page and record headers, the schema,
    free space) the claim is: verify raises a LedgerError, or the export is the same to the byte.
    """
    pristine = path.read_bytes()
    exported = Ledger.open(path).export()
    connection = sqlite3.connect(path)
    texts = [
        text.encode()
        for table, column in (("terms", "body"), ("head", "hash"), ("entries", "body"))
        for (text,) in connection.execute(f"SELECT {column} FROM {table}")
    ]
    texts += [h.encode() for (h,) in connection.execute("SELECT hash FROM entries")]
    connection.close()
    covered: set[int] = set()
    for text in texts:
        assert text in pristine
        where = pristine.find(text)
        while where >= 0:
            # the hash of entry 4 is also the head's; stale copies in free space do not count
            covered.update(range(where, where + len(text)))
            where = pristine.find(text, where + 1)
    rng = random.Random(0)
    rest = [i for i in range(len(pristine)) if i not in covered]
    victim = tmp_path / "victim.db"

    def reported(position: int) -> bool:
        spoilt = bytearray(pristine)
        spoilt[position] ^= 1 << rng.randrange(8)
        victim.write_bytes(spoilt)
        for suffix in ("-wal", "-shm", "-journal"):
            victim.with_name(victim.name + suffix).unlink(missing_ok=True)
        try:
            opened = Ledger.open(victim, timeout=0.0)
            opened.verify()
        except LedgerError as e:
            return "\n" not in str(e)
        assert opened.export() == exported
        return False

    assert len(covered) > 1500
    missed = [i for i in sorted(covered) if not reported(i)]
    assert missed == []
    sample = [*range(100), *rng.sample(rest, 800)]
    assert any(not reported(i) for i in sample)  # free space: nothing to report
