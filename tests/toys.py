"""Small things that several tests share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from fedleak.callbacks.delta_recorder import DeltaRecorder, federated
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING, POPULARITY, RoundView
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.defenses.base import Defense
from fedleak.modules.learners.fncf import FNCF, PAPER_LOCAL
from fedleak.training.round_record import RoundRecord

LOCAL = LocalTraining(optimizer="adam", learning_rate=0.01, epochs=5, eps_root=1e-8)


def each(attacks: Sequence[Attack]) -> list[Any]:
    """Parameters of a test that runs every attack; those that train a network are `integration`."""
    marks = {True: [pytest.mark.integration], False: []}
    return [pytest.param(attack, id=attack.name, marks=marks[hasattr(attack, "accelerator")]) for attack in attacks]


def data(**arguments: object) -> SyntheticRecommender:
    options: dict[str, object] = {"users": 12, "items": 80, "mean_interactions": 8.0, "fewest_interactions": 4}
    return SyntheticRecommender(**(options | arguments))  # type: ignore[arg-type]


def model(source: SyntheticRecommender, *, defenses: tuple[Defense, ...] = (), seed: int = 0) -> FNCF:
    return FNCF(
        num_items=source.num_items,
        num_clients=source.num_clients,
        user_dim=8,
        item_dim=8,
        hidden=(16, 8),
        local=LOCAL,
        defenses=defenses,
        seed=seed,
    )


def train(
    folder: Path,
    *,
    rounds: int,
    ckpt_path: Path | None = None,
    recorder: DeltaRecorder | None = None,
    more: Sequence[Callback] = (),
    defenses: tuple[Defense, ...] = (),
    **arguments: object,
) -> FNCF:
    """Trains and records in process; leaves ``folder/deltas`` and ``folder/last.ckpt``."""
    source = data(**arguments)
    module = model(source, defenses=defenses)
    trainer = quiet_trainer(rounds, folder, recorder or DeltaRecorder(), *more)
    trainer.fit(module, datamodule=source, ckpt_path=None if ckpt_path is None else str(ckpt_path))
    trainer.save_checkpoint(folder / "last.ckpt")
    return module


class LastRecord(Callback):
    """Keeps what the last round of a training returned."""

    record: RoundRecord

    def __init__(self, *, reads_updates: bool = False) -> None:
        self.reads_updates = reads_updates

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.reads_updates:
            federated(pl_module, "LastRecord").reads_updates = True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.record = outputs["record"]


def quiet_trainer(rounds: int, folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    """Trains on the CPU, in this process, without output and validation; the options are Lightning's.

    With -1 for the rounds, as long as the data have some.
    """
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    plain = {"limit_val_batches": 0, "num_sanity_val_steps": 0, "use_distributed_sampler": False}
    where = {"accelerator": "cpu", "devices": 1, "default_root_dir": folder}
    end = {"max_steps": rounds, "max_epochs": 1 if rounds == -1 else -1}
    return Trainer(callbacks=list(callbacks), **{**quiet, **plain, **where, **end, **options})


def leaky_view(victims: int = 12, order: torch.Tensor | None = None) -> tuple[RoundView, torch.Tensor]:
    """What a server sees of simulated clients of the paper's network without a defence, and their labels.

    With an `order` ``(V, R)`` of each client's items, labels are dealt out by it before the clients train.
    """
    generator = generator_for(0, "leaky-view")
    public = FNCF(num_items=400, num_clients=1).public_parameters()
    sizes = torch.randint(100, 160, (victims,), generator=generator)
    served = torch.full((victims, int(sizes.max())), -1)
    for victim, size in enumerate(sizes.tolist()):
        served[victim, :size] = torch.randperm(400, generator=generator)[:size].sort().values
    labels = (torch.rand(served.shape, generator=generator) < 0.2).float() * (served >= 0)
    labels = labels if order is None else labels.gather(1, order)
    learner = FNCFAlgorithm(user_dim=64, local=PAPER_LOCAL)
    deltas = learner.simulate(public, served, labels, torch.randn(victims, 64, generator=generator))
    return RoundView(
        round=0,
        pseudonyms=torch.arange(victims) + 100,
        example_counts=sizes,
        deltas={ITEM_EMBEDDING: deltas[ITEM_EMBEDDING]},
        model=public,
        row_parameters=frozenset([ITEM_EMBEDDING]),
        served=served,
        algorithm=learner,
        priors={POPULARITY: torch.zeros(served.shape)},
    ), labels


def with_shuffled_labels(view: RoundView, labels: torch.Tensor) -> RoundView:
    """`leaky_view` of clients whose labels ``(V, R)`` were shuffled among their items before they trained."""
    keys = torch.rand(labels.shape, generator=generator_for(1, "shuffle")).masked_fill(~view.served_mask, 2)
    return leaky_view(victims=view.victims, order=keys.argsort(1))[0]


class Line(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def train_dataloader(self) -> DataLoader[Tensor]:
        return DataLoader(torch.ones(8, 1), batch_size=4)  # type: ignore[arg-type]

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return ((batch @ self.weight - 1) ** 2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)
