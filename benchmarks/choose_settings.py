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
was copied into `privet.chosen` by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import chosen
from privet.nets.features import Scattering, StrokeBasis, draw_glyphs, unit_rows

Rows = NDArray[np.float32]
DELTA = 1e-5
WIDE = 300
"""Columns of the stroke basis that are there to be cut."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Rows of the unit ball with labels, and the budgets to try them at."""

    name: str
    train: Rows
    labels: NDArray[np.int64]
    test: Rows
    test_labels: NDArray[np.int64]
    epsilons: tuple[float, ...]

    @property
    def classes(self) -> range:
        """Class numbers."""
        return range(int(self.labels.max()) + 1)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One number: where it is, its candidates, and a way to run with one of them."""

    name: str
    value: float
    candidates: tuple[float, ...]
    run: Callable[[Task, float, int, float], float]
    """Accuracy in percent on a task, at an epsilon, with a seed, at a value."""


@cache
def in_strokes(
    name: str, whitening: float = chosen.BASIS_WHITENING, ridge: float = chosen.BASIS_RIDGE
) -> Rows:
    """Pictures behind scattering, in a basis of drawn shapes."""
    if name == "glyphs":
        rng = np.random.default_rng(1000)
        drawn = draw_glyphs(glyphs=12, views=1000, rng=rng, side=16, variation=1.6)
        pictures = drawn.reshape(-1, 16, 16)
    else:
        pictures = np.kron(digit_pictures()[0], np.ones((1, 2, 2))).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        front = StrokeBasis(
            Scattering(shape=(16, 16)), n_features=WIDE, side=16, glyphs=500, views=8,
            screened=500, whitening=whitening, ridge=ridge, folder=folder,
        )  # fmt: skip
        return front.transform(pictures)


@cache
def glyphs(
    columns: int = chosen.STROKE_COLUMNS,
    whitening: float = chosen.BASIS_WHITENING,
    ridge: float = chosen.BASIS_RIDGE,
) -> Task:
    """Twelve shapes by many hands; features in the basis of other shapes."""
    rows = unit_rows(in_strokes("glyphs", whitening, ridge)[:, :columns])
    return _split("glyphs", rows, np.repeat(np.arange(12), 1000), (1.0, 4.0))


@cache
def digits_in_strokes(
    columns: int = chosen.STROKE_COLUMNS,
    whitening: float = chosen.BASIS_WHITENING,
    ridge: float = chosen.BASIS_RIDGE,
) -> Task:
    """scikit-learn's digits, twice as large, in the same basis."""
    rows = unit_rows(in_strokes("digits", whitening, ridge)[:, :columns])
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


def _split(name: str, rows: Rows, labels: NDArray[Any], epsilons: tuple[float, ...]) -> Task:
    order = np.random.default_rng(0).permutation(len(rows))
    train, test = order[: 3 * len(rows) // 4], order[3 * len(rows) // 4 :]
    y = labels.astype(np.int64)
    return Task(
        name=name, train=rows[train], labels=y[train], test=rows[test], test_labels=y[test],
        epsilons=epsilons,
    )  # fmt: skip


@contextlib.contextmanager
def replaced(module: Any, name: str, value: float) -> Iterator[None]:
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
        epsilon=epsilon, delta=delta, classes=task.classes, bounds=1.0, random_state=seed,
        n_public=len(task.train), **given,
    )  # fmt: skip
    return accuracy(made, task)


def _with(name: str) -> Callable[[Task, float, int, float], float]:
    return lambda task, epsilon, seed, v: _moments(task, epsilon, seed, **{name: v})


def _at(where: str, name: str, *deltas: float) -> Callable[[Task, float, int, float], float]:
    """A constant of a module, at the mean accuracy over these deltas."""

    def run(task: Task, epsilon: float, seed: int, value: float) -> float:
        from importlib import import_module

        with replaced(import_module(f"privet.methods.adaptive_laplace.{where}"), name, value):
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
        ("whitening", chosen.BASIS_WHITENING, (0.25, 0.5, 1.0)),
        ("ridge", chosen.BASIS_RIDGE, (0.01, 0.03, 0.3)),
    )
    return (
        Setting(
            name="COLUMNS",
            value=chosen.STROKE_COLUMNS,
            candidates=(50, 100, 300),
            run=partial(_columns, delta=DELTA),
        ),
        Setting(
            name="COLUMNS (pure)",
            value=chosen.STROKE_COLUMNS_PURE,
            candidates=(25, 100, 200),
            run=partial(_columns, delta=0.0),
        ),
        *(
            Setting(name=name, value=value, candidates=others, run=partial(_basis, name))
            for name, value, others in tried
        ),
    )


