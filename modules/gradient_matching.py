"""Gradient matching for federated recommendation (RAIFLE, Algorithm 2), all victims of a view at once."""

from collections.abc import Mapping
from typing import Literal

import torch
from lightning import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from attacks.base import ITEM_EMBEDDING, ServerView, ViewError

UserVector = Literal["fixed", "joint"]
Match = Literal["items", "items+model"]
Solver = Literal["lbfgs", "adam"]
_LEARNING_RATE = 0.1
"""Of the attack's optimizer, as published for L-BFGS and for Adam."""
_RESCALE = 100.0
"""The published code multiplies the loss by max(1, 100 / mean row norm)."""


class GradientMatching(LightningModule):
    """Finds the interactions whose simulated update lies nearest the received one.

    The loss of a victim is the mean over its items of the distance between simulated and received delta, both divided
    by the local learning rate, so that its size does not depend on that rate. The sum over victims is minimised; each
    victim's unknowns touch its own term only. Under Adam victims are therefore independent; under L-BFGS they share
    the length of a step.

    Args:
        view: what the server saw; it must hold a learner, served items and the deltas of the item table.
        generator: source of the starting point.
        user: ``fixed`` keeps one U(0, 1) user vector, as the published code; ``joint`` optimises it too, as the paper.
        match: ``items`` as in the published code; ``items+model`` adds the mean squared difference over all numbers of
            the other recorded parameters, as Algorithm 2 does.
        solver: L-BFGS with strong Wolfe line search, or Adam; both at 0.1.
        max_iter: iterations of the solver.

    Raises:
        ViewError: the view lacks what the loss needs.
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
        user: UserVector = "fixed",
        match: Match = "items",
        solver: Solver = "lbfgs",
    ) -> None:
        super().__init__()
        if view.learner is None or view.served is None:
            raise ViewError("expected a learner and the served items, got a view that lacks one; attack by direction")
        self.learner, self.solver, self.max_iter = view.recommender(), solver, max_iter
        shape = view.served.shape
        self.logits = torch.nn.Parameter(torch.rand(shape, generator=generator) * 2 - 1)
        start = torch.rand(1, self.learner.user_dim, generator=generator).expand(shape[0], -1).clone()
        self.users = torch.nn.Parameter(start, requires_grad=user == "joint")
        self.model = dict(view.model)
        self.received = {n: view.deltas[n] / self.learner.learning_rate for n in _matched(view, match)}
        self.register_buffer("served", view.served, persistent=False)
        self.register_buffer("mask", view.served_mask, persistent=False)
        norms = self._mean_over_items(self.received[ITEM_EMBEDDING].norm(dim=2))
        self.register_buffer("rescale", (_RESCALE / norms.clamp(min=1e-12)).clamp(min=1), persistent=False)
        self.register_buffer("best_loss", torch.full((shape[0],), torch.inf), persistent=False)
        self.register_buffer("best", self.logits.detach().clone(), persistent=False)

    def on_fit_start(self) -> None:
        """Takes the view to the device; Lightning itself moves only parameters and buffers."""
        self.model = {name: value.to(self.device) for name, value in self.model.items()}
        self.received = {name: value.to(self.device) for name, value in self.received.items()}

    def victim_losses(self) -> Tensor:
        """``(V,)`` loss of each victim at the current point."""
        labels = torch.sigmoid(self.logits) * self.mask
        deltas = self.learner.simulate(self.model, self.served, labels, self.users, differentiable=True)
        gaps = {name: deltas[name] / self.learner.learning_rate - value for name, value in self.received.items()}
        # The small number keeps the norm differentiable where padding makes the gap zero.
        distance = (gaps.pop(ITEM_EMBEDDING).square().sum(2) + 1e-12).sqrt()
        return (self._mean_over_items(distance) + _mean_square(gaps)) * self.rescale

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """One evaluation of the loss; the best point of every victim is kept."""
        losses = self.victim_losses()
        better = losses.detach() < self.best_loss
        self.best_loss = torch.where(better, losses.detach(), self.best_loss)
        self.best = torch.where(better[:, None], self.logits.detach(), self.best)
        return losses.sum()

    @property
    def trainer_steps(self) -> int:
        """Steps the Trainer must take: L-BFGS makes all of its iterations within one."""
        return 1 if self.solver == "lbfgs" else self.max_iter

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The solver over the logits and, where it is unknown, the user vector."""
        unknowns = [p for p in self.parameters() if p.requires_grad]
        if self.solver == "adam":
            return torch.optim.Adam(unknowns, lr=_LEARNING_RATE)
        return torch.optim.LBFGS(unknowns, lr=_LEARNING_RATE, max_iter=self.max_iter, line_search_fn="strong_wolfe")

    def train_dataloader(self) -> DataLoader[Tensor]:
        """Empty batches, one per step: the data are in the view."""
        steps: list[Tensor] = [torch.zeros(())] * self.trainer_steps
        # Without a generator of its own the loader draws from the global one.
        return DataLoader(steps, batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]

    def _mean_over_items(self, values: Tensor) -> Tensor:
        means: Tensor = (values * self.mask).sum(1) / self.mask.sum(1).clamp(min=1)
        return means


def _matched(view: ServerView, match: Match) -> list[str]:
    """Names of the parameters whose deltas are compared."""
    missing = view.missing((f"deltas:{ITEM_EMBEDDING}",))
    if missing:
        raise ViewError(f"expected the deltas of {ITEM_EMBEDDING}, got {sorted(view.deltas)}; record them too")
    if match == "items":
        return [ITEM_EMBEDDING]
    others = [name for name in view.deltas if name not in view.row_parameters]
    if not others:
        raise ViewError("expected deltas of the model's parameters, got item rows only; record them, or match 'items'")
    return [ITEM_EMBEDDING, *others]


def _mean_square(gaps: Mapping[str, Tensor]) -> Tensor | float:
    """``(V,)`` mean of the squares over all numbers of gaps ``(V, *shape)``, 0 where there is none."""
    if not gaps:
        return 0.0
    return torch.cat([gap.flatten(1) for gap in gaps.values()], dim=1).square().mean(1)
