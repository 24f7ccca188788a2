"""A process in which every benchmark net makes a whole private step on fake "cuda" tensors.

    python tests/gradients/fake_cuda.py LIBRARY [CASE ...]

LIBRARY is fake_cuda.cpp, compiled; it has to be there before torch asks for its devices. Prints a
line of JSON for each case: how far the clipped sum is from the host's (as sets of numbers, for the
host lays convolutions out in another order), relative to its largest number.
"""

import ctypes
import json
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(Path(__file__).parent)]


def load(library: str) -> None:
    """Load torch with a "cuda" that has neither memory nor kernels."""
    folder = Path(find_spec("torch").origin).parent / "lib"
    for path in (folder / "libtorch_cpu.so", Path(library)):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    import torch

    torch.backends.cuda.is_built = lambda: True
    torch.cuda._lazy_init = lambda: None  # torch's Python half would look for the real thing
    torch.backends.cuda.enable_flash_sdp(False)  # fused kernels that the host has not got
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") starts on the host
    torch.set_num_threads(1)


def trained(model, x, y):
    """The training, and the sum of its step before the noise."""
    import torch

    from benchmarks.dpsgd import losses_of
    from privet.dpsgd import Schedule, private
    from privet.methods.dpsgd import dpsgd_loop
    from privet.noise import seeded

    sums, release = [], dpsgd_loop.release_sum_
    dpsgd_loop.release_sum_ = lambda flat, **kw: (sums.append(flat.clone()), release(flat, **kw))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    schedule = Schedule(steps=1, sample_rate=1.0, noise_multiplier=1.0)
    home = trained[0].device

    def losses(model, batch):
        assert all(t.device == home for t in batch.tensors)
        return losses_of(model, batch.x, batch.y)

    with private(
        model, optimizer, (x, y), schedule, losses=losses, delta=1e-5, rng=seeded(0)
    ) as training:
        for _ in training:
            pass
    dpsgd_loop.release_sum_ = release
    return training, sums[0]


def main(library: str, names: list[str]) -> None:
    load(library)
    from dataclasses import replace

    import torch
    from standin_device import AWAY, Away, Elsewhere, sent_away

    from benchmarks.networks import CASES

    for name in names or CASES:
        case = replace(CASES[name], batch=3)
        here, x, y = case.build()
        there, *_ = case.build()
        before = [p.detach().clone() for p in there.parameters()]
        _, expected = trained(here, x, y)
        with Elsewhere():
            training, total = trained(sent_away(there), x, y)
        for old, p in zip(before, there.parameters(), strict=True):
            assert isinstance(p.data, Away) and p.device == AWAY
            assert p.requires_grad is not torch.equal(old, p.data.inner)  # noise reached all
        off = float((expected.sort()[0] - total.sort()[0]).abs().max() / expected.abs().max())
        told = {"net": name, "device": str(AWAY), "steps": training.steps_done, "off": off}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
