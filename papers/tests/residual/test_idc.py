"""IDC patches from a folder."""

import numpy as np
import pytest
from PIL import Image

from privet import data
from privet.errors import InvalidArgument, MissingFile
from privet_papers.residual.idc import idc


def _archive(root, patients=4, patches=3):
    rng = np.random.default_rng(0)
    for p in range(patients):
        for label in (0, 1):
            place = root / "idc" / f"{8863 + p}" / str(label)
            place.mkdir(parents=True)
            for k in range(patches):
                side = 50 if k else 31  # the first lies at the edge of its slide
                pixels = rng.integers(0, 200, size=(50, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{p}_x{k}_class{label}.png")


def test_patients_are_not_split(tmp_path):
    _archive(tmp_path)
    found = idc(tmp_path, training=7, test=6)
    assert found.x_train.shape == (12, 50, 50, 3) and found.x_test.shape == (6, 50, 50, 3)
    assert np.bincount(found.y_train).tolist() == [6, 6]
    at_edge = [x for x in found.x_train if (x[:, 31:] == 255).all()]
    assert len(at_edge) == 4 and all((x[:, :31] < 200).all() for x in at_edge)
    again = data.load("idc", tmp_path)  # far fewer than the paper's: both parts shrink alike
    assert len(again.x_train) == 12 and len(again.x_test) == 12


@pytest.mark.parametrize("inner", ["IDC_regular_ps50_idx5", "archive/IDC_regular_ps50_idx5"])
def test_the_archive_may_lie_further_down(tmp_path, inner):
    _archive(tmp_path / "unpacked")
    (tmp_path / "idc" / inner).parent.mkdir(parents=True)
    (tmp_path / "unpacked" / "idc").rename(tmp_path / "idc" / inner)
    found = data.load("idc", tmp_path)
    assert len(found.x_train) + len(found.x_test) == 24 and len(found.x_test)


def test_one_large_patient_leaves_the_others_for_the_test(tmp_path):
    _archive(tmp_path, patients=2, patches=1)
    _archive(tmp_path / "more", patients=1, patches=9)
    (tmp_path / "more" / "idc" / "8863").rename(tmp_path / "idc" / "1")
    found = data.load("idc", tmp_path)
    assert len(found.x_train) == 18 and len(found.x_test) == 4


def test_a_missing_or_damaged_archive_is_told(tmp_path):
    with pytest.raises(MissingFile, match="idc/PATIENT/0"):
        data.load("idc", tmp_path)
    _archive(tmp_path, patients=1, patches=1)
    with pytest.raises(MissingFile, match=r"two at least.*1 found"):
        data.load("idc", tmp_path)
    _archive(tmp_path / "more", patients=2, patches=1)
    (tmp_path / "more" / "idc" / "8864").rename(tmp_path / "idc" / "8864")
    next((tmp_path / "idc").rglob("*.png")).write_bytes(b"no picture")
    with pytest.raises(InvalidArgument, match="readable"):
        idc(tmp_path)


def test_the_first_patches_are_of_all_patients(tmp_path):
    """8,000 of 39,952 patches in the order of patients were about 8 patients of hundreds."""
    for patient in range(10):
        for k in range(8):
            place = tmp_path / "idc" / f"{9000 + patient}" / str(k % 2)
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (50, 50), (patient, 0, 0)).save(place / f"{k}.png")
    found = idc(tmp_path, training=64, test=16)
    first = {int(x[0, 0, 0]) for x in found.x_train[:24]}
    assert len(first) >= 6 and first <= set(range(8))
    assert {int(x[0, 0, 0]) for x in found.x_test[:8]} == {8, 9}
