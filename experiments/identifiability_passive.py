"""PAC identifiability without any change of the protocol: a server that adds up what clients send in honest rounds."""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from attacks.base import Attack
from datamodules.recommendation import RecommenderDataModule
from evaluation.runner import Evaluation, attack_view, joined
from experiments.base import Choice, PaperCell
from experiments.federated_mf import Labels, People, PreferenceTable, everybody
from experiments.options import plain_number
from experiments.recorded_cell import cell_trainer
from modules.federated import RoundRecord
from modules.mf import FederatedMF
from modules.recommendation import USER_EMBEDDING
from modules.registry import learner_from
from protocol.seeding import generator_for
from protocol.view import ITEM_EMBEDDING, LEANING, Release, ServerView


@dataclass(frozen=True, kw_only=True)
class PassiveExperiment(PreferenceTable):
    """Error against the number of honest rounds in which a client took part.

    Attributes:
        rounds: after how many of its rounds a client is attacked; numbers that fewer than half reach are left out.
        rounds_per_training: rounds of the federation.
    """

    rounds: list[int]
    rounds_per_training: int = 500

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        for data in self.names(choice):
            yield from self.grid_of(data, choice, _Cell, self.labels[data], self.noises)


class HonestMessages(Callback):
    """Adds up what each of some clients sends, and attacks it after given numbers of its rounds.

    Args:
        people: the clients.
        rounds: after how many rounds.
        attacks: what to run.
        releases: what clients publicly do to their messages.
        seed: seed of the attacks' draws.
        setting: keys of the results.
    """

    reads_updates = True

    def __init__(
        self,
        *,
        people: People,
        rounds: list[int],
        attacks: Collection[Attack],
        releases: tuple[Release, ...],
        seed: int,
        setting: Mapping[str, Any],
    ) -> None:
        self.people, self.rounds, self.attacks = people, rounds, attacks
        self.releases, self.seed, self.setting = releases, seed, setting
        self.position = {client: place for place, client in enumerate(people.clients.tolist())}
        self.sums: Tensor | None = None
        self.updates = torch.zeros(people.items.shape)
        self.seen = torch.zeros(len(people.clients), dtype=torch.int64)
        self.found: list[Evaluation] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Adds the round's messages; attacks the clients for whom it is time."""
        assert isinstance(pl_module, FederatedMF)
        record: RoundRecord = pl_module.round_record
        clients = record.cohort.clients.tolist()
        here = [place for place, client in enumerate(clients) if client in self.position]
        ours = torch.tensor([self.position[clients[place]] for place in here], dtype=torch.int64)
        messages = record.update.deltas[ITEM_EMBEDDING][here].detach().cpu().double()
        width = min(messages.shape[1], self.people.items.shape[1])
        if self.sums is None:
            self.sums = torch.zeros(*self.people.items.shape, messages.shape[2], dtype=torch.float64)
        self.sums[ours, :width] += messages[:, :width]
        self.updates[ours, :width] += (messages[:, :width].abs().sum(2) > 0).float()
        self.seen[ours] += 1
        for number in self.rounds:
            due = ours[self.seen[ours] == number]
            if len(due):
                self._attack(pl_module, record, due, number)

    def _attack(self, module: FederatedMF, record: RoundRecord, due: Tensor, number: int) -> None:
        assert self.sums is not None
        part = self.people.select(due)
        width = part.items.shape[1]
        updates = self.updates[due, :width]
        view = ServerView(
            round=record.round,
            pseudonyms=part.clients,
            example_counts=part.counts,
            deltas={ITEM_EMBEDDING: self.sums[due, :width]},
            model={ITEM_EMBEDDING: record.model[ITEM_EMBEDDING].cpu()},
            row_parameters=frozenset([ITEM_EMBEDDING]),
            served=torch.where(updates > 0, part.items, -1),
            updates=updates,
            releases=self.releases,
            learner=learner_from(module.learner_description()),
            priors={LEANING: torch.where(part.rates > 0.5, 1.0, -1.0)},
        )
        truth = {"labels": part.labels.float(), "user_vector": module.private[USER_EMBEDDING][part.clients]}
        for attack in self.attacks:
            found = attack_view(attack, view, truth, seed=self.seed, setting={**self.setting, "rounds": number})
            # A client's own rounds are the axis, so the federation's number of the round says nothing more.
            found.scores["round"] = number
            self.found.append(found)


@dataclass(frozen=True)
class _Cell(PaperCell[PassiveExperiment]):
    labels: Labels
    noise: float

    @property
    def key(self) -> str:
        return f"{self.data}-{self.labels}-noise{self.noise:g}-seed{self.seed}-victims{self.choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        return {"data": self.data, "labels": self.labels, "noise": plain_number(self.noise)}

    def build(self) -> tuple[FederatedMF, RecommenderDataModule]:
        federation = self.table.federation
        source = federation.source(self.data, self.labels, root=self.choice.root, seed=self.seed)
        return federation.module(source, noise=self.noise, seed=self.seed), source

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Trains, and attacks on the way."""
        start = time.perf_counter()
        module, source = self.build()
        people = everybody(source)
        fits = torch.nonzero(people.rates != 0.5).flatten()
        drawn = torch.randperm(len(fits), generator=generator_for(self.seed, "victims"))
        chosen = fits[drawn[: self.choice.victims or self.table.users]].sort().values
        messages = HonestMessages(
            people=people.select(chosen),
            rounds=self.table.rounds,
            attacks=self.make_attacks().values(),
            releases=(Release(noise_scale=self.noise, parameters=(ITEM_EMBEDDING,)),) if self.noise else (),
            seed=self.seed,
            setting=self.setting,
        )
        cell_trainer(self.table.rounds_per_training, directory, messages).fit(module, datamodule=source)
        # A number of rounds that few clients reached would be a number about those few.
        most = [number for number in self.table.rounds if 2 * int((messages.seen >= number).sum()) >= len(chosen)]
        found = joined(messages.found)
        scores = found.scores
        found.scores = scores[scores["metric"].isin(self.table.metrics) & scores["round"].isin(most)]
        return found, {"train": time.perf_counter() - start, "attack": 0.0}
