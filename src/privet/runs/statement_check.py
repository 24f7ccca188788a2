"""A record against the model's own config, and against the statement that its method makes again.

The model's header says what the plan was made of (`methods.replan`), so the plan, and with it unit,
neighbours, theorem and premises, follow without the data. What is held against each other are two
files: somebody who rewrites both is noticed by the ledger, or by a signature.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, final

from privet import premises
from privet.accounting import PrivacyLoss
from privet.guarantee import WEAKEST_FIRST, Guarantee, Premise, Standing
from privet.methods.replan import NotReplannable, plan_again
from privet.methods.train_method import state_guarantee
from privet.noise import secure, seeded
from privet.runs.guarantee_record import (
    DELTAS,
    GUARANTEE,
    GuaranteeRecord,
    consequences,
    loss_of,
    made_by,
)
from privet.runs.run_folder import DECLARATION, PUBLIC_TARGET

CLOSE = 1e-9
"""How far a recomputed epsilon may be from the stated one, on another processor."""
CLOSE_CURVES = 1e-3
"""How far a curve may lie below another: the same parts are composed in another order, perhaps by
another version, and far out on the curve accountants give away more or less."""
CALLED = {"fingerprint": "data", "ledger": "ledger", "head": "ledger head",
          "declaration": DECLARATION}  # fmt: skip
"""What an officer calls the names in a model's header."""
STATED = ("unit", "adjacency", "protects", "standing", "delta", "theorem")
"""What a guarantee says besides its epsilon and its premises."""


@final
@dataclass
class Findings:
    """What does not fit, and what could not be looked at; checks add to it."""

    problems: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    def differs(self, name: str, states: Any, other: Any, where: str) -> None:
        """A field of the record that something else contradicts."""
        self.problems.append(
            f"{GUARANTEE} states {name} {_brief(states)}, {where} says {_brief(other)}"
        )


def check_statement(
    record: GuaranteeRecord, config: Mapping[str, Any], found: Findings, *, trusted: bool
) -> None:
    """Hold the record against the config in the model's header, and the method's statement.

    Where another version of privet made the record, words may differ: then only premises that are
    missing or are called better known than they are count, and not even these where the record is
    `trusted`, signed by a key that the caller named.
    """
    found.problems += schema_problems(record)
    stated, loss = Guarantee.from_dict(record["guarantee"]), loss_of(record)
    _check_origin(record, config, found)
    if loss is None:
        if "origin" in config:
            found.problems.append(f"{GUARANTEE} has no loss, as in version 1; its model is newer")
        found.not_checked.append("what it cost: the record is of version 1 and has no loss")
        return
    same = is_same_software(record)
    if same:
        _check_consequences(record, stated, loss, found)
    else:
        here, there = made_by(), record["made_by"]
        found.not_checked.append(
            f"the words of the record: privet {there.get('privet')} ({there.get('commit')}) made "
            f"it, here is {here.get('privet')} ({here.get('commit')})"
        )
    _check_config(record, stated, config, found)
    try:
        plan = plan_again(config)
        again = state_guarantee(plan, loss, seeded(0) if _is_seeded(config) else secure())
    except NotReplannable as e:
        found.not_checked.append(f"the statement of the method: {e}")
        found.problems += _against_vocabulary(
            stated, by_method=config.get("plan_inputs") is not None
        )
        return
    for name in STATED:
        mine, theirs = getattr(stated, name), getattr(again, name)
        if mine != theirs and (same or name != "theorem"):
            found.differs(name, mine, theirs, "the method")
    wrong = _against_premises(stated.premises, again.premises, words=same)
    (found.not_checked if trusted and not same else found.problems).extend(wrong)
    planned = plan.loss.epsilon(stated.delta)
    cost = loss.epsilon(stated.delta)
    # parts of a schedule may compose in another order
    if cost < planned * (1.0 - 1e-6) or falls_below(loss, plan.loss, record):
        if config.get("stopped_early"):
            found.not_checked.append("how many steps were made: only the ledger tells")
        else:
            worse = f"{planned:.6g} and its curve"
            found.differs("a loss of epsilon", cost, worse, "the plan of the method")
    claim = None if plan.claim is None else plan.claim.to_dict()
    if same and record["claim"] != claim:
        found.differs("claim", record["claim"], claim, "the method")


def is_same_software(record: GuaranteeRecord) -> bool:
    """Whether the privet that runs here made the record."""
    mine = made_by()
    return all(record["made_by"].get(k) == mine.get(k) for k in ("privet", "commit"))


def falls_below(loss: PrivacyLoss, due: PrivacyLoss, record: GuaranteeRecord) -> bool:
    """Whether a loss promises more than it should anywhere on the curve, not at one delta alone."""
    if loss.to_dict() == due.to_dict():
        return False
    deltas = {*DELTAS, record["guarantee"]["delta"]}
    return any(loss.epsilon(d) < due.epsilon(d) * (1.0 - CLOSE_CURVES) for d in deltas)


def _check_origin(record: GuaranteeRecord, config: Mapping[str, Any], found: Findings) -> None:
    """Run, data, ledger and software against the names in the model's header."""
    origin = config.get("origin")
    if origin is None:
        found.not_checked.append("which training made this model: its header does not say")
        return
    account = record["ledger"] or {}
    mine = {
        "made_by": record["made_by"], "fingerprint": record["data"]["fingerprint"],
        "declaration": record["files"].get(DECLARATION),
        "run": record["run"], "ledger": account.get("identity"), "head": account.get("head"),
    }  # fmt: skip
    for name, value in origin.items():
        if mine[name] != value:
            found.differs(CALLED.get(name, name), mine[name], value, "the model")


