"""AUC against the scale of the injected noise, on clients that the server makes up (RAIFLE, section IV.C)."""

import functools
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from attacks.base import Attack, RankingLearner
from datamodules.base import FederatedDataModule
from datamodules.ranking import RankingDataModule
from defenses.local_dp import LocalDP
from experiments.base import RANKING_ATTACKS, Choice, PaperCell
from experiments.options import as_number, plain_number
from experiments.ranking_table import RANKERS, RankingTable, ranking_data
from modules.federated import FederatedModule
from modules.fpdgd import FPDGD
from modules.noise_search import MadeUpClients, evolve_scale, mean_auc
from modules.registry import learner_from
from reports.evaluation import Evaluation
from reports.results import VictimRow

_SEARCHED_ON = 1_000_000
"""Added to the seed where CMA-ES searches: what it finds is measured on clients that it has not seen."""


@dataclass(frozen=True)
class NoiseSearch(RankingTable):
    """A table: every ranker and budget at every scale of a grid, and at the scale that CMA-ES finds.

    Attributes:
        experiment: its name.
        metrics: the metrics it reports.
        data: data sets by folder name.
        rankers: ``linear`` or ``neural-UNITS``.
        click_models: how clients click.
        queries: queries of a client.
        epsilons: privacy budgets of local DP.
        scales: the grid.
        attacks: the attack that is to read the noise, with constructor arguments.
        limits: unused: every made-up client is attacked.
        clients: made-up clients.
        generations: how often CMA-ES draws scales.
        population: scales in a generation.
        clip: L2 norm to which an update is clipped under local DP.
        delta: delta of local DP.
    """

    experiment: str
    metrics: list[str]
    data: list[str]
    rankers: list[str]
    click_models: list[str]
    queries: list[int]
    epsilons: list[float]
    scales: list[float]
    attacks: dict[str, dict[str, Any]]
    limits: dict[str, int] = field(default_factory=dict)
    clients: int = 30
    generations: int = 4
    population: int = 5
    clip: float = 0.25
    delta: float = 1e-8

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "NoiseSearch":
        """From a configuration."""
        numbers = {key: [as_number(key, value) for value in content[key]] for key in ("epsilons", "scales")}
        made = cls(**{**content, **numbers})
        made.check_columns(RANKING_ATTACKS)
        return made

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """See `PaperExperiment.known_attacks`."""
        return RANKING_ATTACKS

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        columns = itertools.product(self.rankers, self.click_models, self.queries, self.epsilons)
        for data, column, seed in itertools.product(self.names(choice), list(columns), range(choice.seeds)):
            yield _Cell(self, data, choice, seed, self, *column)


@dataclass(frozen=True)
class _Cell(PaperCell):
    table: NoiseSearch
    ranker: str
    click_model: str
    queries: int
    epsilon: float

    @property
    def key(self) -> str:
        return f"{self.data}-{self.ranker}-{self.click_model}-q{self.queries}-eps{self.epsilon:g}-seed{self.seed}"

    @property
    def setting(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "ranker": self.ranker,
            "click_model": self.click_model,
            "queries": self.queries,
            "epsilon": plain_number(self.epsilon),
            "manipulation": "noise",
        }

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        source = self._source()
        private = math.isfinite(self.epsilon)
        defense = [LocalDP(clip=self.table.clip, epsilon=self.epsilon, delta=self.table.delta)] if private else []
        module = FPDGD(
            num_features=source.num_features,
            num_grades=source.num_grades,
            num_clients=source.num_clients,
            grade_law=source.grade_law,
            hidden=RANKERS[self.ranker],
            click_model=self.click_model,  # type: ignore[arg-type]
            defenses=defense,
            seed=self.seed,
        )
        return module, source

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Attacks at every scale of the grid, searches, and attacks at what was found."""
        start = time.perf_counter()
        (attack,) = self.table.make_attacks()
        clients = self._clients()
        search = functools.partial(clients.attacked, attack=attack, seed=self.seed + _SEARCHED_ON)
        found = evolve_scale(
            lambda scale: mean_auc(search(scale)),
            lowest=min(self.table.scales),
            highest=max(self.table.scales),
            generations=self.table.generations,
            population=self.table.population,
            seed=self.seed,
        )
        middle = time.perf_counter()
        tried = [(scale, "grid") for scale in self.table.scales] + [(float(f"{found:.3g}"), "cma-es")]
        rows = []
        for scale, searcher in tried:
            begun = time.perf_counter()
            values = clients.attacked(scale, attack, seed=self.seed)
            seconds = (time.perf_counter() - begun) / len(values)
            setting = {**self.setting, "scale": plain_number(scale), "search": searcher}
            rows += self._rows(attack.name, setting, clients, values, seconds)
        return Evaluation(rows), {"train": middle - start, "attack": time.perf_counter() - middle}

    def _rows(
        self, attack: str, setting: dict[str, Any], clients: MadeUpClients, values: Tensor, seconds: float
    ) -> list[VictimRow]:
        items = clients.mask.flatten(1).sum(1).tolist()
        return [
            VictimRow(attack, setting, self.seed, 0, client, items[client], 0, "auc", value, seconds)
            for client, value in enumerate(values.tolist())
        ]

    def _source(self) -> RankingDataModule:
        source = ranking_data(self.data, self.choice.root, queries_per_client=self.queries, seed=self.seed)
        source.clients_per_round = min(self.choice.victims or self.table.clients, source.num_clients)
        return source

    def _clients(self) -> MadeUpClients:
        """Lists as the server would rank its own documents; of what they hold only the clicks are made up."""
        module, source = self.build()
        model = module.public_parameters()
        lists = module.interact(source.cohort(0), model).examples
        learner = learner_from(module.learner_description())
        assert isinstance(learner, RankingLearner)
        return MadeUpClients(
            model=model,
            features=lists["features"],
            mask=lists["shown"],
            learner=learner,
            defenses=tuple(module.defenses),
        )
