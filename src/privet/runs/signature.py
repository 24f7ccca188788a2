"""A signature under a record, by an ordinary key file.

Ed25519, because anybody can check it with the public key alone; a keyed hash (HMAC) would need the
secret on both sides. The key is a PEM file (`openssl genpkey -algorithm ed25519 -out key.pem`) or
one of OpenSSH (`ssh-keygen -t ed25519`), without a passphrase. What is signed is the canonical JSON
of the record with all of its signature but the value.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from privet._canonical_json import canonical_json
from privet.errors import InvalidArgument, MissingFile
from privet.runs.guarantee_record import GuaranteeRecord

RELEASE = "release"
"""How the status of a record, and what it was signed as, call what may be published."""
_EXPECTED = "an Ed25519 key in PEM or OpenSSH form, without a passphrase"


@final
@dataclass(frozen=True, kw_only=True)
class Signature:
    """Who signed a record, as what and when, and what is wrong with that."""

    public_key: str = ""
    """Empty where there is no signature."""
    signed_as: str = ""
    date: str = ""
    name: str = ""
    by_named_key: bool = False
    """Whether it holds, and the key is the one that the caller named."""
    problems: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any] | None:
        """A JSON-ready mapping; None where nobody signed."""
        if not self.public_key:
            return None
        return {
            "public_key": self.public_key, "as": self.signed_as, "date": self.date,
            "name": self.name, "known": self.by_named_key,
        }  # fmt: skip


UNSIGNED = Signature()


def sign(record: Mapping[str, Any], key: Path, *, name: str = "") -> GuaranteeRecord:
    """The record with a signature by the private key in a file.

    What is signed is the record with who signs, when, and as what: an experiment stays one.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text, found = _read(key), None
    for load in (serialization.load_pem_private_key, serialization.load_ssh_private_key):
        try:
            found = load(text, password=None)
            break
        except (TypeError, UnsupportedAlgorithm, ValueError):
            continue
    if not isinstance(found, Ed25519PrivateKey):
        raise InvalidArgument("key", str(key), _EXPECTED, "to sign takes the private half")
    whole = {k: v for k, v in record.items() if k != "signature"}
    about = {
        "algorithm": "Ed25519",
        "public_key": _text(found.public_key().public_bytes_raw()),
        "as": RELEASE if record["status"] == RELEASE else "experiment",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "name": name,
    }
    value = _text(found.sign(canonical_json({**whole, "signature": about})))
    return {**whole, "signature": {**about, "value": value}}


def read_signature(record: Mapping[str, Any], public: Path | None) -> Signature:
    """The signature of a record, checked; with `public`, against the key in that file."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature = record.get("signature")
    if signature is None:
        problems = () if public is None else ("the record is not signed",)
        return Signature(problems=problems)
    try:
        raw = base64.b64decode(signature["public_key"], validate=True)
        about = {k: v for k, v in signature.items() if k != "value"}
        Ed25519PublicKey.from_public_bytes(raw).verify(
            base64.b64decode(signature["value"], validate=True),
            canonical_json({**record, "signature": about}),
        )
        signed_as, date, name = (str(about[k]) for k in ("as", "date", "name"))
    except (AttributeError, InvalidSignature, KeyError, TypeError, ValueError):
        return Signature(
            public_key="invalid", problems=("the signature is not one of this record",)
        )
    wrong = []
    if (signed_as == RELEASE) != (record["status"] == RELEASE):
        wrong.append(f"the record is {record['status']!r}, and was signed as {signed_as!r}")
    if record.get("date") and date[:19] < record["date"][:19]:
        wrong.append(f"the record has the date {record['date']}, and was signed before: {date}")
    if public is not None and raw != public_key(public):
        wrong.append("the record was signed with another key than the one given")
    return Signature(
        public_key=signature["public_key"], signed_as=signed_as, date=date, name=name,
        by_named_key=public is not None and not wrong, problems=tuple(wrong),
    )  # fmt: skip


def public_key(path: Path) -> bytes:
    """The 32 bytes of the public key in a file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    text = _read(path)
    for load in (serialization.load_pem_public_key, serialization.load_ssh_public_key):
        try:
            found = load(text)
        except (TypeError, UnsupportedAlgorithm, ValueError):
            continue
        if isinstance(found, Ed25519PublicKey):
            return found.public_bytes_raw()
    expected = "a public Ed25519 key in PEM or OpenSSH form"
    hint = "to verify takes the public half: openssl pkey -in PRIVATE -pubout -out PUBLIC"
    raise InvalidArgument("key", str(path), expected, hint)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise MissingFile(path, f"expected {_EXPECTED}")
    return path.read_bytes()


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