def _is_seeded(config: Mapping[str, Any]) -> bool:
    return config.get("noise") == "seeded" or config.get("seed") is not None


def _check_consequences(
    record: GuaranteeRecord, stated: Guarantee, loss: PrivacyLoss, found: Findings
) -> None:
    """What the record says in words follows from its guarantee."""
    for name, value in consequences(stated, loss).items():
        part = record[name]
        if name in ("curve", "mechanism"):
            part = {k: part.get(k) for k in value}
        if part != value:
            found.problems.append(
                f"{GUARANTEE}: {name} is not what follows from its guarantee: {_brief(part)}"
            )


def _check_config(
    record: GuaranteeRecord, stated: Guarantee, config: Mapping[str, Any], found: Findings
) -> None:
    """The record against what the model says of its own training."""
    domain = dict(record["domain"])
    told = {k: domain.pop(k) for k in PUBLIC_TARGET if k in domain}
    pairs = (
        ("method", record["mechanism"]["method"], config.get("method")),
        ("settings", record["mechanism"]["settings"], config.get("settings")),
        ("plan", record["mechanism"]["plan"], config.get("plan")),
        ("domain", domain, config.get("domain")),
        *((k, v, config.get(k)) for k, v in told.items()),
        ("data", record["data"]["name"], config.get("data")),
        ("delta", stated.delta, config.get("delta")),
    )
    for name, mine, theirs in pairs:
        if mine != theirs:
            found.differs(name, mine, theirs, "the model")
    facts = (config.get("plan_inputs") or {}).get("facts")
    if facts is not None and record["data"]["records"] != facts["records"]:
        found.differs("records", record["data"]["records"], facts["records"], "the model")
    key = next((p for p in stated.premises if p.about == premises.SECRET_SEED.about), None)
    if _is_seeded(config) and key != premises.SECRET_SEED:
        found.differs("noise key", None if key is None else key.text, "a seed", "the model")


def _against_premises(
    stated: tuple[Premise, ...], again: tuple[Premise, ...], *, words: bool
) -> Iterator[str]:
    """Premises that are missing, are told to be better known, or say something else."""
    mine = {p.about: p for p in stated}
    for due in again:
        p = mine.pop(due.about, None)
        if p is None:
            yield f"{GUARANTEE} lacks the premise about {due.about}: {due.text} ({_how(due)})"
        elif WEAKEST_FIRST.index(p.backing) > WEAKEST_FIRST.index(due.backing):
            yield f"{GUARANTEE} calls the premise about {p.about} {_how(p)}, it is {_how(due)}"
        elif words and p != due and p.backing is due.backing:  # to admit more is honest
            yield (
                f"{GUARANTEE} words the premise about {p.about} as {_brief(p.text)}, the method "
                f"as {_brief(due.text)}"
            )
    if words:
        for p in mine.values():
            yield f"{GUARANTEE} has a premise about {p.about} that its method does not state"


def _against_vocabulary(stated: Guarantee, *, by_method: bool) -> Iterator[str]:
    """Where no plan can be made: every premise of ours with its own backing.

    What all methods rest on must be there, where one `by_method` was trained; what a method words
    for itself is not known here.
    """
    known, best = _vocabulary(), dict[str, Premise]()
    for due in known.values():
        better = best.setdefault(due.about, due)
        if WEAKEST_FIRST.index(due.backing) > WEAKEST_FIRST.index(better.backing):
            best[due.about] = due
    for p in stated.premises:
        own = known.get(p.text, best.get(p.about))  # in other words it is known no better
        if own is not None and WEAKEST_FIRST.index(p.backing) > WEAKEST_FIRST.index(own.backing):
            yield f"{GUARANTEE} calls the premise about {p.about} {_how(p)}, it is {_how(own)}"
    for about in ("noise key", "settings", "preparation", "people", "rows") if by_method else ():
        if stated.standing is Standing.PROVED and all(p.about != about for p in stated.premises):
            yield f"{GUARANTEE} lacks a premise about {about}, on which every guarantee rests"


@cache
def _vocabulary() -> dict[str, Premise]:
    return {p.text: p for p in vars(premises).values() if isinstance(p, Premise)}


def schema_problems(record: GuaranteeRecord) -> Iterator[str]:
    """Fields and words that no record has: whoever reads the JSON could take them for its own."""
    schema = files("privet.report").joinpath("guarantee.schema.json").read_text(encoding="utf-8")
    whole = json.loads(schema)
    return _unknown(record, whole, whole["$defs"], "")


def _unknown(value: Any, schema: Any, shared: Any, where: str) -> Iterator[str]:
    """What the schema does not name, in objects whose fields it lists, and in lists of words."""
    if "$ref" in schema:
        schema = shared[schema["$ref"].rsplit("/", 1)[-1]]
    for option in schema.get("oneOf", ()):
        if "properties" in option and isinstance(value, dict):
            schema = option
    if isinstance(value, dict) and "properties" in schema:
        for name, part in value.items():
            if name in schema["properties"]:
                yield from _unknown(part, schema["properties"][name], shared, f"{where}{name}.")
            elif not schema.get("additionalProperties"):
                yield f"{GUARANTEE} has a field {where + name!r} that no record has"
    elif isinstance(value, list):
        for part in value:
            yield from _unknown(part, schema.get("items", {}), shared, where)
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{GUARANTEE} says {where[:-1]} {_brief(value)!r}, which no record says"


def _how(premise: Premise) -> str:
    return premise.backing.value


def _brief(value: Any) -> str:
    """A value in a line, not too long."""
    shown = getattr(value, "value", value)
    text = f"{shown:.6g}" if isinstance(shown, float) else str(shown)
    return text if len(text) <= 80 else f"{text[:77]}..."
