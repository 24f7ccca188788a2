"""What each process of test_distributed.py does; also run alone, for comparison."""

import json
import os
import sys

import torch
import torch.distributed as dist

from privet.ledger import Ledger
from privet.methods.dpsgd import AdaptiveBound, Checkpoints, Schedule, dpsgd_loop
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import data, losses_of, network, start, weights
from tests.methods.dpsgd.several_processes import leave


def main(folder: str, mode: str) -> None:
    torch.set_num_threads(1)
    together = "RANK" in os.environ
    rank = int(os.environ.get("RANK", "0"))
    noises = []
    real = dpsgd_loop.release_sum_

    def watched(flat, **kw):
        before = flat.clone()
        scale = real(flat, **kw)
        noises.append(float((flat - before).norm()))
        return scale

    dpsgd_loop.release_sum_ = watched
    model = network(seed=1 + rank)  # different at first: the first process's weights must win
    bound = AdaptiveBound(initial=2.0) if mode == "adaptive" else 0.7
    examples = 0
    path = f"{folder}/{'together' if together else 'alone'}.ledger"
    if rank == 0:
        Ledger.create(path, cap_epsilon=5.0, cap_delta=1e-5)
    if together:
        dist.barrier()
    steps = 12
    if mode == "wrapped" and together:
        model = torch.nn.parallel.DistributedDataParallel(model)
    with start(
        model=model,
        tensors=data(301),
        schedule=Schedule(steps=steps, sample_rate=0.3, noise_multiplier=1.2, clipping_bound=bound),
        rng=secure() if mode == "secure" else seeded(7),
        ledger=Ledger.open(path),
        ema=0.9,
        micro_batch=20,
        lr=0.1,
        checkpoints=Checkpoints(folder=f"{folder}/{together}", every=5),
    ) as training:
        training.check(losses_of)
        for batch in training:
            examples += len(batch)
            training.step(losses_of(model, batch))
    answer = {
        "rank": rank,
        "examples": examples,
        "noises": len(noises),
        "weights": weights(model).tolist(),
        "average": weights(training.averaged_model()).tolist(),
        "epsilon": training.epsilon_spent,
        "claim": training.claim.epsilon,
        "steps": training.steps_done,
        "stopped_early": training.stopped_early,
        "spent": Ledger.open(path).spent(),
        "bound": training.bound,
    }
    dpsgd_loop.release_sum_ = real
    with open(f"{folder}/{'rank' if together else 'alone'}{rank}.json", "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    for one in sys.argv[2:]:
        main(f"{sys.argv[1]}/{one}", one)
    leave()
