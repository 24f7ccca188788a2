"""Inputs of the commands of `privet pate`: arrays from files, and reducers and teachers by name."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet.cli.console import show_progress
from privet.errors import InvalidArgument, MissingFile

if TYPE_CHECKING:
    from privet.data.domain import Domain
    from privet.methods.pate import Learner, Reducer, TargetSpace

SPACES = ("probabilities", "box", "logits")
TEACHERS = ("logistic", "tree", "forest", "unet")


def one_hot(y: Any, classes: int | None) -> Any:
    """Class numbers as probabilities, classes on axis 1; anything else as it is."""
    import numpy as np

    if not np.issubdtype(y.dtype, np.integer):
        return y
    count = int(y.max(initial=0)) + 1 if classes is None else classes
    if y.min(initial=0) < 0 or y.max(initial=0) >= count:
        raise InvalidArgument("targets", int(y.max()), f"class numbers from 0 to {count - 1}")
    return np.moveaxis(np.eye(count)[y], -1, 1)


def as_targets(y: Any, reducer: Reducer, *, labels: bool = False) -> Any:
    """Answers of the shape that the reducer wants: class numbers are made probabilities.

    `labels`: those of records, which learners take as class numbers where there is one a record.
    """
    import numpy as np

    shape = reducer.target_shape
    numbers = np.issubdtype(y.dtype, np.integer) and y.shape[1:] == shape[1:]
    if numbers and not (labels and y.ndim == 1):
        y = one_hot(y, shape[0])
    if y.shape[1:] != shape and not (labels and y.ndim == 1):
        raise InvalidArgument("answers", y.shape[1:], f"of shape {shape}, or class numbers")
    return y


def public_domain(x: Any) -> Domain:
    """A domain from the range of public inputs: of each column of a table, or of all voxels."""
    import numpy as np

    from privet.data.domain import Domain

    axes = 0 if x.ndim == 2 else None
    low, high = np.min(x, axis=axes), np.max(x, axis=axes)
    return Domain(shape=x.shape[1:], bounds=(low, np.where(high > low, high, low + 1.0)))


def fit_reducer(
    y: Any,
    kind: str,
    space: TargetSpace,
    noise: float,
    dimension: int | None,
    epochs: int,
    seed: int,
) -> Reducer:
    """Fit the kind of reducer that was asked for on public targets."""
    from privet.methods.pate import AutoencoderReducer, IdentityReducer, PCAReducer

    if kind == "identity":
        return IdentityReducer(shape=tuple(y.shape[1:]), space=space)
    if kind == "pca":
        return PCAReducer.fit(y, noise=noise, components=dimension, space=space)
    with show_progress() as progress:
        return AutoencoderReducer.fit(
            y,
            noise=noise,
            dimension=dimension or 16,
            epochs=epochs,
            seed=seed,
            watcher=lambda done, of, loss: progress(f"loss {loss:.4f}", done, of),
        )


def target_space(name: str) -> TargetSpace:
    """The space of answers of this name."""
    from privet.methods.pate import CentredLogits, ClassProbabilities, UnitBox

    spaces: tuple[TargetSpace, ...] = (ClassProbabilities(), UnitBox(), CentredLogits())
    return spaces[SPACES.index(name)]


def local_teacher(name: str | None, y: Any, reducer: Reducer) -> Learner:
    """The teacher that was asked for: one of ours, or the function a site names."""
    from privet.methods.pate import EstimatorLearner, FunctionLearner

    if name is None:  # a forest would learn every voxel from all others, for hours
        name = "unet" if len(reducer.target_shape) == 4 else "forest"
    if ":" in name:
        where, _, what = name.partition(":")
        try:
            return FunctionLearner(function=getattr(importlib.import_module(where), what))
        except (ImportError, AttributeError) as e:
            raise InvalidArgument(
                "--teacher", name, "a function that can be imported", str(e)
            ) from None
    check_choice("--teacher", name, (*TEACHERS, "package.module:function"))
    if name == "unet":
        from privet.networks.segmentation import SHORT_RECIPE, SMALL_CHANNELS, Segmenter

        classes = reducer.target_shape[0]
        return FunctionLearner(
            function=Segmenter(classes=classes, channels=SMALL_CHANNELS, recipe=SHORT_RECIPE)
        )
    from sklearn import ensemble, linear_model, tree

    if y.ndim > 1:  # maps
        if name == "logistic":
            raise InvalidArgument("--teacher", name, "tree or forest for maps")
        regressor = tree.DecisionTreeRegressor if name == "tree" else ensemble.RandomForestRegressor
        return EstimatorLearner(estimator=regressor())
    classes = reducer.target_shape[0]
    if name == "logistic":
        model: Any = linear_model.LogisticRegression(C=10.0, max_iter=300)
    elif name == "tree":
        model = tree.DecisionTreeClassifier()
    else:
        model = ensemble.RandomForestClassifier(n_estimators=50)
    return EstimatorLearner(estimator=model, classes=classes)


def read_array(path: Path, name: str, grid: str | None = None) -> Any:
    """An array from .npy, or the one called `name` from .npz; nothing pickled is read.

    Or volumes: a folder of NIfTI files, or one with imagesTr and labelsTr, on a declared grid.
    """
    import numpy as np

    if path.is_dir():
        return _read_volumes(path, name, grid)
    if grid is not None:
        raise InvalidArgument("--grid", grid, "left out: for folders of NIfTI files")
    if not path.is_file():
        raise MissingFile(path)
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            array = content
        else:
            with content:
                array = content[name]
    except KeyError:
        raise InvalidArgument("file", str(path), f"one with an array {name!r}") from None
    except (ValueError, OSError, EOFError) as e:
        raise InvalidArgument("file", str(path), "a .npy or .npz file", str(e)) from None
    if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
        raise InvalidArgument("file", str(path), "one with finite numbers", "fill or drop the rest")
    return array


def _read_volumes(path: Path, name: str, grid: str | None) -> Any:
    from privet.data.nifti import load_images, load_labels

    try:
        x, y, z = (int(side) for side in (grid or "").split(","))
    except ValueError:
        raise InvalidArgument(
            "--grid", grid, "three numbers of voxels, such as 32,56,40, declared for NIfTI files"
        ) from None
    inside = path / ("imagesTr" if name == "x" else "labelsTr")
    place = inside if inside.is_dir() else path
    return (load_images if name == "x" else load_labels)(place, grid=(x, y, z))


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is none of the allowed ones."""
    if value not in allowed:
        raise InvalidArgument(name, value, f"one of {', '.join(allowed)}")
