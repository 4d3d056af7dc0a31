"""Gradient matching for federated recommendation (RAIFLE, Algorithm 2), all victims of a view at once."""

from typing import Literal

import torch
from lightning import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from attacks.base import ITEM_EMBEDDING, ServerView, ViewError

UserVector = Literal["fixed", "joint"]
_RESCALE = 100.0
"""The published code multiplies the loss by max(1, 100 / mean row norm)."""


class GradientMatching(LightningModule):
    """Finds the interactions whose simulated update lies nearest the received one.

    The loss of a victim is the mean over its items of the distance between simulated and received delta, both divided
    by the local learning rate. The sum over victims is minimised; each victim's unknowns touch its own term only.

    Args:
        view: what the server saw; it must hold a learner and served items.
        generator: source of the starting point.
        user: ``fixed`` keeps one U(0, 1) user vector, as the published code; ``joint`` optimises it too, as the paper.
        max_iter: L-BFGS iterations.
    """

    def __init__(self, view: ServerView, *, generator: torch.Generator, user: UserVector, max_iter: int) -> None:
        super().__init__()
        if view.learner is None or view.served is None:
            raise ViewError("gradient matching needs a learner and the served items")
        self.view, self.learner, self.served = view, view.learner, view.served
        self.max_iter = max_iter
        shape = self.served.shape
        self.logits = torch.nn.Parameter(torch.rand(shape, generator=generator) * 2 - 1)
        start = torch.rand(1, self.learner.user_dim, generator=generator).expand(shape[0], -1).clone()
        self.users = torch.nn.Parameter(start, requires_grad=user == "joint")
        self.received = view.deltas[ITEM_EMBEDDING] / self.learner.learning_rate
        norms = self.received.norm(dim=2).sum(1) / view.served_mask.sum(1).clamp(min=1)
        self.rescale = (_RESCALE / norms.clamp(min=1e-12)).clamp(min=1)
        self.best_loss = torch.full((shape[0],), torch.inf)
        self.best = self.logits.detach().clone()

    def victim_losses(self) -> Tensor:
        """``(V,)`` loss of each victim at the current point."""
        mask = self.view.served_mask
        labels = torch.sigmoid(self.logits) * mask
        deltas = self.learner.simulate(self.view.model, self.served, labels, self.users, differentiable=True)
        gap = deltas[ITEM_EMBEDDING] / self.learner.learning_rate - self.received
        # The smallest number keeps the norm differentiable where padding makes the gap zero.
        distance = (gap.square().sum(2) + 1e-12).sqrt() * mask
        losses: Tensor = distance.sum(1) / mask.sum(1).clamp(min=1) * self.rescale
        return losses

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """One evaluation of the loss; the best point of every victim is kept."""
        losses = self.victim_losses()
        better = losses.detach() < self.best_loss
        self.best_loss = torch.where(better, losses.detach(), self.best_loss)
        self.best = torch.where(better[:, None], self.logits.detach(), self.best)
        return losses.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """L-BFGS with strong Wolfe line search at 0.1, as published."""
        unknowns = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.LBFGS(unknowns, lr=0.1, max_iter=self.max_iter, line_search_fn="strong_wolfe")

    def train_dataloader(self) -> DataLoader[Tensor]:
        """A single empty batch: the data are in the view."""
        return DataLoader([torch.zeros(())], batch_size=None)  # type: ignore[arg-type]
