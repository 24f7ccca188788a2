"""How the library's settings were chosen: on generated and other data, never on what is reported.

    python -m benchmarks.choose_settings                 all groups, some minutes on one core
    python -m benchmarks.choose_settings moments --json  one group

README and method pages report MNIST, Adult, CIFAR-10 and others. None of them is read here. Each
setting is tried at a few values, the others as they are, on

- *glyphs*: 12 drawn pen-stroke shapes in many hands, 16 x 16 pixels, behind scattering in a basis
  of other drawn shapes (`draw_glyphs`, other seeds);
- *digits*: scikit-learn's 1,797 pictures of 8 x 8 pixels, at budgets that give them the n epsilon
  of tens of thousands of records;
- *table*: normal columns of which a quarter tells three classes of unequal size apart.

Settings that pure epsilon uses too are tried at both kinds of budget, and the mean counts.

A setting changes only where another value is better by more than two standard errors of the paired
differences and by a tenth of a point; of values that gain alike, the nearest is taken. What it says
was copied into `privet.tuned_defaults` by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from privet import tuned_defaults
from privet.features import (
    PatchFilters,
    RandomProjection,
    Scattering,
    SceneBasis,
    StrokeBasis,
    StrokeNet,
    draw_glyphs,
    stroke_basis,
    unit_rows,
)
from privet.networks.architectures import SmallCNN, SmallMLP

Rows = NDArray[np.float32]
DELTA = 1e-5
WIDE = 300
"""Columns of the stroke basis that are there to be cut."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Rows of the unit ball, or of declared bounds, with labels, and the budgets to try."""

    name: str
    train: Rows
    labels: NDArray[np.int64]
    test: Rows
    test_labels: NDArray[np.int64]
    epsilons: tuple[float, ...]
    bounds: Any = 1.0

    @property
    def classes(self) -> range:
        """Class numbers."""
        return range(int(self.labels.max()) + 1)


Run = Callable[[Task, float, int, float], float]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One number: where it is, its candidates, and a way to run with one of them."""

    name: str
    value: float
    candidates: tuple[float, ...]
    run: Run
    """Accuracy in percent on a task, at an epsilon, with a seed, at a value."""


@cache
def pictures(name: str) -> Rows:
    """Pictures of 16 x 16 pixels: drawn shapes, or scikit-learn's digits twice as large."""
    if name == "glyphs":
        rng = np.random.default_rng(1000)
        drawn = draw_glyphs(glyphs=12, views=1000, rng=rng, side=16, variation=1.6)
        return drawn.reshape(-1, 16, 16)
    return np.kron(digit_pictures()[0], np.ones((1, 2, 2))).astype(np.float32)


@cache
def in_strokes(
    name: str,
    whitening: float = tuned_defaults.BASIS_WHITENING,
    ridge: float = tuned_defaults.BASIS_RIDGE,
    variation: float = tuned_defaults.STROKE_VARIATION,
) -> Rows:
    """Pictures behind scattering, in a basis of drawn shapes."""
    drawing = partial(draw_glyphs, variation=variation)
    with (
        tempfile.TemporaryDirectory() as folder,
        replaced(stroke_basis, "draw_glyphs", drawing),
    ):
        front = StrokeBasis(
            Scattering(shape=(16, 16)), n_features=WIDE, side=16, glyphs=500, views=8,
            screened=500, whitening=whitening, ridge=ridge, folder=folder,
        )  # fmt: skip
        return front.transform(pictures(name))


SCENES: dict[str, tuple[str, Any, tuple[float, ...]]] = {
    "PATCH_FILTERS": ("filters", tuned_defaults.PATCH_FILTERS, (200, 800)),
    "PATCH_SIDE": ("patch", tuned_defaults.PATCH_SIDE, (5, 7)),
    "PATCH_GRID": ("grid", tuned_defaults.PATCH_GRID, (3, 4)),
    "PATCH_THRESHOLD": ("threshold", tuned_defaults.PATCH_THRESHOLD, (0.1, 0.5)),
    "SCENES": ("scenes", tuned_defaults.SCENES, (1000, 4000)),
    "SCENE_COLUMNS": ("n_features", tuned_defaults.SCENE_COLUMNS, (500, 1600)),
    "SCENE_WHITENING": ("whitening", tuned_defaults.SCENE_WHITENING, (0.5, 0.75)),
    "SCENE_RIDGE_GREY": ("ridge", tuned_defaults.SCENE_RIDGE_GREY, (0.3, 3.0)),
}
"""What filters and bases of drawn scenes are made of: the argument, the value, others."""


