"""Learned codes and a classifier on them, from moments that are released once a layer.

python examples/autoencoder.py
"""

from __future__ import annotations

import numpy as np

from privet import PrivateAutoencoder, PrivateAutoencoderClassifier, data
from privet.ledger import Ledger
from privet_papers.autoencoder import PublishedDPA

digits = data.load("digits")  # 8x8 pictures, inside the package
x, x_test = digits.train_rows(), digits.test_rows()

# Codes: fit, transform, and back. Bounds are declared, never read from the records.
encoder = PrivateAutoencoder(epsilon=4.0, bounds=(0, 1), layers=(12,), random_state=0).fit(x)
back = encoder.inverse_transform(encoder.transform(x_test))
left = np.square(back - x_test).sum() / np.square(x_test - x.mean(axis=0)).sum()
print(f"12 units keep {1 - left:.0%} of the variance; {encoder.guarantee_}")

# A classifier with its own learned layer, charged to a ledger before anything is drawn.
ledger = Ledger.in_memory(cap_epsilon=4.0, cap_delta=1e-5)
classifier = PrivateAutoencoderClassifier(
    epsilon=4.0, bounds=(0, 1), classes=range(10), layers=(30,), ledger=ledger, random_state=0
).fit(x, digits.y_train)
print(f"test accuracy {classifier.score(x_test, digits.y_test):.1%}; {classifier.guarantee_}")
print(f"spent: {ledger.spent():.3f} of 4")

# The paper's own algorithm: its epsilon is a claim, and nothing is proved.
published = PublishedDPA(
    epsilon=4.0, bounds=(0, 1), classes=range(10), layers=(10,), epochs=20, random_state=0
).fit(x, digits.y_train)
print(f"published: {published.score(x_test, digits.y_test):.1%}")
print(f"  claim {published.claim_}")
print(f"  guarantee {published.guarantee_}")
