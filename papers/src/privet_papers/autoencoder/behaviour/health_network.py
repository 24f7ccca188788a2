"""A generated health social network with the paper's 30 attributes and known influence.

The data of the paper (254 overweight people, 300 days, 1,383 friendships, 2,766 messages, 11,458
competitions) cannot be had; this makes a network of the same sizes. It is a model, not a claim
about people: what a method finds here can be compared with what was put in.

Activity is base_u exp(s_ut / 2), where the state s_ut follows

    s_u,t+1 = rho s_ut + sum_v Psi(v, u) s_vt + competitions + encouragement + calendar + noise.

Psi, the influence of v on u, is non-zero along friendships only, and strong between friends who
have many friends in common. Friends live near each other in a space of traits (homophily), which
also sets their level of activity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet_papers.argument_checks import check_counts, check_in_unit
from privet_papers.autoencoder.behaviour.panel_data import Panel

Array = NDArray[np.float64]

BEHAVIOURS = (
    "joining competitions", "exercising days", "goals set", "goals achieved", "distances", "speeds",
)  # fmt: skip
MESSAGES = (
    "Encouragement", "Fitness", "Followup", "Competition", "Games", "Personal", "Study protocol",
    "Progress report", "Technique", "Social network", "Meetups", "Goal", "Wellness meter",
    "Feedback", "Heckling", "Explanation", "Invitation", "Notice", "Technical fitness", "Physical",
)  # fmt: skip
BIOMETRICS = ("Wellness Score", "BMI", "BMI slope", "Wellness Score slope")
ATTRIBUTES = (*BEHAVIOURS, *MESSAGES, *BIOMETRICS)
"""The paper's 30 attributes."""

LOW = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, *([0.0] * 20), 0.0, 18.0, -1.0, -1.0)
HIGH = (3.0, 7.0, 3.0, 3.0, 20.0, 12.0, *([3.0] * 20), 100.0, 55.0, 1.0, 1.0)
FRIENDSHIPS_PER_USER, JOINING, MESSAGING = 1383 / 254, 11458 / (254 * 300), 2766 / (254 * 300)
"""Friendships a user; competitions joined and messages received a user and day."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HealthNetwork:
    """A generated panel and the truth behind it.

    `influence[v, u]` is Psi(v, u); `states` are the s_ut, recorded or not.
    """

    panel: Panel
    influence: Array = field(repr=False)
    states: Array = field(repr=False)


def health_network(
    *,
    users: int = 254,
    days: int = 300,
    seed: int = 0,
    persistence: float = 0.2,
    contagion: float = 0.65,
    missing: float = 0.05,
) -> HealthNetwork:
    """Generate a network; equal seeds give equal networks.

    `persistence` is rho, `contagion` the most that Psi(., u) sums to (users with few close friends
    are moved less); they must leave the states stable (sum below 1). `missing` is the share of days
    that are not recorded; users also join at different times, in the first eighth.

    >>> made = health_network(users=30, days=20, seed=1)
    >>> made.panel.values.shape, bool((made.influence.sum(axis=0) < 0.66).all())
    ((30, 20, 30), True)
    """
    check_counts(8, users=users)
    check_counts(10, days=days)
    check_counts(0, seed=seed)
    check_in_unit(persistence=persistence, contagion=contagion, missing=missing)
    n, length, rho, kappa = users, days, persistence, contagion
    if rho + kappa >= 1.0:
        raise InvalidArgument("contagion", contagion, "less than 1 - persistence, or states grow")
    rng = np.random.default_rng(seed)
    traits = rng.normal(size=(n, 2))
    edges = _friendships(traits, round(FRIENDSHIPS_PER_USER * n), rng)
    influence = kappa * _tie_strength(edges, n)
    joins = _competitions(n, length, edges, rng)
    messages = rng.poisson(MESSAGING / len(MESSAGES), size=(n, length, len(MESSAGES))).astype(float)
    states = _states(influence, joins, messages[:, :, 0], rho, rng)
    values = _attributes(traits, states, joins, messages, rng)
    starts = rng.integers(0, max(length // 8, 1), n)
    absent = rng.random((n, length)) < missing
    values[absent | (np.arange(length)[None, :] < starts[:, None])] = np.nan
    panel = Panel(
        name="health network",
        about=f"generated: {n} users, {length} days, {len(edges)} friendships",
        values=values,
        attributes=ATTRIBUTES,
        target="distances",
        low=np.array(LOW),
        high=np.array(HIGH),
        users=tuple(f"user{i}" for i in range(n)),
        edges=edges,
        events=("joining competitions", "Encouragement", "Meetups"),
        season=7,
    )
    return HealthNetwork(panel=panel, influence=influence, states=states)


def _friendships(traits: Array, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Pairs drawn with weights that fall with distance; most friendships are among neighbours."""
    n = len(traits)
    first, second = np.triu_indices(n, 1)
    distance = np.linalg.norm(traits[first] - traits[second], axis=1)
    weight = np.exp(-4.0 * distance) + 0.002
    chosen = rng.choice(
        len(first), size=min(count, len(first)), replace=False, p=weight / weight.sum()
    )
    return np.column_stack([first[chosen], second[chosen]]).astype(np.int64)


