"""Matched filter: compares item deltas with those of shadow clients under each label."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.ranges import OpenUnitInterval, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import ITEM_EMBEDDING, RoundView

_NUMBERS_PER_CHUNK = 2**25
"""Numbers of simulated models and deltas in memory at a time: 128 MiB of float32."""


@dataclass(frozen=True)
class Templates:
    """Mean ``direction (V, R, d)`` of a positive item's delta, lengths by label, and clipping's mean ``scale (V,)``.

    A `positive` item's delta has the sign of the direction, whose mean length is 1; a `negative` one's the opposite.
    """

    direction: Tensor
    positive: float
    negative: float
    scale: Tensor


@dataclass(frozen=True, kw_only=True)
class MatchedFilter(InteractionAttack):
    """Log-likelihood ratio of each item's delta under Gaussian noise, with templates from shadow clients.

    Under local differential privacy, noise hides the leading singular vector of a client's deltas. But an item's delta
    depends mostly on the item and its label and little on the user, so shadow clients with random user vectors and
    labels, on the same items and global model, estimate the direction ``J_i`` of item i. With the clipped lengths ``a+
    > 0 > a-``, ``LLR_i = logit(p) + ((a+ - a-) J_i . D_i - (a+^2 - a-^2) |J_i|^2 / 2) / sigma^2``. Shadow clients of
    all victims in a view are pooled by item.

    The noise of several rounds is independent, so their ratios add up, and T rounds are worth sqrt(T) less noise.

    Threat model: passive server, one round or the client's rounds so far; knows the training algorithm, the public
    parameters of the defence, and the share of positives among the served items.

    Args:
        shadows: shadow clients per victim.
        positive_share: share of positives among the served items (0.2 in the papers).
        rounds: ``last`` uses the round of the view; ``all`` adds the view's earlier rounds, with the same served items.

    References:
        This project; the setting is that of [Pham25], section VI.A.

    Example:
        >>> import torch
        >>> from fedleak.attacks.recommendation import MatchedFilter
        >>> from fedleak.attacks.recommendation.toy import toy
        >>> view, truth = toy()
        >>> estimate = MatchedFilter()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
    """

    name = "matched-filter"
    family = "recommendation"
    with_prior = "likelihood"
    cost = "`shadows` simulated trainings per victim"
    threat_model = ThreatModel(
        sees="the update of the item embeddings, the global model and which items were served",
        knows="the clients' training algorithm, the defence's parameters, the share of positives among served items",
        needs=("served", RecommenderAlgorithm, f"deltas:{ITEM_EMBEDDING}"),
    )

    shadows: PositiveInt = 4
    positive_share: OpenUnitInterval = 0.2
    rounds: Literal["last", "all"] = "last"

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        views = [view]
        if self.rounds == "all":
            views = [*view.earlier, view]
        # The prior log odds, to which each round adds its ratio.
        prior = torch.logit(torch.tensor(self.positive_share, dtype=torch.float64))
        scores = prior.expand(view.served_items.shape)
        for round_view in views:
            if not torch.equal(round_view.served_items, view.served_items):
                raise ViewError(f"round {round_view.round}: expected the items of round {view.round}, got others")
            scores = scores + self.evidence(round_view, generator)
        scores = scores.masked_fill(~view.served_mask, 0)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)

    def evidence(self, view: RoundView, generator: torch.Generator) -> Tensor:
        """``(V, R)`` log-likelihood ratios of one round's item deltas."""
        templates = self.templates(view, generator)
        sigma = view.noise_scale(ITEM_EMBEDDING)
        rows = view.deltas[ITEM_EMBEDDING]
        along = (templates.direction * rows).sum(2)  # J_i . D_i
        squared_norm = (templates.direction**2).sum(2)
        # The clipped lengths a+ and a-; a negative item's delta points the other way.
        scale = templates.scale[:, None]
        positive = scale * templates.positive
        negative = -scale * templates.negative
        variance = sigma**2
        if not sigma > 0:
            # Without noise, the variance of the deltas takes its place.
            variance = float((rows**2).mean().clamp(min=torch.finfo(rows.dtype).tiny))
        log_ratio = (positive - negative) * along - (positive**2 - negative**2) * squared_norm / 2
        return (log_ratio / variance).double()

    def templates(self, view: RoundView, generator: torch.Generator) -> Templates:
        """Trains the shadow clients in chunks of bounded memory and keeps sums only.

        Raises:
            ViewError: no item is served to any victim, or the view is too small.
        """
        learner = view.require(RecommenderAlgorithm)
        served = view.served_items
        mask = view.served_mask
        if not bool(mask.any()):
            raise ViewError("expected served items, got none for any victim of this view")
        # Shadows are pooled by item: each served item's number among all that are served.
        items, item_numbers = torch.unique(served[mask], return_inverse=True)
        item_number = torch.zeros_like(served)
        item_number[mask] = item_numbers
        # By label and item: sums of the deltas, how many there are, and by label the sum of their norms.
        sums = torch.zeros(2, len(items), view.deltas[ITEM_EMBEDDING].shape[2])
        counts = torch.zeros(2, len(items))
        norms = torch.zeros(2)
        clip_scale = torch.zeros(view.victims)
        victim_of_shadow = torch.arange(view.victims).repeat_interleave(self.shadows)
        for victims in with_progress(torch.split(victim_of_shadow, _shadows_at_once(view))):
            draws = torch.rand(mask[victims].shape, generator=generator)
            labels = (draws < self.positive_share).float() * mask[victims]
            users = torch.randn(len(victims), learner.user_dim, generator=generator)
            deltas = learner.simulate(view.model, served[victims], labels, users)
            item_deltas = deltas[ITEM_EMBEDDING]
            clip_factors = view.clip_factors(ITEM_EMBEDDING, deltas)
            clip_scale.index_add_(0, victims, clip_factors / self.shadows)
            for label in (0, 1):
                has_label = (labels == label) & mask[victims]
                numbers = item_number[victims][has_label]
                sums[label].index_add_(0, numbers, item_deltas[has_label])
                counts[label].index_add_(0, numbers, torch.ones(len(numbers)))
                norms[label] += item_deltas[has_label].norm(dim=1).sum()
        if not bool(counts.sum(1).all()):
            raise ViewError("expected a view large enough for shadows of both labels, got too few; raise `shadows`")
        # Mean over both labels of the deltas in units of their label's length, the negative ones turned round.
        negative, positive = (norms / counts.sum(1)).tolist()
        shadows_of_item = counts.sum(0).clamp(min=1)[:, None]
        directions = (sums[1] / positive - sums[0] / negative) / shadows_of_item
        return Templates(
            direction=directions[item_number] * mask[..., None],
            positive=positive,
            negative=negative,
            scale=clip_scale,
        )


def _shadows_at_once(view: RoundView) -> int:
    """Number of shadow clients whose models and item deltas are in memory together."""
    width = view.deltas[ITEM_EMBEDDING][0].numel()
    width += sum(parameter.numel() for parameter in view.model.values())
    return max(1, _NUMBERS_PER_CHUNK // width)
