"""The rows that a model sees: public maps of each record by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.nets.features import Features

MANY, FEW = 1000, 500
"""More features than the first are projected to the second where their square is released."""


def centred(dataset: Dataset, model: str, features: str, cache: bool) -> tuple[Any, Any]:
    """Training and test rows for gradient steps: features, or values around 0, of length 1."""
    if model not in ("linear", "cnn"):
        raise InvalidArgument("--model", model, "linear or cnn")
    if model == "cnn":
        return 2.0 * dataset.train_rows() - 1.0, 2.0 * dataset.test_rows() - 1.0
    extractor = front(dataset, features, cache)
    if extractor is not None:
        return extractor.transform(dataset.train_rows()), extractor.transform(dataset.test_rows())
    width = dataset.n_features**0.5
    return (2.0 * dataset.train_rows() - 1.0) / width, (2.0 * dataset.test_rows() - 1.0) / width


def few(dataset: Dataset, features: str, cache: bool) -> tuple[Any, Any, bool]:
    """Training and test rows in [0, 1]; or, if the last is true, features of length at most 1."""
    rows = dataset.train_rows(), dataset.test_rows()
    extractor = front(dataset, features, cache)
    if extractor is None:
        return *rows, False
    if extractor.n_features > MANY:
        from privet.nets.features import Cached, RandomProjection

        fewer = RandomProjection(n_inputs=extractor.n_features, n_features=FEW)
        projected = extractor.then(fewer)
        extractor = Cached(projected) if cache else projected
    return extractor.transform(rows[0]), extractor.transform(rows[1]), True


def front(dataset: Dataset, features: str, cache: bool) -> Features | None:
    """The public extractor that was asked for; None for plain rows."""
    from privet.nets.features import Cached, handwriting, pictures

    drawn = len(dataset.shape) >= 2
    if features == "auto":
        large = drawn and min(dataset.shape[:2]) >= 16
        features = "scattering" if large else "plain"
    if features == "plain":
        return None
    if features not in ("scattering", "strokes"):
        raise InvalidArgument("--features", features, "auto, plain, scattering or strokes")
    if not drawn:
        raise InvalidArgument("--features", features, "plain for data that are not pictures")
    if features == "strokes" and dataset.shape != (28, 28):
        raise InvalidArgument("--features", features, "for pictures of 28x28 grey pixels")
    found = handwriting() if features == "strokes" else pictures(dataset.shape)
    return Cached(found) if cache else found
