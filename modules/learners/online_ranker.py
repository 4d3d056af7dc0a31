"""Base of online learning to rank: a ranker, cascade clicks, and NDCG on test queries."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.retrieval import RetrievalNormalizedDCG

from fedleak.client.click_models import CLICK_MODELS, LONGEST, cascade_log_law, sample_patterns, steps_for_grades
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.ranking import ClickModel, ranker_parameters
from fedleak.core.errors import require
from fedleak.core.rankers import rank_scores
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.training.federated import FederatedModule, Federation, Unpack


class OnlineRanker(FederatedModule):
    """Federated ranker trained on clicks; a subclass defines displayed lists and updates, and calls `build_with`.

    Args:
        hidden: hidden units, 0 for a linear ranker.
        click_model: cascade click model of the clients.
        shown: documents in a list, at most 10.
        local: how clients train.
        federation: arguments of `FederatedModule`.
    """

    def __init__(
        self,
        *,
        hidden: int,
        click_model: ClickModel,
        shown: int,
        local: LocalTraining,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        require(2 <= shown <= LONGEST, f"shown from 2 to {LONGEST}", shown, "The papers show 10 documents.")
        self.hidden_units = hidden
        self.click_model = click_model
        self.shown = shown
        self.ndcg = RetrievalNormalizedDCG(top_k=10)

    def build(self, num_features: int, num_grades: int, grade_law: Sequence[float]) -> None:
        """The ranker."""
        require(
            (self.click_model, num_grades) in CLICK_MODELS,
            "a click model for 3 or 5 grades",
            f"{self.click_model!r} for {num_grades}",
            f"Known: {', '.join(f'{name} ({grades})' for name, grades in CLICK_MODELS)}.",
        )
        self.num_features = num_features
        self.num_grades = num_grades
        self.grade_law = [float(share) for share in grade_law]
        for name, value in self._fresh(PERSISTENT).items():
            layer, _, kind = name.partition(".")
            self.register_module(layer, nn.ParameterDict({kind: nn.Parameter(value)}))

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        document = cohort.examples["document"]
        # The number of the list in which each document stands, padded like the documents.
        number = torch.arange(document.shape[1])[:, None].expand(document.shape[1:])
        usable = (document >= 0) & cohort.mask[..., None]
        return {
            "served": document.where(usable, -1).flatten(1),
            "lists": number.expand(document.shape).where(usable, -1).flatten(1),
            "features": cohort.examples["features"].flatten(1, 2),
        }

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
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
        # Queries are numbered through all batches, because the metric groups documents by this number.
        index = (torch.arange(len(mask)) + first)[:, None].expand(mask.shape)
        self._queries_seen += len(mask)
        gains = 2 ** batch["grade"][mask] - 1
        self.ndcg.update(scores[mask], gains, indexes=index[mask])
        return {"val/ndcg@10": self.ndcg}

    def on_validation_epoch_start(self) -> None:
        self._queries_seen = 0

    _queries_seen = 0

    def _fresh(self, round_number: int) -> Parameters:
        generator = generator_for(self.seed, "global-model", round_number)
        return ranker_parameters(self.num_features, self.hidden_units, generator)

    def _best(self, keys: Tensor) -> Tensor:
        """``(C, Q, shown)`` positions of the documents with the largest finite keys ``(C, Q, D)``, padded with -1."""
        best = keys.topk(min(self.shown, keys.shape[2]), dim=2)
        positions = best.indices.where(torch.isfinite(best.values), -1)
        return nn.functional.pad(positions, (0, self.shown - positions.shape[2]), value=-1)

    def _click(
        self, cohort: Cohort, grades: Tensor, shown: Tensor, *, every: bool = False, stale: bool = False
    ) -> Tensor:
        """Clicks ``(C, Q, L)`` on documents of known grades; see `cascade_log_law` for `every` and `stale`."""
        steps = steps_for_grades(self.click_model, grades, self.num_grades)
        law = cascade_log_law(steps, shown, every=every, stale=stale)
        clicks = []
        for client_law, generator in zip(law, self._generators("clicks", cohort), strict=True):
            clicks.append(sample_patterns(client_law, generator))
        return torch.stack(clicks)

    def _generators(self, purpose: str, cohort: Cohort, *, secret: bool = False) -> list[torch.Generator]:
        """One generator per client, from the public seed, or from the secret key for draws that protect the client."""
        generators = []
        for client in cohort.clients.tolist():
            if secret:
                generators.append(generator_for(self.secret, purpose, self.seed, cohort.round, client))
            else:
                generators.append(generator_for(self.seed, purpose, cohort.round, client))
        return generators
