"""Whether a client retrieved a document, told from its update (RAIFLE, section VII.C), as an experiment."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attacks.manipulation.direct import MarkedDocument
from datamodules.cohort import Cohort
from datamodules.ranking import RankingDataModule
from evaluation.runner import Evaluation, attack_view, joined
from experiments.base import Choice, PaperCell
from experiments.options import plain_number
from experiments.ranking_table import OnlineTable, ranking_data
from modules.fpdgd import FPDGD
from protocol.errors import InputError
from protocol.seeding import generator_for
from protocol.view import ServerView


@dataclass(frozen=True, kw_only=True)
class RetrievalExperiment(OnlineTable):
    """A table: every ranker with every click model and budget; half of the clients retrieved the marked document.

    Attributes:
        queries: queries of a client.
        deals: how often the queries are dealt out to clients anew, each time with another ranker.
        value: value of the mark.
    """

    families = ("membership",)
    queries: list[int]
    deals: int = 4
    value: float = 10.0

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        return self.grid(choice, _Cell, self.rankers, self.click_models, self.queries, self.epsilons)


@dataclass(frozen=True)
class _Cell(PaperCell[RetrievalExperiment]):
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
        defenses = self.table.noise(self.epsilon)
        return self.table.learner(source, self.ranker, self.click_model, defenses=defenses, seed=seed)

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Trains the clients of every deal, half of whom retrieved the document, and infers who did."""
        _, source = self.build()
        attacks, document = self.make_attacks().values(), unique_document(source)
        parts: list[Evaluation] = []
        seconds = {"train": 0.0, "attack": 0.0}
        for deal in range(self.table.deals):
            start = time.perf_counter()
            view, held = self._trained(source, document, deal)
            middle = time.perf_counter()
            truth = {"member": held.long()}
            parts += [attack_view(attack, view, truth, seed=self.seed, setting=self.setting) for attack in attacks]
            seconds["train"] += middle - start
            seconds["attack"] += time.perf_counter() - middle
        found = joined(parts)
        # A client may be a member in one deal only: its rates are over the deals in which they are defined.
        found.scores = found.scores.dropna(subset="value")
        return found, seconds

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
            manipulation=mark.name,
        )
        return view, held


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
