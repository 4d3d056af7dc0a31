"""PAC identifiability (London 2020) as experiments: a server that calls clients again and again, and what it learns."""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.identifiability.baselines import RandomVector
from attacks.identifiability.bounds import Noisy, theorem_1, theorem_2, theorem_3, tolerance
from attacks.registry import ATTACKS
from datamodules.base import FederatedDataModule
from datamodules.keys import generator_for
from datamodules.recommendation import RecommenderDataModule
from errors import InputError
from experiments.base import Choice, PaperCell, PaperExperiment
from experiments.campaign import PROBES, Broadcasts, Campaign, check_rows
from experiments.federated_mf import LIKED, Federation, Labels, People, check_labels, everybody, held_out_hits
from experiments.options import as_number, check_names, plain_number
from experiments.recorded_cell import cell_trainer
from modules.margin_losses import check_assumption_2
from modules.mf import FederatedMF
from modules.probing import Answering
from modules.recommendation import USER_EMBEDDING
from reports.evaluation import Evaluation
from reports.results import VictimRow

IDENTIFIABILITY_ATTACKS: dict[str, type[Attack]] = {**ATTACKS, RandomVector.name: RandomVector}


@dataclass(frozen=True)
class IdentifiabilityExperiment(PaperExperiment):
    """A theorem on real clients.

    Attributes:
        experiment: its name.
        metrics: the metrics it reports.
        data: data sets by folder name.
        labels: by data set, whose labels clients have: ``liked``, or a rate of likes.
        attacks: what is run, by name, with constructor arguments.
        theorem: 1, 2 or 3; 3 has Protocol 3.
        noises: scales of the noise of Equation 3.
        losses: losses of the margin.
        probes: what the server sends: ``zeros`` (Protocol 2), or items that are harder to notice.
        leanings: ``known``: the server knows which way each client leans; ``negative``: it takes all to lean that way.
        interactions: numbers of interactions T.
        multiples: numbers of interactions as multiples of each client's own T of the theorem.
        tolerance: error epsilon that counts as success.
        delta: probability with which the theorem may fail.
        users: clients attacked, drawn at random.
        campaigns: attacks on each of them; their scores are averaged before clients are counted.
        rounds_per_training: honest rounds before the attack.
        federation: how clients train.
        limits: none.
    """

    experiment: str
    metrics: list[str]
    data: list[str]
    labels: dict[str, list[Labels]]
    attacks: dict[str, dict[str, Any]]
    theorem: int
    federation: Federation
    noises: list[float] = field(default_factory=lambda: [0.0])
    losses: list[str] = field(default_factory=lambda: ["log"])
    probes: list[str] = field(default_factory=lambda: ["zeros"])
    leanings: list[str] = field(default_factory=lambda: ["known"])
    interactions: list[int] = field(default_factory=list)
    multiples: list[float] = field(default_factory=list)
    tolerance: float = 0.0
    delta: float = 0.05
    users: int = 200
    campaigns: int = 1
    rounds_per_training: int = 200
    limits: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "IdentifiabilityExperiment":
        """From a configuration."""
        federation = Federation(**content.pop("federation", {}))
        noises = [as_number("a noise", value) for value in content.pop("noises", [0.0])]
        made = cls(data=list(content["labels"]), federation=federation, noises=noises, **content)
        made.check()
        return made

    def check(self) -> None:
        """Refuses what no theorem allows.

        Raises:
            InputError: a name is unknown, a rate of likes or a loss breaks an assumption, Theorem 1 has noise, or the
                protocol is another theorem's.
        """
        check_names("attack", list(self.attacks), list(self.known_attacks))
        check_names("probe", self.probes, PROBES)
        check_names("leaning", self.leanings, ["known", "negative"])
        check_labels(self.labels)
        for loss in self.losses:
            check_assumption_2(loss)
        protocol = "epochs" if self.theorem == 3 else "batches"
        noisy = self.theorem == 1 and any(self.noises)
        if self.theorem not in (1, 2, 3) or self.federation.protocol != protocol or noisy:
            raise InputError(
                expected="theorem 1 without noise, 2 with protocol batches, or 3 with protocol epochs",
                found=f"theorem {self.theorem}, protocol {self.federation.protocol}, noises {self.noises}",
                way_out="Mend the configuration.",
            )

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """See `PaperExperiment.known_attacks`."""
        return IDENTIFIABILITY_ATTACKS

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        for data in self.names(choice):
            columns = itertools.product(self.labels[data], self.losses, self.noises, self.probes, self.leanings)
            for labels, loss, noise, probe, leaning in columns:
                for seed in range(choice.seeds):
                    yield _Cell(self, data, choice, seed, self, labels, loss, noise, probe, leaning)

    def source(self, data: str, root: str | None) -> FederatedDataModule:
        """See `PaperExperiment.source`."""
        return self.federation.source(data, self.labels[data][0], root=root, seed=0)


