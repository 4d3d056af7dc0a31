"""Posterior over the click patterns of all lists, given an honest update, by Gibbs sampling."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.ranking.lists import Lists, click_map
from attacks.ranking.priors import ListPrior, PosteriorAttack, log_prior
from protocol.click_models import patterns, sample_patterns
from protocol.ranges import AtLeastTwo, PositiveInt
from protocol.rankers import stack_model
from protocol.simulators import RankingSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView

_SHRINKAGE = 0.1
_RIDGE = 0.02
"""Regularisation of the covariance of the model's error: shrinkage, and multiple of its mean that is added."""


@dataclass(frozen=True, kw_only=True)
class ListPosterior(PosteriorAttack):
    """Posterior over click patterns by Gibbs sampling, instead of RAIFLE's relaxed optimisation.

    The update is nearly linear in the clicks if the pair weights are taken at the midpoint of the local training, whose
    ends the server knows; the order of the queries then has little effect. If clients clip and add noise, the end is
    estimated: the received update times a factor fitted to simulated clients, because pair weights at a noisy end would
    follow the noise. The error of the linear model is estimated from the same simulated clients, whose clicks are drawn
    from the prior.

    Threat model: a passive server that knows the served documents, their displayed order, the learning algorithm, and
    the prior of the clicks.

    Args:
        prior: see `log_prior`.
        chains: Gibbs chains per victim.
        sweeps: passes over a victim's lists.
        simulated: simulated clients per victim.
        victims_at_once: victims processed together, which bounds the memory; None for all.

    References:
        This project; the setting is that of Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163,
        section V.B.
    """

    name = "list-posterior"
    cost = "`simulated` trainings and `chains` times `sweeps` passes over the lists, per victim"
    threat_model = ThreatModel(
        sees="each client's update and the documents it was served",
        knows="the learning algorithm, the displayed order, and how many clicks a list gets (count prior)",
        needs=("served", "lists", "features", "learner:RankingSimulator", "deltas"),
    )

    prior: ListPrior = "count"
    chains: PositiveInt = 4
    sweeps: PositiveInt = 90
    simulated: AtLeastTwo = 48
    victims_at_once: PositiveInt | None = 32

    def marginals(self, view: ServerView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        problem = _Problem(
            view.require(RankingSimulator),
            {name: value.double() for name, value in view.model.items()},
            lists.features[chunk].double(),
            lists.mask[chunk],
        )
        deltas = {name: value[chunk].double() for name, value in view.model_deltas().items()}
        prior = log_prior(self.prior, problem.mask, problem.learner).double()
        clicks = sample_patterns(prior[:, None].expand(-1, self.simulated, -1, -1), generator).double()
        paths = problem.simulate(clicks, generator)
        name = next(iter(deltas))
        noise, clip = view.noise_scale(name), view.clip(name)
        factors = _clip_factors(paths, clip)
        share = _path_share(paths, factors.reshape(len(chunk), -1), noise)
        estimated = _scaled(paths, share.repeat_interleave(self.simulated) * factors)
        whitening = _whitening(problem.errors(clicks, paths, estimated), noise)
        return sample_lists(
            problem.midpoint_map(_scaled(deltas, share)) @ whitening[:, None],
            (_flat(deltas)[:, None] @ whitening).squeeze(1),
            prior,
            chains=self.chains,
            sweeps=self.sweeps,
            annealed=self.sweeps * 3 // 5,
            generator=generator,
        )


@dataclass(frozen=True)
class _Problem:
    """Some victims' lists and the clients' algorithm."""

    learner: RankingSimulator
    model: Mapping[str, Tensor]
    features: Tensor
    mask: Tensor

    def repeated(self, times: int) -> "_Problem":
        """Each victim's lists repeated consecutively."""
        features, mask = (value.repeat_interleave(times, 0) for value in (self.features, self.mask))
        return _Problem(self.learner, self.model, features, mask)

    def midpoint_map(self, paths: Mapping[str, Tensor]) -> Tensor:
        """``(V, Q, L, P)`` change of the update per click, with pair weights at the midpoint of the victims' paths."""
        victims = len(self.mask)
        middle = {name: value + paths[name] / 2 for name, value in stack_model(self.model, victims).items()}
        found = click_map(middle, self.features, self.mask, self.learner.learning_rate)
        return torch.cat([found[name] for name in paths], dim=3)

    def simulate(self, clicks: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Deltas ``(V R, *shape)`` of undefended clients with ``clicks (V, R, Q, L)``, in random order of lists."""
        victims, simulated, lists = clicks.shape[:3]
        many = self.repeated(simulated)
        order = torch.rand(victims * simulated, lists, generator=generator).argsort(1)
        return self.learner.simulate_lists(self.model, many.features, many.mask, clicks.flatten(0, 1), order)

    def errors(self, clicks: Tensor, paths: Mapping[str, Tensor], estimated: Mapping[str, Tensor]) -> Tensor:
        """``(V, R, P)`` error of the linear map at the midpoint of `estimated` for simulated clients' `paths`."""
        maps = self.repeated(clicks.shape[1]).midpoint_map(estimated)
        line = torch.einsum("bql,bqlp->bp", clicks.flatten(0, 1), maps)
        return (_flat(paths) - line).reshape(*clicks.shape[:2], -1)


def _flat(deltas: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten(1) for value in deltas.values()], dim=1)


def _scaled(deltas: Mapping[str, Tensor], factors: Tensor) -> dict[str, Tensor]:
    """Each client's deltas times its factor ``(V,)``."""
    return {name: value * factors.reshape(-1, *[1] * (value.dim() - 1)) for name, value in deltas.items()}


def _clip_factors(deltas: Mapping[str, Tensor], clip: float | None) -> Tensor:
    """``(V,)`` factors by which clipping shrinks each client's deltas."""
    norms = _flat(deltas).norm(dim=1)
    return torch.ones_like(norms) if clip is None else (clip / norms.clamp(min=1e-300)).clamp(max=1)


def _path_share(paths: Mapping[str, Tensor], factors: Tensor, noise: float) -> Tensor:
    """``(V,)`` factor that maps the sent update to the path with the least squared error over ``factors (V, R)``.

    A client sends its path x of P numbers as y = f x + noise: ``sum f |x|^2 / (sum |f x|^2 + R P noise^2)``; 1 without
    clipping and noise.
    """
    flat = _flat(paths)
    squares = flat.square().sum(1).reshape(factors.shape)
    sent = (factors.square() * squares).mean(1) + flat.shape[1] * noise**2
    return torch.where(sent > 0, (factors * squares).mean(1) / sent, 1.0)


def _whitening(errors: Tensor, noise: float) -> Tensor:
    """``(V, P, P)`` W with ``W W^T`` the inverse of the shrunk covariance of the errors plus the noise."""
    numbers = errors.shape[2]
    covariance = (1 - _SHRINKAGE) * errors.transpose(1, 2) @ errors / errors.shape[1]
    mean = covariance.diagonal(dim1=1, dim2=2).mean(1)
    ridge = _RIDGE * mean + noise**2 + 1e-14
    inverse = torch.linalg.inv(covariance + ridge[:, None, None] * torch.eye(numbers, dtype=errors.dtype))
    factor: Tensor = torch.linalg.cholesky((inverse + inverse.transpose(1, 2)) / 2)
    return factor


def sample_lists(
    maps: Tensor,
    target: Tensor,
    log_prior: Tensor,
    *,
    chains: int,
    sweeps: int,
    annealed: int,
    generator: torch.Generator,
) -> Tensor:
    """``(V, Q, L)`` click probabilities by Gibbs sampling, given ``target = sum_q maps_q^T p_q + noise``.

    One list at a time is drawn from its exact law over all ``2^L`` patterns given the others; all victims and chains
    are sampled together. The likelihood is annealed over the first sweeps, which are discarded. Chains are weighted by
    the energy of their best state, because a chain stuck at a worse one has not reached the posterior.

    Args:
        maps: ``(V, Q, L, P)`` whitened.
        target: ``(V, P)`` whitened.
        log_prior: ``(V, Q, 2^L)``.
        chains: independent chains per victim.
        sweeps: passes over the lists.
        annealed: number of them before the likelihood has full weight.
        generator: source of randomness.
    """
    codes = patterns(maps.shape[2]).to(maps)
    gram = maps @ maps.transpose(2, 3)
    energy = ((codes @ gram) * codes).sum(-1) / 2
    chances = log_prior.exp().flatten(0, 1)
    # A list that cannot be sent gets the empty pattern.
    chances[:, 0] += chances.sum(1) == 0
    state = torch.multinomial(chances, chains, replacement=True, generator=generator)
    chosen = codes[state].reshape(*maps.shape[:2], chains, -1).transpose(1, 2).contiguous()
    residual = target[:, None] - torch.einsum("vkql,vqlp->vkp", chosen, maps)
    marginals = torch.zeros_like(chosen)
    best = torch.full(chosen.shape[:2], torch.inf, dtype=maps.dtype)
    empty = torch.zeros(codes.shape[0], dtype=torch.bool).index_fill_(0, torch.tensor([0]), True)
    for sweep in range(sweeps):
        heat = min(1.0, 1e-3 ** (1 - sweep / max(annealed, 1)))
        for number in torch.randperm(maps.shape[1], generator=generator).tolist():
            own = maps[:, number]
            residual += chosen[:, :, number] @ own
            fit = (residual @ own.transpose(1, 2)) @ codes.T - energy[:, None, number]
            law = log_prior[:, None, number] + heat * fit
            law = torch.where(torch.isfinite(law).any(-1, keepdim=True), law, torch.where(empty, 0.0, -torch.inf))
            law = law.softmax(-1)
            chosen[:, :, number] = codes[_draw(law, generator)]
            residual -= chosen[:, :, number] @ own
            if sweep >= annealed:
                marginals[:, :, number] += law @ codes
        if sweep >= annealed:
            best = torch.minimum(best, residual.square().sum(-1) / 2)
    weights = (-best).softmax(1)
    averaged: Tensor = (marginals * weights[..., None, None]).sum(1) / max(sweeps - annealed, 1)
    return averaged


def _draw(law: Tensor, generator: torch.Generator) -> Tensor:
    """One index from each law ``(..., S)``, by inversion of its distribution function."""
    reached = law.cumsum(-1)
    level = torch.rand(law.shape[:-1], generator=generator, dtype=law.dtype) * reached[..., -1]
    # Rounding may put the level at the end of the last step.
    return torch.searchsorted(reached, level[..., None], right=True).squeeze(-1).clamp(max=law.shape[-1] - 1)
