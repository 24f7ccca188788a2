"""Noise drawn once, whatever the number of epochs: moments, a shaped network, and the paper's own.

python examples/moments.py
"""

import numpy as np

from privet import AdaptiveLaplaceClassifier, data
from privet.ledger import Ledger
from privet_papers.adaptive_laplace import PublishedAdLM

digits = data.load("digits")
x, y = digits.train_rows(), digits.y_train
x_test, y_test = digits.test_rows(), digits.y_test
told = {"bounds": (0, 1), "classes": range(10), "random_state": 0}  # public, never read from x

# One-shot moments: sums of products with noise, then any solver for any number of epochs.
ledger = Ledger.in_memory(cap_epsilon=6.0, cap_delta=1e-5)
moments = AdaptiveLaplaceClassifier(epsilon=2.0, ledger=ledger, **told).fit(x, y)
print(f"moments            {moments.score(x_test, y_test):.1%}  {moments.guarantee_}")

# The same without any delta: Laplace noise, a promise that never fails.
pure = AdaptiveLaplaceClassifier(epsilon=4.0, delta=0.0, ledger=ledger, **told).fit(x, y)
print(f"moments, delta 0   {pure.score(x_test, y_test):.1%}  {pure.guarantee_}")
print(f"spent {ledger.spent():.3f} of {ledger.cap_epsilon:g}")

# Noise shaped by relevance against the same noise everywhere.
for exponent in (0.25, 0.0):
    mean = np.mean(
        [
            AdaptiveLaplaceClassifier(
                epsilon=2.0, exponent=exponent, **(told | {"random_state": seed})
            )
            .fit(x, y)
            .score(x_test, y_test)
            for seed in range(5)
        ]
    )
    print(f"{'shaped' if exponent else 'identical'} noise, five seeds: {mean:.1%}")

# As published: the epsilon is a claim, and what is proved is something else.
published = PublishedAdLM(epsilon=2.0, epochs=5, classes=range(10), random_state=0).fit(x, y)
print(f"published          {published.score(x_test, y_test):.1%}")
print(f"  claim     {published.claim_}")
print(f"  guarantee {published.guarantee_}")