def _tie_strength(edges: NDArray[np.int64], n: int) -> Array:
    """Columns that sum to 1 at most: ties with three common friends or more count tenfold."""
    graph = np.zeros((n, n))
    graph[edges[:, 0], edges[:, 1]] = graph[edges[:, 1], edges[:, 0]] = 1.0
    common = graph @ graph
    strength = graph * np.where(common >= 3, 1.0, 0.1)
    return np.asarray(strength / np.maximum(strength.sum(axis=0, keepdims=True), 2.0))


def _competitions(
    n: int, length: int, edges: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Who joins a competition when: invitations go to friends, so friends join together."""
    joins = np.zeros((n, length))
    friends: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        friends[a].append(int(b))
        friends[b].append(int(a))
    for day in range(length):
        wanted = rng.poisson(JOINING * n)
        while joins[:, day].sum() < wanted:
            host = int(rng.integers(n))
            group = [host, *(f for f in friends[host] if rng.random() < 0.5)]
            joins[group, day] += 1.0
    return np.minimum(joins, 3.0)


def _states(
    influence: Array, joins: Array, encouragement: Array, rho: float, rng: np.random.Generator
) -> Array:
    n, length = joins.shape
    states = np.zeros((n, length))
    state = rng.normal(size=n)
    for day in range(length):
        states[:, day] = state
        week = 0.3 * np.sin(2.0 * np.pi * (day + 1) / 7.0)
        pushed = 0.7 * joins[:, day] + 1.2 * encouragement[:, day] + week - 0.11
        state = rho * state + influence.T @ state + pushed + 0.6 * rng.normal(size=n)
    return states


def _attributes(
    traits: Array, states: Array, joins: Array, messages: Array, rng: np.random.Generator
) -> Array:
    n, length = states.shape
    base = 3.0 * np.exp(0.3 * traits[:, :1])
    distance = base * np.exp(0.5 * states)
    exercised = (distance > 0.8 * base).astype(float)
    goals = (rng.random((n, length)) < 0.1).astype(float)
    achieved = goals * (distance > base)
    speed = 4.5 + 0.8 * states + 0.3 * traits[:, 1:] + 0.4 * rng.normal(size=(n, length))
    gain = 0.01 * np.cumsum(states - states.mean(), axis=1)
    wellness = np.clip(60.0 + 5.0 * traits[:, 1:] + gain + rng.normal(size=(n, length)), 0.0, 100.0)
    bmi = 33.0 + 3.0 * traits[:, :1] - 0.2 * gain + 0.1 * rng.normal(size=(n, length))
    columns = [
        joins, _over_a_week(exercised), goals, achieved, distance, speed,
        *np.moveaxis(messages, 2, 0), wellness, bmi, _slope(bmi), _slope(wellness) / 5.0,
    ]  # fmt: skip
    return np.stack(columns, axis=2)


def _over_a_week(x: Array) -> Array:
    """Sums over the last seven days."""
    total = np.cumsum(x, axis=1)
    total[:, 7:] -= total[:, :-7].copy()
    return total


def _slope(x: Array) -> Array:
    """Change over the last seven days."""
    out = np.zeros_like(x)
    out[:, 7:] = x[:, 7:] - x[:, :-7]
    return out
