"""Hyper-parameters of local training."""

from dataclasses import dataclass
from typing import Literal

from fedleak.core.errors import InputError, require
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval, check_fields

Engine = Literal["auto", "vectorized", "sequential"]


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """Options of a client's local training: optimizer, steps, batches and the engine that computes them.

    Attributes:
        optimizer: the client's optimizer, without state from earlier rounds.
        learning_rate: learning rate.
        momentum: momentum of SGD.
        betas: decay rates of Adam.
        rho: decay rate of Adadelta.
        eps: term in the denominators of Adam and Adadelta.
        eps_root: term in the square root of Adam's denominator; the published RAIFLE clients use 1e-8.
        weight_decay: L2 regularisation of all trained parameters.
        epochs: passes over the client's examples.
        batch_size: examples in a batch, None for all of them.
        example_clip: L2 norm to which the gradient of each example is clipped in every step (DP-SGD), or None.
        max_grad_norm: L2 norm to which the gradient of a whole batch, over all trained parameters, is clipped in every
            step, as by `torch.nn.utils.clip_grad_norm_`; 1 is the default of the Trainer of transformers. None for no
            clip.
        noise_multiplier: standard deviation of the noise on the sum of a batch's clipped gradients, divided by
            `example_clip`.
        updates: number of steps on independent batches of the client's examples; None for epochs.
        engine: how the engine trains a cohort; `auto` chooses by task and device.
        clients_per_chunk: clients stacked by the vectorized engine, None to choose by size.
        fast: whether to use hand-written gradients, reused memory and fused optimizers; autograd and torch's optimizers
            give the same deltas to float tolerance.
        threads: chunks or clients trained in parallel on a CPU, None for the number of torch threads.

    Example:
        >>> from fedleak import LocalTraining
        >>> LocalTraining(learning_rate=0.1, epochs=2).batch_size  # None: all of a client's examples at once
        >>> LocalTraining(learning_rate=0.1, epochs=2).epochs
        2
    """

    optimizer: Literal["sgd", "adam", "adadelta"] = "sgd"
    learning_rate: PositiveFloat = 0.01
    momentum: UnitInterval = 0.0
    betas: tuple[UnitInterval, UnitInterval] = (0.9, 0.999)
    rho: UnitInterval = 0.9
    eps: UnitInterval = 1e-8
    eps_root: UnitInterval = 0.0
    weight_decay: NonNegativeFloat = 0.0
    example_clip: PositiveFloat | None = None
    max_grad_norm: PositiveFloat | None = None
    noise_multiplier: NonNegativeFloat = 0.0
    epochs: PositiveInt = 1
    batch_size: PositiveInt | None = None
    updates: PositiveInt | None = None
    engine: Engine = "auto"
    clients_per_chunk: PositiveInt | None = None
    threads: PositiveInt | None = None
    fast: bool = True

    def __post_init__(self) -> None:
        """Checks the values and their combination."""
        try:
            check_fields(self)
        except ValueError as error:
            way_out = "Set the named key of local to a value in its range."
            raise InputError(expected="valid local training", found=str(error), way_out=way_out) from None
        require(
            not self.eps_root or (self.optimizer == "adam" and not self.weight_decay),
            "eps_root with optimizer adam and no weight decay",
            f"{self.optimizer}, weight decay {self.weight_decay}",
            "Set local.eps_root to 0.",
        )
        require(
            not self.noise_multiplier or self.example_clip is not None,
            "an example_clip with noise_multiplier",
            "none",
            "Set local.example_clip, e.g. 1.0, or omit local.noise_multiplier.",
        )
        batches = self.updates is None or self.batch_size is not None
        require(batches, "a batch_size with updates", "none", "Set local.batch_size, or omit local.updates.")

    @property
    def plain_sgd(self) -> bool:
        """Whether a step is minus the learning rate times a gradient, and nothing else."""
        return self.descends and self.max_grad_norm is None

    @property
    def descends(self) -> bool:
        """Whether a step goes along minus a gradient, with the learning rate or, where clipped, a smaller one."""
        return self.optimizer == "sgd" and not self.momentum and not self.weight_decay
