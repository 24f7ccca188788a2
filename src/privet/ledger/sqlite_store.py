"""Where a ledger's rows live: one SQLite database, in a file or in memory."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, final

from privet import _check
from privet.errors import LedgerError, LedgerLocked, LedgerTampered, NotALedger
from privet.ledger.file_lock import WRITABLE, whole_file

Row = tuple[Any, Any, Any]

APPLICATION_ID = 0x70767431  # "pvt1"
BACKUP_ID = 0x70767462  # "pvtb": reads like a ledger, takes no charge
FORMAT = 2
"""2 since entries say what they are about; files of format 1 become 2 with their next charge."""

SCHEMA = (
    "CREATE TABLE terms (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL)",
    "CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL,"
    " hash TEXT NOT NULL)",
    "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TRIGGER terms_stay BEFORE UPDATE ON terms"
    " BEGIN SELECT RAISE(ABORT, 'the terms of a ledger are fixed'); END",
    "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries"
    " BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "CREATE TRIGGER entries_remain BEFORE DELETE ON entries"
    " BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
)

# Held while any connection of this process is open, and across a fork: SQLite's own bookkeeping of
# locks must never be copied into a child half-way through. It also keeps threads apart.
GUARD = threading.RLock()
if os.name == "posix":
    os.register_at_fork(
        before=GUARD.acquire, after_in_parent=GUARD.release, after_in_child=GUARD.release
    )


class Store(Protocol):
    """A place for the rows of one ledger."""

    @property
    def name(self) -> str:
        """What messages call this store."""

    def transaction(self, *, write: bool) -> AbstractContextManager[sqlite3.Connection]:
        """One transaction: committed and durable when left, undone on any error."""


@final
class MemoryStore:
    """A ledger that ends with its process; a forked child or a pickled copy may not use it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        self._connection.text_factory = bytes

    def __del__(self) -> None:
        self._connection.close()

    @property
    def name(self) -> str:
        return "in memory"

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        if os.getpid() != self._process:
            raise LedgerError(
                self.name,
                "belongs to the process that made it; a copy would be a second budget",
                "use Ledger.create(path) to share one between processes",
            )
        with GUARD, _begin(self._connection, write=write):
            yield self._connection


@final
class FileStore:
    """A ledger in a file: a connection lives only as long as one transaction, and is alone.

    So a fork never inherits one, and between charges the write-ahead log is folded back: the file
    is whole by itself unless a process is at work or was killed at work. `file_lock` says why the
    whole file is held, readers included.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path, self.timeout = path, _check.non_negative("timeout", timeout)

    @property
    def name(self) -> str:
        return str(self.path)

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        with (
            GUARD,
            whole_file(self.path, self.timeout) as still_this_file,
            _translated(self.path, self.timeout),
        ):
            connection = connect(self.path, self.timeout)
            try:
                connection.execute("PRAGMA synchronous=FULL")
                with _begin(connection, write=write, patience=self.timeout):
                    _check_format(connection, self.path, write=write)
                    yield connection
                    still_this_file()
            finally:
                connection.close()


def connect(path: Path, timeout: float) -> sqlite3.Connection:
    """An existing database; SQLite itself waits up to `timeout` for a lock."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=timeout
    )
    connection.text_factory = bytes  # damaged text must reach the hash check, not fail to decode
    return connection


def write_new(connection: sqlite3.Connection, terms: bytes, genesis: str) -> None:
    """The rows of a ledger without entries; to be run in a write transaction."""
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={FORMAT}")
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute("INSERT INTO terms VALUES (1, ?)", (terms.decode("ascii"),))
    connection.execute("INSERT INTO head VALUES (1, 0, ?)", (genesis,))


def create_file(path: Path, terms: bytes, genesis: str) -> None:
    """A new ledger file, whole or not at all; an existing file is never touched."""

    def fill(connection: sqlite3.Connection) -> None:
        with _begin(connection, write=True):
            write_new(connection, terms, genesis)

    _new_file(path, fill)


def copy_file(source: sqlite3.Connection, path: Path, *, backup: bool) -> None:
    """The database behind `source`, in whose transaction we are, as a new file at `path`."""

    def fill(connection: sqlite3.Connection) -> None:
        source.backup(connection)
        connection.execute(f"PRAGMA application_id={BACKUP_ID if backup else APPLICATION_ID}")

    _new_file(path, fill)


