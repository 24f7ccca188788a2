"""What a method sees of the data: records, their public facts, and the one rule for bad input.

What is wrong with a record never stops a training and never moves another record: a row that is not
finite, or a label that was not declared, is a *null* record. It keeps its place and counts for
nothing, which is what a neighbour under zero-out is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import premises
from privet._check import Checked, checked, count, delta_or_zero, positive
from privet.accounting import gaussian_mu
from privet.data.domain import Array, Domain, RowKind, Rows
from privet.errors import InvalidArgument
from privet.guarantee import Premise, Unit
from privet.sensitivity import UserWeights, user_weights
from privet.sensitivity.user_ids import number_users

LARGEST_EPSILON = 1e6
"""Beyond it nothing is protected, and losses leave the range of float64."""


class UnprotectedDiagnostic(UserWarning):
    """Something exact about single records: for the owner of the data, not for publication."""


@contextmanager
def silence_diagnostics() -> Iterator[None]:
    """Silence `UnprotectedDiagnostic` for records that are made a second time, with features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnprotectedDiagnostic)
        yield


@final
@dataclass(frozen=True, kw_only=True)
class PublicFacts(Checked):
    """All that a plan may look at: sizes and a budget, never records.

    `records` is the number of places. Where it was declared (`declared`), it is nominal, and the
    true number may be a secret (add-remove); where it was counted it is public (zero-out).
    """

    records: int = checked(count)
    features: int
    outputs: int
    epsilon: float = checked(positive)
    delta: float = checked(delta_or_zero)
    shape: tuple[int, ...] = ()
    """Of one row, () for a flat one."""
    declared: bool = True
    unit: Unit = Unit.RECORD
    premises: tuple[Premise, ...] = ()
    """What the records state about themselves."""
    kind: RowKind = RowKind.BOX
    """What is known of every row."""
    users: int | None = None
    """How many users there are, where they have several records and were counted."""
    prior: tuple[float, ...] | None = None
    """The declared share of each class, where classes are to be served alike."""

    @property
    def units(self) -> int:
        """How many there are of what is protected, as far as that is public."""
        return self.records if self.users is None else self.users

    @cached_property
    def mu(self) -> float:
        """The Gaussian release that the budget pays for."""
        return gaussian_mu(self.epsilon, self.delta)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping, from which a plan can be made again without the records."""
        return {
            "records": self.records, "features": self.features, "outputs": self.outputs,
            "epsilon": self.epsilon, "delta": self.delta, "shape": list(self.shape),
            "declared": self.declared, "unit": self.unit.value, "kind": self.kind.value,
            "users": self.users, "premises": [p.to_dict() for p in self.premises],
            **({} if self.prior is None else {"prior": list(self.prior)}),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(
            records=d["records"], features=d["features"], outputs=d["outputs"],
            epsilon=d["epsilon"], delta=d["delta"], shape=tuple(d["shape"]),
            declared=d["declared"], unit=Unit(d["unit"]), kind=RowKind(d["kind"]),
            users=d["users"], premises=tuple(Premise.from_dict(p) for p in d["premises"]),
            prior=tuple(d["prior"]) if "prior" in d else None,
        )  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """What a method sees of the data: rows, targets and, if users have several, whose they are.

    `targets` are class numbers, or numbers in [-1, 1] of one target; those of null records are -1
    and 0. Make one with `with_classes`, `with_numbers` or `without_labels`.
    """

    rows: Rows
    targets: Array = field(repr=False)
    outputs: int
    """Classes, or 1 for a number, or 0 for nothing to predict."""
    groups: NDArray[np.int64] | None = field(default=None, repr=False)
    """The user of each record, numbered."""
    n_public: int | None = None
    premises: tuple[Premise, ...] = ()
    prior: tuple[float, ...] | None = None
    """The declared share of each class, where classes are to be served alike."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def null(self) -> NDArray[np.bool_]:
        """Which places hold a record that counts for nothing."""
        return self.rows.null

    def user_weights(self, share: float = 1.0) -> UserWeights | None:
        """How much each record counts, so that a user weighs at most `share`; None for records."""
        return None if self.groups is None else user_weights(self.groups, share=share)

    def facts(self, *, epsilon: float, delta: float) -> PublicFacts:
        """What may be known of them before anything is paid."""
        if epsilon > LARGEST_EPSILON:
            raise InvalidArgument(
                "epsilon", epsilon, f"at most {LARGEST_EPSILON:g}", "it is no budget"
            )
        n = len(self) if self.n_public is None else count("n_public", self.n_public)
        size = premises.counted_size if self.n_public is None else premises.declared_size
        return PublicFacts(
            records=n,
            features=int(np.prod(self.rows.shape)),
            outputs=self.outputs,
            epsilon=epsilon,
            delta=delta,
            shape=self.rows.shape,
            declared=self.n_public is not None,
            unit=Unit.RECORD if self.groups is None else Unit.USER,
            premises=(size(n), *self.premises),
            kind=self.rows.kind,
            users=self._users(),
            prior=self.prior,
        )

    def _users(self) -> int | None:
        counted = self.groups is not None and self.n_public is None
        return len(np.unique(self.groups)) if counted else None  # type: ignore[arg-type]

    @classmethod
    def with_classes(
        cls,
        x: Array,
        y: Array,
        *,
        domain: Domain,
        classes: Any,
        declared: bool = True,
        groups: Any = None,
        n_public: int | None = None,
        column: str = "groups",
        split: str = "",
        prior: tuple[float, ...] | None = None,
    ) -> Self:
        """Records with labels; `classes` is the sorted public list, `declared` or read from y.

        `column` names where `groups` come from; `split`, how test records were set apart.
        """
        rows, numbers = domain.rows(x), class_numbers(np.asarray(y), classes)
        unknown = np.any((numbers < 0).reshape(len(numbers), -1), axis=1)  # of maps: in any voxel
        if len(numbers) and unknown.all():
            raise InvalidArgument(
                "y", np.asarray(y)[:3].tolist(), f"among the classes {list(classes)[:6]}",
                "no label is one of them",
            )  # fmt: skip
        return cls._of(
            _without(rows, unknown, "a label outside `classes`"),
            np.where((rows.null | unknown).reshape(-1, *[1] * (numbers.ndim - 1)), -1, numbers),
            outputs=len(classes),
            groups=groups,
            n_public=n_public,
            column=column,
            split=split,
            prior=prior,
            stated=(
                domain.premise,
                premises.DECLARED_CLASSES if declared else premises.READ_CLASSES,
            ),
        )

    @classmethod
    def with_numbers(
        cls,
        x: Array,
        y: Array,
        *,
        domain: Domain,
        target_bounds: tuple[float, float],
        groups: Any = None,
        n_public: int | None = None,
        column: str = "groups",
        split: str = "",
    ) -> Self:
        """Records with a number each, brought to [-1, 1] by its declared bounds."""
        rows, y = domain.rows(x), np.asarray(y, dtype=np.float64)
        bad = ~np.isfinite(y)
        scaled = to_unit(np.where(bad, target_bounds[0], y), target_bounds)
        return cls._of(
            _without(rows, bad, "a target that is not finite"),
            np.where(rows.null | bad, 0.0, scaled),
            outputs=1,
            groups=groups,
            n_public=n_public,
            column=column,
            split=split,
            stated=(domain.premise,),
        )

    @classmethod
    def without_labels(
        cls, x: Array, *, domain: Domain, groups: Any = None, n_public: int | None = None
    ) -> Self:
        """Records alone."""
        rows = _without(domain.rows(x), np.zeros(len(x), dtype=bool), "")
        nothing = np.full(len(x), -1)
        return cls._of(
            rows, nothing, outputs=0, groups=groups, n_public=n_public, stated=(domain.premise,)
        )

    @classmethod
    def _of(
        cls,
        rows: Rows,
        targets: Array,
        *,
        outputs: int,
        groups: Any,
        n_public: int | None,
        stated: Sequence[Premise],
        column: str = "groups",
        split: str = "",
        prior: tuple[float, ...] | None = None,
    ) -> Self:
        people = premises.ONE_RECORD_EACH
        numbered = None
        if groups is not None:
            numbered = number_users(groups, records=len(rows))
            people = premises.one_group_each(column)
        return cls(
            rows=rows,
            targets=targets,
            outputs=outputs,
            groups=numbered,
            n_public=n_public,
            prior=prior,
            premises=(
                *stated,
                people,
                premises.OWN_MAP,
                *((premises.split(split),) if split else ()),
            ),
        )


