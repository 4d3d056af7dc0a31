"""How a client trains, in numbers."""

from dataclasses import dataclass
from typing import Literal

from protocol.errors import InputError

Engine = Literal["auto", "vectorized", "sequential"]


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a client trains.

    Attributes:
        optimizer: the client's optimizer, fresh in every round.
        learning_rate: its learning rate.
        momentum: momentum of SGD.
        betas: decay rates of Adam.
        rho: decay rate of Adadelta.
        eps: the term that keeps Adam's and Adadelta's denominators from zero.
        eps_root: the term under the root of Adam's denominator; the published RAIFLE clients have 1e-8.
        weight_decay: L2 regularisation of every trained number.
        epochs: passes over the client's examples.
        batch_size: examples in a batch, None for all of them.
        updates: steps on batches that are each drawn anew from all of the client's examples, instead of epochs; None
            for epochs.
        engine: how the engine trains a cohort; `auto` chooses by task and device.
        clients_per_chunk: clients trained at once by the vectorized engine, None to choose by size.
        threads: chunks or clients trained side by side on a CPU, None for as many as torch has threads.
    """

    optimizer: Literal["sgd", "adam", "adadelta"] = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    rho: float = 0.9
    eps: float = 1e-8
    eps_root: float = 0.0
    weight_decay: float = 0.0
    epochs: int = 1
    batch_size: int | None = None
    updates: int | None = None
    engine: Engine = "auto"
    clients_per_chunk: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        if self.eps_root and (self.optimizer != "adam" or self.weight_decay):
            raise InputError(
                expected="eps_root with optimizer adam and no weight decay",
                found=f"{self.optimizer}, weight decay {self.weight_decay}",
                way_out="Set local.eps_root to 0.",
            )
        if self.updates is not None and self.batch_size is None:
            raise InputError(
                expected="a batch_size with updates",
                found="none",
                way_out="Set local.batch_size, or leave updates out.",
            )
        positive = {
            "learning_rate": self.learning_rate,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "updates": self.updates,
            "clients_per_chunk": self.clients_per_chunk,
            "threads": self.threads,
        }
        for name, value in positive.items():
            if value is not None and value <= 0:
                raise InputError(expected=f"{name} > 0", found=str(value), way_out=f"Set local.{name} above zero.")
