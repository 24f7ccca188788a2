"""The terms of a ledger: its cap, neighbours, unit and data, fixed when it is created."""

from __future__ import annotations

import functools
import getpass
import json
import os
import socket
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, final

from privet import accounting as losses
from privet._canonical_json import canonical_json
from privet._check import Checked, checked, delta_or_zero, positive_or_infinite
from privet.accounting import PrivacyLoss, compose
from privet.errors import InvalidArgument, LedgerTampered
from privet.guarantee import Adjacency, Protects, Unit, number_to_json
from privet.ledger.charge_scope import PER_RECORD, Scope
from privet.ledger.sub_caps import SubCap, check_each_once


def check_text(name: str, value: Any) -> str:
    """Refuse what is not a text, or an empty one."""
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
    """The user and the host of this process, as user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


@functools.lru_cache(maxsize=4096)  # a long ledger repeats few losses
def restore_loss(body: bytes) -> PrivacyLoss:
    """The loss behind its canonical JSON; equal bodies share one object."""
    return losses.from_dict(json.loads(body))


def loss_to_compose(loss: PrivacyLoss) -> PrivacyLoss:
    """The same loss under the relation that losses of several relations are composed in."""
    common = loss.adjacency.of_losses
    if loss.adjacency is common:
        return loss
    parts: list[Any] = list(loss.parts)
    return compose([replace(part, adjacency=common) for part in parts], adjacency=common)


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
    sub_caps: tuple[SubCap, ...] = ()
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
        sub_caps: Iterable[SubCap] = (),
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
            dataset=None if dataset is None else check_text("dataset", dataset),
            sub_caps=check_each_once(sub_caps),
            identity=uuid.uuid4().hex,
            created=utc_now(),
            who=whoami(),
            version=privet_version(),
        )

    def accept(self, loss: PrivacyLoss, scope: Scope | None) -> tuple[PrivacyLoss, bytes]:
        """The loss as it will be read back, so that what is checked is what is kept."""
        if not isinstance(loss, PrivacyLoss):
            raise InvalidArgument("loss", loss, "a PrivacyLoss", "see privet.accounting")
        if scope is None:
            scope = replace(PER_RECORD, unit=self.unit, protects=self.protects)
        if not isinstance(scope, Scope):
            raise InvalidArgument("scope", scope, "a Scope", "such as Scope(unit=Unit.USER)")
        scope.check(loss, adjacency=self.adjacency, unit=self.unit, protects=self.protects)
        cost = canonical_json(loss.to_dict())
        stored = restore_loss(cost)
        if canonical_json(stored.to_dict()) != cost:
            raise InvalidArgument("loss", loss, "a loss that survives to_dict and from_dict")
        return stored, cost

    def body(self) -> bytes:
        """What is stored, and hashed as the start of the chain."""
        return canonical_json(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping, the one that was hashed."""
        part = {} if self.protects is Protects.RECORD else {"protects": self.protects.value}
        shares = {"sub_caps": [c.to_dict() for c in self.sub_caps]} if self.sub_caps else {}
        return {**part, **shares} | {
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
                sub_caps=tuple(SubCap(**cap) for cap in d.get("sub_caps", ())),
                identity=d["identity"],
                created=d["created"],
                who=d["who"],
                version=d["version"],
            )
        except (ValueError, TypeError, KeyError) as e:
            raise LedgerTampered(ledger, "its terms are damaged", "restore a copy") from e
