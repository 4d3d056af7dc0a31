"""Gradient matching for images, for all victims of a view at once."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from lightning import LightningModule
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from fedleak.client.network import NetworkAlgorithm, last_linear
from fedleak.core.view import RoundView
from fedleak.modules.attackers.batched_lbfgs import batched_lbfgs
from fedleak.modules.attackers.input_gradients import input_gradients, simulated_updates, step_examples
from fedleak.modules.attackers.trainer import empty_batches
from fedleak.modules.attackers.update_gaps import TINY, cosine_gap, euclidean_gap, squared_norms, total_variation

Objective = Literal["cosine", "euclidean"]
Solver = Literal["signed-adam", "lbfgs"]
_MIDDLE, _SPREAD = 0.5, 0.25
"""The solver works with standardised images: ``image = 0.5 + 0.25 z``, and starts at z from N(0, 1)."""
_DECAYS = (3 / 8, 5 / 8, 7 / 8)
"""Shares of the iterations after which the step is divided by ten, as published."""
_CHUNK_NUMBERS = 2**23
"""Numbers in the updates of the victims that are simulated together."""
_RESCALE = 1e3
"""L-BFGS sees squared distances relative to the received update's, times this: its tolerances are absolute."""
MIXING = "mixing"
"""Name of the logits of the weights with which each image of a step is a mean of the client's images."""


@dataclass(frozen=True)
class Unknown:
    """Random numbers of the clients' step, which are searched together with the images.

    Attributes:
        start: ``(V, M, ...)`` their first values.
        span: the smallest and the largest value.
    """

    start: Tensor
    span: tuple[float, float]


