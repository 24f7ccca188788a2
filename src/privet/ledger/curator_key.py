"""The curator's key: under it the same data have the same name in every run, and none for others.

A fingerprint of records without a key would let anybody confirm a guess of a record. Under a key
that one person keeps it tells that person alone which runs and ledgers are about the same data.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from privet._atomic_files import replacing
from privet.errors import InvalidArgument, MissingFile

VARIABLE = "PRIVET_CURATOR_KEY"
PREFIX = "hmac-sha256:"


@final
@dataclass(frozen=True)
class CuratorKey:
    """32 secret bytes, and a public name for them.

    >>> key = CuratorKey(bytes(32))
    >>> key.identify("sha256:ab") == key.identify("sha256:ab") != key.identify("sha256:ac")
    True
    """

    secret: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Which key it is, for records: a hash of it, from which it cannot be found."""
        return hashlib.sha256(b"privet curator key" + self.secret).hexdigest()[:16]

    def identify(self, fingerprint: str) -> str:
        """The identity of data with this fingerprint, for whoever has the key."""
        return PREFIX + hmac.new(self.secret, fingerprint.encode(), hashlib.sha256).hexdigest()


def key_path() -> Path:
    """Where the key of this user lies: $PRIVET_CURATOR_KEY, or in the user's own settings."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "privet/curator.key"


def make_key(path: Path) -> CuratorKey:
    """A new key in a file that no other user can read; an existing file is never touched."""
    key = CuratorKey(secrets.token_bytes(32))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with replacing(draft, mode=0o600) as file:  # for the owner alone
        file.write(key.secret.hex().encode() + b"\n")
    try:
        os.link(draft, path)  # whole or not at all, and never over another one
    except FileExistsError:
        raise InvalidArgument(
            "key", str(path), "a place without a key", "a new key would give all data new names"
        ) from None
    finally:
        draft.unlink()
    return key


def read_key(path: Path) -> CuratorKey:
    """Read the key that is in a file."""
    if not path.is_file():
        raise MissingFile(path, "`privet ledger key` makes a curator's key, once")
    try:
        secret = bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise InvalidArgument("key", str(path), "a file with 64 hexadecimal digits")
    return CuratorKey(secret)


def is_identity(dataset: str | None) -> bool:
    """Whether a data set's name is one that a curator's key gave."""
    return dataset is not None and dataset.startswith(PREFIX)
