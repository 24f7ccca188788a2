"""The errors privet raises: one line each, with the offending data as attributes."""

from __future__ import annotations

from typing import Any


class PrivetError(Exception):
    """Base of every error privet raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """So that an error comes back whole from a worker process; large facts as their text."""
        plain = (str, int, float, type(None))
        facts = {k: v if isinstance(v, plain) else repr(v) for k, v in self.__dict__.items()}
        return _again, (type(self), self.args, facts)


def _again(kind: type[PrivetError], args: tuple[Any, ...], facts: dict[str, Any]) -> PrivetError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidArgument(PrivetError, ValueError):
    """An argument outside its domain.

    >>> raise InvalidArgument("delta", 1.5, "a number in (0, 1)")
    Traceback (most recent call last):
    ...
    privet.errors.InvalidArgument: delta must be a number in (0, 1), got 1.5
    """

    def __init__(self, name: str, value: Any, expected: str, hint: str = "") -> None:
        self.name, self.value, self.expected, self.hint = name, value, expected, hint
        shown = repr(value)
        if len(shown) > 60:
            shown = shown[:57] + "..."
        super().__init__(f"{name} must be {expected}, got {shown}" + (f"; {hint}" if hint else ""))


class MissingFile(PrivetError, FileNotFoundError):
    """A file that was named is not there."""

    def __init__(self, path: Any, hint: str = "") -> None:
        self.path, self.hint = path, hint
        super().__init__(f"no such file: {path}" + (f"; {hint}" if hint else ""))


class Incomparable(PrivetError, TypeError):
    """Two guarantees that speak of different neighbours, units or protected things."""

    def __init__(self, first: Any, second: Any, what: str) -> None:
        self.first, self.second, self.what = first, second, what
        super().__init__(
            f"cannot combine or compare {what}: {first} with {second}; convert one explicitly first"
        )


class BudgetExceeded(PrivetError):
    """A charge would pass the cap; nothing was spent."""

    def __init__(self, *, cap_epsilon: float, would_be: float, delta: float, what: str) -> None:
        self.cap_epsilon, self.would_be, self.delta, self.what = cap_epsilon, would_be, delta, what
        super().__init__(
            f"{what!r} would bring the total to epsilon {would_be:.6g} at delta {delta:.3g}, "
            f"over the cap of {cap_epsilon:.6g}; nothing was spent"
        )


class Unattainable(PrivetError):
    """No setting within the searched range meets the target."""


class LedgerError(PrivetError):
    """Something is wrong with a ledger file."""

    def __init__(self, path: Any, problem: str, hint: str = "") -> None:
        self.path, self.problem, self.hint = path, problem, hint
        super().__init__(f"ledger {path}: {problem}" + (f"; {hint}" if hint else ""))


class NotALedger(LedgerError):
    """The file is there but it is not a privet ledger."""


class LedgerLocked(LedgerError):
    """Another process holds the ledger for longer than we waited."""


class LedgerTampered(LedgerError):
    """The hash chain does not close: something was changed, removed or reordered.

    `entry` is the number of the first entry that is wrong, or None when it is not an entry.
    """

    def __init__(
        self, path: Any, problem: str, hint: str = "", *, entry: int | None = None
    ) -> None:
        self.entry = entry
        super().__init__(path, problem, hint)


class TokenReused(LedgerError):
    """A token that was charged before came back with another loss or data set."""