def _without(rows: Rows, wrong: NDArray[np.bool_], what: str) -> Rows:
    """Rows in which these are null too; tells the owner of the data how many there are."""
    bad = int(rows.null.sum())
    more = int((wrong & ~rows.null).sum())
    problems = [f"{bad} with a value that is not finite or not as declared"] if bad else []
    problems += [f"{more} with {what}"] if more else []
    hint = "; fill= declares what a missing number counts as" if bad else ""
    if problems:
        warnings.warn(
            f"{' and '.join(problems)} of {len(rows)} records count for nothing{hint} (exact: for "
            "the owner of the data only)",
            UnprotectedDiagnostic,
            stacklevel=5,
        )
    if not more:
        return rows
    return rows.without(wrong)


def class_list(classes: Any) -> Array:
    """The classes, sorted and each once; at least two.

    >>> class_list(["b", "a", "b"]).tolist()
    ['a', 'b']
    """
    names = np.unique(np.asarray(classes))
    if len(names) < 2:
        raise InvalidArgument("classes", names.tolist(), "at least two; y has only one class in it")
    return names


def to_unit(y: Array, target_bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Numbers in declared bounds, clipped and brought to [-1, 1].

    >>> to_unit(np.array([0.0, 5.0, 99.0]), (0.0, 10.0)).tolist()
    [-1.0, 0.0, 1.0]
    """
    low, high = target_bounds
    return np.asarray(2.0 * (np.clip(y, low, high) - low) / (high - low) - 1.0)


def class_numbers(y: Array, classes: Any) -> NDArray[np.int64]:
    """The place of each label in the sorted list of classes, -1 for a label outside it.

    >>> class_numbers(np.array(["b", "z", "a"]), np.array(["a", "b"])).tolist()
    [1, -1, 0]
    """
    names = np.asarray(classes)
    if names.dtype.kind in "iu" and np.abs(names.astype(np.float64)).max(initial=0.0) >= 2.0**53:
        hint = "one label with a fraction makes all of them floats: declare them as text"
        raise InvalidArgument("classes", names.tolist(), "whole numbers below 2**53", hint)
    place = np.searchsorted(names, y).clip(0, len(names) - 1)
    return np.where(names[place] == y, place, -1).astype(np.int64)
