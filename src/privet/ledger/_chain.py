"""What a ledger writes down, and the hash chain that ties it together."""

from __future__ import annotations

import functools
import getpass
import hashlib
import json
import math
import os
import socket
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, final

from privet import _check
from privet import loss as losses
from privet._files import number_to_json
from privet.errors import InvalidArgument, LedgerError, LedgerTampered, PrivetError, TokenReused
from privet.guarantee import Adjacency, Protects, Unit
from privet.ledger._scope import Scope, priced
from privet.loss import PrivacyLoss
from privet.loss.growing import Growing

PER_RECORD = Scope()


def canonical(value: Any) -> bytes:
    """The one byte string for a JSON value: sorted keys, no spaces, ASCII, no NaN.

    >>> canonical({"b": 1, "a": [0.1, None]})
    b'{"a":[0.1,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(body: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def words(name: str, value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(name, value, "a text that is not empty")
    return value


def utc_now() -> str:
    """This moment, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@functools.cache
def privet_version() -> str:
    """The installed version of privet, or "unknown" when run from a bare source tree."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, needed once

    try:
        return version("privet")
    except PackageNotFoundError:
        return "unknown"


@functools.cache
def whoami() -> str:
    """user@host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


@functools.lru_cache(maxsize=4096)
def restore_loss(body: bytes) -> PrivacyLoss:
    """The loss behind its canonical JSON; equal bodies share one object."""
    return losses.from_dict(json.loads(body))


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a ledger promises, fixed when it is created: the start of its chain."""

    cap_epsilon: float
    cap_delta: float
    adjacency: Adjacency
    unit: Unit
    protects: Protects
    dataset: str | None
    identity: str
    """A random name, so that the chains of two ledgers never meet."""
    created: str
    who: str
    version: str

    @classmethod
    def new(
        cls,
        cap_epsilon: float,
        cap_delta: float,
        adjacency: Adjacency,
        unit: Unit,
        protects: Protects,
        dataset: str | None,
    ) -> Terms:
        """Checked terms, made here and now; `cap_epsilon` may be infinite."""
        if not isinstance(adjacency, Adjacency):
            raise InvalidArgument("adjacency", adjacency, "an Adjacency")
        if not isinstance(unit, Unit):
            raise InvalidArgument("unit", unit, "a Unit")
        if not isinstance(protects, Protects):
            raise InvalidArgument("protects", protects, "a Protects")
        if cap_epsilon != math.inf:
            cap_epsilon = _check.positive("cap_epsilon", cap_epsilon)
        return cls(
            cap_epsilon=cap_epsilon,
            cap_delta=_check.delta_or_zero("cap_delta", cap_delta),
            adjacency=adjacency,
            unit=unit,
            protects=protects,
            dataset=None if dataset is None else words("dataset", dataset),
            identity=uuid.uuid4().hex,
            created=utc_now(),
            who=whoami(),
            version=privet_version(),
        )

    def accepted(self, loss: PrivacyLoss, scope: Scope | None) -> tuple[PrivacyLoss, bytes]:
        """The loss as it will be read back, so that what is checked is what is kept."""
        if not isinstance(loss, PrivacyLoss):
            raise InvalidArgument("loss", loss, "a PrivacyLoss", "see privet.loss")
        own = replace(PER_RECORD, unit=self.unit, protects=self.protects)
        scope = own if scope is None else scope
        if not isinstance(scope, Scope):
            raise InvalidArgument("scope", scope, "a Scope", "such as Scope(unit=Unit.USER)")
        scope.check(loss, adjacency=self.adjacency, unit=self.unit, protects=self.protects)
        cost = canonical(loss.to_dict())
        stored = restore_loss(cost)
        if canonical(stored.to_dict()) != cost:
            raise InvalidArgument("loss", loss, "a loss that survives to_dict and from_dict")
        return stored, cost

    def body(self) -> bytes:
        """What is stored, and hashed as the start of the chain."""
        return canonical(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping, the one that was hashed."""
        part = {} if self.protects is Protects.RECORD else {"protects": self.protects.value}
        return part | {
            "cap_epsilon": number_to_json(self.cap_epsilon),
            "cap_delta": self.cap_delta,
            "adjacency": self.adjacency.value,
            "unit": self.unit.value,
            "dataset": self.dataset,
            "identity": self.identity,
            "created": self.created,
            "who": self.who,
            "version": self.version,
        }

    @classmethod
    def from_body(cls, body: bytes, ledger: str) -> Terms:
        """Read back the canonical JSON of `to_dict`."""
        try:
            d = json.loads(body)
            return cls(
                cap_epsilon=float(d["cap_epsilon"]),
                cap_delta=float(d["cap_delta"]),
                adjacency=Adjacency(d["adjacency"]),
                unit=Unit(d["unit"]),
                protects=Protects(d.get("protects", Protects.RECORD.value)),
                dataset=d["dataset"],
                identity=d["identity"],
                created=d["created"],
                who=d["who"],
                version=d["version"],
            )
        except (ValueError, TypeError, KeyError) as e:
            raise LedgerTampered(ledger, "its terms are damaged", "restore a copy") from e


