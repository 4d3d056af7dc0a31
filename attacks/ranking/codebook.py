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
"""Click patterns drawn from the prior for each list, whose updates show how much clipping shrinks one."""
_GRID = 9
"""Clip factors on which the unknown one is integrated."""
_REACH = 2.5
"""Standard deviations of the logarithm of the clip factor that the grid reaches on both sides."""


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

    Example:
        >>> import torch
        >>> from fedleak.attacks.ranking import CodebookAttack
        >>> from fedleak.attacks.ranking.toy import toy
        >>> view, truth = toy("codes")
        >>> estimate = CodebookAttack()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
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
        # Codes (V, Q, L, P): what a click on a document adds to the update.
        model = {name: parameter[chunk].double() for name, parameter in view.sent_models().items()}
        maps = click_map(model, lists.features[chunk].double(), mask, learner.learning_rate)
        codes = torch.cat(list(maps.values()), dim=3)
        _refuse_overlap(codes)
        deltas = view.model_deltas()
        update = torch.cat([deltas[name][chunk].double().flatten(1) for name in maps], dim=1)
        # Standard deviation of each number of the update.
        first_parameter = next(iter(maps))
        norm = update.norm(dim=1)
        noise = view.noise_scale(first_parameter)
        sigma = (norm * _ROUNDING).clamp(min=1e-12)
        if noise:
            sigma = torch.full_like(norm, noise)
        prior = log_prior(self.prior, mask, learner).double()
        energy = _energies(codes)
        factors, weights = _clip_factors(view, first_parameter, energy, prior, generator)
        # log p(u | pattern, s) of the received update u, but for a constant: (s <x, u> - s^2 |x|^2 / 2) / sigma^2, with
        # the pattern's update x and the clip factor s; plus the log prior. (V, S, Q, 2^L).
        click_patterns = patterns(mask.shape[-1]).double()
        products_of_documents = (codes @ update[:, None, :, None]).squeeze(-1)
        products = products_of_documents @ click_patterns.T
        factor = factors[..., None, None]
        precision = 1 / sigma[:, None, None, None] ** 2
        evidence = (factor * precision) * products[:, None]
        evidence = evidence.addcmul_(factor**2 * precision / 2, energy[:, None], value=-1).add_(prior[:, None])
        # One pass of exponentials gives both each list's evidence and its marginals.
        highest = evidence.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
        likelihoods = evidence.sub_(highest).exp_()
        total = likelihoods.sum(-1)
        log_evidence = (highest.squeeze(-1) + total.log()).masked_fill(total == 0, 0.0)
        # Posterior of the clip factor: the lists are independent, so their evidence is multiplied.
        share = (log_evidence.sum(-1) + weights).softmax(1)
        marginals = (likelihoods @ click_patterns) / total.clamp(min=1e-300)[..., None]
        mean: Tensor = (marginals * share[..., None, None]).sum(1)
        return mean


def _refuse_overlap(codes: Tensor) -> None:
    """Raises `ViewError` if codes ``(V, Q, L, P)`` of two lists overlap."""
    vectors = codes.flatten(1, 2)
    list_of = torch.arange(codes.shape[1]).repeat_interleave(codes.shape[2])
    length = vectors.norm(dim=2)
    cosine = (vectors @ vectors.transpose(1, 2)) / (length[:, :, None] * length[:, None]).clamp(min=1e-30)
    worst = 0.0
    if codes.shape[1] > 1:
        is_other_list = list_of[:, None] != list_of
        worst = float((cosine.abs() * is_other_list).max())
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
    # Squared norms of updates of clicks drawn from the prior; those of orthogonal codes add up over the lists.
    probabilities = prior.exp().flatten(0, 1)
    # A list that cannot be sent has an empty law and no code, so that any of its patterns adds nothing.
    probabilities[probabilities.sum(1) == 0] = 1
    drawn = torch.multinomial(probabilities, _DRAWS, replacement=True, generator=generator)
    drawn = drawn.reshape(*prior.shape[:2], _DRAWS)
    squared_norms = energy.gather(2, drawn).sum(1)
    # A grid of a normal law fitted to the logarithm of the factor, which is at most 1.
    logs = view.clip_factors_of(name, {name: squared_norms}).log()
    centre = logs.mean(1, keepdim=True)
    spread = logs.std(1, keepdim=True).clamp(min=1e-3)
    steps = torch.linspace(-_REACH, _REACH, _GRID, dtype=torch.float64)
    factors = (centre + spread * steps).clamp(max=0).exp()
    log_weights = (-(steps**2) / 2).expand(len(prior), -1)
    return factors, log_weights