@cache
def in_scenes(name: str, **given: Any) -> Rows:
    """Pictures behind filters of drawn scenes, in a basis of such scenes."""
    values = {key: value for key, value, _ in SCENES.values()} | given
    of_filters = {key: values.pop(key) for key in ("filters", "patch", "grid", "threshold")}
    with tempfile.TemporaryDirectory() as folder:
        filters = PatchFilters(shape=(16, 16), folder=folder, **of_filters)
        values["n_features"] = min(values["n_features"], filters.n_features)
        front = SceneBasis(filters, shape=(16, 16), folder=folder, **values)
        return front.transform(pictures(name))


@cache
def in_stroke_net(width: int, steps: int) -> Rows:
    """scikit-learn's digits behind a network taught on drawn shapes, in a basis of them."""
    with tempfile.TemporaryDirectory() as folder:
        net = StrokeNet(side=16, width=width, steps=steps, folder=folder)
        front = StrokeBasis(
            net, n_features=WIDE, side=16, glyphs=500, views=8, screened=500, folder=folder
        )
        return front.transform(pictures("digits"))


@cache
def glyphs(
    columns: int = tuned_defaults.STROKE_COLUMNS,
    whitening: float = tuned_defaults.BASIS_WHITENING,
    ridge: float = tuned_defaults.BASIS_RIDGE,
    variation: float = tuned_defaults.STROKE_VARIATION,
) -> Task:
    """Twelve shapes by many hands; features in the basis of other shapes."""
    rows = unit_rows(in_strokes("glyphs", whitening, ridge, variation)[:, :columns])
    return _split("glyphs", rows, np.repeat(np.arange(12), 1000), (1.0, 4.0))


@cache
def digits_in_strokes(
    columns: int = tuned_defaults.STROKE_COLUMNS,
    whitening: float = tuned_defaults.BASIS_WHITENING,
    ridge: float = tuned_defaults.BASIS_RIDGE,
    variation: float = tuned_defaults.STROKE_VARIATION,
) -> Task:
    """scikit-learn's digits, twice as large, in the same basis."""
    rows = unit_rows(in_strokes("digits", whitening, ridge, variation)[:, :columns])
    return _split("digits in strokes", rows, digit_pictures()[1], (8.0, 32.0))


def digit_pictures() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """scikit-learn's digits, 8 x 8, in [0, 1]."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.images / 16.0, found.target


@cache
def digits() -> Task:
    """scikit-learn's digits, as they are."""
    pictures, labels = digit_pictures()
    return _split("digits", unit_rows(pictures.reshape(-1, 64)), labels, (8.0, 32.0))


@cache
def table() -> Task:
    """Normal columns, ten of forty of which tell three classes of unequal size apart a little."""
    rng = np.random.default_rng(2000)
    labels = rng.choice(3, size=12_000, p=(0.6, 0.3, 0.1))
    centres = np.zeros((3, 40))
    centres[:, :10] = rng.normal(size=(3, 10)) * 0.5
    rows = centres[labels] + rng.normal(size=(12_000, 40)) * np.geomspace(0.5, 2.0, 40)
    return _split("table", unit_rows(rows), labels, (0.25, 1.0))


