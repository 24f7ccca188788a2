"""Scripts that tests run in two processes by torchrun, and alone: started once for all their modes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import torch.distributed as dist

ROOT = Path(__file__).parents[3]


def launch(script, folder, *, modes, alone):
    """Run a script once in two processes for all `modes`, and once alone for those of `alone`."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for mode in modes:
        (folder / mode).mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                "--master-addr=127.0.0.1", f"--master-port={port}"]  # fmt: skip
    for command, some in ((torchrun, modes), ([sys.executable], alone)):
        done = subprocess.run(
            [*command, "-m", script, str(folder), *some],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]


def answers(folder, mode, *, alone=True):
    """What the process alone, if it ran, and the two together wrote."""
    names = (*(("alone0",) if alone else ()), "rank0", "rank1")
    return [json.loads((folder / mode / f"{n}.json").read_text()) for n in names]


def leave() -> None:
    """End now, with everything written, and without taking the interpreter down.

    A worker thread of gloo may still hold the tensors of the last message; where it lets go of
    them while the interpreter is being taken down the process aborts (pytorch/pytorch#179291).
    """
    if dist.is_initialized():
        dist.barrier()  # nobody is ended while another still listens to it
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
