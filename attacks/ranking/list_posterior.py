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
"""Share of the covariance of the model's error that is left out."""
_RIDGE = 0.02
"""Multiple of the mean variance of the model's error that is added in every direction."""
_COLDEST = 1e-3
"""Factor on the log-likelihood in the first sweep, from which it rises to 1 by equal ratios."""


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
        This project; the setting is that of [Pham25], section V.B.

    Example:
        >>> import torch
        >>> from fedleak.attacks.ranking import ListPosterior
        >>> from fedleak.attacks.ranking.toy import toy
        >>> view, truth = toy()
        >>> estimate = ListPosterior(sweeps=40, simulated=16)(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
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
        learner = view.require(RankingAlgorithm)
        chunk_lists = lists.select(chunk)
        models = {name: parameter[chunk].double() for name, parameter in view.sent_models().items()}
        deltas = {name: delta[chunk].double() for name, delta in view.model_deltas().items()}
        prior = log_prior(self.prior, chunk_lists.mask, learner).double()
        # All parameters are clipped and noised together, so that the first stands for all.
        first_parameter = next(iter(deltas))
        whiten, share = self._simulated_errors(view, first_parameter, chunk_lists, models, prior, generator)
        # The linear map of clicks to updates at the midpoint of each victim's path.
        middles = _midpoints(models, deltas, share)
        map_of = click_map(middles, chunk_lists.features.double(), chunk_lists.mask, learner.learning_rate)
        maps = torch.cat([map_of[name] for name in models], dim=3).flatten(1, 2)
        update = torch.cat([deltas[name].flatten(1) for name in models], dim=1)
        return sample_lists(
            maps,
            whiten(maps),
            whiten(update[:, None]).squeeze(1),
            prior,
            clip=view.clip(first_parameter),
            chains=self.chains,
            sweeps=self.sweeps,
            annealed=self.sweeps * 3 // 5,
            generator=generator,
        )

    def _simulated_errors(
        self,
        view: RoundView,
        name: str,
        lists: Lists,
        models: Mapping[str, Tensor],
        prior: Tensor,
        generator: torch.Generator,
    ) -> tuple[WhiteningOfFew, Tensor]:
        """Whitening by the error of the linear model, and the share ``(V,)`` of an update that is the client's path."""
        learner = view.require(RankingAlgorithm)
        noise = view.noise_scale(name)
        # Simulated clients of each victim, one after another, with clicks from the prior and lists in random order.
        priors = prior[:, None].expand(-1, self.simulated, -1, -1)
        clicks = sample_patterns(priors, generator).double().flatten(0, 1)
        documents = lists.features.double().repeat_interleave(self.simulated, 0)
        shown = lists.mask.repeat_interleave(self.simulated, 0)
        starts = {key: parameter.repeat_interleave(self.simulated, 0) for key, parameter in models.items()}
        order = torch.rand(clicks.shape[:2], generator=generator).argsort(1)
        paths = learner.simulate_lists(starts, documents, shown, clicks, order)
        # The linear updates at the midpoints of the paths that the server would take theirs to be.
        victims = len(prior)
        factors = view.clip_factors(name, paths)
        share = _path_share(paths, factors.reshape(victims, -1), noise)
        middles = _midpoints(starts, paths, share.repeat_interleave(self.simulated) * factors)
        linear = update_at(middles, documents, shown, clicks, learner.learning_rate)
        # The error of the clipped linear model.
        linear_factors = view.clip_factors(name, linear)
        errors = factors[:, None] * _flat(paths) - linear_factors[:, None] * _flat(linear)
        errors = errors.reshape(victims, self.simulated, -1)
        return WhiteningOfFew(errors, shrinkage=_SHRINKAGE, floor=_RIDGE, noise=noise), share


def _flat(deltas: Mapping[str, Tensor]) -> Tensor:
    """``(V, P)`` numbers of all parameters in a row."""
    return torch.cat([delta.flatten(1) for delta in deltas.values()], dim=1)


def _midpoints(models: Mapping[str, Tensor], deltas: Mapping[str, Tensor], share: Tensor) -> dict[str, Tensor]:
    """Models ``(V, *shape)`` in the middle of the paths, which are each client's delta times its share ``(V,)``."""
    middles = {}
    for name, parameter in models.items():
        further_dimensions = [1] * (parameter.dim() - 1)
        middles[name] = parameter + deltas[name] * share.reshape(-1, *further_dimensions) / 2
    return middles


def _path_share(paths: Mapping[str, Tensor], factors: Tensor, noise: float) -> Tensor:
    """``(V,)`` factor that maps the sent update to the path with the least squared error over ``factors (V, R)``.

    A client sends its path x of P numbers as y = f x + noise: ``sum f |x|^2 / (sum |f x|^2 + R P noise^2)``; 1 without
    clipping and noise.
    """
    flat = _flat(paths)
    numbers = flat.shape[1]
    squares = flat.square().sum(1).reshape(factors.shape)
    sent = (factors.square() * squares).mean(1) + numbers * noise**2
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
    codes = patterns(length).to(whitened)  # (2^L, L)
    blocks = [torch.arange(number * length, (number + 1) * length) for number in range(lists)]
    likelihood = _ListLikelihood(maps, whitened, target, codes, blocks, clip)
    clicks = _drawn_from_prior(log_prior, codes, chains, generator)
    products = [clicks @ gram for gram in likelihood.grams]
    marginals = torch.zeros_like(clicks)
    best = torch.full(clicks.shape[:2], torch.inf, dtype=clicks.dtype)
    for sweep in range(sweeps):
        heat = min(1.0, _COLDEST ** (1 - sweep / max(annealed, 1)))
        for number in torch.randperm(lists, generator=generator).tolist():
            # Take the list out of the state; products with the Gram matrices follow without computing them anew.
            block = blocks[number]
            before = clicks[..., block]
            clicks[..., block] = 0
            products = likelihood.moved(products, -before, block)
            # Draw its pattern from the law of all given the other lists, and put it back.
            fit = likelihood.of_patterns(clicks, products, number)
            law = _law(log_prior[:, None, number] + heat * fit)
            drawn = _draw(law, generator)
            clicks[..., block] = codes[drawn]
            products = likelihood.moved(products, codes[drawn], block)
            # The law itself has less variance than what is drawn from it.
            if sweep >= annealed:
                marginals[..., block] += law @ codes
        if sweep >= annealed:
            # The fit of the last list is that of the whole state, because all other lists are in it.
            best = torch.minimum(best, -fit.gather(-1, drawn[..., None]).squeeze(-1))
    weights = (-best).softmax(1)
    mean = (marginals * weights[..., None]).sum(1) / max(sweeps - annealed, 1)
    return mean.reshape(victims, lists, length)


class _ListLikelihood:
    """Log-likelihood of the patterns of one list given those of all others, see `sample_lists`.

    Attributes:
        grams: ``(V, Q L, Q L)`` inner products of the whitened map, and with a clip also of the plain one, by which the
            norm is computed.
    """

    def __init__(
        self,
        maps: Tensor,
        whitened: Tensor,
        target: Tensor,
        codes: Tensor,
        blocks: list[Tensor],
        clip: float | None,
    ) -> None:
        self.codes = codes
        self.blocks = blocks
        self.clip = clip
        self.toward = (whitened @ target[..., None]).squeeze(-1)[:, None]
        self.grams = [whitened @ whitened.transpose(1, 2)]
        if clip is not None:
            self.grams.append(maps @ maps.transpose(1, 2))
        # Squared length of what each pattern x of each list adds by itself: x' G x in the block of the list.
        self.inner = []
        for gram in self.grams:
            of_lists = [((codes @ gram[:, block][:, :, block]) * codes).sum(-1) for block in blocks]
            self.inner.append(torch.stack(of_lists))

    def moved(self, products: list[Tensor], added: Tensor, block: Tensor) -> list[Tensor]:
        """Products ``(V, chains, Q L)`` of the state with the Gram matrices after `added` in the block of a list."""
        return [product + added @ gram[:, block] for product, gram in zip(products, self.grams, strict=True)]

    def of_patterns(self, clicks: Tensor, products: list[Tensor], number: int) -> Tensor:
        """``(V, chains, 2^L)`` log-likelihood of each pattern of a list, which is empty in ``clicks``.

        It is ``s <t, v> - s^2 |v|^2 / 2`` but for a constant, with the factor ``s = min(1, clip / |v|)``.
        """
        block = self.blocks[number]
        along = (clicks * self.toward).sum(-1, keepdim=True) + self.toward[..., block] @ self.codes.T
        squares = []
        for product, inner in zip(products, self.inner, strict=True):
            without_list = (product * clicks).sum(-1, keepdim=True)
            squares.append(without_list + 2 * product[..., block] @ self.codes.T + inner[number][:, None])
        shrunk: Tensor | float = 1.0
        if self.clip is not None:
            shrunk = (self.clip / squares[1].clamp(min=1e-300).sqrt()).clamp(max=1)
        return shrunk * along - shrunk**2 * squares[0] / 2


def _drawn_from_prior(log_prior: Tensor, codes: Tensor, chains: int, generator: torch.Generator) -> Tensor:
    """``(V, chains, Q L)`` clicks; a list that cannot be sent gets the empty pattern."""
    victims, lists = log_prior.shape[:2]
    probabilities = log_prior.exp().flatten(0, 1)
    probabilities[:, 0] += probabilities.sum(1) == 0
    state = torch.multinomial(probabilities, chains, replacement=True, generator=generator)
    clicks = codes[state].reshape(victims, lists, chains, codes.shape[1])
    return clicks.transpose(1, 2).flatten(2).contiguous()


def _law(logs: Tensor) -> Tensor:
    """Law ``(..., 2^L)`` of a list's patterns; a list that cannot be sent, all of whose logs are infinite, is empty."""
    is_possible = torch.isfinite(logs).any(-1, keepdim=True)
    is_empty = torch.zeros(logs.shape[-1], dtype=torch.bool)
    is_empty[0] = True
    return torch.where(is_possible, logs, torch.where(is_empty, 0.0, -torch.inf)).softmax(-1)


def _draw(law: Tensor, generator: torch.Generator) -> Tensor:
    """One index from each law ``(..., S)``, by inversion of its distribution function."""
    reached = law.cumsum(-1)
    level = torch.rand(law.shape[:-1], generator=generator, dtype=law.dtype) * reached[..., -1]
    # Rounding may put the level at the end of the last step.
    return torch.searchsorted(reached, level[..., None], right=True).squeeze(-1).clamp(max=law.shape[-1] - 1)
