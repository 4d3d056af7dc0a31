"""Federated gradient boosting of decision trees, as XGBoost's users federate tables.

References:
    [Chen16].
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchmetrics import MeanSquaredError, Metric
from torchmetrics.classification import BinaryAUROC

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.tree_layout import FIELDS, margins, padding_trees, tree_count
from fedleak.client.trees import (
    BASE_SCORE,
    TREES,
    Objective,
    TreeAggregation,
    TreesAlgorithm,
)
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from fedleak.defenses.base import Defense, Update
from fedleak.defenses.trees import check_of_trees
from fedleak.training.federated import FederatedModule
from fedleak.training.round_record import RoundRecord, TrainingExamples


class FederatedTrees(FederatedModule):
    """Federated forest of XGBoost: in each round clients grow trees on the forest so far, and the server appends them.

    With ``bagging`` all clients of a round grow trees on the same forest; the predictions are the sum of all trees, so
    that `eta` is that of one client. With ``cyclic`` one client trains in a round (``data.clients_per_round: 1``), on
    the forest of the clients before it. Nothing is private but the rows; clients send their trees and, before there is
    a forest, the base score that XGBoost takes from their labels. Then the server takes that of the forest from these.

    A row is what the data call an image of one line. The forest has room for the trees of `most_rounds` rounds.

    Args:
        image_shape: shape of a row, None to take it from the data.
        num_classes: number of classes, None to take it from the data; ``binary:logistic`` needs 2.
        num_clients: number of clients, None to take it from the data; all of them may send trees in a round.
        objective: loss; ``reg:squarederror`` takes the number of the class for the target.
        eta: learning rate.
        depth: largest number of splits between the root and a leaf.
        reg_lambda: what is added to the Hessian of a node for its weight.
        min_child_weight: least sum of Hessians in a child.
        subsample: share of the rows on which each tree is grown.
        trees: new trees of a client in a round.
        aggregation: ``bagging`` or ``cyclic``.
        base_score_from: the forest's base score, as the ``mean`` of the clients' or that of the ``first`` client, as a
            server takes it that begins with the model of one; with clients of very different classes the forest then
            may not converge.
        defenses: defences of the clients, of trees; see `fedleak.defenses.trees`.
        most_rounds: number of rounds for which the forest has room; the training ends after it.
        seed: seed of every draw.
    """

    algorithm: TreesAlgorithm
    reads_updates = True

    def __init__(
        self,
        *,
        image_shape: tuple[int, int, int] | None = None,
        num_classes: int | None = None,
        num_clients: int | None = None,
        objective: Objective = "binary:logistic",
        eta: PositiveFloat = 0.1,
        depth: PositiveInt = 3,
        reg_lambda: NonNegativeFloat = 1.0,
        min_child_weight: NonNegativeFloat = 1.0,
        subsample: UnitInterval = 1.0,
        trees: PositiveInt = 1,
        aggregation: TreeAggregation = "bagging",
        base_score_from: Literal["mean", "first"] = "mean",
        defenses: Sequence[Defense] = (),
        most_rounds: PositiveInt = 10,
        seed: int = 0,
    ) -> None:
        check_of_trees(defenses)
        super().__init__(local=LocalTraining(), weighting="uniform", defenses=defenses, seed=seed)
        self.options: dict[str, Any] = {
            "objective": objective,
            "eta": eta,
            "depth": depth,
            "reg_lambda": reg_lambda,
            "min_child_weight": min_child_weight,
            "subsample": subsample,
            "trees": trees,
            "aggregation": aggregation,
        }
        self.base_score_from = base_score_from
        self.most_rounds = most_rounds
        self.build_with(image_shape=image_shape, num_classes=num_classes, num_clients=num_clients)

    def build(self, image_shape: tuple[int, int, int], num_classes: int, num_clients: int) -> None:
        channels, height, width = image_shape
        require(channels * height == 1, "rows of a table, of shape (1, 1, F)", tuple(image_shape), "Choose a table.")
        self.algorithm = TreesAlgorithm(features=width, seed=self.seed, **self.options)
        is_binary = self.algorithm.objective == "binary:logistic"
        require(
            num_classes == 2 or not is_binary,
            "two classes for binary:logistic",
            f"{num_classes}",
            "Choose a table of two classes, or the objective reg:squarederror.",
        )
        clients = 1 if self.algorithm.aggregation == "cyclic" else num_clients
        capacity = self.most_rounds * clients * self.algorithm.trees
        # Parameters, so that checkpoints and recordings hold them; no optimizer changes them.
        self.trees = nn.Parameter(padding_trees(capacity, self.algorithm.largest_tree))
        self.base_score = nn.Parameter(torch.full((1,), 0.5))
        self.quality: Metric = BinaryAUROC() if is_binary else MeanSquaredError()

    @property
    def rounds(self) -> int:
        """Number of rounds for which the forest has room."""
        return self.most_rounds

    def public_parameters(self) -> Parameters:
        """The forest and its base score."""
        return {TREES: self.trees.detach(), BASE_SCORE: self.base_score.detach()}

    def public_description(self) -> dict[str, Any]:
        """Public knowledge of this training; the recorded parameters are the trees that a client sends."""
        nodes = self.algorithm.largest_tree
        sent = {
            TREES: {"shape": [self.algorithm.trees, nodes, FIELDS], "dtype": "float32"},
            BASE_SCORE: {"shape": [1], "dtype": "float32"},
        }
        return super().public_description() | {"parameters": sent}

    def learns_from(self, round_number: int) -> bool:
        """Never by the optimizer: trees are appended, see `training_step`."""
        return False

    def training_step(self, cohort: Cohort, batch_idx: int) -> dict[str, RoundRecord]:
        """A round, after which the trees of all clients belong to the forest.

        Raises:
            InputError: several processes, more than one client of a cyclic round, or a forest without room.
        """
        require(self.trainer.world_size == 1, "one process", self.trainer.world_size, "Give --trainer.devices 1.")
        require(
            self.algorithm.aggregation == "bagging" or len(cohort) <= 1,
            "one client in a cyclic round",
            len(cohort),
            "Give --data.clients_per_round 1.",
        )
        outputs = super().training_step(cohort, batch_idx)
        self._append(outputs["record"].update.deltas)
        return outputs

    def client_updates(self, cohort: Cohort, model: Parameters) -> tuple[Update, Tensor]:
        """What the clients send after their defences, and the mean loss under their own trees."""
        if len(cohort) == 0:
            shapes = {TREES: (0, self.algorithm.trees, self.algorithm.largest_tree, FIELDS), BASE_SCORE: (0, 1)}
            return Update({name: torch.zeros(shape) for name, shape in shapes.items()}), torch.zeros(())
        return super().client_updates(cohort, model)

    def local_updates(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        """The new trees ``(C, T, N, 8)`` and base scores ``(C, 1)``; the mean loss under these."""
        forest = {name: value.cpu() for name, value in model.items()}
        sent: dict[str, list[Tensor]] = {TREES: [], BASE_SCORE: []}
        losses = []
        for position in range(len(cohort)):
            is_row = cohort.mask[position]
            rows = cohort.examples["image"][position, is_row].flatten(1).float().cpu()
            labels = cohort.examples["label"][position, is_row].float().cpu()
            grown = self.algorithm.grow(forest, rows, labels, round_number=cohort.round)
            losses.append(self._loss(forest, grown, rows, labels))
            for name, value in grown.items():
                sent[name].append(value)
        deltas = {name: torch.stack(values) for name, values in sent.items()}
        return Update(deltas, clients=cohort.clients), torch.stack(losses).mean()

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """Zeros, because trees are appended and not averaged."""
        clients = len(update.deltas[BASE_SCORE])
        return Update({name: value.new_zeros(()).expand(clients, *value.shape) for name, value in model.items()})

    @torch.no_grad()
    def _append(self, deltas: Parameters) -> None:
        """Puts the trees of all clients behind those of the forest."""
        sent = deltas[TREES].flatten(0, 1)
        count = tree_count(self.trees)
        room = len(self.trees) - count
        require(len(sent) <= room, f"room for {len(sent)} more trees", room, "Raise model.most_rounds.")
        if count == 0 and len(sent):
            of_clients = deltas[BASE_SCORE]
            self.base_score.copy_(of_clients.mean(0) if self.base_score_from == "mean" else of_clients[0])
        self.trees[count : count + len(sent)] = sent.to(self.trees)

    def _loss(self, forest: Parameters, grown: Parameters, rows: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of a client's rows under the forest with its own new trees."""
        base_score = grown[BASE_SCORE] if tree_count(forest[TREES]) == 0 else forest[BASE_SCORE]
        start = self.algorithm.start(float(base_score))
        scores = margins(forest[TREES], rows) + margins(grown[TREES], rows) + start
        if self.algorithm.objective == "binary:logistic":
            return nn.functional.binary_cross_entropy_with_logits(scores, labels)
        return nn.functional.mse_loss(scores, labels)

    def forward(self, rows: Tensor) -> Tensor:
        """``(B,)`` margins of rows ``(B, ...)`` under the forest."""
        start = self.algorithm.start(float(self.base_score.detach()))
        return margins(self.trees.detach().cpu(), rows.flatten(1).float().cpu()) + start

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Area under the ROC curve, or the mean squared error."""
        scores = self(batch["image"]).to(self.device)
        if self.algorithm.objective == "binary:logistic":
            self.quality.update(scores, batch["label"])
            return {"val/auc": self.quality}
        self.quality.update(scores, batch["label"].float())
        return {"val/mean_squared_error": self.quality}

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Negatives and positives of each client."""
        if self.algorithm.objective != "binary:logistic":
            return {}
        labels = cohort.examples["label"]
        positives = ((labels == 1) & cohort.mask).sum(1)
        return {"class_counts": torch.stack([cohort.mask.sum(1) - positives, positives], dim=1)}

    def examples(self, cohort: Cohort) -> TrainingExamples:
        """Rows with their classes."""
        return TrainingExamples(cohort.examples["image"].float(), cohort.examples["label"], cohort.mask)
