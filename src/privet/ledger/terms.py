"""What a ledger writes down: terms, what a charge is about, entries; and the chain of hashes."""

from __future__ import annotations

import functools
import getpass
import hashlib
import json
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, final

from privet import loss as losses
from privet._check import Checked, checked, delta_or_zero, positive_or_infinite
from privet._files import canonical
from privet.errors import Incomparable, InvalidArgument, LedgerTampered
from privet.guarantee import Adjacency, Protects, Unit, number_to_json
from privet.loss import PrivacyLoss, compose


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


def priced(loss: PrivacyLoss) -> PrivacyLoss:
    """The same loss under the relation that losses of several relations are composed in."""
    common = loss.adjacency.of_losses
    if loss.adjacency is common:
        return loss
    parts: list[Any] = list(loss.parts)
    return compose([replace(part, adjacency=common) for part in parts], adjacency=common)


@final
@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose contribution a loss bounds, for which neighbours, which part of it, by whose noise.

    A loss is a number of a pair of output laws; it says nothing about users or labels. This does.
    The default is a release about single records, by noise that nobody spoke of.

    >>> Scope(unit=Unit.USER).to_dict()
    {'unit': 'user', 'adjacency': None, 'protects': 'record', 'secret': None}
    """

    unit: Unit = Unit.RECORD
    adjacency: Adjacency | None = None
    """None for that of the loss. Say `ZERO_OUT` where the number of records was counted."""
    protects: Protects = Protects.RECORD
    secret: bool | None = None
    """Whether the noise (and the sampling) has a secret key; False for a seed, None if unknown."""

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise InvalidArgument("unit", self.unit, "a Unit")
        if not isinstance(self.protects, Protects):
            raise InvalidArgument("protects", self.protects, "a Protects")
        if self.adjacency is not None and not isinstance(self.adjacency, Adjacency):
            raise InvalidArgument("adjacency", self.adjacency, "an Adjacency")

    def check(
        self, loss: PrivacyLoss, *, adjacency: Adjacency, unit: Unit, protects: Protects
    ) -> None:
        """Raise unless `loss` in this scope may be charged to a ledger with these terms.

        A ledger for zero-out neighbours takes add-remove losses too, which hold there with the same
        numbers; not the other way round. Units and protected parts must be the same: a bound for
        one record is none for a user, and no conversion is free.
        """
        relation = self.adjacency or loss.adjacency
        if not loss.adjacency.covers(relation):
            raise Incomparable(relation.value, loss.adjacency.value, "adjacency of scope and loss")
        if not relation.covers(adjacency):
            raise Incomparable(adjacency.value, relation.value, "adjacency of ledger and charge")
        if self.unit is not unit:
            raise Incomparable(
                f"per {unit.value}", f"per {self.unit.value}", "unit of ledger and charge"
            )
        if self.protects is not protects:
            raise Incomparable(
                protects.value, self.protects.value, "what ledger and charge protect"
            )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "unit": self.unit.value,
            "adjacency": None if self.adjacency is None else self.adjacency.value,
            "protects": self.protects.value,
            "secret": self.secret,
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Scope:
        """The inverse of `to_dict`."""
        return cls(
            unit=Unit(d["unit"]),
            adjacency=None if d["adjacency"] is None else Adjacency(d["adjacency"]),
            protects=Protects(d["protects"]),
            secret=d["secret"],
        )


PER_RECORD = Scope()


@final
@dataclass(frozen=True, kw_only=True)
class Terms(Checked):
    """What a ledger promises, fixed when it is created: the start of its chain."""

    cap_epsilon: float = checked(positive_or_infinite)
    cap_delta: float = checked(delta_or_zero)
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
        return cls(
            cap_epsilon=cap_epsilon,
            cap_delta=cap_delta,
            adjacency=adjacency,
            unit=unit,
            protects=protects,
            dataset=None if dataset is None else words("dataset", dataset),
            identity=uuid.uuid4().hex,
            created=utc_now(),
            who=whoami(),
            version=privet_version(),
        )

    @property
    def common(self) -> Adjacency:
        """The relation that its losses, of several relations perhaps, are composed in."""
        return self.adjacency.of_losses

    def refuse_other(self, relation: Adjacency, unit: Unit, protects: Protects) -> None:
        """Raise unless a training that promises this may be charged under these terms."""
        right = self.unit is unit and self.protects is protects
        if relation.covers(self.adjacency) and right:
            return
        hint = ""
        if relation is Adjacency.ZERO_OUT and self.adjacency is Adjacency.ADD_REMOVE:
            hint = "declare the number of records (n_public, --n-public) for add-remove"
        raise InvalidArgument(
            "ledger",
            f"one for {self.adjacency.value}, one per {self.unit.value}",
            f"one for {relation.value} neighbours, one per {unit.value}",
            hint,
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

    def against(self, spent: float) -> dict[str, Any]:
        """The cap, and what was spent of it; JSON-ready."""
        cap = {"epsilon": number_to_json(self.cap_epsilon), "delta": self.cap_delta}
        return {"cap": cap, "spent": number_to_json(spent)}

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

    @property
    def cost(self) -> bytes:
        """Its loss as it is written."""
        return canonical(self.loss.to_dict())

    @property
    def priced(self) -> PrivacyLoss:
        """Its loss as it is composed with others."""
        return priced(self.loss)

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
