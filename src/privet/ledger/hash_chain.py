"""The hash chain of a ledger: what an entry is, and the walk that proves each one unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, final

from privet._canonical_json import canonical_json, sha256_hex
from privet.accounting import PrivacyLoss
from privet.accounting.incremental_composition import IncrementalComposition
from privet.errors import LedgerError, LedgerTampered, PrivetError, TokenReused
from privet.guarantee import number_to_json
from privet.ledger.charge_scope import Scope
from privet.ledger.curator_key import is_identity
from privet.ledger.sub_caps import SubCap
from privet.ledger.terms import Terms, loss_to_compose, restore_loss


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
        return canonical_json(self.loss.to_dict())

    @property
    def loss_to_compose(self) -> PrivacyLoss:
        """Its loss as it is composed with others."""
        return loss_to_compose(self.loss)

    def body(self) -> bytes:
        """What is stored and hashed: the canonical JSON of every field but `hash`."""
        return canonical_json({k: v for k, v in self.to_dict().items() if k != "hash"})

    @classmethod
    def seal(cls, **fields: Any) -> Entry:
        """An entry with its hash computed from all other fields."""
        draft = cls(**fields, hash="")
        return replace(draft, hash=sha256_hex(draft.body()))

    @classmethod
    def from_body(cls, body: bytes) -> Entry:
        """Read back what `body` wrote; its hash is computed, not believed."""
        d = json.loads(body)
        return cls(
            sequence=d["sequence"],
            what=d["what"],
            loss=restore_loss(canonical_json(d["loss"])),
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
            hash=sha256_hex(body),
        )


@final
@dataclass(frozen=True, kw_only=True)
class TokenUse:
    """What a token stands for: the entry, and the cost and data it was charged for."""

    sequence: int
    loss: bytes
    scope: Scope | None
    dataset: str | None

    @classmethod
    def of(cls, entry: Entry) -> TokenUse:
        """Note what the token of an entry stands for from now on."""
        return cls(
            sequence=entry.sequence,
            loss=entry.cost,
            scope=entry.scope,
            dataset=entry.dataset,
        )


@final
@dataclass
class ChainWalk:
    """A walk along the chain: how far it came, and what the entries so far compose to.

    `head` starts as the hash of the terms; entry t is accepted when its body hashes to its hash and
    names the hash before it, so one walk proves every earlier byte unchanged.
    """

    ledger: str
    head: str
    composition: IncrementalComposition
    """What the entries so far compose to."""
    count: int = 0
    seeded: int = 0
    """How many charges were for noise from a seed."""
    tokens: dict[str, TokenUse] = field(default_factory=dict)
    identities: set[str] = field(default_factory=set)
    """The data that were charged for, as curators' keys name them."""
    by_sub_cap: dict[SubCap, list[PrivacyLoss]] = field(default_factory=dict)
    """What counts against each sub-cap."""

    @classmethod
    def start(cls, ledger: str, genesis: str, terms: Terms) -> ChainWalk:
        """Begin a walk that stands before the first entry."""
        composition = IncrementalComposition(
            adjacency=terms.adjacency.of_losses, delta=terms.cap_delta, cap=terms.cap_epsilon
        )
        return cls(
            ledger=ledger, head=genesis, composition=composition,
            identities={name for name in (terms.dataset,) if name and is_identity(name)},
            by_sub_cap={cap: [] for cap in terms.sub_caps},
        )  # fmt: skip

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
                self.composition.add(entry.loss_to_compose)
            self.count, self.head = self.count + len(entries), head
            self.seeded += sum(e.scope is not None and e.scope.secret is False for e in entries)
            self.tokens.update((e.token, TokenUse.of(e)) for e in entries if e.token is not None)
            named = (e.dataset for e in entries if e.dataset is not None)
            self.identities.update(filter(is_identity, named))
            for cap, losses in self.by_sub_cap.items():
                losses += [
                    e.loss_to_compose for e in entries if cap.covers(who=e.who, purpose=e.purpose)
                ]
        return entries

    def find_token(
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
        if sha256_hex(body).encode() != stored:
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
