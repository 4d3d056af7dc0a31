"""Posterior over the click patterns of all lists, given an honest update, by Gibbs sampling."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.ranking.lists import Lists, click_map, model_deltas
from attacks.ranking.pattern_sampler import sample_lists
from attacks.ranking.priors import ListPrior, PosteriorAttack, log_prior
from protocol.click_models import sample_patterns
from protocol.rankers import stack_model
from protocol.simulators import RankingSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView
from ranges import AtLeastTwo, PositiveInt

_SHRINKAGE = 0.1
_RIDGE = 0.02
"""Of the estimated covariance of the model's error: how much is given up, and what share of its mean is added."""


@dataclass(frozen=True, kw_only=True)
class ListPosterior(PosteriorAttack):
    """Posterior over click patterns, in place of RAIFLE's relaxed optimisation.

    The update is nearly linear in the clicks if the pair weights are taken in the middle of the local path, both ends
    of which the server knows; the order of the queries then hardly matters. Where clients clip and add noise, the end
    of the path is estimated: the update times the share that simulated clients' own paths have in what they would
    send. Pair weights taken at a noisy end would follow the noise, and the scores with them. What the line misses is
    estimated from the same simulated clients, whose clicks are drawn from the prior.

    Threat model: a passive server. It knows what it served, in which order it was displayed, the learning algorithm,
    and as much of the clicks as `prior` says.

    Args:
        prior: see `log_prior`.
        chains: Gibbs chains of each victim.
        sweeps: passes over a victim's lists.
        simulated: simulated clients of each victim.
        victims_at_once: bounds the memory.
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
        deltas = {name: value[chunk].double() for name, value in model_deltas(view).items()}
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
    """Some victims' lists and the algorithm that worked through them."""

    learner: RankingSimulator
    model: Mapping[str, Tensor]
    features: Tensor
    mask: Tensor

    def repeated(self, times: int) -> "_Problem":
        """Each victim's lists as often, one after the other."""
        features, mask = (value.repeat_interleave(times, 0) for value in (self.features, self.mask))
        return _Problem(self.learner, self.model, features, mask)

    def midpoint_map(self, paths: Mapping[str, Tensor]) -> Tensor:
        """``(V, Q, L, P)`` what a click adds, with the pair weights in the middle of the victims' paths."""
        victims = len(self.mask)
        middle = {name: value + paths[name] / 2 for name, value in stack_model(self.model, victims).items()}
        found = click_map(middle, self.features, self.mask, self.learner.learning_rate)
        return torch.cat([found[name] for name in paths], dim=3)

    def simulate(self, clicks: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Deltas ``(V R, *shape)`` of clients with ``clicks (V, R, Q, L)``, before any defence, in random order."""
        victims, simulated, lists = clicks.shape[:3]
        many = self.repeated(simulated)
        order = torch.rand(victims * simulated, lists, generator=generator).argsort(1)
        return self.learner.simulate_lists(self.model, many.features, many.mask, clicks.flatten(0, 1), order)

    def errors(self, clicks: Tensor, paths: Mapping[str, Tensor], estimated: Mapping[str, Tensor]) -> Tensor:
        """``(V, R, P)`` what the map at the middle of the `estimated` paths misses of simulated clients' `paths`."""
        maps = self.repeated(clicks.shape[1]).midpoint_map(estimated)
        line = torch.einsum("bql,bqlp->bp", clicks.flatten(0, 1), maps)
        return (_flat(paths) - line).reshape(*clicks.shape[:2], -1)


def _flat(deltas: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten(1) for value in deltas.values()], dim=1)


def _scaled(deltas: Mapping[str, Tensor], factors: Tensor) -> dict[str, Tensor]:
    """Each client's deltas times its own of the ``factors (V,)``."""
    return {name: value * factors.reshape(-1, *[1] * (value.dim() - 1)) for name, value in deltas.items()}


def _clip_factors(deltas: Mapping[str, Tensor], clip: float | None) -> Tensor:
    """``(V,)`` what clipping multiplies each client's deltas with."""
    norms = _flat(deltas).norm(dim=1)
    return torch.ones_like(norms) if clip is None else (clip / norms.clamp(min=1e-300)).clamp(max=1)


def _path_share(paths: Mapping[str, Tensor], factors: Tensor, noise: float) -> Tensor:
    """``(V,)`` the multiple of what is sent that is nearest to the path, in the mean over ``factors (V, R)``.

    A client sends its path x as y = f x + noise, of P numbers: ``sum f |x|^2 / (sum |f x|^2 + R P noise^2)``; 1 where
    nothing is clipped or noised.
    """
    flat = _flat(paths)
    squares = flat.square().sum(1).reshape(factors.shape)
    sent = (factors.square() * squares).mean(1) + flat.shape[1] * noise**2
    return torch.where(sent > 0, (factors * squares).mean(1) / sent, 1.0)


def _whitening(errors: Tensor, noise: float) -> Tensor:
    """``(V, P, P)`` W with ``W W^T`` the inverse of the errors' covariance, shrunk, and of the noise."""
    numbers = errors.shape[2]
    covariance = (1 - _SHRINKAGE) * errors.transpose(1, 2) @ errors / errors.shape[1]
    mean = covariance.diagonal(dim1=1, dim2=2).mean(1)
    ridge = _RIDGE * mean + noise**2 + 1e-14
    inverse = torch.linalg.inv(covariance + ridge[:, None, None] * torch.eye(numbers, dtype=errors.dtype))
    factor: Tensor = torch.linalg.cholesky((inverse + inverse.transpose(1, 2)) / 2)
    return factor
