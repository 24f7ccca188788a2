"""How a bug is planted where no function can be wrapped: by a changed copy of its source."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
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


def rewritten(owner: Any, name: str, *pairs: tuple[str, str]) -> Patch:
    """Put a copy of a function in its place in which some text is another.

    `owner` is the class it belongs to, or the module that uses it. Each text must occur once: where
    it is gone, the code went elsewhere, and the bug must be planted there.
    """

    def plant(patch: pytest.MonkeyPatch) -> None:
        found = inspect.getattr_static(owner, name)
        function = found.fget if isinstance(found, property) else found
        function = inspect.unwrap(getattr(function, "__func__", function))
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in pairs:
            assert source.count(old) == 1, f"{name}: {source.count(old)} times: {old}"
            source = source.replace(old, new)
        made: dict[str, Any] = {}
        flags = __future__.annotations.compiler_flag
        code = compile(source, f"<planted in {name}>", "exec", flags=flags)
        exec(code, function.__globals__, made)
        patch.setattr(owner, name, made[name])

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
