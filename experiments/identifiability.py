"""PAC identifiability (London 2020) as experiments: a server that calls clients again and again, and what it learns."""

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from attacks.identifiability.bounds import Noisy, theorem_1, theorem_2, theorem_3, tolerance
from datamodules.recommendation import RecommenderDataModule
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.base import Choice, PaperCell
from experiments.campaign import PROBES, Broadcasts, Campaign, check_scores
from experiments.federated_mf import LIKED, Federation, Labels, People, PreferenceTable, everybody, held_out_hits
from experiments.options import check_names, plain_number
from experiments.recorded_cell import cell_trainer
from modules.margin_losses import check_assumption_2
from modules.mf import FederatedMF
from modules.probing import Answering
from modules.recommendation import USER_EMBEDDING
from protocol.errors import InputError
from protocol.seeding import generator_for


@dataclass(frozen=True, kw_only=True)
class IdentifiabilityExperiment(PreferenceTable):
    """A theorem on real clients.

    Attributes:
        theorem: 1, 2 or 3; 3 has Protocol 3.
        losses: losses of the margin.
        probes: what the server sends: ``zeros`` (Protocol 2), or items that are harder to notice.
        leanings: ``known``: the server knows which way each client leans; ``negative``: it takes all to lean that way.
        interactions: numbers of interactions T.
        multiples: numbers of interactions as multiples of each client's own T of the theorem.
        tolerance: error epsilon that counts as success.
        delta: probability with which the theorem may fail.
        campaigns: attacks on each of them; their scores are averaged before clients are counted.
        rounds_per_training: honest rounds before the attack.
    """

    theorem: int
    losses: list[str] = field(default_factory=lambda: ["log"])
    probes: list[str] = field(default_factory=lambda: ["zeros"])
    leanings: list[str] = field(default_factory=lambda: ["known"])
    interactions: list[int] = field(default_factory=list)
    multiples: list[float] = field(default_factory=list)
    tolerance: float = 0.0
    delta: float = 0.05
    campaigns: int = 1
    rounds_per_training: int = 200

    def __post_init__(self) -> None:
        """Refuses what no theorem allows.

        Raises:
            InputError: a name is unknown, a rate of likes or a loss breaks an assumption, Theorem 1 has noise, or the
                protocol is another theorem's.
        """
        super().__post_init__()
        check_names("probe", self.probes, PROBES)
        check_names("leaning", self.leanings, ["known", "negative"])
        for loss in self.losses:
            check_assumption_2(loss)
        protocol = "epochs" if self.theorem == 3 else "batches"
        noisy = self.theorem == 1 and any(self.noises)
        if self.theorem not in (1, 2, 3) or self.federation.protocol != protocol or noisy:
            raise InputError(
                expected="theorem 1 without noise, 2 with protocol batches, or 3 with protocol epochs",
                found=f"theorem {self.theorem}, protocol {self.federation.protocol}, noises {self.noises}",
                way_out="Fix the configuration.",
            )

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        for data in self.names(choice):
            axes = self.labels[data], self.losses, self.noises, self.probes, self.leanings
            yield from self.grid_of(data, choice, _Cell, *axes)


@dataclass(frozen=True)
class _Cell(PaperCell[IdentifiabilityExperiment]):
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
            found = self._attack(module, source, broadcasts.tables)
        kept = {*self.table.metrics, "error", "bound-of-all"}
        found.scores = found.scores[found.scores["metric"].isin(kept)]
        return found, {"train": middle - start, "attack": time.perf_counter() - middle}

    def _attack(self, module: FederatedMF, source: RecommenderDataModule, broadcasts: list[Tensor]) -> Evaluation:
        table, users = module.item_embedding.weight.detach().double(), module.private[USER_EMBEDDING].double()
        people = everybody(source)
        chosen = self._victims(people, source)
        bound = self._bounds(chosen, users[chosen.clients], table)
        campaign = Campaign(
            how=self._answering(),
            probe=self.probe,
            table=table,
            before=broadcasts[-1],
            attacks=tuple(self.make_attacks().values()),
            points=tuple(self.table.interactions),
            multiples=tuple(self.table.multiples),
            leaning_known=self.leaning == "known",
            tolerance=self.table.tolerance,
            seed=self.seed,
            setting=self.setting,
            metrics=frozenset({*self.table.metrics, "error"}),
            campaigns=self.table.campaigns,
        )
        found, after = campaign.run(chosen, users[chosen.clients], bound)
        found.scores = concat(
            [
                *self._of_clients(people, chosen, bound),
                found.scores,
                check_scores(campaign, broadcasts),
                *self._of_models(source, table, users, chosen, after),
            ]
        )
        return found

    def _of_clients(self, people: People, chosen: People, bound: Tensor) -> Iterator[pd.DataFrame]:
        """What the theorem assumes of all clients, and demands of the server for those chosen."""
        rates = {"preference-rate": people.rates, "assumption-1": people.rates < 0.5}
        yield self.scores("client", rates, victims=people.clients)
        bounds = {"bound": bound, "bound-of-all": torch.full_like(bound, float(bound.max()))}
        yield self.scores(f"theorem-{self.table.theorem}", bounds, victims=chosen.clients)

    def _of_models(
        self, source: RecommenderDataModule, table: Tensor, users: Tensor, chosen: People, after: Tensor
    ) -> Iterator[pd.DataFrame]:
        """What the attack costs the clients."""
        for when, vectors in (
            ("before the attack", users),
            ("after restoring", users.index_copy(0, chosen.clients, after)),
        ):
            hits = held_out_hits(source, table, vectors)[chosen.clients]
            yield self.scores("client", {"hr@10": hits}, victims=chosen.clients, setting={"when": when})
        moved = torch.nn.functional.cosine_similarity(users[chosen.clients], after, dim=1)
        yield self.scores("client", {"cosine-after": moved}, victims=chosen.clients)

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