class ImageMatching(LightningModule):
    """Finds images whose simulated update is most similar to the received one (see
    `fedleak.attacks.InvertingGradients`).

    Every victim is a problem of its own: losses are summed, and no step of the solver mixes victims.

    Args:
        view: the server view, of clients that run a `NetworkAlgorithm`, with the deltas of the whole model.
        labels: ``(V, M)`` int64 classes of the images to find, padded with -1.
        shape: channels, height and width.
        generator: source of the starting points and of the simulated order of mini-batches.
        simulate: simulate all local steps; otherwise the update is taken for one gradient of all examples.
        objective: one minus the cosine of the updates, or half their squared distance.
        solver: Adam on the signs of the gradient, or L-BFGS.
        total_variation: weight of the images' total variation.
        step: first step of Adam, in standardised units.
        max_iter: number of iterations of each start.
        restarts: number of starts, of which each victim's best is kept.
        seconds: time after which the best images so far are returned.
        leave_out: parameters whose gradients are not compared.
        unknown: random numbers that are searched too, by the name of their field; `MIXING` ``(V, M, M)`` are logits of
            the weights with which each image of the step is a mean of the client's images. Steps are not simulated.

    Attributes:
        best: ``(V, M, *shape)`` standardised images with the smallest loss.
        best_loss: ``(V,)`` their losses.
        cosines: ``(V,)`` cosines of their updates and the received ones.
        iterations: number of iterations that were made.

    References:
        [Geiping20], equation 4; [Zhu19], equation 4.
    """

    best: Tensor
    best_loss: Tensor
    cosines: Tensor
    steps: Tensor
    labels: Tensor
    examples: Tensor

    def __init__(
        self,
        view: RoundView,
        labels: Tensor,
        *,
        shape: tuple[int, ...],
        generator: torch.Generator,
        simulate: bool,
        objective: Objective,
        solver: Solver,
        total_variation: float,
        step: float,
        max_iter: int,
        restarts: int = 1,
        seconds: float = float("inf"),
        leave_out: Collection[str] = (),
        unknown: Mapping[str, Unknown] | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.algorithm = view.require(NetworkAlgorithm)
        self.generator = generator
        self.simulate = simulate
        self.objective = objective
        self.solver = solver
        self.total_variation = total_variation
        self.step = step
        self.max_iter = max_iter
        self.restarts = restarts
        self.seconds = seconds
        self.iterations = 0
        self.started = time.monotonic()
        self.counts = (labels >= 0).sum(1)
        # A gradient has the opposite sign of an update, and an update is the sum of the steps' gradients.
        steps = self.algorithm.steps(view.example_counts) * self.algorithm.learning_rate
        self.register_buffer("steps", -steps.float(), persistent=False)
        self.register_buffer("labels", labels.clamp(min=0), persistent=False)
        self.register_buffer("examples", torch.arange(labels.shape[1]).where(labels >= 0, -1), persistent=False)
        names = [name for name in view.sent_models() if name in view.deltas]
        self.models = {name: view.sent_models()[name] for name in names}
        compared = [name for name in names if name not in leave_out]
        self.received = {name: view.deltas[name] / -_rows(steps, view.deltas[name]) for name in compared}
        # Victims whose updates fit in memory together are simulated at once.
        size = sum(value[0].numel() for value in self.received.values())
        self.chunks = torch.split(torch.arange(len(labels)), max(1, _CHUNK_NUMBERS // size))
        self.images = torch.nn.Parameter(torch.zeros(*labels.shape, *shape))
        self.unknown = dict(unknown or {})
        starts = [unknown_numbers.start.clone() for unknown_numbers in self.unknown.values()]
        self.others = torch.nn.ParameterList(starts)
        self.register_buffer("best", torch.zeros(*labels.shape, *shape))
        self.register_buffer("best_loss", torch.full((len(labels),), torch.inf))
        self.register_buffer("cosines", torch.zeros(len(labels)))
        self.batches = torch.empty(0)

    @property
    def share(self) -> float:
        """Share of the work that is done, by iterations or by time, whichever is more."""
        done = self.iterations / (self.max_iter * self.restarts)
        return max(done, self.elapsed / self.seconds)

    def updates(
        self, victims: Tensor, images: Tensor, numbers: Sequence[Tensor] = ()
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Gradients ``(A, *shape)`` of the images, or of the simulated steps on average, and the received ones."""
        models = {name: value[victims].to(self.device) for name, value in self.models.items()}
        received = {name: value[victims].to(self.device) for name, value in self.received.items()}
        inputs = _MIDDLE + _SPREAD * images
        labels = self.labels[victims]
        with torch.enable_grad():
            if not self.simulate:
                more = dict(zip(self.unknown, numbers, strict=True))
                if MIXING in more:
                    inputs, labels = self._mixed(victims, inputs, more.pop(MIXING))
                gradients = input_gradients(self.algorithm, models, inputs, labels, self.examples[victims], more)
                return gradients, received
            batches = self.batches[victims].to(self.device)
            deltas = simulated_updates(self.algorithm, models, inputs, labels, batches)
        # A delta is minus the sum of the steps' gradients times their rates; `steps` is minus the sum of the rates.
        mean_gradients = {name: value / _rows(self.steps[victims], value) for name, value in deltas.items()}
        return mean_gradients, received

    def _mixed(self, victims: Tensor, inputs: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Means of ``inputs (A, M, *shape)`` and of their one-hot labels, with the softmax of ``logits (A, M, M)``."""
        real = self.examples[victims] >= 0
        # Weights over the real images of the client; padding gets none.
        weights = logits.masked_fill(~real[:, None], -torch.inf).softmax(2)
        class_count = last_linear(self.algorithm.template)[1].out_features
        classes = functional.one_hot(self.labels[victims], class_count).to(inputs)
        return torch.einsum("amn,an...->am...", weights, inputs), weights @ classes

    def losses(self, victims: Tensor, images: Tensor, numbers: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Losses and cosines of updates ``(A,)`` of ``victims (A,)`` with standardised ``images (A, M, *shape)``.

        Args:
            victims: positions in the view.
            images: images to compare.
            numbers: random numbers to compare, ``(A, M, ...)`` in the order of `unknown`.
        """
        simulated, received = self.updates(victims, images, numbers)
        cosine = cosine_gap(simulated, received)
        loss = cosine
        if self.objective == "euclidean":
            loss = euclidean_gap(simulated, received)
        if self.total_variation:
            loss = loss + self.total_variation * total_variation(images, self.examples[victims] >= 0)
        return loss, 1 - cosine.detach()

    def restart(self) -> None:
        """Draws new images, and a new order of the simulated mini-batches."""
        self.images.data.copy_(torch.randn(self.images.shape, generator=self.generator))
        for value, unknown_numbers in zip(self.others, self.unknown.values(), strict=True):
            value.data.copy_(unknown_numbers.start)
        self.batches = step_examples(self.algorithm, self.counts, generator=self.generator)
        # A new start must not go on with the moments of the last one.
        optimizer = self.optimizers()
        if not isinstance(optimizer, list):
            optimizer.optimizer.state.clear()

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        """One iteration of Adam for all victims, or one start of L-BFGS."""
        if self.solver == "lbfgs":
            self.restart()
            for victims in self.chunks:
                self._descend(victims)
            self.iterations += self.max_iter
        else:
            if self.iterations % self.max_iter == 0:
                self.restart()
            self._step()
            self.iterations += 1
        self.trainer.should_stop = self.trainer.should_stop or self.share >= 1

    def _step(self) -> None:
        """One step of Adam on the signs of the gradients, and back into the range of pixels."""
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        # Share of this start's iterations, or of its time, whichever is more: it decides the length of the step.
        start = self.iterations // self.max_iter / self.restarts
        done = min((self.share - start) * self.restarts, 1.0)
        for group in optimizer.optimizer.param_groups:
            decays = sum(done >= decay for decay in _DECAYS)
            group["lr"] = self.step * 0.1**decays
        searched = [self.images, *self.others]
        for value in searched:
            value.grad = torch.zeros_like(value)
        for victims in self.chunks:
            of_victims = [value.detach()[victims] for value in searched]
            gradients = self._evaluate(victims, of_victims[0], of_victims[1:])[1:]
            for value, gradient in zip(searched, gradients, strict=True):
                assert value.grad is not None
                value.grad[victims] = gradient.sign()
        optimizer.step()
        for value, unknown_numbers in zip(self.others, self.unknown.values(), strict=True):
            value.data.clamp_(*unknown_numbers.span)
        # Pixels stay within [0, 1], which in standardised units is from -2 to 2.
        edge = _MIDDLE / _SPREAD
        self.images.data.clamp_(-edge, edge)

    def _descend(self, victims: Tensor) -> None:
        shape = self.images[victims].shape
        scales = torch.ones(len(victims), device=self.device)
        if self.objective == "euclidean":
            real = {name: value[victims].to(self.device) for name, value in self.received.items()}
            scales = _RESCALE / squared_norms(real, list(real)).clamp(min=TINY)

        # The best images of all evaluations are kept, so the result of the solver itself is not used.
        def objective(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            if self.share >= 1:  # out of time: a flat objective ends the search
                return torch.zeros_like(points[:, 0]), torch.zeros_like(points)
            losses, gradients, *_ = self._evaluate(victims[rows], points.reshape(-1, *shape[1:]))
            return losses * scales[rows], gradients.flatten(1) * scales[rows, None]

        batched_lbfgs(objective, self.images.detach()[victims].flatten(1), max_iter=self.max_iter)

    def _evaluate(self, victims: Tensor, images: Tensor, numbers: Sequence[Tensor] = ()) -> tuple[Tensor, ...]:
        """Losses ``(A,)`` and gradients of images and others; each victim's best images are kept."""
        with torch.enable_grad():
            images = images.detach().requires_grad_()
            numbers = [value.detach().requires_grad_() for value in numbers]
            losses, cosines = self.losses(victims, images, numbers)
            gradients = torch.autograd.grad(losses.sum(), (images, *numbers))
        better = losses.detach() < self.best_loss[victims]
        self.best_loss[victims] = torch.where(better, losses.detach(), self.best_loss[victims])
        self.cosines[victims] = torch.where(better, cosines, self.cosines[victims])
        chosen = victims[better]
        self.best[chosen] = images.detach()[better]
        return losses.detach(), *(value.nan_to_num() for value in gradients)

    def found(self) -> Tensor:
        """``(V, M, *shape)`` best images in [0, 1]."""
        return (_MIDDLE + _SPREAD * self.best).clamp(0, 1)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam([self.images, *self.others], lr=self.step)

    def train_dataloader(self) -> DataLoader[Tensor]:
        steps = 1 if self.solver == "lbfgs" else self.max_iter
        return empty_batches(self.restarts * steps)


def in_units(images: Tensor) -> Tensor:
    """Standardised images of images, or of other examples, in the network's own units."""
    return (images - _MIDDLE) / _SPREAD


def _rows(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.dim() - 1)).to(like.dtype)
