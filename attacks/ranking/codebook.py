"""Exact posterior of the clicks where the served features are a codebook."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.ranking.lists import Lists, click_map, model_deltas
from attacks.ranking.priors import ListPrior, PosteriorAttack, log_prior
from protocol.click_models import pattern_pairs, patterns
from protocol.rankers import stack_model
from protocol.simulators import RankingSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView, ViewError
from ranges import PositiveInt

_OVERLAP = 0.05
"""Largest cosine between codes of two lists at which they are read one by one."""
_ROUNDING = 1e-5
"""Noise scale where there is none, relative to the update's norm: float32 rounding over the local pass."""
_DRAWS = 64
_GRID = 9


@dataclass(frozen=True, kw_only=True)
class CodebookAttack(PosteriorAttack):
    """The posterior of every list's clicks, summed exactly over its ``2^n - 2`` patterns.

    The update is linear in the clicks where all documents of a list have one score, and the lists are independent
    where their codes are orthogonal. What clipping took from the update is one unknown factor, integrated on a grid.

    Threat model: an active server; it sends each client features of its choice (`attacks.manipulation.codebook`) and
    reads its update. It needs neither the ranking nor the order of the queries, nor, with the uniform prior, anything
    about the clicks.

    Args:
        prior: what is believed of the clicks beforehand; see `log_prior`.
        victims_at_once: bounds the memory.

    Raises:
        ViewError: the served features are no codebook: codes of two lists overlap.
    """

    name = "codebook"
    exact = True
    threat_model = ThreatModel(
        sees="each client's update, the features it sent itself, clip norm and noise scale",
        knows="the learning algorithm; nothing of the clicks (uniform prior)",
        needs=("served", "lists", "features", "learner:RankingSimulator", "deltas"),
    )

    prior: ListPrior = "uniform"
    victims_at_once: PositiveInt | None = 8

    def marginals(self, view: ServerView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        learner = view.require(RankingSimulator)
        mask = lists.mask[chunk]
        model = stack_model({name: value.double() for name, value in view.model.items()}, len(chunk))
        maps = click_map(model, lists.features[chunk].double(), mask, learner.learning_rate)
        channel = _channel(view, chunk, maps)
        prior = log_prior(self.prior, mask, learner).double()
        energy = _energies(channel)
        factors, weights = _clip_factors(channel, energy, prior, generator)
        evidence = _log_likelihood(channel, energy, factors).add_(prior[:, None])
        # One pass of exponentials gives both each list's evidence and its marginals.
        highest = evidence.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
        chances = evidence.sub_(highest).exp_()
        total = chances.sum(-1)
        evidence_of_list = (highest.squeeze(-1) + total.log()).masked_fill(total == 0, 0.0)
        factor = (evidence_of_list.sum(-1) + weights).softmax(1)
        marginals = (chances @ patterns(mask.shape[-1]).double()) / total.clamp(min=1e-300)[..., None]
        return (marginals * factor[..., None, None]).sum(1)


@dataclass(frozen=True)
class _Channel:
    """What reaches the server of each list's clicks.

    Attributes:
        projected: ``(V, Q, L)`` the update's product with each document's code.
        gram: ``(V, Q, L, L)`` products of the codes.
        sigma: ``(V,)`` standard deviation of the noise.
        clip: norm to which updates are clipped, None where they are not.
    """

    projected: Tensor
    gram: Tensor
    sigma: Tensor
    clip: float | None


def _channel(view: ServerView, chunk: Tensor, maps: dict[str, Tensor]) -> _Channel:
    codes = torch.cat(list(maps.values()), dim=3)
    sent = model_deltas(view)
    update = torch.cat([sent[name][chunk].double().flatten(1) for name in maps], dim=1)
    _refuse_overlap(codes)
    name = next(iter(maps))
    noise = view.noise_scale(name)
    norm = update.norm(dim=1)
    sigma = torch.full_like(norm, noise) if noise else (norm * _ROUNDING).clamp(min=1e-12)
    projected = (codes @ update[:, None, :, None]).squeeze(-1)
    return _Channel(projected, codes @ codes.transpose(-1, -2), sigma, view.clip(name))


def _refuse_overlap(codes: Tensor) -> None:
    span = codes.flatten(1, 2)
    owner = torch.arange(codes.shape[1]).repeat_interleave(codes.shape[2])
    length = span.norm(dim=2)
    cosine = (span @ span.transpose(1, 2)) / (length[:, :, None] * length[:, None]).clamp(min=1e-30)
    worst = float((cosine.abs() * (owner[:, None] != owner)).max()) if codes.shape[1] > 1 else 0.0
    if worst > _OVERLAP:
        raise ViewError(
            f"expected lists whose codes do not overlap, got a cosine of {worst:.2f}; serve a codebook, or use another "
            "attack on this recording"
        )


def _log_likelihood(channel: _Channel, energy: Tensor, factors: Tensor) -> Tensor:
    """``(V, S, Q, 2^L)`` for energies ``(V, Q, 2^L)`` and factors ``(V, S)``, up to a constant."""
    linear = channel.projected @ patterns(channel.projected.shape[-1]).double().T
    factor = factors[..., None, None]
    precision = 1 / channel.sigma[:, None, None, None] ** 2
    likelihood: Tensor = (factor * precision) * linear[:, None]
    return likelihood.addcmul_(factor**2 * precision / 2, energy[:, None], value=-1)


def _energies(channel: _Channel) -> Tensor:
    """``(V, Q, 2^L)`` squared norm of what each pattern of a list sends."""
    (first, second), both = pattern_pairs(channel.projected.shape[-1])
    # Products off the diagonal count twice.
    products = channel.gram[..., first, second] * torch.where(first == second, 1.0, 2.0)
    return products @ both


def _clip_factors(
    channel: _Channel, energy: Tensor, prior: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Factors by which clipping may have shrunk the update, ``(V, S)``, and their log weights.

    The law of the factor comes of patterns drawn from the prior.
    """
    if channel.clip is None:
        ones = torch.ones(len(prior), 1, dtype=torch.float64)
        return ones, torch.zeros_like(ones)
    chances = prior.exp().flatten(0, 1)
    # A list that can send nothing has an empty law, and no code: any pattern of it adds nothing.
    chances[chances.sum(1) == 0] = 1
    drawn = torch.multinomial(chances, _DRAWS, replacement=True, generator=generator).reshape(*prior.shape[:2], _DRAWS)
    sent = energy.gather(2, drawn).sum(1)
    logs = (channel.clip / sent.sqrt().clamp(min=1e-12)).clamp(max=1).log()
    centre, spread = logs.mean(1, keepdim=True), logs.std(1, keepdim=True).clamp(min=1e-3)
    steps = torch.linspace(-2.5, 2.5, _GRID, dtype=torch.float64)
    return (centre + spread * steps).clamp(max=0).exp(), (-(steps**2) / 2).expand(len(prior), -1)
