"""What runs of other libraries show, in the versions that are installed; ours in the same table."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata, util
from typing import Any, final

import numpy as np

from privet import loss as losses
from privet.audit.peers import audit_draws, certain_outputs, check_account, watching_opacus
from privet.audit.released import audit_releases
from privet.guarantee import Adjacency
from privet.noise import Source, seeded

DELTA = 1e-5
Q, Z, T = 0.01, 1.0, 1000
SAMPLED = losses.SampledGaussian(sample_rate=Q, noise_multiplier=Z, steps=T)
HOLDS, TOO_LITTLE, TELLS = "holds", "**states too little**", "**tells**"


@final
@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that was run: what was stated, what was found, and what to make of it."""

    library: str
    version: str
    what: str
    stated: str
    found: str
    verdict: str

    def to_dict(self) -> dict[str, str]:
        """A JSON-ready mapping."""
        return asdict(self)


Part = Callable[[str], Iterator[Entry]]


def _account(version: str, library: str, what: str, stated: float, loss: Any) -> Entry:
    seen = check_account(stated, loss, delta=DELTA)
    return Entry(
        library=library, version=version, what=what, stated=f"{seen.stated:.4g}",
        found=f"exact {seen.low:.4g} to {seen.high:.4g}",
        verdict=HOLDS if seen.holds else TOO_LITTLE,
    )  # fmt: skip


SAMPLE = f"q = {Q}, z = {Z:g}, {T:,} steps"
REPLACED = losses.Gaussian(mu=2.0 / Z)
FIXED = losses.FixedSizeGaussian(sample_rate=Q, noise_multiplier=Z, steps=T)


def privet(version: str) -> Iterator[Entry]:
    """Ours: the same questions as to everybody."""
    from privet.mechanisms import Laplace

    yield _account(version, "privet", SAMPLE, SAMPLED.epsilon(DELTA), SAMPLED)
    yield _account(version, "privet", "replace-one, z = 1", REPLACED.epsilon(DELTA), REPLACED)
    yield _account(version, "privet", "fixed-size samples", FIXED.epsilon(DELTA), FIXED)
    mechanism = Laplace(scale=1.0)

    def release(value: float, seed: int) -> float:
        from privet.bounds import count

        given = count([True] * round(value) + [False])
        return float(mechanism.release(given, rng=seeded(seed)))

    yield from _scalar("privet", version, "Laplace, scale 1", release)


def dp_accounting(version: str) -> Iterator[Entry]:
    """Google's accountants."""
    dp = import_module("dp_accounting")
    rdp = import_module("dp_accounting.rdp").RdpAccountant
    pld = import_module("dp_accounting.pld").PLDAccountant
    step = dp.PoissonSampledDpEvent(Q, dp.GaussianDpEvent(Z))
    replace_one = dp.NeighboringRelation.REPLACE_ONE
    fixed = dp.SampledWithoutReplacementDpEvent(10_000, 100, dp.GaussianDpEvent(Z))

    def stated(of: Any, event: Any, times: int, **told: Any) -> float:
        return float(of(**told).compose(event, times).get_epsilon(DELTA))

    name = "dp-accounting"
    yield _account(version, name, f"RDP: {SAMPLE}", stated(rdp, step, T), SAMPLED)
    yield _account(version, name, f"PLD: {SAMPLE}", stated(pld, step, T), SAMPLED)
    for kind, of in (("RDP", rdp), ("PLD", pld)):
        one = stated(of, dp.GaussianDpEvent(Z), 1, neighboring_relation=replace_one)
        yield _account(version, name, f"{kind}, replace-one, z = 1 as PLD reads it", one, REPLACED)
    many = stated(rdp, fixed, T, neighboring_relation=replace_one)
    yield _account(version, name, "RDP, replace-one, fixed-size samples, z likewise", many, FIXED)


def prv_accountant(version: str) -> Iterator[Entry]:
    """Microsoft's accountant: its upper bound."""
    prv = import_module("prv_accountant")
    step = prv.PoissonSubsampledGaussianMechanism(sampling_probability=Q, noise_multiplier=Z)
    account = prv.PRVAccountant(
        prvs=[step], max_self_compositions=[T], eps_error=0.01, delta_error=1e-10
    )
    upper = account.compute_epsilon(delta=DELTA, num_self_compositions=[T])[2]
    yield _account(version, "prv-accountant", SAMPLE, upper, SAMPLED)


def autodp(version: str) -> Iterator[Entry]:
    """Renyi accounting by the general bound for samples."""
    acct, bank = import_module("autodp.rdp_acct"), import_module("autodp.rdp_bank")
    account = acct.anaRDPacct()
    gaussian: Callable[[float], Any] = lambda x: bank.RDP_gaussian({"sigma": Z}, x)  # noqa: E731
    account.compose_subsampled_mechanism(gaussian, Q, coeff=T)
    stated = account.get_eps(DELTA)
    yield _account(version, "autodp", f"general bound: {SAMPLE}", stated, SAMPLED)


