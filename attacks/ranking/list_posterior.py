"""Posterior over the click patterns of all lists, given an honest update, by Gibbs sampling."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import WhiteningOfFew
from fedleak.attacks.ranking.priors import PosteriorAttack, prior_variant
from fedleak.client.click_models import patterns, sample_patterns
from fedleak.client.list_priors import ListPrior, log_prior
from fedleak.client.ranked_lists import Lists, click_map, update_at
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.ranges import AtLeastTwo, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_SHRINKAGE = 0.1
_RIDGE = 0.02
"""Regularisation of the covariance of the model's error: shrinkage, and multiple of its mean that is added."""


@dataclass(frozen=True, kw_only=True)
class ListPosterior(PosteriorAttack):
    """Posterior over click patterns by Gibbs sampling, instead of RAIFLE's relaxed optimisation.

    The update is nearly linear in the clicks if the pair weights are taken at the midpoint of the local training, whose
    ends the server knows; the order of the queries then has little effect. If clients clip and add noise, the end is
    estimated: the received update times a factor fitted to simulated clients, because pair weights at a noisy end would
    follow the noise; the stronger the noise, the closer the model is to the one sent. Clipping is part of the
    likelihood. The error of the clipped linear model is estimated from the same simulated clients, whose clicks are
    drawn from the prior.

    Threat model: a passive server that knows the served documents, their displayed order, the learning algorithm, and
    the prior of the clicks.

    Args:
        chains: Gibbs chains per victim.
        sweeps: passes over a victim's lists.
        simulated: simulated clients per victim.
        victims_at_once: number of victims that are sampled together, which bounds the memory; None for all.

    Variants:
        prior: the posterior with the cascade prior, for a server that knows the click model.

    References:
        This project; the setting is that of Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163,
        section V.B.
    """

    name = "list-posterior"
    cost = "`simulated` trainings and `chains` times `sweeps` passes over the lists, per victim"
    threat_model = ThreatModel(
        sees="each client's update and the documents it was served",
        knows="the learning algorithm, the displayed order, and how many clicks a list gets (count prior)",
        needs=("served", "lists", "features", RankingAlgorithm, "deltas"),
    )

    variants = prior_variant(name, threat_model)

    prior: ListPrior = "count"
    chains: PositiveInt = 4
    sweeps: PositiveInt = 90
    simulated: AtLeastTwo = 48
    victims_at_once: PositiveInt | None = 32

    def marginals(self, view: RoundView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        own = lists.select(chunk)
        learner, mask, features = view.require(RankingAlgorithm), own.mask, own.features.double()
        models = {name: value[chunk].double() for name, value in view.sent_models().items()}
        deltas = {name: value[chunk].double() for name, value in view.model_deltas().items()}
        prior = log_prior(self.prior, mask, learner).double()
        name = next(iter(deltas))
        noise, clip, rate = view.noise_scale(name), view.clip(name), learner.learning_rate
        # Simulated clients of each victim, one after another.
        clicks = sample_patterns(prior[:, None].expand(-1, self.simulated, -1, -1), generator).double().flatten(0, 1)
        documents, shown = (value.repeat_interleave(self.simulated, 0) for value in (features, mask))
        starts = {name: value.repeat_interleave(self.simulated, 0) for name, value in models.items()}
        order = torch.rand(clicks.shape[:2], generator=generator).argsort(1)
        paths = learner.simulate_lists(starts, documents, shown, clicks, order)
        factors = view.clip_factors(name, paths)
        share = _path_share(paths, factors.reshape(len(chunk), -1), noise)
        middles = _midpoints(starts, paths, share.repeat_interleave(self.simulated) * factors)
        line = update_at(middles, documents, shown, clicks, rate)
        errors = factors[:, None] * _flat(paths) - view.clip_factors(name, line)[:, None] * _flat(line)
        errors = errors.reshape(len(chunk), self.simulated, -1)
        whiten = WhiteningOfFew(errors, shrinkage=_SHRINKAGE, floor=_RIDGE, noise=noise)
        found = click_map(_midpoints(models, deltas, share), features, mask, rate)
        maps = torch.cat([found[name] for name in models], dim=3).flatten(1, 2)
        return sample_lists(
            maps,
            whiten(maps),
            whiten(torch.cat([deltas[name].flatten(1) for name in models], dim=1)[:, None]).squeeze(1),
            prior,
            clip=clip,
            chains=self.chains,
            sweeps=self.sweeps,
            annealed=self.sweeps * 3 // 5,
            generator=generator,
        )


def _flat(deltas: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten(1) for value in deltas.values()], dim=1)


def _midpoints(models: Mapping[str, Tensor], deltas: Mapping[str, Tensor], share: Tensor) -> dict[str, Tensor]:
    """Models ``(V, *shape)`` in the middle of the paths, which are each client's delta times its share ``(V,)``."""
    return {n: v + deltas[n] * share.reshape(-1, *[1] * (v.dim() - 1)) / 2 for n, v in models.items()}