@cache
def columns(kind: str, wide: bool) -> Task:
    """Thirty columns of 800 records, as they are: all rising with one factor, or skewed; digits.

    Bounds are declared about their range, or `wide`: twice as far from zero.
    """
    if kind == "digits":
        pictures, labels = digit_pictures()
        rows = pictures.reshape(-1, 64)
    else:
        rng = np.random.default_rng(3000)
        labels = rng.choice(2, size=800, p=(0.6, 0.4))
        centres = np.zeros((2, 30))
        centres[1, :15] = rng.normal(size=15) * 0.6
        rows = centres[labels] + rng.normal(size=(800, 30))
        if kind == "one factor":
            factor = rng.normal(size=(800, 1)) + 1.2 * labels[:, None]
            rows = 10.0 + 0.6 * rows + factor * rng.uniform(0.3, 1.0, size=30)
        else:
            rows = np.exp(0.7 * rows)
    low, high = rows.min(axis=0), rows.max(axis=0) + 1e-3
    if wide:
        low, high = np.zeros_like(low), 2.0 * high
    found = _split(f"{kind}, wide" if wide else kind, rows, labels, (1.0, 4.0))
    return replace(found, bounds=(low, high))


@cache
def plain(name: str) -> Task:
    """Pixels of drawn shapes or digits."""
    budgets = (1.0, 4.0) if name == "glyphs" else (8.0,)
    return _split(f"{name} in pixels", pictures(name).reshape(-1, 256), _labels(name), budgets)


def _labels(name: str) -> NDArray[np.int64]:
    return np.repeat(np.arange(12), 1000) if name == "glyphs" else digit_pictures()[1]


@cache
def projected(name: str, columns: int) -> Task:
    """Pictures behind scattering, randomly projected."""
    scattering = Scattering(shape=(16, 16))
    front = scattering.then(RandomProjection(n_inputs=scattering.n_features, n_features=columns))
    task = plain(name)
    train, test = (front.transform(part.reshape(-1, 16, 16)) for part in (task.train, task.test))
    return replace(task, train=train, test=test)


