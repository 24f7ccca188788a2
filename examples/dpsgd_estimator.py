"""A private classifier in one line, charged to a ledger on disk.

python examples/dpsgd_estimator.py
"""

import tempfile
from pathlib import Path

from privet import data
from privet.estimators import DPSGDClassifier
from privet.ledger import Ledger

digits = data.load("digits")
with tempfile.TemporaryDirectory() as folder:
    ledger = Ledger.create(Path(folder) / "digits.ledger", cap_epsilon=3.0, cap_delta=1e-5)
    clf = DPSGDClassifier(
        epsilon=2.0, classes=range(10), bounds=(0, 1), ledger=ledger, random_state=0
    )
    clf.fit(digits.train_rows(), digits.y_train)
    print(f"test accuracy {clf.score(digits.test_rows(), digits.y_test):.1%}")
    print(f"proved  {clf.guarantee_}")
    print(f"claimed {clf.claim_}")
    print(f"spent   {ledger.spent():.4f} of {ledger.cap_epsilon:g}")
