"""Whether a client retrieved a document, told from its update (RAIFLE, section VII.C), as an experiment."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attacks.base import Attack, MembershipEstimate, ServerView
from attacks.interactions.membership_fingerprint import RetrievalFingerprint
from attacks.manipulation.marked import MarkedDocument
from attacks.metrics import wins_over_negatives
from datamodules.cohort import Cohort
from datamodules.keys import generator_for
from datamodules.ranking import RankingDataModule
from defenses.local_dp import LocalDP
from errors import InputError
from experiments.base import Choice, PaperCell
from experiments.options import as_number, plain_number
from experiments.ranking_table import RANKERS, RankingTable, ranking_data
from modules.fpdgd import FPDGD
from reports.evaluation import Evaluation
from reports.results import VictimRow


@dataclass(frozen=True)
class RetrievalExperiment(RankingTable):
    """A table: every ranker with every click model and budget; half of the clients retrieved the marked document.

    Attributes:
        experiment: its name.
        metrics: ``auc`` over clients, ``tpr`` over those who retrieved it and ``fpr`` over those who did not.
        data: data sets by folder name.
        rankers: ``linear`` or ``neural-UNITS``.
        click_models: how clients click.
        queries: queries of a client.
        epsilons: privacy budgets of local DP.
        attacks: ``pir-fingerprint``.
        limits: unused: every client is attacked.
        deals: how often the queries are dealt out to clients anew, each time with another ranker.
        value: value of the mark.
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
    attacks: dict[str, dict[str, Any]]
    limits: dict[str, int] = field(default_factory=dict)
    deals: int = 4
    value: float = 10.0
    clip: float = 0.25
    delta: float = 1e-8

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "RetrievalExperiment":
        """From a configuration."""
        made = cls(**{**content, "epsilons": [as_number("epsilon", value) for value in content["epsilons"]]})
        made.check_columns([RetrievalFingerprint.name])
        return made

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """See `PaperExperiment.known_attacks`."""
        return {RetrievalFingerprint.name: RetrievalFingerprint}

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        columns = itertools.product(self.rankers, self.click_models, self.queries, self.epsilons)
        for data, column, seed in itertools.product(self.names(choice), list(columns), range(choice.seeds)):
            yield _Cell(self, data, choice, seed, self, *column)


@dataclass(frozen=True)
class _Cell(PaperCell):
    table: RetrievalExperiment
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
            "manipulation": MarkedDocument.name,
        }

    def build(self) -> tuple[FPDGD, RankingDataModule]:
        source = ranking_data(
            self.data, self.choice.root, queries_per_client=self.queries, shuffles=self.table.deals, seed=self.seed
        )
        return self._module(source, self.seed), source

    def _module(self, source: RankingDataModule, seed: int) -> FPDGD:
        private = math.isfinite(self.epsilon)
        return FPDGD(
            num_features=source.num_features,
            num_grades=source.num_grades,
            num_clients=source.num_clients,
            grade_law=source.grade_law,
            hidden=RANKERS[self.ranker],
            click_model=self.click_model,  # type: ignore[arg-type]
            defenses=[LocalDP(clip=self.table.clip, epsilon=self.epsilon, delta=self.table.delta)] if private else [],
            seed=seed,
        )

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Trains the clients of every deal, half of whom retrieved the document, and tells who."""
        _, source = self.build()
        attack = RetrievalFingerprint(**self.table.attacks[RetrievalFingerprint.name])
        document = unique_document(source)
        rows: list[VictimRow] = []
        seconds = {"train": 0.0, "attack": 0.0}
        for deal in range(self.table.deals):
            start = time.perf_counter()
            view, held = self._trained(source, document, deal)
            middle = time.perf_counter()
            estimate = attack(view, generator=generator_for(self.seed, attack.name, deal))
            assert isinstance(estimate, MembershipEstimate)
            rows += self._rows(view, held, estimate, (time.perf_counter() - middle) / view.victims)
            seconds["train"] += middle - start
            seconds["attack"] += time.perf_counter() - middle
        return Evaluation(rows), seconds

    def _trained(self, source: RankingDataModule, document: Tensor, deal: int) -> tuple[ServerView, Tensor]:
        """What the server sees of one deal's clients, and ``(V,)`` who retrieved the document."""
        module = self._module(source, self.seed * self.table.deals + deal)
        model = {name: value.clone() for name, value in module.public_parameters().items()}
        cohort = module.interact(source.cohort(deal), model)
        draws = generator_for(self.seed, "retrieval", deal)
        held = plant(cohort, document, draws)
        mark = MarkedDocument(document=document, value=self.table.value)
        lists = cohort.examples
        lists["features"] = mark.features(model, lists["features"], lists["shown"], generator=draws)
        update, _ = module.client_updates(cohort, model)
        view = ServerView(
            round=deal,
            pseudonyms=cohort.clients,
            example_counts=cohort.counts,
            deltas=update.deltas,
            model=model,
            releases=tuple(r for d in module.defenses for r in d.releases(tuple(model))),
        )
        return view, held

    def _rows(self, view: ServerView, held: Tensor, estimate: MembershipEstimate, seconds: float) -> list[VictimRow]:
        """One row per client and metric; of the AUC one per client who retrieved the document."""
        who = {"auc": held, "tpr": held, "fpr": ~held}
        decided = estimate.decisions.double()
        values = {
            "auc": wins_over_negatives(estimate.scores, held),
            "tpr": decided[held],
            "fpr": decided[~held],
        }
        name = RetrievalFingerprint.name
        return [
            VictimRow(
                name, self.setting, self.seed, view.round, int(client), 1, int(metric != "fpr"), metric, value, seconds
            )
            for metric, found in values.items()
            for client, value in zip(view.pseudonyms[who[metric]], found.tolist(), strict=True)
        ]


def plant(cohort: Cohort, document: Tensor, generator: torch.Generator) -> Tensor:
    """Puts a document in the place of one that was shown, drawn at random, of half of the clients.

    It is clicked as the document was that it takes the place of.

    Args:
        cohort: clients with their lists; ``examples["features"]`` ``(C, Q, L, F)`` is changed.
        document: ``(F,)``.
        generator: source of randomness.

    Returns:
        ``(C,)`` True for those who hold it.
    """
    held = torch.zeros(len(cohort), dtype=torch.bool)
    held[torch.randperm(len(cohort), generator=generator)[: len(cohort) // 2]] = True
    shown = cohort.examples["shown"].flatten(1).float()
    place = torch.multinomial(shown, 1, generator=generator).squeeze(1)
    features = cohort.examples["features"]
    flat = features.flatten(1, 2).clone()
    flat[held, place[held]] = document
    cohort.examples["features"] = flat.reshape(features.shape)
    return held


def unique_document(source: RankingDataModule) -> Tensor:
    """``(F,)`` a document of the test queries that no client holds, nor one like it.

    Raises:
        InputError: there is none.
    """
    batch = next(iter(source.val_dataloader()))
    theirs = torch.cat([source.cohort(deal).shared["features"] for deal in range(source.shuffles)])
    for document in batch["features"][batch["mask"]]:
        if not bool((theirs == document).all(1).any()):
            return torch.as_tensor(document)
    raise InputError(
        expected="a test document unlike all of the training's", found="none", way_out="Take another fold or data set."
    )
