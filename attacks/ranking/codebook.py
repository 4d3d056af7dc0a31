"""Exact posterior of the clicks if the served features are a codebook."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.ranking.priors import PosteriorAttack, prior_variant
from fedleak.client.click_models import pattern_pairs, patterns
from fedleak.client.list_priors import ListPrior, log_prior
from fedleak.client.ranked_lists import Lists, click_map
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_OVERLAP = 0.05
"""Largest cosine between codes of two lists for which the lists are independent."""
_ROUNDING = 1e-5
"""Noise scale if there is no noise, relative to the update's norm: float32 rounding during local training."""
_DRAWS = 64
_GRID = 9


@dataclass(frozen=True, kw_only=True)
class CodebookAttack(PosteriorAttack):
    """Exact posterior of the clicks, summed over the ``2^n - 2`` patterns of each list.

    If all documents of a list have the same score, the update is linear in the clicks; if the codes of different lists
    are orthogonal, the lists are independent. Clipping multiplies the update by one unknown factor, which is integrated
    on a grid.

    Threat model: an active server that sends each client features of its choice (`fedleak.server.codebook.Codebook`)
    and receives its update, and which then knows the documents that the client showed. With codes of the lists it must
    know these documents before it sends features; with codes of all candidates it need not. It needs neither the
    displayed order nor the order of the queries nor, with the uniform prior, any knowledge about the clicks.

    Raises:
        ViewError: the served features are no codebook: codes of two lists overlap.

    Variants:
        prior: the exact posterior with the cascade prior, for a server that knows the click model.

    References:
        This project; it extends RAIFLE's adversarial data manipulation (Pham, Kulkarni and Houmansadr, NDSS 2025,
        arXiv:2310.19163, section III.C).
    """

    name = "codebook"
    exact = True
    threat_model = ThreatModel(
        sees="each client's update, the documents in its lists and the features sent for them, clip norm, noise scale",
        knows="the learning algorithm; nothing about the clicks (uniform prior)",
        needs=("served", "lists", "features", RankingAlgorithm, "deltas"),
    )

    variants = prior_variant(name, threat_model)

    prior: ListPrior = "uniform"
    victims_at_once: PositiveInt | None = 8

    def marginals(self, view: RoundView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        learner = view.require(RankingAlgorithm)
        mask = lists.mask[chunk]
        model = {name: value[chunk].double() for name, value in view.sent_models().items()}
        maps = click_map(model, lists.features[chunk].double(), mask, learner.learning_rate)
        codes, sent, name = torch.cat(list(maps.values()), dim=3), view.model_deltas(), next(iter(maps))
        _refuse_overlap(codes)
        update = torch.cat([sent[parameter][chunk].double().flatten(1) for parameter in maps], dim=1)
        norm, noise = update.norm(dim=1), view.noise_scale(name)
        sigma = torch.full_like(norm, noise) if noise else (norm * _ROUNDING).clamp(min=1e-12)
        prior = log_prior(self.prior, mask, learner).double()
        energy = _energies(codes)
        factors, weights = _clip_factors(view, name, energy, prior, generator)
        linear = (codes @ update[:, None, :, None]).squeeze(-1) @ patterns(mask.shape[-1]).double().T
        factor, precision = factors[..., None, None], 1 / sigma[:, None, None, None] ** 2
        evidence = (factor * precision) * linear[:, None]
        evidence = evidence.addcmul_(factor**2 * precision / 2, energy[:, None], value=-1).add_(prior[:, None])
        # One pass of exponentials gives both each list's evidence and its marginals.
        highest = evidence.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
        chances = evidence.sub_(highest).exp_()
        total = chances.sum(-1)
        evidence_of_list = (highest.squeeze(-1) + total.log()).masked_fill(total == 0, 0.0)
        share = (evidence_of_list.sum(-1) + weights).softmax(1)
        marginals = (chances @ patterns(mask.shape[-1]).double()) / total.clamp(min=1e-300)[..., None]
        return (marginals * share[..., None, None]).sum(1)


def _refuse_overlap(codes: Tensor) -> None:
    span = codes.flatten(1, 2)
    owner = torch.arange(codes.shape[1]).repeat_interleave(codes.shape[2])
    length = span.norm(dim=2)
    cosine = (span @ span.transpose(1, 2)) / (length[:, :, None] * length[:, None]).clamp(min=1e-30)
    worst = float((cosine.abs() * (owner[:, None] != owner)).max()) if codes.shape[1] > 1 else 0.0
    if worst > _OVERLAP:
        raise ViewError(f"expected lists whose codes do not overlap, as of a codebook, got a cosine of {worst:.2f}")


def _energies(codes: Tensor) -> Tensor:
    """``(V, Q, 2^L)`` squared norm of the update of each pattern of a list with ``codes (V, Q, L, P)``."""
    (first, second), both = pattern_pairs(codes.shape[2])
    gram = codes @ codes.transpose(-1, -2)
    # Products off the diagonal count twice.
    return (gram[..., first, second] * torch.where(first == second, 1.0, 2.0)) @ both


def _clip_factors(
    view: RoundView, name: str, energy: Tensor, prior: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Factors ``(V, S)`` by which clipping may have shrunk the update, and their log weights under the prior.

    All parameters are clipped together, so that the first, of a given `name`, stands for all.
    """
    if view.clip(name) is None:
        ones = torch.ones(len(prior), 1, dtype=torch.float64)
        return ones, torch.zeros_like(ones)
    chances = prior.exp().flatten(0, 1)
    # A list that cannot be sent has an empty law and no code, so that any of its patterns adds nothing.
    chances[chances.sum(1) == 0] = 1
    drawn = torch.multinomial(chances, _DRAWS, replacement=True, generator=generator).reshape(*prior.shape[:2], _DRAWS)
    sent = energy.gather(2, drawn).sum(1)
    logs = view.clip_factors_of(name, {name: sent}).log()
    centre, spread = logs.mean(1, keepdim=True), logs.std(1, keepdim=True).clamp(min=1e-3)
    steps = torch.linspace(-2.5, 2.5, _GRID, dtype=torch.float64)
    return (centre + spread * steps).clamp(max=0).exp(), (-(steps**2) / 2).expand(len(prior), -1)