def opacus(version: str) -> Iterator[Entry]:
    """Its accountants, its steps, and rows that are not numbers."""
    accountants = import_module("opacus.accountants")
    for kind in ("RDPAccountant", "PRVAccountant"):
        account = getattr(accountants, kind)()
        account.history = [(Z, Q, T)]
        yield _account(version, "opacus", f"{kind}: {SAMPLE}", account.get_epsilon(DELTA), SAMPLED)
    account = accountants.RDPAccountant()
    account.history = [(Z, Q, T)]
    found = float(account.get_epsilon(1.5))
    yield Entry(
        library="opacus", version=version, what="RDPAccountant at delta 1.5",
        stated=f"{found:.2f}", found="no delta at all",
        verdict="refused" if found >= 0.0 else "**accepted**",
    )  # fmt: skip
    steps, noise = 4, 8.0
    proved = losses.Gaussian(mu=steps**0.5 / noise).epsilon(DELTA)

    def run(z: float) -> Callable[[bool, Source], object]:
        return lambda inside, rng: _opacus_steps(inside, rng, z, steps)

    seen = audit_releases(
        run(noise), without_noise=run(noise / 1000), what="DPOptimizer", claimed=None,
        proved=proved, delta=DELTA, adjacency=Adjacency.ADD_REMOVE, trials=100, rng=seeded(0),
    )  # fmt: skip
    yield Entry(
        library="opacus", version=version, what=f"{steps} full steps of DPOptimizer, z = {noise:g}",
        stated=f"{proved:.3g}", found=f"audited {seen.audited:.3g}, {seen.control:.0f} without",
        verdict=seen.verdict.value,
    )  # fmt: skip
    weights = _opacus_steps(True, seeded(0), 1.0, 1, bad=True)
    bad = bool(np.isnan(weights).any())
    yield Entry(
        library="opacus", version=version, what="one step with a row that is not a number",
        stated="", found="all weights NaN" if bad else "finite weights",
        verdict="**one record undoes all**" if bad else HOLDS,
    )  # fmt: skip


def _opacus_steps(
    inside: bool, rng: Source, z: float, steps: int, *, bad: bool = False
) -> np.ndarray[Any, Any]:
    """A linear model on four rows, one of which is there or blank; full batches, tiny steps."""
    torch = import_module("torch")
    module = import_module("opacus").GradSampleModule
    optimizers = import_module("opacus.optimizers").DPOptimizer
    torch.manual_seed(int(rng.integers(2**31, 1)[0]))
    model = module(torch.nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    optimizer = optimizers(
        torch.optim.SGD(model.parameters(), lr=1e-6), noise_multiplier=z, max_grad_norm=1.0,
        expected_batch_size=4,
    )  # fmt: skip
    x = torch.zeros(4, 3)
    x[0, 0] = (float("nan") if bad else 5.0) if inside else 0.0
    with watching_opacus(optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            (model(x) - 1.0).square().sum().backward()
            optimizer.step()
    weights: np.ndarray[Any, Any] = next(iter(model.parameters())).detach().numpy()
    return weights


def opendp(version: str) -> Iterator[Entry]:
    """A measurement of Rust's."""
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    measurement = dp.m.make_laplace(*space, scale=1.0)
    yield from _scalar("opendp", version, "make_laplace, scale 1", lambda v, seed: measurement(v))


def diffprivlib(version: str) -> Iterator[Entry]:
    """Mechanisms, without the package's own start if scikit-learn is too new for that."""
    try:
        import_module("diffprivlib")
    except ImportError:
        yield Entry(
            library="diffprivlib", version=version, what="import", stated="",
            found=f"fails beside scikit-learn {metadata.version('scikit-learn')}",
            verdict="**does not start**; mechanisms do",
        )  # fmt: skip
        for name in [n for n in sys.modules if n.split(".")[0] == "diffprivlib"]:
            del sys.modules[name]
        found = util.find_spec("diffprivlib")
        assert found is not None
        bare = types.ModuleType("diffprivlib")
        bare.__path__ = list(found.submodule_search_locations or ())
        sys.modules["diffprivlib"] = bare
    laplace = import_module("diffprivlib.mechanisms.laplace").Laplace
    mechanism = laplace(epsilon=1.0, sensitivity=1.0)
    yield from _scalar(
        "diffprivlib", version, "Laplace, epsilon 1", lambda v, seed: mechanism.randomise(v)
    )


def numpy(version: str) -> Iterator[Entry]:
    """Noise as everybody adds it first."""
    yield from _scalar(
        "numpy",
        version,
        "value + rng.laplace(), epsilon 1",
        lambda v, seed: v + np.random.default_rng(seed).laplace(),
    )


def _scalar(
    library: str, version: str, what: str, release: Callable[[float, int], float]
) -> Iterator[Entry]:
    """A number with noise for epsilon 1: how much is found by counting, and by its last bits."""
    found = audit_draws(
        lambda there, seed: release(float(there), seed), what=what, epsilon=1.0, trials=5_000
    )
    yield Entry(
        library=library, version=version, what=what, stated="1",
        found=f"audited {found.audited:.3g}", verdict=found.verdict.value,
    )  # fmt: skip
    share = certain_outputs(release)
    yield Entry(
        library=library, version=version, what=f"{what}: last bits", stated="",
        found=f"{share:.0%} of releases of 0 cannot be of 1", verdict=TELLS if share else HOLDS,
    )  # fmt: skip


PARTS: dict[str, Part] = {
    "privet": privet,
    "dp-accounting": dp_accounting,
    "prv-accountant": prv_accountant,
    "autodp": autodp,
    "opacus": opacus,
    "opendp": opendp,
    "diffprivlib": diffprivlib,
    "numpy": numpy,
}
"""By the name of the distribution."""


def entries(names: tuple[str, ...] = tuple(PARTS)) -> Iterator[Entry]:
    """All that installed libraries show; one line for each that is not installed."""
    for name in names:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Entry(
                library=name, version="", what="", stated="", found="",
                verdict="not installed: pip install 'privet[peers]'",
            )  # fmt: skip
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from PARTS[name](version)