def _split(name: str, rows: Rows, labels: NDArray[Any], epsilons: tuple[float, ...]) -> Task:
    order = np.random.default_rng(0).permutation(len(rows))
    train, test = order[: 3 * len(rows) // 4], order[3 * len(rows) // 4 :]
    y = labels.astype(np.int64)
    return Task(
        name=name, train=rows[train], labels=y[train], test=rows[test], test_labels=y[test],
        epsilons=epsilons,
    )  # fmt: skip


@contextlib.contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """A module's constant at another value."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def accuracy(estimator: Any, task: Task) -> float:
    """Of a fresh estimator, on the test part, in percent."""
    return 100.0 * float(estimator.fit(task.train, task.labels).score(task.test, task.test_labels))


def _moments(task: Task, epsilon: float, seed: int, *, delta: float = DELTA, **given: Any) -> float:
    from privet import AdaptiveLaplaceClassifier

    made = AdaptiveLaplaceClassifier(
        epsilon=epsilon, delta=delta, classes=task.classes, bounds=task.bounds, random_state=seed,
        n_public=len(task.train), **given,
    )  # fmt: skip
    return accuracy(made, task)


def _with(name: str) -> Run:
    return lambda task, epsilon, seed, v: _moments(task, epsilon, seed, **{name: v})


def _at(where: str, name: str, *deltas: float) -> Run:
    """A constant of a module, at the mean accuracy over these deltas."""

    def run(task: Task, epsilon: float, seed: int, value: float) -> float:
        from importlib import import_module

        with replaced(import_module(f"privet.methods.moments.{where}"), name, value):
            return float(np.mean([_moments(task, epsilon, seed, delta=d) for d in deltas]))

    return run


def _ridge(task: Task, epsilon: float, seed: int, value: float) -> float:
    both = (_moments(task, epsilon, seed, delta=d, ridge=value) for d in (DELTA, 0.0))
    return float(np.mean(list(both)))


STROKES = {"glyphs": glyphs, "digits in strokes": digits_in_strokes}


def _columns(task: Task, epsilon: float, seed: int, value: float, *, delta: float) -> float:
    return _moments(STROKES[task.name](int(value)), epsilon, seed, delta=delta)


def _basis(name: str, task: Task, epsilon: float, seed: int, value: float) -> float:
    return _moments(STROKES[task.name](**{name: value}), epsilon, seed)


def features() -> tuple[Setting, ...]:
    """The stroke basis (`StrokeBasis`) and how many of its columns one-shot moments take."""
    tried = (
        ("whitening", tuned_defaults.BASIS_WHITENING, (0.25, 0.5, 1.0)),
        ("ridge", tuned_defaults.BASIS_RIDGE, (0.003, 0.03, 0.1)),
        ("variation", tuned_defaults.STROKE_VARIATION, (0.5, 1.5)),
    )
    return (
        Setting(
            name="COLUMNS",
            value=tuned_defaults.STROKE_COLUMNS,
            candidates=(50, 100, 300),
            run=partial(_columns, delta=DELTA),
        ),
        Setting(
            name="COLUMNS (pure)",
            value=tuned_defaults.STROKE_COLUMNS_PURE,
            candidates=(25, 100, 200),
            run=partial(_columns, delta=0.0),
        ),
        *(
            Setting(name=name, value=value, candidates=others, run=partial(_basis, name))
            for name, value, others in tried
        ),
    )


def moments() -> tuple[Setting, ...]:
    """One-shot moments (`privet.methods.moments`)."""
    return (
        Setting(
            name="SHARE",
            value=tuned_defaults.MOMENTS_SHARE,
            candidates=(0.2, 0.3, 0.5, 0.6),
            run=_with("share"),
        ),
        Setting(
            name="ridge",
            value=tuned_defaults.MOMENTS_RIDGE,
            candidates=(0.2, 0.8, 1.6),
            run=_ridge,
        ),
        Setting(
            name="CONSTANT",
            value=tuned_defaults.MOMENTS_CONSTANT,
            candidates=(0.1, 0.2, 0.5),
            run=_at("class_means", "CONSTANT", DELTA, 0.0),
        ),
        Setting(
            name="SQUARES",
            value=tuned_defaults.MOMENTS_SQUARES,
            candidates=(0.1, 0.4),
            run=_at("class_means", "SQUARES", DELTA, 0.0),
        ),
        Setting(
            name="EXPONENT",
            value=tuned_defaults.MOMENTS_EXPONENT,
            candidates=(0.0, 0.5),
            run=_with("exponent"),
        ),
        Setting(
            name="PROJECTED_SHARE (pure)",
            value=tuned_defaults.MOMENTS_PROJECTED_SHARE,
            candidates=(0.7, 0.8, 0.95),
            run=_at("moments", "PROJECTED_SHARE", 0.0),
        ),
    )


def _linear(task: Task, epsilon: float, seed: int, **given: Any) -> float:
    from privet import DPSGDClassifier

    made = DPSGDClassifier(
        epsilon=epsilon, delta=DELTA, classes=task.classes, bounds=1.0, random_state=seed,
        n_public=len(task.train), **given,
    )  # fmt: skip
    return accuracy(made, task)


MIDDLE = 2000.0
"""A signal n mu at which another power gives the same number of steps."""


def _number(
    name: str, candidates: tuple[float, ...], run: Callable[[Task, float, int], float]
) -> Setting:
    """A number of `privet.tuned_defaults` that is read when a training is planned."""

    def at(task: Task, epsilon: float, seed: int, value: float) -> float:
        with replaced(tuned_defaults, name, value):
            return run(task, epsilon, seed)

    return Setting(name=name, value=getattr(tuned_defaults, name), candidates=candidates, run=at)


def _power(task: Task, epsilon: float, seed: int, value: float) -> float:
    same = tuned_defaults.LINEAR_STEPS * MIDDLE ** (tuned_defaults.LINEAR_POWER - value)
    with (
        replaced(tuned_defaults, "LINEAR_POWER", value),
        replaced(tuned_defaults, "LINEAR_STEPS", same),
    ):
        return _linear(task, epsilon, seed)


def linear() -> tuple[Setting, ...]:
    """The rule of `LinearDPSGD`."""

    def plain(name: str) -> Run:
        return lambda task, epsilon, seed, v: _linear(task, epsilon, seed, **{name: v})

    return (
        _number("LINEAR_STEPS", (0.6, 2.4), _linear),
        _number("LINEAR_RATE", (0.25, 1.0), _linear),
        Setting(
            name="LINEAR_POWER",
            value=tuned_defaults.LINEAR_POWER,
            candidates=(0.3, 0.6),
            run=_power,
        ),
        Setting(
            name="clipping_bound",
            value=tuned_defaults.LINEAR_BOUND,
            candidates=(0.03, 0.3),
            run=plain("clipping_bound"),
        ),
        Setting(
            name="centre",
            value=tuned_defaults.LINEAR_CENTRE,
            candidates=(0.0, 0.02, 0.15),
            run=plain("centre"),
        ),
        Setting(
            name="momentum",
            value=tuned_defaults.MOMENTUM,
            candidates=(0.5, 0.95),
            run=plain("momentum"),
        ),
    )


def _stack(task: Task, epsilon: float, seed: int, **given: Any) -> float:
    from privet import PrivateAutoencoderClassifier

    units = min(40, task.train.shape[1] // 2)
    made = PrivateAutoencoderClassifier(
        epsilon=epsilon, delta=DELTA, classes=task.classes, bounds=task.bounds, random_state=seed,
        n_public=len(task.train), layers=(units,), **given,
    )  # fmt: skip
    return accuracy(made, task)


def _layers_share(task: Task, epsilon: float, seed: int, value: float) -> float:
    return _stack(task, epsilon, seed, shares=(value, 1.0 - value))


def _output_ridge(task: Task, epsilon: float, seed: int, value: float) -> float:
    return _stack(task, epsilon, seed, ridge=value)


def _table_looseness(task: Task, epsilon: float, seed: int, value: float) -> float:
    with replaced(tuned_defaults, "TABLE_LOOSENESS", value):
        return _stack(task, epsilon, seed)


def boxes() -> tuple[Setting, ...]:
    """What is done with rows that declared bounds brought into a box."""
    return (
        Setting(
            name="moments CENTRE",
            value=tuned_defaults.MOMENTS_CENTRE,
            candidates=(0.05, 0.1, 0.3),
            run=_at("moments", "CENTRE", DELTA, 0.0),
        ),
        Setting(
            name="auto-encoder TABLE_LOOSENESS",
            value=tuned_defaults.TABLE_LOOSENESS,
            candidates=(0.1, 0.4, 1.0),
            run=_table_looseness,
        ),
    )


def _learner(name: str, task: Task, epsilon: float, seed: int, value: float) -> float:
    """A default of `LayerLearner` at another value."""
    from privet.methods.autoencoder.private_layer import LayerLearner

    defaults: dict[str, Any] = LayerLearner.__init__.__kwdefaults__ or {}
    before = defaults[name]
    defaults[name] = value
    try:
        return _stack(task, epsilon, seed)
    finally:
        defaults[name] = before


def autoencoder() -> tuple[Setting, ...]:
    """Stacks of private auto-encoders (`privet.methods.autoencoder`)."""
    return (
        Setting(
            name="LAYERS_SHARE",
            value=tuned_defaults.STACK_LAYERS_SHARE,
            candidates=(0.1, 0.5),
            run=_layers_share,
        ),
        Setting(
            name="output ridge",
            value=tuned_defaults.STACK_OUTPUT_RIDGE,
            candidates=(0.25, 1.0, 2.0),
            run=_output_ridge,
        ),
        *(
            Setting(
                name=f"layer {name}", value=value, candidates=tried, run=partial(_learner, name)
            )
            for name, value, tried in (
                ("ridge", tuned_defaults.LAYER_RIDGE, (0.1, 1.0)),
                ("whitening", tuned_defaults.LAYER_WHITENING, (0.5, 1.0)),
                ("looseness", tuned_defaults.LAYER_LOOSENESS, (0.03, 0.3)),
            )
        ),
    )


def _network(task: Task, epsilon: float, seed: int) -> float:
    from privet import DPSGDClassifier

    torch.manual_seed(seed)
    made = DPSGDClassifier(
        epsilon=epsilon, delta=DELTA, classes=task.classes, bounds=(0.0, 1.0), random_state=seed,
        n_public=len(task.train), module=SmallCNN(shape=(16, 16), classes=len(task.classes)),
    )  # fmt: skip
    return accuracy(made, task)


def network() -> tuple[Setting, ...]:
    """The rule of `NetworkDPSGD`."""
    tried = {
        "NETWORK_BATCH": (4.0, 16.0), "NETWORK_EPOCHS": (4.0, 16.0), "NETWORK_RATE": (0.5, 2.0),
        "NETWORK_EPOCHS_PER_EPSILON": (1.0, 4.0), "NETWORK_BOUND": (0.03, 0.3),
    }  # fmt: skip
    return tuple(_number(name, values, _network) for name, values in tried.items())


def _shaped(name: str, task: Task, epsilon: float, seed: int, value: float) -> float:
    from privet import PrivateClassifier
    from privet.methods.dpsgd import NetworkDPSGD
    from privet.methods.moments import RelevanceShapedTraining

    torch.manual_seed(seed)
    net = SmallMLP(features=task.train.shape[1], classes=len(task.classes))
    method = RelevanceShapedTraining(trainer=NetworkDPSGD(network=net), **{name: value})
    made = PrivateClassifier(
        method, epsilon=epsilon, delta=DELTA, classes=task.classes, bounds=(0.0, 1.0),
        random_state=seed, n_public=len(task.train),
    )  # fmt: skip
    return accuracy(made, task)


def shaped() -> tuple[Setting, ...]:
    """Networks trained on rows that relevance has scaled."""
    tried = (
        ("exponent", tuned_defaults.SHAPED_EXPONENT, (0.0, 0.5)),
        ("share", tuned_defaults.SHAPED_SHARE, (0.02, 0.15)),
        ("radius", tuned_defaults.SHAPED_RADIUS, (0.25, 1.0)),
    )
    return tuple(
        Setting(name=name, value=value, candidates=others, run=partial(_shaped, name))
        for name, value, others in tried
    )


def _taught(task: Task, epsilon: float, seed: int) -> float:
    from privet import PATEClassifier

    half = len(task.test) // 2
    made = PATEClassifier(
        epsilon=epsilon, delta=DELTA, classes=task.classes, bounds=1.0, random_state=seed,
        n_public=len(task.train), public_inputs=task.test[:half],
    )  # fmt: skip
    rest = replace(task, test=task.test[half:], test_labels=task.test_labels[half:])
    return accuracy(made, rest)


def pate() -> tuple[Setting, ...]:
    """How many teachers, and how many questions."""
    return (
        _number("PATE_TEACHERS", (4.0, 16.0), _taught),
        _number("PATE_AGREED", (0.1, 0.4), _taught),
    )


def projection() -> tuple[Setting, ...]:
    """Columns of randomly projected scattering coefficients in front of one-shot moments."""

    def run(task: Task, epsilon: float, seed: int, value: float, *, delta: float) -> float:
        name = task.name.split()[0]
        return _moments(projected(name, int(value)), epsilon, seed, delta=delta)

    tried = (
        ("PROJECTED_COLUMNS", (250, 1000), DELTA), ("PROJECTED_COLUMNS_PURE", (25, 100), 0.0),
    )  # fmt: skip
    return tuple(
        Setting(
            name=name,
            value=getattr(tuned_defaults, name),
            candidates=others,
            run=partial(run, delta=delta),
        )
        for name, others, delta in tried
    )


def scenes() -> tuple[Setting, ...]:
    """Filters and bases of drawn scenes in front of `LinearDPSGD`."""

    def at(key: str) -> Run:
        whole = key in ("filters", "patch", "grid", "scenes", "n_features")

        def run(task: Task, epsilon: float, seed: int, value: float) -> float:
            name = task.name.split()[0]
            rows = in_scenes(name, **{key: int(value) if whole else value})
            seen = _split(name, rows, _labels(name), task.epsilons)
            return _linear(seen, epsilon, seed)

        return run

    return tuple(
        Setting(name=name, value=value, candidates=others, run=at(key))
        for name, (key, value, others) in SCENES.items()
    )


def stroke_net() -> tuple[Setting, ...]:
    """The network that is taught on drawn strokes."""

    def run(task: Task, epsilon: float, seed: int, *, width: int, steps: int) -> float:
        rows = unit_rows(in_stroke_net(width, steps)[:, : tuned_defaults.STROKE_COLUMNS])
        return _moments(_split("digits", rows, digit_pictures()[1], ()), epsilon, seed)

    width, steps = tuned_defaults.STROKE_NET_WIDTH, tuned_defaults.STROKE_NET_STEPS
    return (
        Setting(
            name="STROKE_NET_WIDTH",
            value=width,
            candidates=(16, 64),
            run=lambda t, e, s, v: run(t, e, s, width=int(v), steps=steps),
        ),
        Setting(
            name="STROKE_NET_STEPS",
            value=steps,
            candidates=(400, 1600),
            run=lambda t, e, s, v: run(t, e, s, width=width, steps=int(v)),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Group:
    """Settings that are tried on the same tasks with the same number of seeds."""

    settings: Callable[[], tuple[Setting, ...]]
    tasks: Callable[[], list[Task]]
    seeds: int


def _usual() -> list[Task]:
    return [glyphs(), digits(), table()]


def _pixels() -> list[Task]:
    return [plain("glyphs"), plain("digits")]


def _in_boxes() -> list[Task]:
    return [columns(k, wide) for k in ("one factor", "skewed", "digits") for wide in (False, True)]


GROUPS = {
    "features": Group(settings=features, tasks=lambda: [glyphs(), digits_in_strokes()], seeds=4),
    "boxes": Group(settings=boxes, tasks=_in_boxes, seeds=6),
    "moments": Group(settings=moments, tasks=_usual, seeds=4),
    "autoencoder": Group(settings=autoencoder, tasks=_usual, seeds=3),
    "linear": Group(settings=linear, tasks=_usual, seeds=2),
    "network": Group(settings=network, tasks=_pixels, seeds=2),
    "shaped": Group(settings=shaped, tasks=_pixels, seeds=3),
    "pate": Group(settings=pate, tasks=_usual, seeds=3),
    "projection": Group(settings=projection, tasks=_pixels, seeds=4),
    "scenes": Group(settings=scenes, tasks=_pixels, seeds=1),
    "stroke-net": Group(settings=stroke_net, tasks=lambda: [digits()], seeds=4),
}


def compared(setting: Setting, tasks: list[Task], seeds: int) -> dict[str, Any]:
    """Every candidate against the value in use, on the same tasks, budgets and noise seeds."""
    cells = [(t, e, s) for t in tasks for e in t.epsilons for s in range(seeds)]
    now = np.array([setting.run(*cell, setting.value) for cell in cells])
    rows, better = [], []
    for candidate in setting.candidates:
        gain = np.array([setting.run(*cell, candidate) for cell in cells]) - now
        mean, error = float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))
        rows.append({"value": candidate, "gain": round(mean, 2), "error": round(error, 2)})
        if mean > max(0.1, 2.0 * error):
            better.append((mean, error, candidate))
    best = setting.value
    if better:  # the smallest change that is within an error of the largest gain
        gained, error, _ = max(better)
        near = [c for mean, _, c in better if mean >= gained - error]
        best = min(near, key=lambda c: abs(c - setting.value))
    return {
        "setting": setting.name,
        "in_use": setting.value,
        "accuracy": round(float(now.mean()), 2),
        "candidates": rows,
        "says": best,
    }


def line(row: dict[str, Any]) -> str:
    """A row as text: each candidate with its gain in points over the value in use."""
    cells = (f"{c['value']:g}: {c['gain']:+.2f} ({c['error']:.2f})" for c in row["candidates"])
    tried = ", ".join(cells)
    now = f"{row['group']} {row['setting']} = {row['in_use']:g} ({row['accuracy']}%)"
    return f"{now}; {tried}; says {row['says']:g}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], default=[])
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    found = []
    for group in a.groups or GROUPS:
        begun = time.process_time()
        tasks = GROUPS[group].tasks()
        for setting in GROUPS[group].settings():
            row = {"group": group, **compared(setting, tasks, GROUPS[group].seeds)}
            found.append(row)
            if not a.json:
                print(line(row), flush=True)
        if not a.json:
            print(f"{group}: {time.process_time() - begun:.0f} s of processor")
    if a.json:
        print(json.dumps({"rows": found}, indent=2))


if __name__ == "__main__":
    main()
