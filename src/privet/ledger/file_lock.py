"""One spender at a time: an exclusive lock on the file itself, whatever it is called.

SQLite locks bytes of the file (POSIX), which has two holes. Its write-ahead log is named after the
*path*, so that one file under two names has two logs that never meet. And a process loses all its
POSIX locks on a file when it closes *any* descriptor of it, as a thread that reads the file does.
`flock` has neither: it belongs to the open file description, hence to the inode, and nothing but
its own unlock or the end of all its holders releases it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from privet.errors import LedgerError, LedgerLocked, LedgerTampered, MissingFile, NotALedger

if os.name == "posix":
    import fcntl

WRITABLE = "a ledger and its folder must be readable and writable, even to look at it"
_FOLDER = "mount its folder instead, so that its log is shared as well"


@contextlib.contextmanager
def whole_file(path: Path, timeout: float) -> Iterator[Callable[[], None]]:
    """Hold the file at `path` alone, from before SQLite opens it until after it closes it.

    What is yielded is to be called before a commit: it raises when the name came to mean another
    file, or the file got another name, meanwhile.

    The caller makes sure that no other connection of this process is open meanwhile: closing our
    descriptor would drop its POSIX locks. The lock is given back by name, not by closing, so that a
    child that a fork gave a copy of the descriptor cannot keep it.
    """
    descriptor = _opened(path)
    try:
        _locked(path, descriptor, timeout)
        try:

            def check() -> None:
                _refuse_moved(path, descriptor)
                _refuse_other_names(path, descriptor)

            check()
            yield check
        finally:
            if os.name == "posix":
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise NotALedger(path, "is a directory", "name the ledger file in it")
        if not stat.S_ISREG(mode):
            raise NotALedger(path, "is not an ordinary file")
        if not os.access(path, os.R_OK | os.W_OK):
            # SQLite would go on and leave files behind that lock out those who may write
            raise LedgerError(path, "is read-only for you", WRITABLE)
        return os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise MissingFile(path, "start one with Ledger.create or `privet ledger init`") from None
    except OSError as e:
        raise LedgerError(path, f"cannot be opened: {e.strerror}") from None


def _locked(path: Path, descriptor: int, timeout: float) -> None:
    if os.name != "posix":  # on Windows SQLite's own locks belong to the handle
        return
    # looking twice as rarely each time, up to half of the 40 ms that one charge takes (measured),
    # costs a waiting process next to nothing
    deadline, pause = time.monotonic() + timeout, 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LedgerLocked(
                    path,
                    f"still locked by another process after {timeout:g} s",
                    "let it finish, or wait longer with timeout=",
                ) from None
        except OSError as e:
            raise LedgerError(
                path, f"cannot be locked here: {e.strerror}", "keep it on a local disk"
            ) from None
        time.sleep(pause)
        pause = min(2.0 * pause, 0.02)


def _refuse_other_names(path: Path, descriptor: int) -> None:
    """One file, one name: what a killed process left in its log is found by that name only."""
    links = os.fstat(descriptor).st_nlink
    if links > 1:
        raise LedgerError(
            path,
            f"has {links} names (hard links), and each would have its own log",
            "keep one and remove the others; Ledger.backup makes copies",
        )
    if not hasattr(os, "O_PATH"):  # a single file can be mounted on Linux only
        return
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        mounts = _mount(descriptor), _mount(folder)
    finally:
        os.close(folder)
    if None not in mounts and mounts[0] != mounts[1]:
        raise LedgerError(path, "is mounted as a single file under a second name", _FOLDER)


def _mount(descriptor: int) -> str | None:
    """The number of the mount that an open file is on; None where /proc does not tell."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}") as lines:
            return next((line for line in lines if line.startswith("mnt_id:")), None)
    except OSError:
        return None


def _refuse_moved(path: Path, descriptor: int) -> None:
    """The name must still mean the file that is locked."""
    held = os.fstat(descriptor)
    try:
        named = path.stat()
    except OSError:
        raise LedgerTampered(path, "was moved or removed while it was in use") from None
    if (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
        raise LedgerTampered(path, "was replaced by another file while it was in use")
