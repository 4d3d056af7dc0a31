"""Gradient matching for federated recommendation, for all victims of a view at once."""

import dataclasses
from typing import Any, Literal

import torch
from lightning import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.view import ITEM_EMBEDDING, RoundView
from fedleak.modules.attackers.batched_lbfgs import batched_lbfgs
from fedleak.modules.attackers.side_by_side import side_by_side
from fedleak.modules.attackers.trainer import empty_batches, own_share, world_size

Match = Literal["items", "items+model", "model"]
Solver = Literal["lbfgs", "adam"]
Code = Literal["corrected", "as-published-code"]
_LEARNING_RATE = 0.1
"""Learning rate of the attack, as published for L-BFGS and for Adam."""
_RESCALE = 100.0
"""The published code multiplies the loss by max(1, 100 / mean row norm of the received delta)."""
_CHUNK_NUMBERS_CPU, _CHUNK_NUMBERS_GPU = 2**18, 2**25
"""Parameters of the simulated clients of one chunk, on a CPU (its cache) and on a GPU."""

_MOST_PADDING = 200
"""Items of padding of a chunk: they take about as long as what every chunk takes whatever its size."""


class InteractionMatching(LightningModule):
    """Finds the interactions whose simulated update is closest to the received one (see `fedleak.attacks.Raifle`).

    The loss of a victim is the mean over its items of the distance between simulated and received delta, divided by the
    local learning rate. Every victim is a problem of its own: L-BFGS solves chunks of victims of similar size, each
    with its own curvature and step length.

    Args:
        view: the server view, with a learner, served items and the deltas of the item table.
        generator: source of the starting point.
        max_iter: largest number of iterations of the solver.
        user: ``fixed`` keeps one random user vector, as the published code; ``joint`` optimises it too, as the paper.
        match: ``items`` as in the published code; ``items+model`` adds the mean squared difference of the other
            recorded parameters, as Algorithm 2; ``model`` is that difference alone, for private item embeddings.
        solver: L-BFGS or Adam.
        code: see `fedleak.attacks.Raifle`.

    Raises:
        ViewError: the view lacks what the loss needs.

    References:
        [Pham25], Algorithm 2.
    """

    best: Tensor
    best_loss: Tensor

    def __init__(
        self,
        view: RoundView,
        *,
        generator: torch.Generator,
        max_iter: int,
        user: Literal["fixed", "joint"] = "fixed",
        match: Match = "items",
        solver: Solver = "lbfgs",
        code: Code = "corrected",
    ) -> None:
        super().__init__()
        self.algorithm = view.require(RecommenderAlgorithm)
        self.solver = solver
        self.max_iter = max_iter
        self.automatic_optimization = solver == "adam"
        self.matched = _matched(view, match)
        self.view = view
        self.clips = code == "corrected" and ITEM_EMBEDDING in self.matched and view.clip(ITEM_EMBEDDING) is not None
        shape = view.served_items.shape
        # Interactions are sigmoids of free numbers, which start at random in [-1, 1].
        self.logits = torch.nn.Parameter(torch.rand(shape, generator=generator) * 2 - 1)
        start = torch.rand(1, self.algorithm.user_dim, generator=generator).expand(shape[0], -1).clone()
        self.users = torch.nn.Parameter(start, requires_grad=user == "joint")
        # Persistent buffers are part of the state that other processes return.
        self.register_buffer("best_loss", torch.full((shape[0],), torch.inf))
        self.register_buffer("best", self.logits.detach().clone())

    def losses(self, view: RoundView, logits: Tensor, users: Tensor) -> Tensor:
        """``(V,)`` losses of a view's victims with ``logits (V, R)`` and ``users (V, d)``."""
        mask = view.served_mask
        rate = self.algorithm.learning_rate
        labels = torch.sigmoid(logits) * mask
        deltas = self.algorithm.simulate(view.model, view.served_items, labels, users, differentiable=True)
        if self.clips:
            factors = view.clip_factors(ITEM_EMBEDDING, deltas)
            clipped = {}
            for name, value in deltas.items():
                clipped[name] = value * factors.reshape(-1, *[1] * (value.dim() - 1))
            deltas = clipped
        # In units of gradients, so that the loss does not depend on the local learning rate.
        gaps = {name: (deltas[name] - view.deltas[name]) / rate for name in self.matched}
        rows = gaps.pop(ITEM_EMBEDDING, None)
        losses = torch.zeros_like(logits[:, 0])
        if gaps:
            losses = torch.cat([gap.flatten(1) for gap in gaps.values()], dim=1).square().mean(1)
        if rows is None:
            return losses
        # The constant keeps the norm differentiable at padding, where the gap is zero.
        norms = (rows.square().sum(2) + 1e-12).sqrt()
        losses = losses + _mean_over_items(norms, mask)
        size = _mean_over_items(view.deltas[ITEM_EMBEDDING].norm(dim=2), mask)
        return losses * (_RESCALE / size.clamp(min=1e-12)).clamp(min=1)

    def part(self, victims: Tensor) -> RoundView:
        """What the losses of some victims need, without the padding of larger ones, on the module's device."""
        view = self.view.select(victims)
        width = int(view.served_mask.sum(1).max()) if len(victims) else 0
        deltas = {}
        for name, value in view.deltas.items():
            if name not in self.matched:
                continue
            if name in view.row_parameters:
                value = value[:, :width]
            deltas[name] = value.to(self.device)
        return dataclasses.replace(
            view,
            deltas=deltas,
            model={name: value.to(self.device) for name, value in view.model.items()},
            served=view.served_items[:, :width].to(self.device),
        )

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor | None:
        """One step of Adam for this process's victims, or all of L-BFGS; the best point of every victim is kept."""
        victims = torch.arange(len(self.logits))[own_share(self)]
        if self.solver == "lbfgs":
            chunks = self._chunks(victims)
            sizes = [float(self.view.served_mask[chunk].sum()) for chunk in chunks]
            if self.device.type == "cpu":
                side_by_side(self._descend, chunks, sizes)
            else:
                for chunk in with_progress(chunks):
                    self._descend(chunk)
            return None
        view = self.part(victims)
        width = view.served_items.shape[1]
        losses = self.losses(view, self.logits[victims, :width], self.users[victims])
        # Adam does not end at its best point, so each victim's best is kept.
        better = losses.detach() < self.best_loss[victims]
        self.best_loss[victims] = torch.where(better, losses.detach(), self.best_loss[victims])
        self.best[victims] = torch.where(better[:, None], self.logits.detach()[victims], self.best[victims])
        # Gradients are averaged over the processes, and each victim's are in one of them.
        return world_size(self) * losses.sum()

    def _chunks(self, victims: Tensor) -> list[Tensor]:
        """Victims in chunks of bounded memory and little padding, by number of items."""
        mask = self.view.served_mask[victims]
        sizes, order = mask.sum(1).sort(stable=True)
        dim = self.view.model[ITEM_EMBEDDING].shape[1]
        dense = sum(value.numel() for name, value in self.view.model.items() if name != ITEM_EMBEDDING)
        most_numbers = _CHUNK_NUMBERS_CPU if self.device.type == "cpu" else _CHUNK_NUMBERS_GPU
        chunks = []
        chunk = list[int]()
        items = 0
        for victim, size in zip(victims[order].tolist(), sizes.tolist(), strict=True):
            # Every victim of a chunk has the items of its largest, which is the newest because sizes ascend.
            padded = (len(chunk) + 1) * size
            numbers = (len(chunk) + 1) * dense + dim * padded
            large = numbers > most_numbers
            if chunk and (large or padded - items - size > _MOST_PADDING):
                chunks.append(torch.tensor(chunk))
                chunk = []
                items = 0
            chunk.append(victim)
            items += size
        if chunk:
            chunks.append(torch.tensor(chunk))
        return chunks

    def _descend(self, victims: Tensor) -> None:
        view = self.part(victims)
        joint = self.users.requires_grad
        width = view.served_items.shape[1]
        logits = self.logits.detach()[victims, :width]
        users = self.users.detach()[victims]

        def objective(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                points = points.detach().requires_grad_()
                users_of_rows = points[:, width:] if joint else users[rows]
                losses = self.losses(view.select(rows.cpu()), points[:, :width], users_of_rows)
                (gradients,) = torch.autograd.grad(losses.sum(), points)
            return losses.detach(), gradients

        # Unknowns of a victim in one row: logits of its items, and its user vector if that is searched too.
        start = torch.cat([logits, users], dim=1) if joint else logits
        points, losses = batched_lbfgs(objective, start, max_iter=self.max_iter, learning_rate=_LEARNING_RATE)
        self.best[victims, :width] = points[:, :width]
        self.best_loss[victims] = losses

    def on_train_end(self) -> None:
        """Collects each victim's best point from the process that found it."""
        if world_size(self) > 1:
            losses: Any = self.all_gather(self.best_loss)
            points: Any = self.all_gather(self.best)
            finder = losses.argmin(0)
            self.best_loss = losses.amin(0)
            self.best = points[finder, torch.arange(len(finder), device=finder.device)]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam; without effect where L-BFGS takes the steps."""
        return torch.optim.Adam([p for p in self.parameters() if p.requires_grad], lr=_LEARNING_RATE)

    def train_dataloader(self) -> DataLoader[Tensor]:
        return empty_batches(self.max_iter if self.solver == "adam" else 1)


def _mean_over_items(values: Tensor, mask: Tensor) -> Tensor:
    means: Tensor = (values * mask).sum(1) / mask.sum(1).clamp(min=1)
    return means


def _matched(view: RoundView, match: Match) -> list[str]:
    """Names of the parameters whose deltas are compared."""
    items = [name for name in view.deltas if name == ITEM_EMBEDDING and match != "model"]
    of_model = [name for name in view.deltas if name not in view.row_parameters and match != "items"]
    if match != "model" and not items:
        raise ViewError("expected deltas of the items, got the model's only; record them, or match 'model'")
    if match != "items" and not of_model:
        raise ViewError("expected deltas of the model's parameters, got item rows only; record them, or match 'items'")
    return items + of_model
