"""Base of online learning to rank: a ranker, cascade clicks, and NDCG on test queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.retrieval import RetrievalNormalizedDCG

from client.click_models import (
    CLICK_MODELS,
    LONGEST,
    cascade_log_law,
    sample_patterns,
    steps_for_grades,
)
from client.cohort import Cohort
from client.engine.fast.gradients import Parameters
from client.engine.local_hyperparameters import LocalTraining
from client.nets.ranker import ranker_parameters, ranker_shapes
from modules.federated import FederatedModule, Federation, Unpack
from modules.simulator import PublicAlgorithm, Shapes
from protocol.errors import require
from protocol.rankers import rank_scores
from protocol.seeding import PERSISTENT, generator_for

ClickModel = Literal["perfect", "navigational", "informational"]


@dataclass(frozen=True, kw_only=True)
class ClickSimulator(PublicAlgorithm):
    """Public algorithm of clients that click in ranked lists.

    Attributes:
        click_model: name of the clients' cascade click model.
        grade_law: share of each grade among the documents.

    Raises:
        InputError: there are not 3 or 5 shares that sum to 1.
    """

    click_model: ClickModel
    grade_law: Sequence[float]

    def __post_init__(self) -> None:
        law = self.grade_law
        known = len(law) in {grades for _, grades in CLICK_MODELS}
        require(
            known and min(law) >= 0 and abs(sum(law) - 1) <= 1e-3,
            "grade_law: shares of 3 or 5 grades that sum to 1",
            str(law)[:100],
            "Record again, or set learner to null in the manifest.",
        )

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        return ranker_shapes(held)


class OnlineRanker(FederatedModule):
    """Federated ranker trained on clicks; a subclass defines the displayed lists and the update.

    Args:
        num_features: features of a document, None to take the number from the data.
        num_grades: grades of relevance, 3 or 5, None to take the number from the data.
        grade_law: share of each grade in the training data, None to take it from the data.
        hidden: hidden units, 0 for a linear ranker.
        click_model: cascade click model of the clients.
        shown: documents in a list, at most 10.
        local: how clients train.
        federation: arguments of `FederatedModule`.

    Raises:
        InputError: a list is too short or too long.
    """

    def __init__(
        self,
        *,
        num_features: int | None,
        num_grades: int | None,
        grade_law: Sequence[float] | None,
        hidden: int,
        click_model: ClickModel,
        shown: int,
        local: LocalTraining,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        require(2 <= shown <= LONGEST, f"shown from 2 to {LONGEST}", shown, "The papers show 10 documents.")
        self.hidden_units, self.click_model, self.shown = hidden, click_model, shown
        self.ndcg = RetrievalNormalizedDCG(top_k=10)
        self.build_with(num_features=num_features, num_grades=num_grades, grade_law=grade_law)

    def build(self, num_features: int, num_grades: int, grade_law: Sequence[float]) -> None:
        """The ranker.

        Raises:
            InputError: the click model has no version for this number of grades.
        """
        require(
            (self.click_model, num_grades) in CLICK_MODELS,
            "a click model for 3 or 5 grades",
            f"{self.click_model!r} for {num_grades}",
            f"Known: {', '.join(f'{name} ({grades})' for name, grades in CLICK_MODELS)}.",
        )
        self.num_features, self.num_grades = num_features, num_grades
        self.grade_law = [float(share) for share in grade_law]
        for name, value in self._fresh(PERSISTENT).items():
            layer, _, kind = name.partition(".")
            self.register_module(layer, nn.ParameterDict({kind: nn.Parameter(value)}))

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """Displayed documents by list, see `RoundRecord`."""
        document = cohort.examples["document"]
        number = torch.arange(document.shape[1])[:, None].expand(document.shape[1:])
        usable = (document >= 0) & cohort.mask[..., None]
        return {
            "served": document.where(usable, -1).flatten(1),
            "lists": number.expand(document.shape).where(usable, -1).flatten(1),
            "features": cohort.examples["features"].flatten(1, 2),
        }

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Clicks of each client."""
        return {"labels": cohort.examples["click"].flatten(1)}

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Metrics by name, after adding a batch of test queries.

        A document of grade r has the gain 2^r - 1, as in RAIFLE's published code; a query without relevant documents
        counts as 0.
        """
        parameters = {name: value[None] for name, value in self.public_parameters().items()}
        mask = batch["mask"]
        scores = rank_scores(parameters, batch["features"][None])[0]
        first = self._queries_seen
        index = (torch.arange(len(mask)) + first)[:, None].expand(mask.shape)
        self._queries_seen += len(mask)
        gains = 2 ** batch["grade"][mask] - 1
        self.ndcg.update(scores[mask], gains, indexes=index[mask])
        return {"val/ndcg@10": self.ndcg}

    def on_validation_epoch_start(self) -> None:
        """Resets the numbering of test queries."""
        self._queries_seen = 0

    _queries_seen = 0

    def _fresh(self, round_number: int) -> Parameters:
        return ranker_parameters(
            self.num_features, self.hidden_units, generator_for(self.seed, "global-model", round_number)
        )

    def _click(
        self, cohort: Cohort, grades: Tensor, shown: Tensor, *, every: bool = False, stale: bool = False
    ) -> Tensor:
        """Clicks ``(C, Q, L)`` on documents of known grades; see `cascade_log_law` for `every` and `stale`."""
        steps = steps_for_grades(self.click_model, grades, self.num_grades)
        law = cascade_log_law(steps, shown, every=every, stale=stale)
        return torch.stack(
            [sample_patterns(own, g) for own, g in zip(law, self._generators("clicks", cohort), strict=True)]
        )

    def _generators(self, purpose: str, cohort: Cohort, *, secret: bool = False) -> list[torch.Generator]:
        """One generator per client, from the public seed, or from the secret key for draws that protect the client."""
        seed, more = (self.secret, (self.seed,)) if secret else (self.seed, ())
        return [generator_for(seed, purpose, *more, cohort.round, client) for client in cohort.clients.tolist()]
