"""Public features: one record, one row of the unit ball; kymatio as the reference for scattering."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from privet.errors import InvalidArgument
from privet.features import (
    CachedFeatures,
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
    draw_glyphs,
    draw_scenes,
    features_by_name,
    grey_pictures,
    patch_filters,
    unit_rows,
)
from privet.features.combined_extractors import FeaturesWithProgress
from privet.features.extractor_json import features_from_dict, features_to_dict
from privet.features.stroke_network import _network
from privet.guarantee import Backing


def test_blocks_of_records_are_the_whole():
    front = RandomProjection(n_inputs=3, n_features=2)
    x = np.random.default_rng(0).normal(size=(5000, 3))
    x[[0, 2047, 2048, 4999], 1] = np.nan
    assert (front.transform(x) == unit_rows(front._raw(x))).all()


class Narrow(RandomProjection):
    """One column where several are stated: numpy would repeat it, and rows leave the ball."""

    def _raw(self, x: np.ndarray) -> np.ndarray:
        return super()._raw(x)[:, :1]


@pytest.mark.parametrize("rows", [1, 7, 2049])
@pytest.mark.parametrize("watched", [False, True])
def test_rows_that_are_not_as_stated_are_refused(rows: int, watched: bool) -> None:
    front: Features = Narrow(n_inputs=3, n_features=2)
    if watched:
        front = FeaturesWithProgress(front, lambda *_: None)
    with pytest.raises(InvalidArgument, match="as it says itself"):
        front.transform(np.ones((rows, 3)))


def extractors(folder: Path) -> dict[str, Features]:
    scattering = Scattering(shape=(12, 12))
    small = {
        "n_features": 6,
        "side": 12,
        "glyphs": 12,
        "views": 3,
        "screened": 20,
        "folder": folder,
    }
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 7), torch.nn.Tanh())
    filters = PatchFilters(shape=(12, 12), filters=5, patch=4, folder=folder)
    return {
        "scattering": scattering,
        "mirrored": MirrorInvariant(scattering, shape=(12, 12)),
        "colour": Scattering(shape=(12, 4, 3), groups=9),
        "convolutions": RandomConvolutions(shape=(12, 12), filters=5, patch=4, grid=2),
        "projection": RandomProjection(n_inputs=144, n_features=9),
        "filters": filters,
        "scene basis": SceneBasis(filters, shape=(12, 12), n_features=6, scenes=30, folder=folder),
        "basis": StrokeBasis(scattering, **small),
        "net": StrokeNet(side=12, width=2, steps=2, batch=4, folder=folder),
        "side": SideBySide(scattering, RandomConvolutions(shape=(12, 12), filters=3)),
        "composed": scattering.then(RandomProjection(n_inputs=729, n_features=8)),
        "module": FromModule(module, n_features=7),
        "cached": CachedFeatures(scattering, folder),
    }


NAMES = tuple(extractors(Path("/nowhere")))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_extractor_is_a_bounded_map_of_single_records(name: str, tmp_path: Path) -> None:
    front = extractors(tmp_path)[name]
    rng = np.random.default_rng(0)
    x = rng.random((9, 144)).astype(np.float32)
    x[3] *= 1e30
    x[4] = np.nan
    x[5] = 0
    rows = front.transform(x)
    assert rows.shape == (9, front.n_features) and rows.dtype == np.float32
    assert np.isfinite(rows).all()
    assert np.linalg.norm(rows.astype(np.float64), axis=1).max() <= front.bound == 1.0
    if "basis" not in name:  # there the zero row of the inner features is moved by the mean
        assert (rows[4] == 0).all()
    # row i does not depend on the others, nor on their order
    np.testing.assert_allclose(front.transform(x[::-1])[::-1], rows, atol=2e-5)
    np.testing.assert_allclose(front.transform(x[:2]), rows[:2], atol=2e-5)
    # the same recipe is the same map, made anew
    again = extractors(tmp_path)[name]
    if name != "module":
        assert again.recipe == front.recipe
        np.testing.assert_allclose(again.transform(x), rows, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_to_the_last_bit_whoever_else_is_there(name: str, tmp_path: Path) -> None:
    """One record more or less must not move another row: a grid would make a whole step of it."""
    front = extractors(tmp_path)[name]
    x = np.random.default_rng(0).random((259, 144)).astype(np.float32)
    rows = front.transform(x)
    for kept in (slice(1), slice(163), slice(257), slice(1, None)):
        assert np.array_equal(front.transform(x[kept]), rows[kept]), kept


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_to_the_last_bit_wherever_it_stands(name: str, tmp_path: Path) -> None:
    """Through every place of a block, in front of and behind others."""
    front = extractors(tmp_path)[name]
    rng = np.random.default_rng(1)
    others = rng.random((70, 144)).astype(np.float32)
    for record in (rng.random(144).astype(np.float32), others[0] * 1e-3):
        alone = front.transform(record[None])[0]
        same = front.transform(np.broadcast_to(record, (67, 144)))
        assert (same == alone).all()
        for place in (0, 1, 3, 5, 6, 15, 69):
            among = others.copy()
            among[place] = record
            assert np.array_equal(front.transform(among)[place], alone), place


def test_premises_say_how_rows_are_known_to_be_apart(tmp_path: Path) -> None:
    every = extractors(tmp_path)
    module = torch.nn.Linear(9, 3)
    alone, shared = (FromModule(module, n_features=3, batch=batch) for batch in (1, 64))
    assert {name: front.premise.backing for name, front in every.items()} == {
        name: Backing.TESTED if name == "module" else Backing.ENFORCED for name in every
    }
    assert shared.premise.backing is Backing.ASSUMED
    assert SideBySide(every["projection"], alone, shared).premise == shared.premise
    assert every["projection"].then(alone).premise == alone.premise
    assert CachedFeatures(shared, tmp_path).premise == shared.premise
    assert alone.then(every["projection"]).premise.about == shared.premise.about == "rows"
    assert 0.0 <= shared.batch_error((9,)) < 1e-5
    assert alone.batch_error((9,)) == 0.0


def test_the_exact_network_is_the_one_that_torch_trained(tmp_path: Path) -> None:
    for side, width in ((28, 8), (13, 3)):
        net = StrokeNet(side=side, width=width, steps=1, batch=2, folder=tmp_path)
        x = np.random.default_rng(0).random((5, side, side)).astype(np.float32)
        weights = net._pretrain()
        body = _network(width)
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), body.parameters())
        with torch.no_grad():
            expected = body(torch.from_numpy(x)[:, None]).flatten(1).numpy()
        np.testing.assert_allclose(net._raw(x), expected, atol=2e-5)


def test_random_convolutions_are_those_of_torch() -> None:
    """The same features by torch's own layers, to float32 rounding."""
    from torch.nn import functional

    front = RandomConvolutions(shape=(13, 11, 3), filters=6, patch=4, grid=3)
    x = np.random.default_rng(0).random((5, 13, 11, 3)).astype(np.float32)
    part = torch.from_numpy(x).permute(0, 3, 1, 2)
    bank = np.random.default_rng(0).standard_normal((6, 3, 4, 4))
    bank -= bank.mean(axis=(1, 2, 3), keepdims=True)
    bank /= np.sqrt((bank**2).sum(axis=(1, 2, 3), keepdims=True))
    mean = functional.avg_pool2d(part, 4, stride=1).mean(dim=1, keepdim=True)
    square = functional.avg_pool2d(part * part, 4, stride=1).mean(dim=1, keepdim=True)
    spread = (square - mean * mean).clamp_min(0).sqrt()
    response = functional.conv2d(part, torch.tensor(bank, dtype=torch.float32)) / (spread + 0.05)
    both = torch.cat([response - 0.5, -response - 0.5], dim=1).relu()
    expected = functional.adaptive_avg_pool2d(both, 3).flatten(1).numpy()
    np.testing.assert_allclose(front._pooled(x), expected, atol=2e-6)


