"""Settings of a method as words: the options of a command, and what config.json keeps of them."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from enum import Enum
from typing import Annotated, Any

import typer

from privet.errors import InvalidArgument
from privet.methods.catalogue import method_type


def parameters_of(kind: type[Any]) -> list[inspect.Parameter]:
    """A keyword parameter for every field that a command line can give."""
    hints = typing.get_type_hints(kind, include_extras=False)
    return [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_shown(f),
            annotation=Annotated[
                _typed(hints[f.name]), typer.Option(help=f.metadata.get("help", ""))
            ],
        )
        for f in optional_fields(kind)
    ]


def optional_fields(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    """The fields of a method that are options."""
    return [f for f in dataclasses.fields(kind) if f.metadata.get("option", True)]


def given_settings(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    """What was given, as the fields want it."""
    hints = typing.get_type_hints(kind)
    return {f.name: _read(f.name, hints[f.name], given[f.name]) for f in optional_fields(kind)}


def _typed(hint: Any) -> Any:
    """The type that the command line reads: words for enums, and lists with commas between."""
    parts = [p for p in options_of(hint) if p is not type(None)]
    plain = parts[0] if len(parts) == 1 else str
    if isinstance(plain, type) and issubclass(plain, Enum):
        plain = str
    if typing.get_origin(plain) in (tuple, list):
        plain = str
    if isinstance(plain, types.GenericAlias) or plain not in (int, float, bool, str):
        plain = str
    return plain | None if len(parts) < len(options_of(hint)) else plain


def _shown(f: dataclasses.Field[Any]) -> Any:
    default = f.default
    if f.default_factory is not dataclasses.MISSING:
        default = f.default_factory()
    if isinstance(default, Enum):
        return default.value
    return ",".join(map(str, default)) if isinstance(default, tuple) else default


def _read(name: str, hint: Any, value: Any) -> Any:
    option = f"--{name.replace('_', '-')}"
    if not isinstance(value, str):
        return value
    for part in options_of(hint):
        if isinstance(part, type) and issubclass(part, Enum):
            allowed = [member.value for member in part]
            if value not in allowed:
                raise InvalidArgument(option, value, f"one of {', '.join(map(str, allowed))}")
            return from_plain(hint, value)
        if typing.get_origin(part) in (tuple, list):
            numbers = typing.get_args(part)[0]
            try:
                return tuple(numbers(v) for v in value.split(",") if v)
            except ValueError:
                raise InvalidArgument(option, value, "numbers with commas between") from None
    return value


def method_of(name: str, settings: dict[str, Any], **more: Any) -> Any:
    """A method from its name and settings as config.json has them."""
    kind = method_type(name)
    hints = typing.get_type_hints(kind)
    given = {k: from_plain(hints[k], v) for k, v in settings.items() if k in hints}
    return kind(**given, **more)


def from_plain(hint: Any, value: Any) -> Any:
    """A setting from JSON: enums by their value, lists as tuples."""
    if value is None:
        return None
    for part in options_of(hint):
        if isinstance(part, type) and issubclass(part, Enum):
            return part(value)
    return tuple(value) if isinstance(value, list) else value


def options_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)
