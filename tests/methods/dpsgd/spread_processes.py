"""What each process of test_fsdp_processes.py does with a model spread by fully_shard; also run alone."""

import json
import os
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from privet.errors import PrivetError
from privet.gradients import FlatClipping
from privet.ledger import Ledger
from privet.methods.dpsgd import AdaptiveBound, Checkpoints, Schedule, dpsgd_loop, private
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import grouped
from tests.methods.dpsgd.live_memory import LiveMemory
from tests.methods.dpsgd.several_processes import leave

STEPS, RECORDS = 5, 61


class Block(nn.Module):
    """Attention and a small network, each after a normalisation and beside a path around it."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.RMSNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.more = nn.Sequential(
            nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
        )

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.more(self.second(x))


class Transformer(nn.Module):
    """Words and positions, blocks, and a head tied to the words."""

    def __init__(self, width=8, words=11, length=5):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        y = self.words(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            y = block(y)
        return self.head(y)


def mlp(width=9, depth=1):
    inside = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(nn.Linear(5, width), nn.Tanh(), *inside, nn.Linear(width, 3))


def data(mode):
    g = torch.Generator().manual_seed(3)
    if mode.startswith("transformer"):
        return torch.randint(11, (RECORDS, 5), generator=g), torch.zeros(RECORDS)
    x = torch.randn(RECORDS, 5, generator=g)
    if mode == "other record":
        x[-1] *= -7.0  # a record of the second process
    return x, x.abs().argmax(1) % 3


def losses_of(model, batch):
    if batch.x.is_floating_point():
        return nn.functional.cross_entropy(model(batch.x).float(), batch.y, reduction="none")
    logits = model(batch.x)[:, :-1].transpose(1, 2)
    return nn.functional.cross_entropy(logits, batch.x[:, 1:], reduction="none").sum(1)


def spread(model, **policy):
    parts = (
        model.blocks
        if isinstance(model, Transformer)
        else [m for m in model if len([*m.parameters()])]
    )
    for part in parts:
        fully_shard(part, **policy)
    return fully_shard(model, **policy)


def whole(tensors):
    """Flat, of the whole model."""
    full = [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]
    return torch.cat([t.detach().reshape(-1) for t in full])


def main(folder: str, mode: str) -> None:
    torch.set_num_threads(1)
    together = "RANK" in os.environ
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(1)
    shape = {"width": 120, "depth": 6} if mode == "memory" else {}
    model = Transformer() if mode.startswith("transformer") else mlp(**shape)
    if together:
        half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
        spread(model, **({"mp_policy": half} if mode == "half" else {}))
    size = sum(p.numel() for p in model.parameters())
    sums, scales, live = [], [], LiveMemory()
    real = dpsgd_loop.release_sum_

    def watched(flat, **kw):
        sums.append(flat.clone())
        scale = real(flat, **kw)
        scales.append((scale, kw["sensitivity"], float((flat - sums[-1]).abs().max())))
        return scale

    dpsgd_loop.release_sum_ = watched
    path = f"{folder}/{'together' if together else 'alone'}.ledger"
    if rank == 0:
        Ledger.create(path, cap_epsilon=5.0, cap_delta=1e-5)
    if together:
        dist.barrier()
    adaptive = AdaptiveBound(initial=2.0) if mode == "adaptive" else 0.7
    steps = 1 if mode in ("one record", "other record", "memory") else STEPS
    rate = 1.0 if mode in ("one record", "other record") else 0.3
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    examples, said, answer = 0, "", {}
    extra = {"checkpoints": Checkpoints(folder=f"{folder}/run")} if mode == "checkpoints" else {}
    extra |= {"ema": 0.9} if mode == "ema" else {}
    other = mode.removeprefix("other ") if rank == 1 else ""  # what the second is given instead
    noise = 1e-3 if other == "schedule" else 1.2
    secret = mode in ("secure", "other kind of noise source") and other != "kind of noise source"
    try:
        with private(
            model, optimizer, data(mode),
            Schedule(
                steps=steps, sample_rate=rate, noise_multiplier=noise, clipping_bound=adaptive
            ),
            rng=secure() if secret else seeded(8 if other == "seed" else 7),
            ledger=Ledger.open(path),
            **grouped({
                "independence": "tested",  # nothing is traced of a model in parts
                "clipping": lambda c: FlatClipping(bound=100 * c if other == "model" else c),
                "micro_batch": 4, **extra,
            }),
        ) as training:  # fmt: skip
            training.check(losses_of)
            for batch in training:
                examples += len(batch)
                with live if mode == "memory" else nullcontext():
                    training.step(losses_of(model, batch))
    except PrivetError as error:
        said = str(error)
    else:
        state = [s for p in model.parameters() for s in optimizer.state[p].values() if s.dim()]
        answer = {
            "examples": examples,
            "weights": whole(model.parameters()).tolist(),
            "sums": [s.tolist() for s in sums],
            "places": training._processes.places.runs if together else None,
            "scales": scales,
            "held": sum(s.numel() for s in sums[-1:]),
            "state": sum((s.to_local() if together else s).numel() for s in state),
            "epsilon": training.epsilon_spent,
            "guarantee": training.guarantee.to_dict(),
            "spent": Ledger.open(path).spent(),
            "steps": training.steps_done,
            "bound": training.bound,
        }
    answer |= {"said": said, "size": size, "peak": live.peak, "largest": live.largest}
    dpsgd_loop.release_sum_ = real
    with open(f"{folder}/{'rank' if together else 'alone'}{rank}.json", "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    for one in sys.argv[2:]:
        main(f"{sys.argv[1]}/{one}", one)
    leave()
