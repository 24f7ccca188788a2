"""Training methods, one folder each, and the contract that a method of your own keeps to.

What a method is written with is imported from here, on first use, so that a list of names never
waits for numpy: `from privet.methods import Method, Plan, setting`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet.data.records import PublicFacts, Records
    from privet.guarantee import Premise
    from privet.methods.contract import (
        Files,
        InputFeatures,
        Method,
        Model,
        Plan,
        ReleaseContext,
        setting,
    )
    from privet.methods.contract_checks import check_method
    from privet.methods.feasibility import Signal
    from privet.methods.neighbouring_pairs import (
        NeighbouringPair,
        lone_record_pair,
        worst_unit_pair,
    )
    from privet.methods.released_models import EnsembleModel, LinearModel, NetworkModel

_MODULES = {
    "privet.methods.contract_checks": ("check_method",),
    "privet.data.records": ("PublicFacts", "Records"),
    "privet.guarantee": ("Premise",),
    "privet.methods.feasibility": ("Signal",),
    "privet.methods.neighbouring_pairs": (
        "NeighbouringPair",
        "lone_record_pair",
        "worst_unit_pair",
    ),
    "privet.methods.released_models": ("EnsembleModel", "LinearModel", "NetworkModel"),
}

__all__ = [
    "EnsembleModel",
    "Files",
    "InputFeatures",
    "LinearModel",
    "Method",
    "Model",
    "NeighbouringPair",
    "NetworkModel",
    "Plan",
    "Premise",
    "PublicFacts",
    "Records",
    "ReleaseContext",
    "Signal",
    "check_method",
    "lone_record_pair",
    "setting",
    "worst_unit_pair",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'privet.methods' has no attribute {name!r}")
    place = next((m for m, names in _MODULES.items() if name in names), "privet.methods.contract")
    return getattr(import_module(place), name)
