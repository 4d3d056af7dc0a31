"""What learners that rank online have in common: a ranker, clicks down a list, NDCG on test queries."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.retrieval import RetrievalNormalizedDCG

from datamodules.cohort import Cohort
from defenses.base import Defense
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.tasks import Parameters
from modules.federated import FederatedModule, Weighting
from modules.nets.ranker import rank_scores, ranker_parameters
from modules.server import ServerOptimizer
from protocol.click_models import (
    CLICK_MODELS,
    LONGEST,
    cascade_log_law,
    sample_patterns,
    steps_for_grades,
)
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for

ClickModel = Literal["perfect", "navigational", "informational"]


class OnlineRanker(FederatedModule):
    """A ranker trained on what clients click; a subclass says what a client is shown and what it sends.

    Args:
        num_features: features of a document, None for those of the data.
        num_grades: grades of relevance, 3 or 5, None for those of the data.
        grade_law: how often each grade occurs in the training data, None for what they say.
        hidden: hidden units, 0 for a linear ranker.
        click_model: how clients click.
        shown: documents in a list, at most 10.
        local: how clients train.
        server: what the server does with the average.
        defenses: what clients do to protect themselves.
        weighting: whether a client counts by its queries or as one.
        seed: seed of every draw.

    Raises:
        InputError: there is no such click model, or a list is too short or too long.
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
        server: ServerOptimizer,
        defenses: Sequence[Defense],
        weighting: Weighting,
        seed: int,
    ) -> None:
        super().__init__(local=local, server=server, defenses=defenses, weighting=weighting, seed=seed)
        if not 2 <= shown <= LONGEST:
            raise InputError(
                expected=f"shown from 2 to {LONGEST}", found=str(shown), way_out="The papers show 10 documents."
            )
        self.hidden_units, self.click_model, self.shown = hidden, click_model, shown
        self.ndcg = RetrievalNormalizedDCG(top_k=10)
        self.build_with(num_features=num_features, num_grades=num_grades, grade_law=grade_law)

    def build(self, num_features: int, num_grades: int, grade_law: Sequence[float]) -> None:
        """The ranker.

        Raises:
            InputError: there is no click model for so many grades.
        """
        if (self.click_model, num_grades) not in CLICK_MODELS:
            raise InputError(
                expected="a click model for 3 or 5 grades",
                found=f"{self.click_model!r} for {num_grades}",
                way_out=f"Known: {', '.join(f'{name} ({grades})' for name, grades in CLICK_MODELS)}.",
            )
        self.num_features, self.num_grades = num_features, num_grades
        self.grade_law = [float(share) for share in grade_law]
        for name, value in self._fresh(PERSISTENT).items():
            layer, _, kind = name.partition(".")
            self.register_module(layer, nn.ParameterDict({kind: nn.Parameter(value)}))

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """What each client clicked."""
        return {"labels": cohort.examples["click"].flatten(1)}

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """NDCG@10 on test queries."""
        for name, metric in self.update_metrics(batch).items():
            self.log(name, metric, on_epoch=True, prog_bar=True, batch_size=len(batch["grade"]))

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Adds a batch of test queries to the metrics and returns them by name."""
        parameters = {name: value[None] for name, value in self.public_parameters().items()}
        mask = batch["mask"]
        scores = rank_scores(parameters, batch["features"][None])[0]
        first = self._queries_seen
        index = (torch.arange(len(mask)) + first)[:, None].expand(mask.shape)
        self._queries_seen += len(mask)
        self.ndcg.update(scores[mask], batch["grade"][mask], indexes=index[mask])
        return {"val/ndcg@10": self.ndcg}

    def on_validation_epoch_start(self) -> None:
        """Queries are numbered anew."""
        self._queries_seen = 0

    _queries_seen = 0

    def _fresh(self, round_number: int) -> Parameters:
        return ranker_parameters(
            self.num_features, self.hidden_units, generator_for(self.seed, "global-model", round_number)
        )

    def _click(self, cohort: Cohort, grades: Tensor, shown: Tensor, *, every: bool = False) -> Tensor:
        """Clicks ``(C, Q, L)`` on documents of known grades; `every`: also none or all of a list's."""
        law = cascade_log_law(steps_for_grades(self.click_model, grades, self.num_grades), shown, every=every)
        return torch.stack(
            [sample_patterns(own, g) for own, g in zip(law, self._generators("clicks", cohort), strict=True)]
        )

    def _generators(self, purpose: str, cohort: Cohort, *, secret: bool = False) -> list[torch.Generator]:
        """One of each client: of the seed, which is public, or `secret`, for what protects the client."""
        seed, more = (self.secret, (self.seed,)) if secret else (self.seed, ())
        return [generator_for(seed, purpose, *more, cohort.round, client) for client in cohort.clients.tolist()]