def _path_share(paths: Mapping[str, Tensor], factors: Tensor, noise: float) -> Tensor:
    """``(V,)`` factor that maps the sent update to the path with the least squared error over ``factors (V, R)``.

    A client sends its path x of P numbers as y = f x + noise: ``sum f |x|^2 / (sum |f x|^2 + R P noise^2)``; 1 without
    clipping and noise.
    """
    flat = _flat(paths)
    squares = flat.square().sum(1).reshape(factors.shape)
    sent = (factors.square() * squares).mean(1) + flat.shape[1] * noise**2
    return torch.where(sent > 0, (factors * squares).mean(1) / sent, 1.0)


def sample_lists(
    maps: Tensor,
    whitened: Tensor,
    target: Tensor,
    log_prior: Tensor,
    *,
    clip: float | None,
    chains: int,
    sweeps: int,
    annealed: int,
    generator: torch.Generator,
) -> Tensor:
    """``(V, Q, L)`` click probabilities by Gibbs sampling, given ``target = s v + noise`` of ``v = maps^T p``.

    Clipping shrinks the update of the clicks p by ``s = min(1, clip / |v|)``. One list at a time is drawn from its
    exact law over all ``2^L`` patterns given the others; all victims and chains are sampled together. The likelihood is
    annealed over the first sweeps, which are discarded. Chains are weighted by the likelihood of their best state,
    because a chain stuck at a worse one has not reached the posterior; the prior of these states is left out.

    The map is ``maps (V, Q L, P)``, by which the norm is computed, and is given whitened too, as is ``target (V, P)``;
    the prior is ``log_prior (V, Q, 2^L)``. There are `chains` for each victim, and `sweeps` over its lists, of which
    the first `annealed` do not count.
    """
    victims, lists = log_prior.shape[:2]
    length = whitened.shape[1] // lists
    codes = patterns(length).to(whitened)
    toward = (whitened @ target[..., None]).squeeze(-1)[:, None]
    grams = [values @ values.transpose(1, 2) for values in ((whitened,) if clip is None else (whitened, maps))]
    blocks = [torch.arange(number * length, (number + 1) * length) for number in range(lists)]
    inner = [torch.stack([((codes @ gram[:, b][:, :, b]) * codes).sum(-1) for b in blocks]) for gram in grams]
    chances = log_prior.exp().flatten(0, 1)
    # A list that cannot be sent gets the empty pattern.
    chances[:, 0] += chances.sum(1) == 0
    state = torch.multinomial(chances, chains, replacement=True, generator=generator)
    chosen = codes[state].reshape(victims, lists, chains, length).transpose(1, 2).flatten(2).contiguous()
    marginals = torch.zeros_like(chosen)
    best = torch.full(chosen.shape[:2], torch.inf, dtype=chosen.dtype)
    empty = torch.zeros(codes.shape[0], dtype=torch.bool).index_fill_(0, torch.tensor([0]), True)
    products = [chosen @ gram for gram in grams]
    for sweep in range(sweeps):
        heat = min(1.0, 1e-3 ** (1 - sweep / max(annealed, 1)))
        for number in torch.randperm(lists, generator=generator).tolist():
            block = blocks[number]
            own = chosen[..., block]
            chosen[..., block] = 0
            products = [product - own @ gram[:, block] for product, gram in zip(products, grams, strict=True)]
            along = (chosen * toward).sum(-1, keepdim=True) + toward[..., block] @ codes.T
            squares = [
                (product * chosen).sum(-1, keepdim=True) + 2 * product[..., block] @ codes.T + within[number][:, None]
                for product, within in zip(products, inner, strict=True)
            ]
            shrunk = 1.0 if clip is None else (clip / squares[1].clamp(min=1e-300).sqrt()).clamp(max=1)
            fit = shrunk * along - shrunk**2 * squares[0] / 2
            law = log_prior[:, None, number] + heat * fit
            law = torch.where(torch.isfinite(law).any(-1, keepdim=True), law, torch.where(empty, 0.0, -torch.inf))
            law = law.softmax(-1)
            drawn = _draw(law, generator)
            chosen[..., block] = codes[drawn]
            products = [p + codes[drawn] @ gram[:, block] for p, gram in zip(products, grams, strict=True)]
            if sweep >= annealed:
                marginals[..., block] += law @ codes
        if sweep >= annealed:
            # The fit of the last list is that of the whole state, because all other lists are in it.
            best = torch.minimum(best, -fit.gather(-1, drawn[..., None]).squeeze(-1))
    weights = (-best).softmax(1)
    return ((marginals * weights[..., None]).sum(1) / max(sweeps - annealed, 1)).reshape(victims, lists, length)


def _draw(law: Tensor, generator: torch.Generator) -> Tensor:
    """One index from each law ``(..., S)``, by inversion of its distribution function."""
    reached = law.cumsum(-1)
    level = torch.rand(law.shape[:-1], generator=generator, dtype=law.dtype) * reached[..., -1]
    # Rounding may put the level at the end of the last step.
    return torch.searchsorted(reached, level[..., None], right=True).squeeze(-1).clamp(max=law.shape[-1] - 1)