@pytest.mark.slow
def test_patch_filters_are_those_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same features by torch's own layers, to float32 rounding, for bytes too."""
    from torch.nn import functional

    monkeypatch.setattr(patch_filters, "_AT_ONCE", 4)  # all of one sign, then all of the other
    front = PatchFilters(shape=(13, 11, 3), filters=5, patch=4, folder=tmp_path)
    x = np.random.default_rng(0).integers(0, 256, (3, 13, 11, 3), dtype=np.uint8)
    part = torch.from_numpy(x / 255).permute(0, 3, 1, 2)
    learned = torch.from_numpy(front._learn().astype(np.float64))
    bank, shift = learned[:, :-1].reshape(5, 4, 4, 3).permute(0, 3, 1, 2), learned[:, -1]
    mean = functional.avg_pool2d(part, 4, stride=1).mean(dim=1, keepdim=True)
    square = functional.avg_pool2d(part * part, 4, stride=1).mean(dim=1, keepdim=True)
    spread = (square - mean * mean + (10 / 255) ** 2).sqrt()
    whole = bank.sum(dim=(1, 2, 3))[None, :, None, None]
    response = (functional.conv2d(part, bank) - mean * whole) / spread + shift[:, None, None]
    first, last = response[:, :4], response[:, 4:]
    both = torch.cat([first, -first, last, -last], dim=1)
    expected = functional.adaptive_avg_pool2d((both - 0.25).relu(), 2).flatten(1)
    np.testing.assert_allclose(front._raw(x), expected, atol=2e-6)


