"""Estimate of private vectors."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.estimates import Estimate, Scores, check_tensor
from protocol.errors import ViewError
from protocol.view import ITEM_EMBEDDING, View


@dataclass(frozen=True, kw_only=True)
class VectorEstimate(Estimate):
    """The private vector of each client, up to a positive factor.

    Attributes:
        vectors: ``(V, d)``, d as of the item vectors.

    References:
        London, "PAC Identifiability in Federated Personalization", 2020, Definition 1 and Proposition 1.
    """

    inferred = "the client's private vector, which predicts what it likes"
    truth = ("user_vector", "labels")
    metrics = ("error", "success", "label-error", "cosine", "flipped")
    vectors: Tensor

    def check(self, view: View) -> None:
        check_tensor("vectors", self.vectors, (view.victims, view.deltas[ITEM_EMBEDDING].shape[-1]))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Compares the predictions ``sgn(u.v)`` of the estimates with those of the clients' vectors.

        ``error`` is the share of the catalogue on which they differ, ``label-error`` the share of the client's labelled
        items on which the estimate contradicts the label, ``cosine`` the cosine of the two vectors, ``flipped`` 1 if it
        is negative. `evaluation.runner.successes` adds ``success``, which needs the tolerance of a table or a training.
        """
        table, items = view.model[ITEM_EMBEDDING].double(), view.served
        guess, own = self.vectors.double(), truth["user_vector"].double()
        error = ((guess @ table.T).sign() != (own @ table.T).sign()).double().mean(1)
        if items is None:  # clients hide which items they labelled: labels of all items, -1 where there is none
            if truth["labels"].shape != error.shape + table.shape[:1]:
                found = tuple(truth["labels"].shape[1:])
                raise ViewError(f"expected the labels of all {len(table)} items in the ground truth, got {found}")
            items = torch.where(truth["labels"] >= 0, torch.arange(len(table)), -1)
        mask = items >= 0
        labels = truth["labels"][:, : mask.shape[1]] > 0.5
        predicted = (guess @ table.T).gather(1, items.clamp(min=0)) > 0
        wrong = ((predicted != labels) & mask).sum(1) / mask.sum(1)
        cosine = torch.nn.functional.cosine_similarity(guess, own, dim=1)
        metrics = {"error": error, "label-error": wrong, "cosine": cosine, "flipped": (cosine < 0).double()}
        return Scores(metrics, mask.sum(1), (labels & mask).sum(1))
