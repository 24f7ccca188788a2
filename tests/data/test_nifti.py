"""Volumes: read as they were written, placed in the middle, refused by name when wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from privet.data.nifti import (
    decathlon,
    hippocampus,
    load_images,
    load_labels,
    load_volumes,
    read_nifti,
)
from privet.data.volumes import Volumes, crop_or_pad, spheres, standardise
from privet.errors import InvalidArgument, MissingFile

nibabel = pytest.importorskip("nibabel")
CLASSES = ("background", "front")


def write(path: Path, voxels, affine=None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4) if affine is None else affine), path)
    return path


def folder_of(place: Path, image, label, affine=None) -> Path:
    write(place / "imagesTr" / "a_1.nii.gz", image)
    write(place / "labelsTr" / "a_1.nii.gz", label, affine)
    return place


def sample(shape=(5, 6, 7)):
    rng = np.random.default_rng(0)
    label = np.zeros(shape, dtype=np.uint8)
    label[2, 3, 3] = 1
    return rng.normal(100.0, 20.0, size=shape).astype(np.float32), label


def test_round_trip(tmp_path):
    image, label = sample()
    found = load_volumes(folder_of(tmp_path, image, label), classes=CLASSES, grid=(8, 8, 8))
    assert found.names == ("a_1",) and found.grid == (8, 8, 8) and len(found) == 1
    np.testing.assert_array_equal(found.labels[0], crop_or_pad(label, (8, 8, 8)))
    np.testing.assert_allclose(found.images[0], crop_or_pad(standardise(image), (8, 8, 8)))


def test_axes_are_turned_to_the_standard_orientation(tmp_path):
    voxels = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    mirrored = np.diag([-1.0, 1.0, 1.0, 1.0])
    found, _ = read_nifti(write(tmp_path / "m.nii.gz", voxels, mirrored))
    np.testing.assert_array_equal(found, voxels[::-1])


def test_a_single_trailing_axis_is_dropped(tmp_path):
    found, _ = read_nifti(write(tmp_path / "t.nii.gz", np.zeros((2, 3, 4, 1), dtype=np.int16)))
    assert found.shape == (2, 3, 4)


def test_what_is_wrong_is_named(tmp_path):
    image, label = sample()
    grid = (8, 8, 8)

    def refused(match, image=image, label=label, grid=grid, affine=None):
        place = folder_of(tmp_path / match.split()[0], image, label, affine)
        with pytest.raises(InvalidArgument, match=match):
            load_volumes(place, classes=CLASSES, grid=grid)

    refused("labels other than 0 to 1", label=label * 2)
    broken = image.copy()
    broken[0, 0, 0] = np.nan
    refused("NaN or infinite", image=broken)
    refused("not on the grid", affine=np.diag([2.0, 1.0, 1.0, 1.0]))
    edge = np.zeros_like(label)
    edge[0, 0, 0] = 1
    refused("large enough for a_1", label=edge, grid=(2, 8, 8))
    refused("three axes", image=np.zeros((2, 3, 4, 2, 2), dtype=np.int16))


def test_several_channels_each_standardised_by_itself(tmp_path):
    image, label = sample()
    both = np.stack([image, 7.0 * image + 3.0], axis=-1)
    found = load_volumes(folder_of(tmp_path, both, label), classes=CLASSES, grid=(8, 8, 8))
    assert found.channels == 2 and found.images.shape == (1, 2, 8, 8, 8)
    np.testing.assert_allclose(found.images[0, 0], found.images[0, 1], atol=1e-5)
    (tmp_path / "dataset.json").write_text('{"labels": {"0": "Background", "1": "Front"}}')
    assert decathlon(tmp_path, grid=(8, 8, 8)).classes == ("background", "front")
    images = load_images(tmp_path / "imagesTr", grid=(8, 8, 8))
    np.testing.assert_array_equal(images, found.images)
    np.testing.assert_array_equal(load_labels(tmp_path / "labelsTr", grid=(8, 8, 8)), found.labels)
    for wrong in ('{"labels": {"0": "a", "2": "b"}}', '{"labels": ["a"]}', "{}"):
        (tmp_path / "dataset.json").write_text(wrong)
        with pytest.raises(InvalidArgument, match=r"dataset\.json"):
            decathlon(tmp_path, grid=(8, 8, 8))


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(MissingFile, match=r"imagesTr/\*"):
        load_volumes(tmp_path, classes=CLASSES, grid=(4, 4, 4))
    with pytest.raises(MissingFile, match=r"dataset\.json"):
        hippocampus(tmp_path)
    path = write(tmp_path / "cut.nii.gz", sample()[0])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InvalidArgument, match=r"cut\.nii\.gz"):
        read_nifti(path)
    path.write_bytes(b"no picture")
    with pytest.raises(InvalidArgument, match="whole, readable"):
        read_nifti(path)


@pytest.mark.parametrize("sides", [(4, 4, 4), (3, 6, 5), (9, 1, 4)])
def test_to_grid_keeps_the_middle(sides):
    """Cutting what was padded gives the volume back."""
    volume = np.arange(1, 1 + np.prod(sides)).reshape(sides)
    np.testing.assert_array_equal(crop_or_pad(crop_or_pad(volume, (10, 10, 10)), sides), volume)
    assert crop_or_pad(volume, (1, 1, 1)).item() == volume[tuple((s - 1) // 2 for s in sides)]


def test_constant_volume_becomes_zeros():
    assert not standardise(np.full((2, 2, 2), 7)).any()


def test_volumes_check_themselves():
    made = spheres(2, seed=0)
    for change, match in (
        ({"labels": made.labels[:1]}, "labels"),
        ({"names": ("one",)}, "names"),
        ({"classes": ("background", "core")}, "declared"),
        ({"images": np.full_like(made.images, np.nan)}, "finite"),
    ):
        parts = {"name": "s", "images": made.images, "labels": made.labels,
                 "classes": made.classes, "names": made.names} | change  # fmt: skip
        with pytest.raises(InvalidArgument, match=match):
            Volumes(**parts)


def test_spheres_are_the_same_for_the_same_seed():
    first, again, other = (spheres(3, seed=s) for s in (4, 4, 5))
    np.testing.assert_array_equal(first.images, again.images)
    assert (first.images != other.images).any()
    assert all({0, 1, 2} == set(np.unique(label)) for label in first.labels)


@pytest.mark.slow
@pytest.mark.skipif("PRIVET_DATA" not in os.environ, reason="PRIVET_DATA is not set")
def test_hippocampus_is_whole():
    found = hippocampus()
    assert len(found) == 260 and found.classes == ("background", "anterior", "posterior")
    assert all(set(np.unique(label)) == {0, 1, 2} for label in found.labels)
    shares = [(found.labels == c).mean() for c in (1, 2)]
    assert min(shares) > 0.02 and max(shares) < 0.03