def test_scenes_are_seeded_and_soft_edged_at_every_scale() -> None:
    one, two = (draw_scenes(3, shape=(16, 20, 3), rng=np.random.default_rng(4)) for _ in range(2))
    assert one.shape == (3, 16, 20, 3) and (one == two).all()
    assert one.min() >= 0.0 and one.max() <= 1.0 and one.std(axis=(1, 2, 3)).min() > 0.02
    grey = draw_scenes(3, shape=(16, 20), rng=np.random.default_rng(4))
    np.testing.assert_allclose(grey, one.mean(axis=3), atol=1e-6)
    # neighbours are alike, as in photographs: the spectrum falls
    near = np.abs(np.diff(grey, axis=2)).mean()
    far = np.abs(grey[:, :, 8:] - grey[:, :, :-8]).mean()
    assert near < 0.7 * far


@pytest.mark.slow
def test_a_scene_basis_evens_out_how_drawn_scenes_vary(tmp_path: Path) -> None:
    """Before rows are scaled, whitened scenes vary alike in all directions above the ridge."""
    inner = PatchFilters(shape=(12, 12), filters=10, patch=4, folder=tmp_path)
    basis = SceneBasis(inner, shape=(12, 12), n_features=6, ridge=1e-6, scenes=120, folder=tmp_path)
    drawn = draw_scenes(120, shape=(12, 12), rng=np.random.default_rng(1))
    np.testing.assert_allclose(np.cov(basis._raw(drawn), rowvar=False), np.eye(6), atol=0.03)
    other = draw_scenes(120, shape=(12, 12), rng=np.random.default_rng(2))
    spread = np.linalg.eigvalsh(np.cov(basis._raw(other), rowvar=False))
    before = np.linalg.eigvalsh(np.cov(inner.transform(other), rowvar=False))[-6:]
    assert spread[-1] / spread[0] < before[-1] / before[0]


def test_names_of_extractors_choose_them() -> None:
    kinds = {
        ("auto", (32, 32, 3)): SceneBasis,
        ("auto", (28, 28)): type(grey_pictures((28, 28))),
        ("auto", (32, 32, 4)): Scattering,
        ("scattering", (32, 32, 3)): Scattering,
        ("scenes", (32, 32, 3)): SceneBasis,
    }
    for (name, shape), kind in kinds.items():
        assert type(features_by_name(name, shape)) is kind, (name, shape)
        found = features_by_name(name, shape)
        again = features_from_dict(json.loads(json.dumps(features_to_dict(found))))
        assert again.recipe == found.recipe


def test_recipes_differ_where_maps_do(tmp_path: Path) -> None:
    recipes = [front.recipe for name, front in extractors(tmp_path).items() if name != "cached"]
    recipes += [RandomProjection(n_inputs=144, n_features=9, seed=1).recipe]
    recipes += [Scattering(shape=(12, 12), groups=None).recipe]
    assert len(set(recipes)) == len(recipes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "scales", "angles"),
    [((28, 28), 2, 8), ((16, 12), 2, 6), ((32, 32), 3, 4), ((9, 14), 1, 8)],
)
def test_scattering_agrees_with_kymatio(shape: tuple[int, int], scales: int, angles: int) -> None:
    frontend = pytest.importorskip("kymatio.scattering2d.frontend.torch_frontend")
    x = np.random.default_rng(0).random((18, *shape)).astype(np.float32)
    reference = frontend.ScatteringTorch2D(J=scales, shape=shape, L=angles)(torch.from_numpy(x))
    for threads in (1, 2):
        ours = Scattering(shape=shape, scales=scales, angles=angles, groups=None, threads=threads)
        np.testing.assert_allclose(ours.coefficients(x), reference.numpy(), atol=2e-6)


def test_scattering_of_bytes_and_of_colours() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    front = Scattering(shape=(8, 8, 3), groups=27)
    np.testing.assert_allclose(front.transform(x), front.transform(x / 255.0), atol=1e-6)
    grey = Scattering(shape=(8, 8), groups=None)
    each = np.concatenate([grey.coefficients(x[..., k]) for k in range(3)], axis=1)
    np.testing.assert_allclose(front.coefficients(x), each, atol=1e-6)


