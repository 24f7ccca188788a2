"""PATE of volumes conforms on maps as far apart as can be; every method is found by its name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import privet.methods
from privet.methods import neighbour_replay
from privet.methods.catalogue import method_names, method_type
from privet.methods.contract import Method

pytestmark = pytest.mark.slow  # importing MONAI takes seconds


def test_it_conforms_and_is_no_word_of_a_command() -> None:
    pytest.importorskip("monai")
    method = method_type("pate-of-volumes").for_audit()
    plan = method.plan(neighbour_replay.small_facts(method))
    worst = method.neighbours(plan)
    assert neighbour_replay.replay(method, plan, worst).problems() == []
    assert neighbour_replay.charge_problems(method, plan, worst.present) == []
    assert method.name not in method_names()


def _kinds(of: type) -> Iterator[type]:
    for kind in of.__subclasses__():
        yield from ((kind,) if kind.__module__.startswith("privet.methods") else ())
        yield from _kinds(kind)


def test_a_methods_name_finds_that_method() -> None:
    """What `audit` and `predict` go by: a run keeps the name of the method that trained it."""
    for module in pkgutil.walk_packages(privet.methods.__path__, "privet.methods."):
        importlib.import_module(module.name)
    kinds = [k for k in _kinds(Method) if not inspect.isabstract(k)]
    assert {"dpsgd", "pate", "pate-of-volumes", "residual"} <= {k.name for k in kinds}
    assert [k for k in kinds if method_type(k.name) is not k] == []
