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
        This project; the setting is that of Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163,
        section VI.A.
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
        views = [*view.earlier, view] if self.rounds == "all" else [view]
        scores = torch.logit(torch.tensor(self.positive_share, dtype=torch.float64)).expand(view.served_items.shape)
        for one in views:
            if not torch.equal(one.served_items, view.served_items):
                raise ViewError(f"round {one.round}: expected the items of round {view.round}, got others")
            scores = scores + self.evidence(one, generator)
        scores = scores.masked_fill(~view.served_mask, 0)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)

    def evidence(self, view: RoundView, generator: torch.Generator) -> Tensor:
        """``(V, R)`` log-likelihood ratios of one round's item deltas."""
        templates = self.templates(view, generator)
        sigma = view.noise_scale(ITEM_EMBEDDING)
        rows = view.deltas[ITEM_EMBEDDING]
        along = (templates.direction * rows).sum(2)
        length = (templates.direction**2).sum(2)
        scale = templates.scale[:, None]
        up, down = scale * templates.positive, -scale * templates.negative
        # Without noise, the variance of the deltas takes its place.
        variance = sigma**2 if sigma > 0 else float((rows**2).mean().clamp(min=torch.finfo(rows.dtype).tiny))
        return (((up - down) * along - (up**2 - down**2) * length / 2) / variance).double()

    def templates(self, view: RoundView, generator: torch.Generator) -> Templates:
        """Trains the shadow clients in chunks of bounded memory and keeps sums only.

        Raises:
            ViewError: no item is served to any victim, or the view is too small.
        """
        learner, served, mask = view.require(RecommenderAlgorithm), view.served_items, view.served_mask
        if not bool(mask.any()):
            raise ViewError("expected served items, got none for any victim of this view")
        items, place = torch.unique(served[mask], return_inverse=True)
        position = torch.zeros_like(served)
        position[mask] = place
        sums = torch.zeros(2, len(items), view.deltas[ITEM_EMBEDDING].shape[2])
        counts, norms = torch.zeros(2, len(items)), torch.zeros(2)
        scale = torch.zeros(view.victims)
        width = view.deltas[ITEM_EMBEDDING][0].numel() + sum(v.numel() for v in view.model.values())
        every = torch.arange(view.victims).repeat_interleave(self.shadows)
        for victims in with_progress(torch.split(every, max(1, _NUMBERS_PER_CHUNK // width))):
            draws = torch.rand(mask[victims].shape, generator=generator)
            labels = (draws < self.positive_share).float() * mask[victims]
            users = torch.randn(len(victims), learner.user_dim, generator=generator)
            deltas = learner.simulate(view.model, served[victims], labels, users)
            delta, shrink = deltas[ITEM_EMBEDDING], view.clip_factors(ITEM_EMBEDDING, deltas)
            scale.index_add_(0, victims, shrink / self.shadows)
            for kind in (0, 1):
                chosen = (labels == kind) & mask[victims]
                index = position[victims][chosen]
                sums[kind].index_add_(0, index, delta[chosen])
                counts[kind].index_add_(0, index, torch.ones(len(index)))
                norms[kind] += delta[chosen].norm(dim=1).sum()
        if not bool(counts.sum(1).all()):
            raise ViewError("expected a view large enough for shadows of both labels, got too few; raise `shadows`")
        negative, positive = (norms / counts.sum(1)).tolist()
        pooled = (sums[1] / positive - sums[0] / negative) / counts.sum(0).clamp(min=1)[:, None]
        return Templates(pooled[position] * mask[..., None], positive, negative, scale)