def test_unit_rows_hold_the_bound_at_every_scale() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 4000)).astype(np.float32)
    rows *= np.logspace(-35, 34, 200, dtype=np.float64)[:, None].astype(np.float32)
    norms = np.linalg.norm(unit_rows(rows).astype(np.float64), axis=1)
    assert norms.max() <= 1.0 and norms.min() > 0.99999
    assert (unit_rows(np.array([[np.inf, 1.0], [0.0, 0.0]])) == 0).all()


def test_cached_features_are_read_back_and_belong_to_the_owner(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((3, 144)).astype(np.float32)
    front = CachedFeatures(Scattering(shape=(12, 12)), tmp_path)
    first = front.transform(x)
    (file,) = (tmp_path / "features").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    before = file.stat().st_mtime_ns
    np.testing.assert_array_equal(front.transform(x), first)
    assert file.stat().st_mtime_ns == before
    front.transform(x + 1)
    assert len(list((tmp_path / "features").iterdir())) == 2


def test_glyphs_are_seeded_line_drawings() -> None:
    first = draw_glyphs(glyphs=40, views=4, rng=np.random.default_rng(3))
    second = draw_glyphs(glyphs=40, views=4, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(first, second)
    assert first.min() >= 0 and first.max() <= 1
    assert (first.max(axis=(2, 3)) > 0.5).all()  # every drawing has ink
    assert 0.04 < first.mean() < 0.3  # and is mostly ground
    flat = first.reshape(40, 4, -1)
    within = ((flat - flat.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean()
    across = ((flat - flat.mean(axis=(0, 1))) ** 2).sum(axis=2).mean()
    assert within < 0.75 * across  # views of a glyph are more alike than glyphs


@pytest.mark.slow
def test_a_stroke_basis_tells_glyphs_apart_better_than_its_inner_features(tmp_path: Path) -> None:
    inner = Scattering(shape=(16, 16))
    basis = StrokeBasis(
        inner, n_features=30, side=16, glyphs=150, views=6, screened=150, folder=tmp_path
    )
    fresh = draw_glyphs(glyphs=60, views=2, rng=np.random.default_rng(99), side=16)

    def found(front: Features) -> float:
        a, b = front.transform(fresh[:, 0]), front.transform(fresh[:, 1])
        a, b = a - a.mean(axis=0), b - b.mean(axis=0)
        return float(((a @ b.T).argmax(axis=1) == np.arange(60)).mean())

    assert found(basis) > found(inner)


def test_a_module_that_mixes_records_is_refused() -> None:
    class Mixing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(dim=0)

    x = np.random.default_rng(0).random((5, 4))
    with pytest.raises(InvalidArgument, match="apart"):
        FromModule(Mixing(), n_features=4, batch=8).transform(x)
    assert (FromModule(Mixing(), n_features=4).transform(x) == 0).all()  # alone, nothing to mix
    with pytest.raises(InvalidArgument, match="n_features"):
        FromModule(torch.nn.Linear(4, 3), n_features=4).transform(np.ones((5, 4)))


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    wrong = [
        lambda: Scattering(shape=(3, 3)),
        lambda: Scattering(shape=(8,)),
        lambda: Scattering(shape=(8, 8), groups=7),
        lambda: Scattering(shape=(8, 8)).transform(np.ones((2, 63))),
        lambda: Scattering(shape=(8, 8)).transform(np.ones(64)),
        lambda: RandomProjection(n_inputs=3, n_features=4),
        lambda: RandomConvolutions(shape=(5, 5)),
        lambda: RandomConvolutions(shape=(5,)),
        lambda: StrokeBasis(Scattering(shape=(8, 8)), n_features=2000),
        lambda: StrokeNet(steps=0),
        lambda: SideBySide(),
        lambda: draw_glyphs(glyphs=0, views=1, rng=np.random.default_rng(0)),
    ]
    for call in wrong:
        with pytest.raises(InvalidArgument) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_projected_row_depends_on_that_row_alone():
    """To the last bit, however many rows there are.

    The product of 64 x 4 is rounded differently for 3906 rows than for 3907. Before it was exact,
    3907 equal records moved the second moments by 1.88 times their sensitivity
    when one was taken out: an entry of every row was cut to the next multiple of 2^-12.
    """
    rng = np.random.default_rng(0)
    for inputs, outputs, many in ((64, 4, 3907), (128, 2, 3907), (784, 8, 160)):
        front = RandomProjection(n_inputs=inputs, n_features=outputs)
        x = rng.random((many + 1, inputs)).astype(np.float32)
        every = front.transform(x)
        for n in (1, 2, 7, many - 2, many - 1, many):
            assert np.array_equal(front.transform(x[:n]), every[:n])
        assert np.array_equal(front.transform(x[1:]), every[1:])
