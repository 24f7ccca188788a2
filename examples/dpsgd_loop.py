"""A private training loop of your own: decaying bounds, a ledger, a claim and a proof.

python examples/dpsgd_loop.py
"""

import torch
from torch.nn import functional

from privet import data, dpsgd, noise
from privet.ledger import Ledger

digits = data.load("digits")
x = torch.from_numpy(digits.train_rows())
y = torch.from_numpy(digits.y_train.copy())

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=5.0, momentum=0.9)
schedule = dpsgd.Schedule.for_budget(
    epsilon=4.0,
    delta=1e-5,
    steps=120,
    sample_rate=0.2,
    clipping_bound=dpsgd.geometric(0.3, 0.1, 120),
)
ledger = Ledger.in_memory(cap_epsilon=4.0, cap_delta=1e-5)


def losses(model: torch.nn.Module, batch: dpsgd.Batch) -> torch.Tensor:
    """One loss a row."""
    return functional.cross_entropy(model(batch.x), batch.y, reduction="none")


with dpsgd.private(
    model, optimizer, (x, y), schedule, losses=losses, ledger=ledger, rng=noise.seeded(0),
    step=dpsgd.StepOptions(ema=0.9),
) as training:  # fmt: skip
    for step in training:
        if step.number % 40 == 0:
            print(f"step {step.number}: epsilon {training.epsilon_spent:.2f} charged")

test = torch.from_numpy(digits.test_rows())
right = training.averaged_model()(test).argmax(1).numpy() == digits.y_test
print(f"test accuracy {right.mean():.1%}")
print(f"proved  {training.guarantee}")
print(f"claimed {training.claim}")
