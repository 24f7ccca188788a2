"""A plan made again from what a run's config says: no record is needed, only public facts.

Whoever checks a record has the model and its config, not the data. A plan is a function of settings
and public facts, so the method's own statement can be made again and held against the record's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from privet.data.domain import Rows
from privet.data.records import PublicFacts
from privet.errors import PrivetError
from privet.methods.catalogue import method_type
from privet.methods.constant_fallback import ConstantPlan
from privet.settings import settings_from_json

if TYPE_CHECKING:
    from privet.methods.contract import Method, Plan


class NotReplannable(PrivetError):
    """The config does not hold all that the plan was made of; the message says what is missing."""


def plan_inputs(method: Method[Any], plan: Plan) -> dict[str, Any]:
    """What a plan was made of besides the settings, JSON-ready, for config.json and the model."""
    public = method.public_inputs_field
    inputs = None if public is None else getattr(method, public)
    return {
        "facts": plan.facts.to_dict(),
        **({"constant": True} if isinstance(plan, ConstantPlan) else {}),
        "public_inputs": None if inputs is None else len(inputs),
        "objects": [
            f.name
            for f in fields(method)  # type: ignore[arg-type]
            if f.metadata.get("option", True) is False
            and f.name not in (public, *method.unplanned_fields)
            and not _is_default(f, getattr(method, f.name))
        ],
    }


def plan_again(config: Mapping[str, Any]) -> Plan:
    """The plan of a run from its config, by the method that is installed here.

    Raises `NotReplannable` where it was made with objects that no config holds, or by another
    version of the method.
    """
    inputs = config.get("plan_inputs")
    if inputs is None:
        raise NotReplannable("the model does not say what its plan was made of")
    if inputs["objects"]:
        raise NotReplannable(f"the method was given {', '.join(inputs['objects'])}")
    try:
        kind = method_type(config["method"])
        facts = PublicFacts.from_dict(inputs["facts"])
        if inputs.get("constant"):
            return ConstantPlan(facts=facts)
        settings = settings_from_json(kind, config["settings"])
        if kind.public_inputs_field is not None and inputs["public_inputs"] is not None:
            n = inputs["public_inputs"]
            settings[kind.public_inputs_field] = Rows(  # a plan asks only how many there are
                values=np.zeros((n, *facts.shape), dtype=np.float32), kind=facts.kind,
                null=np.zeros(n, dtype=bool),
            )  # fmt: skip
        plan: Plan = kind(**settings).plan(facts)
    except (PrivetError, TypeError, ValueError, KeyError) as e:
        raise NotReplannable(
            f"the {config.get('method')} installed here makes no such plan: {e}"
        ) from None
    return plan


def _is_default(field: Any, value: Any) -> bool:
    if field.default is not MISSING:
        return value is field.default or (isinstance(value, tuple) and value == field.default)
    return field.default_factory is not MISSING and value == field.default_factory()
