"""Pictures in folders, one folder a class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.array_files import check_labels, check_parts
from privet.data.dataset import Dataset
from privet.data.train_test_split import BY_CONTENT, select_test_records
from privet.errors import InvalidArgument, MissingFile

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")


def load_pictures(path: Path, *, classes: Sequence[str], shape: Any, seed: int = 0) -> Dataset:
    """Pictures in one folder a class, brought to one size.

    About a fifth are the test part, each by a hash of its own pixels. They are taken in the order
    of their names, whatever their class: the same picture under another class moves no other one,
    to the test part or to another teacher.
    """
    found: list[tuple[str, int, Path]] = []
    for k, name in enumerate(classes):
        folder = path / str(name)
        if not folder.is_dir():
            raise MissingFile(folder, "every declared class needs a folder of its own")
        found += [(file.name, k, file) for file in picture_files(folder)]
    x = [read_picture(file, shape) for _, _, file in sorted(found)]
    y = [k for _, k, _ in sorted(found)]
    if not x:
        raise InvalidArgument("data", str(path), f"a folder with pictures ({', '.join(PICTURES)})")
    rows, labels, names = np.stack(x), np.array(y), tuple(map(str, classes))
    check_labels(path, labels, names)
    tests = select_test_records((picture.tobytes() for picture in x), share=0.2, seed=seed)
    check_parts(path, int((~tests).sum()), int(tests.sum()))
    return Dataset(
        name=path.name, about=f"pictures in {path.name}", classes=names, low=np.array(0.0),
        high=np.array(255.0), x_train=rows[~tests], y_train=labels[~tests], x_test=rows[tests],
        y_test=labels[tests], split_assumes=BY_CONTENT,
    )  # fmt: skip


def picture_files(folder: Path) -> list[Path]:
    """The pictures in a folder, by name."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in PICTURES)


def read_picture(file: Path, shape: Any) -> NDArray[np.uint8]:
    """A picture, brought to the declared size."""
    declared = isinstance(shape, list) and len(shape) in (2, 3) and shape[2:] in ([], [3])
    if not declared or not all(isinstance(side, int) and side > 0 for side in shape):
        raise InvalidArgument("shape", shape, "[height, width] or [height, width, 3], declared")
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as opened:
            picture = opened.convert("RGB" if len(shape) == 3 else "L")
            return np.asarray(picture.resize((int(shape[1]), int(shape[0]))))
    except (OSError, UnidentifiedImageError) as e:
        raise InvalidArgument("picture", str(file), "a readable picture", str(e)) from None
