"""Gradient matching for federated recommendation, for all victims of a view at once."""

from typing import Any, Literal

import torch
from lightning import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from modules.attackers.trainer import empty_batches, own_share, world_size
from protocol.errors import ViewError
from protocol.simulators import RecommenderSimulator
from protocol.view import ITEM_EMBEDDING, ServerView

Match = Literal["items", "items+model"]
_LEARNING_RATE = 0.1
"""Learning rate of the attack, as published for L-BFGS and for Adam."""
_RESCALE = 100.0
"""The published code multiplies the loss by max(1, 100 / mean row norm)."""


class GradientMatching(LightningModule):
    """Finds the interactions whose simulated update is closest to the received one (see `attacks.Raifle`).

    The loss of a victim is the mean over its items of the distance between simulated and received delta, divided by the
    local learning rate. The sum over victims is minimised; each victim's unknowns affect its own term only. Victims are
    therefore independent under Adam; under L-BFGS they share the step length.

    Args:
        view: the server view, with a learner, served items and the deltas of the item table.
        generator: source of the starting point.
        user: ``fixed`` keeps one U(0, 1) user vector, as the published code; ``joint`` optimises it too, as the paper.
        match: ``items`` as in the published code; ``items+model`` adds the mean squared difference of the other
            recorded parameters, as Algorithm 2.
        solver: L-BFGS with strong Wolfe line search, or Adam.
        max_iter: iterations of the solver.

    Raises:
        ViewError: the view lacks what the loss needs.

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, Algorithm 2.
    """

    served: Tensor
    mask: Tensor
    rescale: Tensor
    best: Tensor
    best_loss: Tensor

    def __init__(
        self,
        view: ServerView,
        *,
        generator: torch.Generator,
        max_iter: int,
        user: Literal["fixed", "joint"] = "fixed",
        match: Match = "items",
        solver: Literal["lbfgs", "adam"] = "lbfgs",
    ) -> None:
        super().__init__()
        self.learner, self.solver, self.max_iter = view.require(RecommenderSimulator), solver, max_iter
        shape = view.served_items.shape
        self.logits = torch.nn.Parameter(torch.rand(shape, generator=generator) * 2 - 1)
        start = torch.rand(1, self.learner.user_dim, generator=generator).expand(shape[0], -1).clone()
        self.users = torch.nn.Parameter(start, requires_grad=user == "joint")
        self.model = dict(view.model)
        self.received = {n: view.deltas[n] / self.learner.learning_rate for n in _matched(view, match)}
        self.register_buffer("served", view.served_items, persistent=False)
        self.register_buffer("mask", view.served_mask, persistent=False)
        norms = _mean_over_items(self.received[ITEM_EMBEDDING].norm(dim=2), view.served_mask)
        self.register_buffer("rescale", (_RESCALE / norms.clamp(min=1e-12)).clamp(min=1), persistent=False)
        # Persistent buffers are part of the state that other processes return.
        self.register_buffer("best_loss", torch.full((shape[0],), torch.inf))
        self.register_buffer("best", self.logits.detach().clone())

    def on_fit_start(self) -> None:
        """Moves the view to the device; Lightning moves parameters and buffers only."""
        self.model = {name: value.to(self.device) for name, value in self.model.items()}
        self.received = {name: value.to(self.device) for name, value in self.received.items()}

    def victim_losses(self, own: slice = slice(None)) -> Tensor:
        """``(W,)`` loss of each victim in `own` at the current point."""
        mask = self.mask[own]
        labels = torch.sigmoid(self.logits[own]) * mask
        deltas = self.learner.simulate(self.model, self.served[own], labels, self.users[own], differentiable=True)
        gaps = {name: deltas[name] / self.learner.learning_rate - value[own] for name, value in self.received.items()}
        # The constant keeps the norm differentiable at padding, where the gap is zero.
        distance = (gaps.pop(ITEM_EMBEDDING).square().sum(2) + 1e-12).sqrt()
        losses = _mean_over_items(distance, mask)
        if gaps:
            losses = losses + torch.cat([gap.flatten(1) for gap in gaps.values()], dim=1).square().mean(1)
        return losses * self.rescale[own]

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """The loss of this process's victims; the best point of every victim is kept."""
        own, together = own_share(self), world_size(self)
        losses = self.victim_losses(own)
        better = losses.detach() < self.best_loss[own]
        self.best_loss[own] = torch.where(better, losses.detach(), self.best_loss[own])
        self.best[own] = torch.where(better[:, None], self.logits.detach()[own], self.best[own])
        total: Tensor = losses.sum()
        if together == 1:
            return total
        # Gradients are averaged over the processes, and a line search must see one value in all of them.
        overall = self.trainer.strategy.reduce(total.detach().clone(), reduce_op="sum")
        return together * (total - total.detach()) + overall

    def on_train_end(self) -> None:
        """Collects each victim's best point from the process that found it."""
        if world_size(self) > 1:
            losses: Any = self.all_gather(self.best_loss)
            points: Any = self.all_gather(self.best)
            finder = losses.argmin(0)
            self.best_loss = losses.amin(0)
            self.best = points[finder, torch.arange(len(finder), device=finder.device)]

    @property
    def trainer_steps(self) -> int:
        """Steps of the Trainer: L-BFGS performs all its iterations in one."""
        return 1 if self.solver == "lbfgs" else self.max_iter

    def configure_optimizers(self) -> torch.optim.Optimizer:
        unknowns = [p for p in self.parameters() if p.requires_grad]
        if self.solver == "adam":
            return torch.optim.Adam(unknowns, lr=_LEARNING_RATE)
        return torch.optim.LBFGS(unknowns, lr=_LEARNING_RATE, max_iter=self.max_iter, line_search_fn="strong_wolfe")

    def train_dataloader(self) -> DataLoader[Tensor]:
        return empty_batches(self.trainer_steps)


def _mean_over_items(values: Tensor, mask: Tensor) -> Tensor:
    means: Tensor = (values * mask).sum(1) / mask.sum(1).clamp(min=1)
    return means


def _matched(view: ServerView, match: Match) -> list[str]:
    """Names of the parameters whose deltas are compared."""
    if match == "items":
        return [ITEM_EMBEDDING]
    others = [name for name in view.deltas if name not in view.row_parameters]
    if not others:
        raise ViewError("expected deltas of the model's parameters, got item rows only; record them, or match 'items'")
    return [ITEM_EMBEDDING, *others]
