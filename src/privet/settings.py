"""Fields of a dataclass as settings: options of a command, arguments of an estimator, JSON.

A field is described once, by `setting`. Methods, their ways of reading files and the papers'
experiments all have their options from it.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Annotated, Any

from privet.errors import InvalidArgument


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str = "",
    option: bool | str = True,
    least: float | None = None,
    among: Iterable[str] = (),
    picks: bool = False,
) -> Any:
    """A field with its line of help.

    - `option`: False keeps it from the command line; a text is its name there, if that is not the
      field's (`epsilon` for one of several `epsilons`);
    - `least`: the smallest value; `among`: the words allowed. Of each, where there are several;
    - `picks`: it decides which cells of an experiment are run, and nothing about any of them.
    """
    metadata = {
        "help": help, "option": option, "least": least, "among": tuple(among), "picks": picks,
    }  # fmt: skip
    if callable(default) and not isinstance(default, type | Enum):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def check_settings(settings: Any) -> None:
    """Refuse values that are below the least or not among the words of their fields."""
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        least, among = f.metadata.get("least"), f.metadata.get("among")
        for one in value if isinstance(value, tuple) else (value,):
            if least is not None and not least <= one:
                raise InvalidArgument(_option_name(f), one, f"at least {least:g}")
            if among and one not in among:
                raise InvalidArgument(_option_name(f), one, f"one of {'; '.join(among)}")


def option_fields(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    """The fields that a command line can give."""
    return [f for f in dataclasses.fields(kind) if f.metadata.get("option", True) is not False]


def option_parameters(kind: type[Any], *, defaults: bool = True) -> list[inspect.Parameter]:
    """A keyword parameter for typer for every field that is an option.

    With `defaults` it shows the field's own, and several values have commas between. Without, it is
    None unless given, an option of several values is repeated, and only fields with help are
    options: what is not given comes from elsewhere.
    """
    import typer

    hints = typing.get_type_hints(kind)
    parameters = []
    for f in option_fields(kind):
        if not defaults and "help" not in f.metadata:
            continue
        annotation = _option_type(hints[f.name]) if defaults else _repeated_type(hints[f.name])
        name = f"--{_option_name(f).replace('_', '-')}"
        words = () if _option_name(f) == f.name else (name,)
        option = typer.Option(*words, help=f.metadata.get("help", ""))
        parameters.append(
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default_text(f) if defaults else None,
                annotation=Annotated[annotation, option],
            )
        )
    return parameters


def settings_from_options(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """What a command line gave, as the fields want it."""
    hints = typing.get_type_hints(kind)
    return {f.name: _from_text(f, hints[f.name], values[f.name]) for f in option_fields(kind)}


def settings_from_json(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as config.json has them, as the fields want them; unknown ones are left out."""
    hints = typing.get_type_hints(kind)
    return {name: _from_json(hints[name], v) for name, v in values.items() if name in hints}


def add_settings(cls: type[Any], kind: type[Any]) -> None:
    """Give a class, which is about to become a dataclass, the fields of another as its own."""
    own = inspect.get_annotations(cls)
    for f in dataclasses.fields(kind):
        own[f.name] = f.type
        if f.default_factory is not dataclasses.MISSING:
            setattr(cls, f.name, dataclasses.field(default_factory=f.default_factory))
        else:
            default = None if f.default is dataclasses.MISSING else f.default
            # scikit-learn wants words
            setattr(cls, f.name, default.value if isinstance(default, Enum) else default)
    cls.__annotations__ = own


def _option_name(f: dataclasses.Field[Any]) -> str:
    option = f.metadata.get("option")
    return option if isinstance(option, str) and option else f.name


def _option_type(hint: Any) -> Any:
    """The type that the command line reads: words for enums, and lists with commas between."""
    parts = [p for p in _members(hint) if p is not type(None)]
    plain = parts[0] if len(parts) == 1 else str
    if plain not in (int, float, bool, str):
        plain = str
    return plain | None if len(parts) < len(_members(hint)) else plain


def _repeated_type(hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return list[typing.get_args(hint)[0]] | None  # type: ignore[misc]
    return hint | None


def _default_text(f: dataclasses.Field[Any]) -> Any:
    default = f.default
    if f.default_factory is not dataclasses.MISSING:
        default = f.default_factory()
    if isinstance(default, Enum):
        return default.value
    return ",".join(map(str, default)) if isinstance(default, tuple) else default


def _from_text(f: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    option = f"--{_option_name(f).replace('_', '-')}"
    for part in _members(hint):
        if isinstance(part, type) and issubclass(part, Enum):
            allowed = [member.value for member in part]
            if value not in allowed:
                raise InvalidArgument(option, value, f"one of {', '.join(map(str, allowed))}")
            return part(value)
        if typing.get_origin(part) in (tuple, list):
            number = typing.get_args(part)[0]
            try:
                return tuple(number(v) for v in value.split(",") if v)
            except ValueError:
                raise InvalidArgument(option, value, "numbers with commas between") from None
    return value


def _from_json(hint: Any, value: Any) -> Any:
    """Enums by their value, lists as tuples."""
    if value is None:
        return None
    for part in _members(hint):
        if isinstance(part, type) and issubclass(part, Enum):
            return part(value)
    return tuple(value) if isinstance(value, list) else value


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)