def _new_file(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    left_over = next((p for p in beside if p.exists()), None)
    if left_over is not None:
        raise LedgerError(
            path,
            f"{left_over.name} of an earlier database is still there",
            "bring its database back or move it away",
        )
    try:
        # 0o666 less the umask: as any new file
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        raise LedgerError(
            path, "is already there", "open it with Ledger.open, or choose another name"
        ) from None
    except OSError as e:
        raise LedgerError(path, f"cannot be created: {e.strerror}") from None
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with GUARD, _translated(path, 0.0):
            connection = sqlite3.connect(draft, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                fill(connection)
            finally:
                connection.close()
        os.chmod(draft, path.stat().st_mode)
        _flush(draft)
        os.replace(draft, path)
        _flush(path.parent)
    except BaseException:
        for p in (draft, path):
            p.unlink(missing_ok=True)
        raise


def read_terms(connection: sqlite3.Connection, ledger: str) -> bytes:
    """The canonical JSON that the chain starts from."""
    rows = connection.execute("SELECT id, body FROM terms").fetchall()
    if len(rows) != 1 or rows[0][0] != 1 or not isinstance(rows[0][1], bytes):
        raise LedgerTampered(ledger, "its terms are damaged", "restore a copy")
    return rows[0][1]


def read_head(connection: sqlite3.Connection, ledger: str) -> tuple[int, str]:
    """The number of entries and the last hash, as written with the last charge."""
    rows = connection.execute("SELECT id, count, hash FROM head").fetchall()
    if len(rows) == 1 and rows[0][0] == 1:
        _, count, hash = rows[0]
        if isinstance(count, int) and isinstance(hash, bytes):
            return count, _text(hash)
    raise LedgerTampered(ledger, "its head is damaged", "restore a copy")


def read_rows(connection: sqlite3.Connection, first: int, last: int | None = None) -> list[Row]:
    """Entries `first` to `last` (or to the end) in order: sequence, body, hash."""
    if last is None:
        return connection.execute(
            "SELECT sequence, body, hash FROM entries WHERE sequence >= ? ORDER BY sequence",
            (first,),
        ).fetchall()
    return connection.execute(
        "SELECT sequence, body, hash FROM entries WHERE sequence BETWEEN ? AND ? ORDER BY sequence",
        (first, last),
    ).fetchall()


def append(connection: sqlite3.Connection, sequence: int, body: bytes, hash: str) -> None:
    """One more entry and the head that goes with it, in the caller's transaction."""
    connection.execute(
        "INSERT INTO entries VALUES (?, ?, ?)", (sequence, body.decode("ascii"), hash)
    )
    connection.execute("UPDATE head SET count = ?, hash = ?", (sequence, hash))


def damage(connection: sqlite3.Connection) -> str | None:
    """What SQLite itself finds wrong, or a change to the tables and triggers; None when sound."""
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found is None or found[0] != b"ok":
        return f"SQLite says: {_text(found[0]) if found else 'nothing'}".replace("\n", " ")
    rows = connection.execute("SELECT sql FROM sqlite_schema ORDER BY rowid").fetchall()
    if tuple(_text(sql) for (sql,) in rows) != SCHEMA:
        return "its tables or triggers are not those of a ledger"
    return None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _begin(connection: sqlite3.Connection, *, write: bool, patience: float = 0.0) -> Iterator[None]:
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # the snapshot
            break
        except sqlite3.OperationalError as e:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            # a closing last connection or a recovery may answer "busy" without waiting for us
            if _code(e) not in _BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.002)  # short beside the 40 ms that one charge takes
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_backup(connection: sqlite3.Connection) -> bool:
    """Whether the file was made by `copy_file(backup=True)`."""
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == BACKUP_ID)


def _check_format(connection: sqlite3.Connection, path: Path, *, write: bool) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application == BACKUP_ID and write:
        raise LedgerError(
            path,
            "is a backup, which takes no charges",
            "charge the ledger itself, or bring it back with Ledger.restore",
        )
    if application not in (APPLICATION_ID, BACKUP_ID):
        empty = path.stat().st_size == 0
        raise NotALedger(
            path,
            "is empty" if empty else "is an SQLite database but not a privet ledger",
            "remove it and start one with `privet ledger init`" if empty else "",
        )
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (1, FORMAT):
        raise NotALedger(
            path, f"has ledger format {version}, this privet reads 1 to {FORMAT}", "upgrade"
        )
    if write and version != FORMAT:
        connection.execute(f"PRAGMA user_version={FORMAT}")


_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


def _code(error: sqlite3.Error) -> int:
    """The primary result code; 0 for errors of the Python module itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@contextlib.contextmanager
def _translated(path: Path, timeout: float) -> Iterator[None]:
    """SQLite's errors as one line each that says what to do."""
    try:
        yield
    except sqlite3.Error as e:
        code = _code(e)
        if code in _BUSY:
            raise LedgerLocked(
                path,
                f"still locked by another process after {timeout:g} s",
                "let it finish, or wait longer with timeout=",
            ) from e
        if code == sqlite3.SQLITE_NOTADB:
            raise NotALedger(path, "is not an SQLite database") from e
        if code == sqlite3.SQLITE_READONLY:
            raise LedgerError(path, "is read-only", WRITABLE) from e
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise LedgerError(path, "cannot be opened", WRITABLE) from e
        if code == sqlite3.SQLITE_CORRUPT:
            raise LedgerTampered(path, f"is damaged ({e})", "restore a copy") from e
        raise LedgerError(path, f"SQLite says: {' '.join(str(e).split())}") from e
    except UnicodeDecodeError as e:  # SQLite quotes damaged text in its message
        raise LedgerTampered(path, "is damaged (text that is not UTF-8)", "restore a copy") from e
