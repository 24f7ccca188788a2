"""Slow and obvious membership attacks: the papers' formulas, one record and one pair at a time.

Nothing here comes from privet. LiRA: Carlini et al. (2022), algorithm 1 and equation 4. RMIA:
Zarifzadeh et al. (2024), equations 2 to 4 and appendix B.2.2. DeLong et al. (1988).
"""

from __future__ import annotations

import math
import statistics

import numpy as np
from scipy.stats import norm


def phi(probabilities, label):
    """log p_y - log of the other probabilities' sum."""
    others = math.fsum(p for j, p in enumerate(probabilities) if j != label)
    return math.log(probabilities[label]) - math.log(others)


def split(confidences, members, i):
    """What references with and without record i say of it."""
    inside = [float(c[i]) for c, m in zip(confidences, members, strict=True) if m[i]]
    outside = [float(c[i]) for c, m in zip(confidences, members, strict=True) if not m[i]]
    return inside, outside


def pooled_variance(samples):
    """One variance for many small samples, each about its own mean."""
    squares = math.fsum(sum((x - statistics.fmean(s)) ** 2 for x in s) for s in samples)
    return squares / sum(len(s) - 1 for s in samples)


def overall_variance(samples):
    """One variance for many small samples, as if they were one."""
    return statistics.pvariance([x for s in samples for x in s])


def lira(target, confidences, members, *, own_variance, centre=statistics.fmean,
         pool=pooled_variance):  # fmt: skip
    """log likelihood ratio of two normal laws, for each record."""
    sides = [split(confidences, members, i) for i in range(len(target))]
    pooled = None if own_variance else [pool([s[k] for s in sides]) for k in (0, 1)]
    scores = []
    for t, side in zip(target, sides, strict=True):
        logs = []
        for k in (0, 1):
            variance = statistics.pvariance(side[k]) if pooled is None else pooled[k]
            logs.append(norm.logpdf(t, centre(side[k]), math.sqrt(variance)))
        scores.append(logs[0] - logs[1])
    return np.array(scores)


def lira_offline(target, confidences, members, *, own_variance, centre=statistics.fmean,
                 pool=pooled_variance):  # fmt: skip
    """1 - P[Z > phi] for Z normal as references without the record."""
    sides = [split(confidences, members, i)[1] for i in range(len(target))]
    pooled = None if own_variance else pool(sides)
    scores = []
    for t, side in zip(target, sides, strict=True):
        variance = statistics.pvariance(side) if pooled is None else pooled
        scores.append(1.0 - norm.sf(t, centre(side), math.sqrt(variance)))
    return np.array(scores)


def probability(confidence):
    return 1.0 / (1.0 + math.exp(-confidence))


def rmia(target, confidences, members, *, gamma, a=None):
    """P_z[LR(x, z) >= gamma] over all pairs; online, or offline with a."""
    ratios = []
    for i, t in enumerate(target):
        inside, outside = split(confidences, members, i)
        p_out = statistics.fmean(map(probability, outside))
        if a is None:
            average = 0.5 * (statistics.fmean(map(probability, inside)) + p_out)
        else:
            average = 0.5 * ((1.0 + a) * p_out + (1.0 - a))
        ratios.append(probability(t) / average)
    return np.array([sum(x / z >= gamma for z in ratios) / len(ratios) for x in ratios])


def softened(logits, label, temperature):
    """The label's share of softmax(z / T)."""
    weights = [math.exp((z - max(logits)) / temperature) for z in logits]
    return weights[label] / math.fsum(weights)


def rmia_of_logits(target, references, labels, members, *, gamma, temperature, a=None, one=False):
    """RMIA as the peers compute it: a temperature of the softmax, ratios above gamma, all records
    as the population. Online (`a` None): the mean of all references. `one`: what a reference that
    saw the record would have said without it is read off the line p_in = a p_out + 1 - a."""
    ratios = []
    for i, (z, y) in enumerate(zip(target, labels, strict=True)):
        said = [softened(r[i], y, temperature) for r in references]
        saw = [bool(m[i]) for m in members]
        if one:
            said = [(p + a - 1.0) / a if s else p for p, s in zip(said, saw, strict=True)]
        elif a is not None:
            said = [p for p, s in zip(said, saw, strict=True) if not s]
        average = statistics.fmean(said)
        if a is not None:
            average = 0.5 * ((1.0 + a) * average + 1.0 - a)
        ratios.append(softened(z, y, temperature) / average)
    beaten = [[x > gamma * z if z > 0.0 else x < gamma * z for z in ratios] for x in ratios]
    return np.array([sum(b) / len(b) for b in beaten])


def area(inside, outside):
    """The share of (member, non-member) pairs in the right order, ties for half, and DeLong's
    variance from each record's own share."""
    psi = np.array([[1.0 if x > z else 0.5 if x == z else 0.0 for z in outside] for x in inside])
    by_member, by_other = psi.mean(axis=1), psi.mean(axis=0)
    variance = statistics.variance(by_member) / len(inside)
    variance += statistics.variance(by_other) / len(outside)
    return float(psi.mean()), variance


def best_rate(inside, outside, f):
    """The largest true-positive rate of a rule "score > t" with a false-positive rate <= f."""
    best = 0.0
    for t in [-math.inf, *inside, *outside]:
        if sum(z > t for z in outside) <= f * len(outside) + 1e-9:
            best = max(best, sum(x > t for x in inside) / len(inside))
    return best
