"""Matched filter: simulated clients show what an item's delta looks like under each label."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from protocol.progress import counted
from protocol.simulators import RecommenderSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ITEM_EMBEDDING, ServerView, ViewError
from ranges import OpenUnitInterval, PositiveInt

_NUMBERS_PER_CHUNK = 2**25


@dataclass(frozen=True)
class Templates:
    """What shadows say of the items of a view.

    Attributes:
        direction: ``(V, R, d)`` mean delta of an interacted item, of mean length one.
        positive: mean length of the delta of an interacted item, along `direction`.
        negative: the same of an item not interacted with; it points the other way.
        scale: ``(V,)`` mean factor by which clipping shrinks a victim's update.
    """

    direction: Tensor
    positive: float
    negative: float
    scale: Tensor


@dataclass(frozen=True, kw_only=True)
class MatchedFilter(Attack):
    """Log-likelihood ratio of each item's delta under Gaussian noise, with templates from shadow clients.

    Under local differential privacy the leading singular vector of a client's deltas drowns. But how an item moves
    depends mostly on the item and its label, and little on the user: so simulated users with random vectors and random
    labels, on the same items and from the same global model, give the direction ``J_i`` in which item i would move.
    With ``a+ > 0 > a-`` the lengths after clipping, ``LLR_i = logit(p) + ((a+ - a-) J_i . D_i - (a+^2 - a-^2)
    |J_i|^2 / 2) / sigma^2``. Shadows of all the victims in a view are pooled, item by item.

    Threat model: passive server, one round; knows the training algorithm and the defence's parameters, which are
    public, and how many negatives are served per positive.

    Args:
        shadows: simulated clients per victim.
        positive_share: share of the served items that is interacted with (the papers serve 4:1).
    """

    name = "matched-filter"
    family = "recommendation"
    cost = "`shadows` simulated trainings per victim"
    threat_model = ThreatModel(
        sees="the update of the item embeddings, the global model and which items were served",
        knows="the clients' training algorithm, the defence's parameters, the share of positives among served items",
        needs=("served", "learner:RecommenderSimulator", f"deltas:{ITEM_EMBEDDING}"),
    )

    shadows: PositiveInt = 4
    positive_share: OpenUnitInterval = 0.2

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        templates = self.templates(view, generator)
        sigma = view.noise_scale(ITEM_EMBEDDING)
        rows = view.deltas[ITEM_EMBEDDING]
        along = (templates.direction * rows).sum(2)
        length = (templates.direction**2).sum(2)
        scale = templates.scale[:, None]
        up, down = scale * templates.positive, -scale * templates.negative
        # Without noise the spread of the deltas about their templates takes the noise's place.
        variance = sigma**2 if sigma > 0 else float((rows**2).mean().clamp(min=torch.finfo(rows.dtype).tiny))
        prior = torch.logit(torch.tensor(self.positive_share))
        scores = prior + ((up - down) * along - (up**2 - down**2) * length / 2) / variance
        scores = scores.double().masked_fill(~view.served_mask, 0)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)

    def templates(self, view: ServerView, generator: torch.Generator) -> Templates:
        """Trains the shadows, a bounded number at a time, and keeps only sums over them.

        Raises:
            ViewError: no item is served to any victim.
        """
        served, mask = _served(view)
        items, place = torch.unique(served[mask], return_inverse=True)
        position = torch.zeros_like(served)
        position[mask] = place
        sums = torch.zeros(2, len(items), view.deltas[ITEM_EMBEDDING].shape[2])
        counts, norms = torch.zeros(2, len(items)), torch.zeros(2)
        scale = torch.zeros(view.victims)
        for victims in counted(self._chunks(view)):
            labels = self._labels(mask[victims], generator)
            delta, shrink = self._shadow_deltas(view, victims, labels, generator)
            scale.index_add_(0, victims, shrink / self.shadows)
            for kind in (0, 1):
                chosen = (labels == kind) & mask[victims]
                index = position[victims][chosen]
                sums[kind].index_add_(0, index, delta[chosen])
                counts[kind].index_add_(0, index, torch.ones(len(index)))
                norms[kind] += delta[chosen].norm(dim=1).sum()
        if not bool(counts.sum(1).all()):
            raise ViewError("the view is too small to simulate both labels: give more victims per view or more shadows")
        negative, positive = (norms / counts.sum(1)).tolist()
        pooled = (sums[1] / positive - sums[0] / negative) / counts.sum(0).clamp(min=1)[:, None]
        return Templates(pooled[position] * mask[..., None], positive, negative, scale)

    def _chunks(self, view: ServerView) -> list[Tensor]:
        every = torch.arange(view.victims).repeat_interleave(self.shadows)
        width = view.deltas[ITEM_EMBEDDING][0].numel() + sum(v.numel() for v in view.model.values())
        return list(torch.split(every, max(1, _NUMBERS_PER_CHUNK // width)))

    def _labels(self, mask: Tensor, generator: torch.Generator) -> Tensor:
        return (torch.rand(mask.shape, generator=generator) < self.positive_share).float() * mask

    def _shadow_deltas(
        self, view: ServerView, victims: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Item deltas of shadows and the factor by which the defence would shrink them."""
        learner = view.require(RecommenderSimulator)
        assert view.served is not None
        users = torch.randn(len(victims), learner.user_dim, generator=generator)
        deltas = learner.simulate(view.model, view.served[victims], labels, users)
        clip = view.clip(ITEM_EMBEDDING)
        if clip is None:
            return deltas[ITEM_EMBEDDING], torch.ones(len(victims))
        together = next(r.parameters for r in view.releases if ITEM_EMBEDDING in r.parameters and r.clip is not None)
        squares = torch.stack([deltas[name].flatten(1).square().sum(1) for name in together])
        return deltas[ITEM_EMBEDDING], (clip / squares.sum(0).sqrt().clamp(min=1e-12)).clamp(max=1)


def _served(view: ServerView) -> tuple[Tensor, Tensor]:
    mask = view.served_mask
    assert view.served is not None  # `served_mask` has raised otherwise
    if not bool(mask.any()):
        raise ViewError("no item was served to any victim of this view")
    return view.served, mask
