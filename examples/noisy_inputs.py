"""Residual perturbation: claim, proof and attack on one model, and a model that stops answering.

python examples/noisy_inputs.py
"""

import numpy as np
import torch

from privet import data
from privet.audit.membership import evaluate, yeom
from privet.guarantee import Unit
from privet.ledger import Ledger
from privet.methods.noisy_inputs import PlainTraining, QueryBudgetExceeded, QueryNet, ServedModel
from privet_papers.residual import PublishedResidual

torch.set_num_threads(1)
digits = data.load("digits")
half = len(digits.x_train) // 2
x, y = digits.train_rows(), digits.y_train

for gamma in (1e-6, 0.5):  # the paper's networks: next to no noise, and noise
    model = PublishedResidual(
        gamma=gamma, shape=(8, 8), classes=range(10), epochs=15, learning_rate=0.1, random_state=0
    ).fit(x[:half], y[:half])  # fmt: skip
    found = evaluate(yeom(model.predict_proba(x), y), np.arange(len(x)) < half, attack="loss")
    print(f"gamma {gamma:g}: test accuracy {model.score(digits.test_rows(), digits.y_test):.3f}")
    print(f"  claimed {model.claim_}")
    print(f"  proved  {model.guarantee_}")
    print(f"  attack  {found}")

# Strategy II: every answer costs, and the ledger counts
torch.manual_seed(0)
net = QueryNet(
    channels=1, classes=10, bound=20.0, floor=1.0, gamma=0.5, last=20.0, output_noise=0.5,
    widths=(8, 8, 16),
)  # fmt: skip
pictures = x.reshape(-1, 1, 8, 8)
PlainTraining(epochs=10, learning_rate=0.02).run(
    net, lambda epoch: torch.from_numpy(pictures), torch.from_numpy(np.array(y))
)
ledger = Ledger.in_memory(cap_epsilon=1e5, cap_delta=1e-5, unit=Unit.QUERY)
served = ServedModel.of(net, ledger)
print(f"an answer costs mu = {net.cost.mu:.3g}; room for {served.queries_left} queries")
asked = right = 0
try:
    for picture, label in zip(digits.test_rows(), digits.y_test, strict=True):
        right += int(served.predict(picture.reshape(1, 1, 8, 8))[0] == label)
        asked += 1
except QueryBudgetExceeded as stop:
    print(f"{right} of {asked} right; then: {stop}")
