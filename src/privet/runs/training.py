"""From a data set to what a method trains on: features, records, and a method of its settings."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from typing import Any

import numpy as np

from privet import premises
from privet.data.dataset import FIXED_SPLIT, Dataset
from privet.data.records import Records
from privet.data.rows import Domain
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.methods.catalogue import method_type
from privet.methods.contract import Front, Method, Plan
from privet.methods.promise import planned
from privet.nets.features import Features

MANY, FEW = 1000, 500
"""More features than the first are projected to the second where their square is released."""
FRONTS = ("auto", "plain", "scattering", "strokes")


def domain_of(dataset: Dataset, front: Front, *, features: str, cache: bool = False) -> Domain:
    """What is declared about a data set's records, with the public features that were asked for."""
    extractor = None if front is Front.PLAIN else extractor_of(dataset, features)
    if extractor is not None and front is Front.FEW and extractor.n_features > MANY:
        from privet.nets.features import RandomProjection

        fewer = RandomProjection(n_inputs=extractor.n_features, n_features=FEW)
        extractor = extractor.then(fewer)
    if extractor is not None and cache:
        from privet.nets.features import Cached

        extractor = Cached(extractor)
    return Domain(shape=dataset.shape, bounds=(dataset.low, dataset.high), features=extractor)


def extractor_of(dataset: Dataset, features: str) -> Features | None:
    """A public extractor by its name; None for plain rows."""
    from privet.nets.features import handwriting, pictures

    if features not in FRONTS:
        raise InvalidArgument("--features", features, f"one of {', '.join(FRONTS)}")
    drawn = len(dataset.shape) >= 2
    if features == "auto":
        large = drawn and min(dataset.shape[:2]) >= 16
        features = "scattering" if large else "plain"
    if features == "plain":
        return None
    if not drawn:
        raise InvalidArgument("--features", features, "plain for data that are not pictures")
    if features == "strokes" and dataset.shape != (28, 28):
        raise InvalidArgument("--features", features, "for pictures of 28x28 grey pixels")
    return handwriting() if features == "strokes" else pictures(dataset.shape)


def records_of(
    dataset: Dataset, domain: Domain, *, n_public: int | None = None, public: int = 0
) -> Records:
    """The training records, without the last `public` ones, whose inputs are asked about."""
    end = len(dataset.x_train) - public
    x, y = dataset.x_train[:end], dataset.y_train[:end]
    groups = None if dataset.groups is None else dataset.groups[:end]
    if dataset.target_bounds is not None:
        found = Records.measured(
            x, y, domain=domain, target_bounds=dataset.target_bounds, n_public=n_public,
            groups=groups,
        )  # fmt: skip
    else:
        names = np.arange(dataset.n_classes)
        found = Records.classified(
            x, y, domain=domain, classes=names, n_public=n_public, groups=groups
        )
    if dataset.user is not None:
        named = tuple(p for p in found.premises if p.about != "people")
        people = premises.one_group_each(dataset.user)
        found = dataclasses.replace(found, premises=(*named, people))
    if not dataset.split_assumes:
        return found
    return dataclasses.replace(
        found, premises=(*found.premises, premises.split(dataset.split_assumes))
    )


def plan_of(
    method: Method[Any], records: Records, *, epsilon: float, delta: float, anyway: bool = False
) -> tuple[Records, Plan]:
    """The plan; a record that is replaced may change sides, so the split is then a premise."""
    plan = planned(method, records, epsilon=epsilon, delta=delta, anyway=anyway)
    told = any(p.about == "split" for p in records.premises)
    if plan.adjacency is Adjacency.REPLACE_ONE and not told:
        fixed = (*records.premises, premises.split(FIXED_SPLIT))
        records = dataclasses.replace(records, premises=fixed)
        plan = planned(method, records, epsilon=epsilon, delta=delta, anyway=anyway)
    return records, plan


def method_of(name: str, settings: dict[str, Any], **more: Any) -> Method[Any]:
    """A method from its name and settings as config.json has them."""
    kind = method_type(name)
    hints = typing.get_type_hints(kind)
    given = {k: from_plain(hints[k], v) for k, v in settings.items() if k in hints}
    found: Method[Any] = kind(**given, **more)
    return found


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
