"""The deep private auto-encoder: accuracy at a proven epsilon, the budget's split, and streaming.

    python -m benchmarks.autoencoder accuracy --data mnist --prior none     scattering, projected
    python -m benchmarks.autoencoder accuracy --data mnist --prior strokes  a basis of pen strokes
    python -m benchmarks.autoencoder accuracy --data mnist --prior pixels   no features at all
    python -m benchmarks.autoencoder accuracy --data adult                  and a non-private dA
    python -m benchmarks.autoencoder split --data mnist                     on held-out records
    python -m benchmarks.autoencoder stream                                 60,000 x 784 from disk

Every command takes --json, --epsilon and --seeds. Proved, per record, add-remove, delta 1e-5.
`accuracy` compares learned layers with random ones of the same sizes, where the whole budget goes
to the output layer. Settings are the library's defaults: docs/guide/settings.md says on what they
were chosen. `stream` runs each fit in a process of its own and reports its peak
memory, the passes it made over the file and its time, beside the iterative dA on the same layers
(three epochs for each layer and for the fine-tuning); time ratios are of processor time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privet import data
from privet.estimators import PrivateAutoencoderClassifier
from privet.features import CachedFeatures, RandomProjection, Scattering, handwriting, unit_rows
from privet.methods.autoencoder import Stream

Array = NDArray[Any]
DELTA = 1e-5
HELD_OUT = 10_000
CHUNK = 2_000
LAYERS = {"mnist": (300, 200), "adult": (60, 40)}
STREAM_LAYERS = (200, 100)
UNLEARNED_RIDGE = 0.3
"""The best for codes that were not learned (of .2, .3, .8 and 1.2, on held-out records)."""


def rows_of(name: str, prior: str) -> tuple[data.Dataset, Array, Array, Any]:
    """The data set, training and test rows, and what bounds them."""
    dataset = data.load(name)
    if name == "adult":
        return dataset, dataset.x_train, dataset.x_test, (dataset.low, dataset.high)
    train, test = dataset.train_rows(), dataset.test_rows()
    if prior == "pixels":
        return dataset, train, test, (0.0, 1.0)
    if prior == "none":
        scattering = CachedFeatures(Scattering(shape=(28, 28)))
        fewer = RandomProjection(n_inputs=3969, n_features=500)
        both = (fewer.transform(scattering.transform(x)) for x in (train, test))
        return dataset, *both, 1.0
    strokes = CachedFeatures(handwriting())
    return dataset, strokes.transform(train), strokes.transform(test), 1.0


def scores(
    seeds: int, train: tuple[Array, Array], test: tuple[Array, Array], **settings: Any
) -> tuple[list[float], float]:
    """Test accuracies in percent, one a noise seed, and the proved epsilon."""
    found, proved = [], 0.0
    for seed in range(seeds):
        clf = PrivateAutoencoderClassifier(delta=DELTA, random_state=seed, **settings).fit(*train)
        found.append(round(100.0 * float(clf.score(*test)), 3))
        proved = max(proved, clf.guarantee_.epsilon)
    return found, proved


def random_rows(x: Array, units: int, bounds: Any) -> Array:
    """What a random, unlearned encoder of this size makes of the rows."""
    if isinstance(bounds, tuple):
        low, high = (np.asarray(b, dtype=np.float64).ravel() for b in bounds)
        x = (np.clip(x.reshape(len(x), -1), low, high) - low) / (high - low)
    projection = RandomProjection(n_inputs=x.shape[1], n_features=units)
    return projection.transform(unit_rows(x))


def accuracy(a: argparse.Namespace) -> list[dict[str, Any]]:
    """Learned layers, none, and random ones, at the same total budget."""
    dataset, train, test, bounds = rows_of(a.data, a.prior)
    y, y_test = dataset.y_train, dataset.y_test
    common = {"epsilon": a.epsilon, "classes": range(dataset.n_classes)}
    one, two = LAYERS[a.data]
    rows: list[dict[str, Any]] = []

    def add(what: str, layers: tuple[int, ...], found: tuple[list[float], float]) -> None:
        values, proved = found
        rows.append(
            {
                "data": a.data,
                "prior": a.prior if a.data == "mnist" else "bounds of the columns",
                "what": what,
                "layers": list(layers),
                "proved_epsilon": proved,
                "delta": DELTA,
                "accuracies": values,
                "mean": round(float(np.mean(values)), 3),
                "std": round(float(np.std(values, ddof=1)), 3) if len(values) > 1 else None,
            }
        )

    for layers in ((one,), (two,), (one, two)):
        settings = {"layers": layers, "bounds": bounds, **common}
        add("learned", layers, scores(a.seeds, (train, y), (test, y_test), **settings))
    for units in (one, two):
        z, z_test = (random_rows(x, units, bounds) for x in (train, test))
        settings = {"layers": (), "bounds": 1.0, "ridge": UNLEARNED_RIDGE, **common}
        add("random", (units,), scores(a.seeds, (z, y), (z_test, y_test), **settings))
    settings = {"layers": (), "bounds": bounds, "ridge": UNLEARNED_RIDGE, **common}
    add("no layers", (), scores(a.seeds, (train, y), (test, y_test), **settings))
    for learned, unlearned in ((0, 3), (1, 4)):
        pair = rows[learned]["accuracies"], rows[unlearned]["accuracies"]
        rows[learned]["gain_over_random"] = round(float(np.mean(pair[0]) - np.mean(pair[1])), 3)
        if a.seeds > 1:
            rows[learned]["p_value"] = float(f"{stats.ttest_rel(*pair).pvalue:.2g}")
    if a.data == "adult":
        rows.append({"what": "dA, not private", "layers": [one, two], **adult_peer(dataset)})
        rows[0]["behind_dA"] = round(rows[-1]["mean"] - rows[0]["mean"], 3)
    return rows


def adult_peer(dataset: data.Dataset) -> dict[str, Any]:
    """The iterative, non-private dA with fine-tuning."""
    from benchmarks.iterative_autoencoder import DenoisingStack

    x, x_test = dataset.train_rows(), dataset.test_rows()
    values = []
    for seed in range(3):
        model = DenoisingStack(layers=LAYERS["adult"], classes=dataset.n_classes, seed=seed)
        model.fit(x, dataset.y_train, epochs=5, tuning_epochs=15)
        values.append(round(100.0 * float((model.predict(x_test) == dataset.y_test).mean()), 3))
    return {"accuracies": values, "mean": round(float(np.mean(values)), 3), "proved_epsilon": "inf"}


def split(a: argparse.Namespace) -> list[dict[str, Any]]:
    """Accuracy on held-out training records against the layers' share of the budget."""
    dataset, x, _, bounds = rows_of(a.data, a.prior)
    held = HELD_OUT if a.data == "mnist" else 6_000
    y = dataset.y_train
    rows = []
    for depth in (1, 2):
        for share in (0.1, 0.25, 0.4, 0.6):
            layers = LAYERS[a.data][:depth]
            shares = (*[share / depth] * depth, 1.0 - share)
            found, _ = scores(
                a.seeds,
                (x[:-held], y[:-held]),
                (x[-held:], y[-held:]),
                epsilon=a.epsilon,
                bounds=bounds,
                classes=range(dataset.n_classes),
                layers=layers,
                shares=shares,
            )
            mean = round(float(np.mean(found)), 3)
            rows.append({"data": a.data, "layers": list(layers), "share": share, "mean": mean})
    return rows


