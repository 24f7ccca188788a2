"""Rows are functions of single records: features, bounds, codes of auto-encoders."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from privet.data.domain import Domain
from privet.features import (
    Features,
    FromModule,
    MirrorInvariant,
    PatchFilters,
    RandomConvolutions,
    RandomProjection,
    Scattering,
    SceneBasis,
    SideBySide,
    StrokeBasis,
    StrokeNet,
    unit_rows,
)
from privet.methods.autoencoder.private_layer import Activation, Layer
from privet.methods.autoencoder.stack_model import StackModel
from privet.rowwise_arithmetic import Product, row_norms, row_sums, tanh
from privet_papers.autoencoder.behaviour.released_layers import BehaviourLayer
from tests.processors.case import Case, Result, same_alone


def records(n: int, *shape: int, seed: int = 0) -> Result:
    """Public random records; the last one is of another size."""
    x = np.random.default_rng(seed).random((n, *shape)).astype(np.float32)
    x[-1] *= 1e-3
    return x


def features(name: str, folder: Path) -> Result:
    """Rows of one extractor, each checked to be its own record's."""
    small = Scattering(shape=(12, 12))
    front: Features
    match name:
        case "projection":
            front = RandomProjection(n_inputs=144, n_features=60)
        case "scattering":
            front = small
        case "mirrored":
            front = MirrorInvariant(small, shape=(12, 12))
        case "convolutions":
            front = RandomConvolutions(shape=(12, 12), filters=7, patch=4, grid=2)
        case "composed":
            front = small.then(RandomProjection(n_inputs=729, n_features=8))
        case "side by side":
            front = SideBySide(small, RandomProjection(n_inputs=144, n_features=5))
        case "patch filters":
            front = PatchFilters(shape=(12, 12), filters=9, patch=5, folder=folder)
        case "scene basis":
            filters = PatchFilters(shape=(12, 12), filters=9, patch=4, folder=folder)
            front = SceneBasis(filters, shape=(12, 12), n_features=6, scenes=30, folder=folder)
        case "stroke basis":
            front = StrokeBasis(
                small, n_features=6, side=12, glyphs=12, views=3, screened=20, folder=folder
            )
        case "stroke net":
            front = StrokeNet(side=12, width=2, steps=2, batch=4, folder=folder)
        case "module":
            import torch

            torch.manual_seed(0)
            front = FromModule(torch.nn.Linear(144, 7), n_features=7)
        case _:
            raise ValueError(name)
    return same_alone(front.transform, records(53, 144))


def products(folder: Path) -> Result:
    """The exact product itself, at sizes on both sides of every kernel's blocks."""
    found = []
    for d, k, n in ((3, 1, 70), (64, 4, 70), (129, 17, 33), (784, 60, 67), (1000, 3, 9)):
        matrix = np.random.default_rng(d).normal(size=(d, k))
        found.append(same_alone(Product(matrix), records(n, d)).reshape(-1))
    return np.concatenate(found)


def elementwise(folder: Path) -> Result:
    """Sums in one order, lengths, hyperbolic tangents, unit rows."""
    x = records(67, 33) * 4 - 2
    parts = [same_alone(f, x).reshape(-1) for f in (row_sums, row_norms, tanh, unit_rows)]
    return np.concatenate(parts).astype(np.float64)


def bounded(folder: Path) -> Result:
    """Rows from declared bounds."""
    x = records(67, 33) * 4
    found = []
    for bounds in ((0.0, 3.0), 2.0):
        domain = Domain(shape=(33,), bounds=bounds)
        views = ("values", "flat", "box", "cube", "ball", "directions")
        found += [same_alone(partial(seen, domain, view), x) for view in views]
    return np.concatenate(found)


def seen(domain: Domain, view: str, x: Result) -> Result:
    """One of the views of rows that methods take."""
    rows = domain.rows(x)
    match view:
        case "values":
            return rows.values
        case "flat":
            return rows.flat
        case "box":
            return rows.box()
        case "cube":
            return rows.cube()
        case "ball":
            return rows.ball()
        case _:
            return rows.directions()


def codes(folder: Path) -> Result:
    """Codes of auto-encoders with either activation, and of the behaviour model's layers."""
    rng = np.random.default_rng(1)
    x = records(67, 40)
    found = []
    for activation in Activation:
        layers = tuple(
            Layer(
                mean=rng.normal(size=d) / 20,
                basis=rng.normal(size=(d, k)) / 6,
                gain=rng.random(k) + 0.5,
                radius=0.5,
                activation=activation,
            )
            for d, k in ((40, 20), (20, 9))
        )
        stack = StackModel(layers=layers, looseness=0.5)
        domain = Domain(shape=(40,), bounds=(0.0, 1.0))
        made = same_alone(lambda part: stack.encode(domain.rows(part)), x)  # noqa: B023
        found.append(made.astype(np.float64))
    layer = BehaviourLayer(weights=rng.normal(size=(40, 9)))
    found.append(same_alone(layer.codes, x.astype(np.float64)))
    return np.concatenate(found)


NAMES = (
    "projection",
    "scattering",
    "mirrored",
    "convolutions",
    "patch filters",
    "scene basis",
    "composed",
    "side by side",
    "stroke basis",
    "stroke net",
)
CASES = (
    *(Case(name=f"features: {name}", run=partial(features, name)) for name in NAMES),
    # a network of the user's own: alone it is one function on each processor, not one on all
    Case(name="features: module", run=partial(features, "module"), same_bits=False),
    Case(name="products", run=products),
    Case(name="elementwise", run=elementwise),
    Case(name="rows from bounds", run=bounded),
    Case(name="codes of auto-encoders", run=codes),
)