@final
@dataclass(frozen=True, kw_only=True)
class Entry:
    """One charge: what was released, what it cost, on which data, by whom and when.

    `spent` is epsilon of everything up to and including this entry at the ledger's delta, or a
    little above it: the bound by which the charge was found to be under the cap. `hash` is SHA-256
    of the canonical JSON of all other fields, `previous` among them.
    """

    sequence: int
    what: str
    loss: PrivacyLoss
    scope: Scope | None
    """What the charge is about; None in entries of an older privet, which did not say."""
    spent: float
    run: str | None
    """The training or analysis that this charge is a part of."""
    purpose: str | None = None
    """What that is for."""
    dataset: str | None
    token: str | None
    who: str
    process: int
    when: str
    version: str
    previous: str
    hash: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping: without its "hash", the canonical JSON of it is what was hashed."""
        scope = None if self.scope is None else self.scope.to_dict()
        more = {"scope": scope, "run": self.run, "purpose": self.purpose}
        return {k: v for k, v in more.items() if v is not None} | {
            "sequence": self.sequence,
            "what": self.what,
            "loss": self.loss.to_dict(),
            "spent": number_to_json(self.spent),
            "dataset": self.dataset,
            "token": self.token,
            "who": self.who,
            "process": self.process,
            "when": self.when,
            "version": self.version,
            "previous": self.previous,
            "hash": self.hash,
        }

    def body(self) -> bytes:
        """What is stored and hashed: the canonical JSON of every field but `hash`."""
        return canonical({k: v for k, v in self.to_dict().items() if k != "hash"})

    @classmethod
    def sealed(cls, **fields: Any) -> Entry:
        """An entry with its hash computed from all other fields."""
        draft = cls(**fields, hash="")
        return replace(draft, hash=digest(draft.body()))

    @classmethod
    def from_body(cls, body: bytes) -> Entry:
        """Read back what `body` wrote; its hash is computed, not believed."""
        d = json.loads(body)
        return cls(
            sequence=d["sequence"],
            what=d["what"],
            loss=restore_loss(canonical(d["loss"])),
            scope=Scope.from_dict(d["scope"]) if "scope" in d else None,
            run=d.get("run"),
            purpose=d.get("purpose"),
            spent=float(d["spent"]),
            dataset=d["dataset"],
            token=d["token"],
            who=d["who"],
            process=d["process"],
            when=d["when"],
            version=d["version"],
            previous=d["previous"],
            hash=digest(body),
        )


@final
@dataclass(frozen=True, kw_only=True)
class Charged:
    """What a token stands for: the entry, and the cost and data it was charged for."""

    sequence: int
    loss: bytes
    scope: Scope | None
    dataset: str | None

    @classmethod
    def of(cls, entry: Entry) -> Charged:
        """What its token stands for from now on."""
        return cls(
            sequence=entry.sequence,
            loss=canonical(entry.loss.to_dict()),
            scope=entry.scope,
            dataset=entry.dataset,
        )


@final
@dataclass
class Tally:
    """A walk along the chain: how far it came, and what the entries so far compose to.

    `head` starts as the hash of the terms; entry t is accepted when its body hashes to its hash and
    names the hash before it, so one walk proves every earlier byte unchanged.
    """

    ledger: str
    head: str
    account: Growing
    """What the entries so far compose to."""
    count: int = 0
    seeded: int = 0
    """How many charges were for noise from a seed."""
    tokens: dict[str, Charged] = field(default_factory=dict)

    @classmethod
    def start(cls, ledger: str, genesis: str, terms: Terms) -> Tally:
        """Before the first entry."""
        account = Growing(
            adjacency=terms.adjacency.of_losses, delta=terms.cap_delta, cap=terms.cap_epsilon
        )
        return cls(ledger=ledger, head=genesis, account=account)

    def walk(self, rows: Iterable[tuple[Any, Any, Any]]) -> list[Entry]:
        """Accept further rows (sequence, body, hash), in order, or say which one is wrong."""
        entries: list[Entry] = []
        head = self.head
        for row in rows:
            entry = self._accept(self.count + len(entries) + 1, head, *row)
            head = entry.hash
            entries.append(entry)
        if entries:  # all or nothing: a tally never counts an entry without its loss
            for entry in entries:
                self.account.add(priced(entry.loss))
            self.count, self.head = self.count + len(entries), head
            self.seeded += sum(e.scope is not None and e.scope.secret is False for e in entries)
            self.tokens.update((e.token, Charged.of(e)) for e in entries if e.token is not None)
        return entries

    def charged(
        self, token: str | None, loss: bytes, scope: Scope, dataset: str | None
    ) -> int | None:
        """The entry that `token` was charged with, if it was; it must have been for the same."""
        if token is None or token not in self.tokens:
            return None
        before = self.tokens[token]
        same = (before.loss, before.dataset) == (loss, dataset)
        if not same or before.scope not in (None, scope):
            raise TokenReused(
                self.ledger,
                f"token {token!r} was charged before with another loss, scope or data set",
                "use a new token",
            )
        return before.sequence

    def _accept(self, due: int, head: str, sequence: Any, body: Any, stored: Any) -> Entry:
        if sequence != due:
            raise self._broken(due, f"entry {due} is missing")
        if not isinstance(body, bytes) or not isinstance(stored, bytes):
            raise self._broken(due, f"entry {due} is not text")
        if digest(body).encode() != stored:
            raise self._broken(due, f"entry {due} does not match its hash")
        try:
            entry = Entry.from_body(body)
        except PrivetError as e:
            raise LedgerError(
                self.ledger, f"entry {due} has a loss this privet cannot read ({e})", "upgrade"
            ) from e
        except (ValueError, TypeError, KeyError) as e:
            raise self._broken(due, f"entry {due} is not an entry ({type(e).__name__})") from e
        if entry.sequence != due or entry.previous != head:
            raise self._broken(due, f"entry {due} does not follow the one before it")
        return entry

    def _broken(self, entry: int, problem: str) -> LedgerTampered:
        return LedgerTampered(self.ledger, problem, "restore a copy", entry=entry)
