"""Image sets from files: MNIST, BreastMNIST."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet.data.array_files import read_npz
from privet.data.data_folder import damaged_file, download, download_folder, find
from privet.data.dataset import Dataset

MNIST_FILES = {  # name: SHA-256
    f"{name}-ubyte.gz": digest
    for name, digest in {
        "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }.items()
}
MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def mnist(folder: Path) -> Dataset:
    """60,000 + 10,000 grey digits of 28x28 pixels (LeCun, Cortes, Burges)."""
    parts = [
        read_idx(find(f"mnist/{name}", folder=folder, hint='load("mnist", download=True)'))
        for name in MNIST_FILES
    ]
    return Dataset(
        name="mnist",
        about="MNIST: 60,000 + 10,000 handwritten digits of 28x28 pixels, 0 to 255",
        classes=tuple(str(k) for k in range(10)),
        low=np.array(0),
        high=np.array(255),
        x_train=parts[0],
        y_train=parts[1],
        x_test=parts[2],
        y_test=parts[3],
    )


def download_mnist(mirrors: tuple[str, ...] = MNIST_MIRRORS) -> None:
    """Fetch the four MNIST files (11.6 MB) into the download folder, each checked by SHA-256."""
    for name, sha256 in MNIST_FILES.items():
        urls = tuple(mirror + name for mirror in mirrors)
        download(download_folder() / "mnist" / name, urls=urls, sha256=sha256)


def breastmnist(folder: Path) -> Dataset:
    """BreastMNIST: 624 (training and validation) + 156 grey ultrasound pictures of 28x28."""
    names = [f"{part}_{what}" for part in ("train", "val", "test") for what in ("images", "labels")]
    raw = read_npz(find("medmnist/breastmnist.npz", folder=folder), tuple(names))
    return Dataset(
        name="breastmnist",
        about="BreastMNIST: 624 + 156 breast ultrasound pictures of 28x28 pixels, 0 to 255",
        classes=("malignant", "normal or benign"),
        low=np.array(0),
        high=np.array(255),
        x_train=np.concatenate([raw["train_images"], raw["val_images"]]),
        y_train=np.concatenate([raw["train_labels"], raw["val_labels"]]).ravel(),
        x_test=raw["test_images"],
        y_test=raw["test_labels"].ravel(),
    )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes in gzipped IDX: two zeros, 8, the number of axes, their sizes, the data."""
    try:
        raw = gzip.decompress(path.read_bytes())
        zeros, kind, axes = struct.unpack_from(">HBB", raw)
        shape = struct.unpack_from(f">{axes}I", raw, 4)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise damaged_file(path, f"not a whole gzipped IDX file ({error})") from None
    if zeros != 0 or kind != 8:
        raise damaged_file(path, "not an IDX file of bytes")
    body = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * axes)
    if body.size != int(np.prod(shape)):
        raise damaged_file(
            path, f"{body.size} bytes of data where its header says {int(np.prod(shape))}"
        )
    return body.reshape(shape)
