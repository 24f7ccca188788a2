"""How a bug is planted: a function, a method or a property gives another result than it did."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

Patch = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[pytest.MonkeyPatch], object]


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A planted bug: what it is, of which kind, how it is planted, and what must notice it."""

    bug: str
    kind: str
    plant: Patch
    check: Check
    """Passes on the library as it is, and fails by an assertion when the bug is planted."""
    seen_by: str
    """The kind of test that the check is."""


def wrapped(owner: Any, name: str, change: Callable[..., Any]) -> Patch:
    """Replace what has this name by `change(original, *arguments)`.

    `owner` is a class, of whose properties the original is the getter, or the module where a
    function is written: it is replaced in every module that imported it.
    """

    def plant(patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)
        if isinstance(original, property):
            getter = original.fget
            patch.setattr(owner, name, property(lambda self: change(getter, self)))
            return

        def replacement(*a: Any, **k: Any) -> Any:
            return change(original, *a, **k)

        places = [(owner, name)]
        if isinstance(owner, ModuleType):
            places = [
                (module, attribute)
                for module in list(sys.modules.values())
                if module.__name__.split(".")[0] in ("privet", "privet_papers", "papers", "tests")
                for attribute, value in list(vars(module).items())
                if value is original
            ]
        for place, attribute in places:
            patch.setattr(place, attribute, replacement)

    return plant


def both(*plants: Patch) -> Patch:
    """Several changes that are one bug."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for one in plants:
            one(patch)

    return plant


def notices(check: Check, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a check fails as a property does, by an assertion: any other error is a crash."""
    try:
        check(monkeypatch)
    except (AssertionError, pytest.fail.Exception):
        return True
    return False