def moments() -> tuple[Setting, ...]:
    """One-shot moments (`privet.methods.adaptive_laplace`)."""
    return (
        Setting(
            name="SHARE",
            value=chosen.MOMENTS_SHARE,
            candidates=(0.2, 0.3, 0.5, 0.6),
            run=_with("share"),
        ),
        Setting(
            name="ridge",
            value=chosen.MOMENTS_RIDGE,
            candidates=(0.2, 0.8, 1.6),
            run=_ridge,
        ),
        Setting(
            name="CONSTANT",
            value=chosen.MOMENTS_CONSTANT,
            candidates=(0.1, 0.2, 0.5),
            run=_at("class_means", "CONSTANT", DELTA, 0.0),
        ),
        Setting(
            name="SQUARES",
            value=chosen.MOMENTS_SQUARES,
            candidates=(0.1, 0.4),
            run=_at("class_means", "SQUARES", DELTA, 0.0),
        ),
        Setting(
            name="EXPONENT",
            value=chosen.MOMENTS_EXPONENT,
            candidates=(0.0, 0.5),
            run=_with("exponent"),
        ),
        Setting(
            name="PROJECTED_SHARE (pure)",
            value=chosen.MOMENTS_PROJECTED_SHARE,
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


def _by_rule(name: str, task: Task, epsilon: float, seed: int, factor: float) -> float:
    """Steps or learning rate at a multiple of what the rule says."""
    from privet.loss import gaussian_mu

    signal = max(gaussian_mu(epsilon, DELTA) * len(task.train), 1.0)
    steps = int(min(400, max(5, np.ceil(chosen.LINEAR_STEPS * signal**0.45))))
    rate = max(0.1, chosen.LINEAR_RATE * signal / steps)
    if name == "steps":  # the rate's rule follows the steps
        more = max(5, round(steps * factor))
        return _linear(
            task,
            epsilon,
            seed,
            steps=more,
            learning_rate=max(0.1, chosen.LINEAR_RATE * signal / more),
        )
    return _linear(task, epsilon, seed, steps=steps, learning_rate=rate * factor)


def linear() -> tuple[Setting, ...]:
    """The rule of `LinearDPSGD`."""

    def plain(name: str) -> Callable[[Task, float, int, float], float]:
        return lambda task, epsilon, seed, v: _linear(task, epsilon, seed, **{name: v})

    return (
        Setting(
            name="steps, of the rule",
            value=1.0,
            candidates=(0.5, 2.0),
            run=partial(_by_rule, "steps"),
        ),
        Setting(
            name="rate, of the rule",
            value=1.0,
            candidates=(0.5, 2.0),
            run=partial(_by_rule, "rate"),
        ),
        Setting(
            name="clipping_bound",
            value=chosen.LINEAR_BOUND,
            candidates=(0.03, 0.3),
            run=plain("clipping_bound"),
        ),
        Setting(
            name="centre",
            value=chosen.LINEAR_CENTRE,
            candidates=(0.0, 0.02, 0.15),
            run=plain("centre"),
        ),
        Setting(
            name="momentum", value=chosen.MOMENTUM, candidates=(0.5, 0.95), run=plain("momentum")
        ),
    )


def _stack(task: Task, epsilon: float, seed: int, **given: Any) -> float:
    from privet import PrivateAutoencoderClassifier

    units = min(40, task.train.shape[1] // 2)
    made = PrivateAutoencoderClassifier(
        epsilon=epsilon, delta=DELTA, classes=task.classes, bounds=1.0, random_state=seed,
        n_public=len(task.train), layers=(units,), **given,
    )  # fmt: skip
    return accuracy(made, task)


def _layers_share(task: Task, epsilon: float, seed: int, value: float) -> float:
    return _stack(task, epsilon, seed, shares=(value, 1.0 - value))


def _output_ridge(task: Task, epsilon: float, seed: int, value: float) -> float:
    return _stack(task, epsilon, seed, ridge=value)


def _learner(name: str, task: Task, epsilon: float, seed: int, value: float) -> float:
    """A default of `Learner` at another value."""
    from privet.methods.autoencoder.layers import Learner

    defaults: dict[str, Any] = Learner.__init__.__kwdefaults__ or {}
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
            value=chosen.STACK_LAYERS_SHARE,
            candidates=(0.1, 0.5),
            run=_layers_share,
        ),
        Setting(
            name="output ridge",
            value=chosen.STACK_OUTPUT_RIDGE,
            candidates=(0.25, 1.0, 2.0),
            run=_output_ridge,
        ),
        *(
            Setting(
                name=f"layer {name}", value=value, candidates=tried, run=partial(_learner, name)
            )
            for name, value, tried in (
                ("ridge", chosen.LAYER_RIDGE, (0.1, 1.0)),
                ("whitening", chosen.LAYER_WHITENING, (0.5, 1.0)),
                ("looseness", chosen.LAYER_LOOSENESS, (0.03, 0.3)),
            )
        ),
    )


GROUPS: dict[str, Callable[[], tuple[Setting, ...]]] = {
    "features": features,
    "moments": moments,
    "autoencoder": autoencoder,
    "linear": linear,
}
SEEDS = {"features": 4, "moments": 4, "autoencoder": 3, "linear": 2}


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
        strokes = group == "features"
        tasks = [glyphs(), digits_in_strokes()] if strokes else [glyphs(), digits(), table()]
        for setting in GROUPS[group]():
            row = {"group": group, **compared(setting, tasks, SEEDS[group])}
            found.append(row)
            if not a.json:
                print(line(row), flush=True)
        if not a.json:
            print(f"{group}: {time.process_time() - begun:.0f} s of processor")
    if a.json:
        print(json.dumps({"rows": found}, indent=2))


if __name__ == "__main__":
    main()
