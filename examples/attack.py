"""Attack a model that is not ours: anything that answers with probabilities.

python examples/attack.py

A scikit-learn model is trained on half of the digits, a tenth of whose labels are wrong. Sixteen
reference models of the same kind tell which records it remembers.
"""

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from privet import data
from privet.audit import membership
from privet.report import plots

digits = data.load("digits")
draw = np.random.default_rng(0)
X, y = digits.train_rows()[:600], digits.y_train[:600].copy()
wrong = draw.random(600) < 0.1
y[wrong] = draw.integers(0, 10, wrong.sum())


def train(X, y, seed):
    """Any recipe: records, labels and a seed to a function that answers with probabilities."""
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.01).fit(X, y).predict_proba


members = draw.permutation(600) < 300
target = train(X[members], y[members], 0)
references = membership.train_references(train, X, y, 16, seed=1)

phi = membership.confidence(target(X), y)
attacks = {
    "loss": membership.yeom(target(X), y),
    "LiRA": membership.LiRA().score(phi, references),
    "RMIA": membership.RMIA().score(phi, references),
    "RMIA offline": membership.OfflineRMIA().tune(references).score(phi, references),
}
findings = [membership.evaluate(s, members, attack=name) for name, s in attacks.items()]
for finding in findings:
    print(finding)
by_label = membership.evaluate(
    attacks["RMIA"], members, attack="RMIA", groups=np.where(wrong, "wrong label", "right label")
)
for name, part in by_label.by_group.items():
    print(f"RMIA, {name}: AUC {part.auc}")
print(plots.save(plots.roc(findings), "membership-roc.png"))
