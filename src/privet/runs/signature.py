"""A signature under a record, by an ordinary key file.

Ed25519, because anybody can check it with the public key alone; a keyed hash (HMAC) would need the
secret on both sides. The key is a PEM file (`openssl genpkey -algorithm ed25519 -out key.pem`) or
one of OpenSSH (`ssh-keygen -t ed25519`), without a passphrase. What is signed is the canonical JSON
of the record without its signature.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privet._files import canonical
from privet.errors import InvalidArgument, MissingFile
from privet.runs.record import Record

_EXPECTED = "an Ed25519 key in PEM or OpenSSH form, without a passphrase"


def sign(record: Mapping[str, Any], key: Path) -> Record:
    """The record with a signature by the private key in a file."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text, found = _read(key), None
    for load in (serialization.load_pem_private_key, serialization.load_ssh_private_key):
        try:
            found = load(text, password=None)
            break
        except (ValueError, TypeError):
            continue
    if not isinstance(found, Ed25519PrivateKey):
        raise InvalidArgument("key", str(key), _EXPECTED)
    whole = {k: v for k, v in record.items() if k != "signature"}
    return {
        **whole,
        "signature": {
            "algorithm": "Ed25519",
            "public_key": _text(found.public_key().public_bytes_raw()),
            "value": _text(found.sign(canonical(whole))),
        },
    }


def signature_problem(record: Mapping[str, Any], public: Path | None) -> str | None:
    """What is wrong with the signature: nothing if there is none and no key was given."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    told = record.get("signature")
    if told is None:
        return None if public is None else "the record is not signed"
    try:
        raw = base64.b64decode(told["public_key"])
        whole = {k: v for k, v in record.items() if k != "signature"}
        Ed25519PublicKey.from_public_bytes(raw).verify(
            base64.b64decode(told["value"]), canonical(whole)
        )
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return "the signature is not one of this record"
    if public is not None and raw != public_key(public):
        return "the record was signed with another key than the one given"
    return None


def public_key(path: Path) -> bytes:
    """The 32 bytes of the public key in a file."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    text = _read(path)
    for load in (serialization.load_pem_public_key, serialization.load_ssh_public_key):
        try:
            found = load(text)
        except (ValueError, TypeError):
            continue
        if isinstance(found, Ed25519PublicKey):
            return found.public_bytes_raw()
    raise InvalidArgument("key", str(path), "a public Ed25519 key in PEM or OpenSSH form")


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise MissingFile(path, f"expected {_EXPECTED}")
    return path.read_bytes()


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