def stream(a: argparse.Namespace) -> list[dict[str, Any]]:
    """Each fit in a process of its own, from a file."""
    mnist = data.load("mnist")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x_test.npy", mnist.x_test.reshape(len(mnist.x_test), -1))
        np.save(Path(folder) / "y_test.npy", mnist.y_test)
        for n in (15_000, 60_000):
            np.save(Path(folder) / f"x{n}.npy", mnist.x_train[:n].reshape(n, -1))
            np.save(Path(folder) / f"y{n}.npy", mnist.y_train[:n])
        for what, n in (("sound", 15_000), ("sound", 60_000), ("iterative dA", 60_000)):
            command = [
                sys.executable,
                "-m",
                "benchmarks.autoencoder",
                "child",
                what,
                str(n),
                folder,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout))
    for row in rows:
        row["time_ratio"] = round(row["processor_seconds"] / rows[-1]["processor_seconds"], 4)
    return rows


def child(what: str, n: int, folder: Path) -> dict[str, Any]:
    """One fit; what it took."""
    x_test, y_test = np.load(folder / "x_test.npy"), np.load(folder / "y_test.npy")
    passes = [0]
    if what == "sound":
        clf = PrivateAutoencoderClassifier(
            epsilon=1.0,
            delta=DELTA,
            bounds=(0, 255),
            classes=range(10),
            layers=STREAM_LAYERS,
            n_public=n,
            random_state=0,
        )
        clf.fit(x_test[:CHUNK], y_test[:CHUNK])  # what the libraries themselves take
        before, begun, used = _peak(), time.perf_counter(), time.process_time()

        def chunks() -> Iterator[tuple[Array, Array]]:
            passes[0] += 1
            with (folder / f"x{n}.npy").open("rb") as rows, (folder / f"y{n}.npy").open("rb") as y:
                for file in (rows, y):
                    np.lib.format.read_magic(file)
                    np.lib.format.read_array_header_1_0(file)
                for start in range(0, n, CHUNK):
                    size = min(CHUNK, n - start)
                    pixels = np.frombuffer(rows.read(size * 784), dtype=np.uint8)
                    labels = np.frombuffer(y.read(size * 8), dtype=np.int64)
                    yield pixels.reshape(size, 784), labels

        clf.fit(Stream(open=chunks, columns=784))
        seconds, grown = time.perf_counter() - begun, _peak() - before
        processor = time.process_time() - used
        score = float(clf.score(x_test, y_test))
    else:
        from benchmarks.iterative_autoencoder import DenoisingStack

        model = DenoisingStack(layers=STREAM_LAYERS, classes=10, seed=0)
        x = np.load(folder / f"x{n}.npy").astype(np.float32) / 255.0
        y = np.load(folder / f"y{n}.npy")
        before, begun, used = _peak(), time.perf_counter(), time.process_time()
        passes[0] = model.fit(x, y, epochs=3, tuning_epochs=3)
        seconds, grown = time.perf_counter() - begun, _peak() - before
        processor = time.process_time() - used
        score = float((model.predict(x_test.astype(np.float32) / 255.0) == y_test).mean())
    return {
        "what": what,
        "records": n,
        "passes": passes[0],
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "peak_growth_megabytes": round(grown, 1),
        "test_accuracy": round(100.0 * score, 2),
    }


def _peak() -> float:
    """The most memory this process has had, in megabytes (getrusage would count its parent's)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024.0


def main() -> None:
    """The command line."""
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("part", choices=("accuracy", "split", "stream"))
    parser.add_argument("--data", choices=("mnist", "adult"), default="mnist")
    parser.add_argument("--prior", choices=("none", "strokes", "pixels"), default="none")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    rows = {"accuracy": accuracy, "split": split, "stream": stream}[a.part](a)
    if a.json:
        print(json.dumps({"rows": rows}, indent=2))
        return
    for row in rows:
        print(", ".join(f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