@dataclass(frozen=True)
class _Cell(PaperCell):
    table: IdentifiabilityExperiment
    labels: Labels
    loss: str
    noise: float
    probe: str
    leaning: str

    @property
    def key(self) -> str:
        cell = f"{self.data}-{self.labels}-{self.loss}-noise{self.noise:g}-{self.probe}-{self.leaning}"
        return f"{cell}-seed{self.seed}-victims{self.choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        table = self.table
        return {
            "data": self.data,
            "labels": self.labels,
            "noise": plain_number(self.noise),
            "loss": self.loss,
            "probe": self.probe,
            "leaning": self.leaning,
            "theorem": table.theorem,
            "tolerance": table.tolerance,
            "delta": table.delta,
        }

    @property
    def federation(self) -> Federation:
        """How this cell's clients train."""
        return dataclasses.replace(self.table.federation, loss=self.loss)

    def build(self) -> tuple[FederatedMF, RecommenderDataModule]:
        source = self.federation.source(self.data, self.labels, root=self.choice.root, seed=self.seed)
        return self.federation.module(source, noise=self.noise, seed=self.seed), source

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Trains honestly, attacks, scores; nothing is recorded but the scores."""
        start = time.perf_counter()
        module, source = self.build()
        broadcasts = Broadcasts(every=max(1, source.num_clients // self.federation.clients))
        cell_trainer(self.table.rounds_per_training, directory, broadcasts).fit(module, datamodule=source)
        middle = time.perf_counter()
        with torch.no_grad():
            rows, missing = self._attack(module, source, broadcasts.tables)
        kept = [row for row in rows if row.metric in {*self.table.metrics, "error", "bound-of-all"}]
        return Evaluation(kept, missing=missing), {"train": middle - start, "attack": time.perf_counter() - middle}

    def _attack(
        self, module: FederatedMF, source: RecommenderDataModule, broadcasts: list[Tensor]
    ) -> tuple[list[VictimRow], dict[str, str]]:
        table, users = module.item_embedding.weight.detach().double(), module.private[USER_EMBEDDING].double()
        people = everybody(source)
        rows = self._client_rows("preference-rate", people.clients, people.rates)
        rows += self._client_rows("assumption-1", people.clients, (people.rates < 0.5).double())
        chosen = self._victims(people, source)
        bound = self._bounds(chosen, users[chosen.clients], table)
        rows += self._client_rows("bound", chosen.clients, bound, f"theorem-{self.table.theorem}")
        all_of_them = torch.full_like(bound, float(bound.max()))
        rows += self._client_rows("bound-of-all", chosen.clients, all_of_them, f"theorem-{self.table.theorem}")
        campaign = Campaign(
            how=self._answering(),
            probe=self.probe,
            table=table,
            before=broadcasts[-1],
            attacks=tuple(self.experiment.make_attacks()),
            points=tuple(self.table.interactions),
            multiples=tuple(self.table.multiples),
            leaning_known=self.leaning == "known",
            tolerance=self.table.tolerance,
            seed=self.seed,
            setting=self.setting,
            metrics=frozenset({*self.table.metrics, "error"}),
            campaigns=self.table.campaigns,
        )
        found, missing, after = campaign.run(chosen, users[chosen.clients], bound)
        rows += found + check_rows(campaign, broadcasts)
        for when, vectors in (
            ("before the attack", users),
            ("after restoring", users.index_copy(0, chosen.clients, after)),
        ):
            hits = held_out_hits(source, table, vectors)[chosen.clients]
            rows += self._client_rows("hr@10", chosen.clients, hits, when=when)
        moved = torch.nn.functional.cosine_similarity(users[chosen.clients], after, dim=1)
        rows += self._client_rows("cosine-after", chosen.clients, moved)
        return rows, missing

    def _victims(self, people: People, source: RecommenderDataModule) -> People:
        """Clients who took part in the training, and to whom the theorems apply, drawn at random."""
        rounds = range(self.table.rounds_per_training)
        trained = torch.cat([source.participants(number) for number in rounds])
        fits = torch.isin(people.clients, trained) & (people.rates != 0.5) & (people.rates > 0) & (people.rates < 1)
        if self.labels != LIKED:
            # Users of more than half the catalogue have too few items left to be given their rate.
            fits &= people.rates <= float(self.labels) + 1e-9
        order = torch.nonzero(fits).flatten()
        drawn = torch.randperm(len(order), generator=generator_for(self.seed, "victims"))
        return people.select(order[drawn[: self.choice.victims or self.table.users]].sort().values)

    def _bounds(self, people: People, users: Tensor, table: Tensor) -> Tensor:
        """``(V,)`` each client's own T of the theorem."""
        delta, how = self.table.delta, self._answering()
        if self.table.theorem == 1:
            return theorem_1(people.rates, batch=how.batch, delta=delta)
        noise = Noisy(
            scale=self.noise,
            step=how.learning_rate * check_assumption_2(how.loss),
            items=len(table),
            largest=float(table.norm(dim=1).max()),
        )
        tau = tolerance(users @ table.T, self.table.tolerance)
        if self.table.theorem == 2:
            return theorem_2(people.rates, tau, noise, batch=how.batch, delta=delta)
        return theorem_3(people.rates, tau, people.counts, noise, delta=delta)

    def _answering(self) -> Answering:
        given = self.federation
        return Answering(
            loss=self.loss,  # type: ignore[arg-type]
            learning_rate=given.learning_rate,
            batch=given.batch,
            protocol=given.protocol,
            noise=self.noise,
            clip=given.clip,
        )

    def _client_rows(
        self, metric: str, clients: Tensor, values: Tensor, name: str = "client", **more: Any
    ) -> list[VictimRow]:
        pairs = zip(clients.tolist(), values.tolist(), strict=True)
        return [VictimRow(name, {**self.setting, **more}, self.seed, 0, c, 0, 0, metric, v, 0.0) for c, v in pairs]
