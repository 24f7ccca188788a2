"""Files written whole: the old one or the new one, never a part, and nothing left beside it."""

import os
import stat

import numpy as np
import pytest

from privet._atomic_files import replacing, write_whole


def test_an_error_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    place = tmp_path / "a"
    write_whole(place, b"old")
    with pytest.raises(ValueError, match="allow_pickle"), replacing(place) as file:
        np.save(file, np.array(object()), allow_pickle=False)
    assert place.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    place = tmp_path / "a"
    write_whole(place, "old")
    with replacing(place) as file:
        file.write(b"new")
        file.flush()
        assert place.read_text() == "old"
    assert place.read_text() == "new" and os.listdir(tmp_path) == ["a"]


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    place = tmp_path / "a"
    with replacing(place) as first, replacing(place) as second:
        first.write(b"1" * 10)
        second.write(b"2" * 5)
    assert place.read_bytes() == b"1" * 10  # the one that ends last


@pytest.mark.parametrize("mode", [0o666, 0o600])
def test_a_file_is_readable_as_the_umask_says_unless_it_is_to_be_secret(tmp_path, mode):
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "a", mode=mode):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode & ~0o027
