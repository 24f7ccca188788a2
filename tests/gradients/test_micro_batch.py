"""The opt-in for the allocator, and what it must not take from the rest of a process."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from privet.gradients import keep_freed_memory

OTHERS = """
import torch
from privet.gradients import keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

keep_freed_memory()
before, kept = resident(), []
for k in range(24):
    one, other = torch.ones((33 + 4 * k) * 2**18), torch.ones((34 + 5 * k) * 2**18)
    kept.append(torch.ones(5000 + 997 * k))
    del one
    kept.append(torch.ones(9000 + 991 * k))
    del other
print((resident() - before) // 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_large_blocks_of_other_code_go_back_to_the_system():
    """Holes between blocks of 33 to 150 MB stayed resident: 300 MB here, gigabytes in the end."""
    found = subprocess.run([sys.executable, "-c", OTHERS], capture_output=True, check=True)
    assert int(found.stdout) < 64


@pytest.mark.parametrize("error", [None, OSError("no dynamic loading")])
def test_without_glibc_nothing_is_asked(monkeypatch, error):
    def load(name):
        if error is not None:
            raise error
        return SimpleNamespace()

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", load)
    keep_freed_memory()
