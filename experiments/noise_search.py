"""AUC against the scale of the injected noise, on clients that the server makes up (RAIFLE, section IV.C)."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from attacks.base import Attack
from datamodules.base import FederatedDataModule
from datamodules.ranking import RankingDataModule
from evaluation.runner import Evaluation, infer
from evaluation.scores import Line, concat
from experiments.base import Choice, PaperCell
from experiments.options import as_number, plain_number
from experiments.ranking_table import OnlineTable, ranking_data
from modules.federated import FederatedModule
from modules.noise_search import MadeUpClients, evolve_scale, mean_auc
from modules.registry import learner_from
from protocol.seeding import generator_for
from protocol.simulators import RankingSimulator
from protocol.view import ServerView

_SEARCHED_ON = 1_000_000
"""Added to the seed where CMA-ES searches: what it finds is measured on clients that it has not seen."""


@dataclass(frozen=True, kw_only=True)
class NoiseSearch(OnlineTable):
    """A table: every ranker and budget at every scale of a grid, and at the scale that CMA-ES finds.

    Attributes:
        queries: queries of a client.
        scales: the grid.
        clients: made-up clients.
        generations: how often CMA-ES draws scales.
        population: scales in a generation.
    """

    queries: list[int]
    scales: list[float]
    clients: int = 30
    generations: int = 4
    population: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scales", [as_number("scale", value) for value in self.scales])

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        return self.grid(choice, _Cell, self.rankers, self.click_models, self.queries, self.epsilons)


@dataclass(frozen=True)
class _Cell(PaperCell[NoiseSearch]):
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
        defenses = self.table.noise(self.epsilon)
        module = self.table.learner(source, self.ranker, self.click_model, defenses=defenses, seed=self.seed)
        return module, source

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Attacks at every scale of the grid, searches, and attacks at what was found."""
        start = time.perf_counter()
        (attack,) = self.make_attacks().values()
        clients = self._clients()
        found = evolve_scale(
            lambda scale: mean_auc(_attacked(clients, scale, attack, seed=self.seed + _SEARCHED_ON)[1]),
            lowest=min(self.table.scales),
            highest=max(self.table.scales),
            generations=self.table.generations,
            population=self.table.population,
            seed=self.seed,
        )
        middle = time.perf_counter()
        tried = [(scale, "grid") for scale in self.table.scales] + [(float(f"{found:.3g}"), "cma-es")]
        found_at, lines = [], {}
        for scale, searcher in tried:
            begun = time.perf_counter()
            view, values = _attacked(clients, scale, attack, seed=self.seed)
            seconds = (time.perf_counter() - begun) / len(values)
            label = attack.label(view)
            lines[label] = Line.of(attack, view)
            options: dict[str, Any] = {
                "items": view.served_mask.sum(1),
                "seconds": seconds,
                "setting": {"scale": plain_number(scale), "search": searcher},
            }
            found_at.append(self.scores(label, {"auc": values}, victims=view.pseudonyms, **options))
        return Evaluation(concat(found_at), lines), {"train": middle - start, "attack": time.perf_counter() - middle}

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
        assert isinstance(learner, RankingSimulator)
        return MadeUpClients(
            model=model,
            features=lists["features"],
            mask=lists["shown"],
            learner=learner,
            defenses=tuple(module.defenses),
        )


def _attacked(clients: MadeUpClients, scale: float, attack: Attack, *, seed: int) -> tuple[ServerView, Tensor]:
    """The view where noise of this scale was injected, and the AUC ``(B,)`` on each client; NaN where there is none."""
    view, clicks = clients.sent(scale, seed=seed)
    estimate = infer(attack, view, generator_for(seed, attack.label(view)))
    return view, estimate.score(view, {"labels": clicks}).metrics["auc"]
