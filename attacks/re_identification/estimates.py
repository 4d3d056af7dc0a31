"""Estimate of identities: the user of each message."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.answers import Choices
from fedleak.core.estimates import Candidates, Estimate, EstimateError, Scores, check_tensor
from fedleak.core.scoring import average_precision, random_average_precision, top_share
from fedleak.core.view import View

UNSEEN = -1
"""Takes the place of a user's number for users of whom the adversary has no data."""


@dataclass(frozen=True, kw_only=True)
class IdentityEstimate(Estimate):
    """The user of each message.

    Attributes:
        scores: ``(V, U)``, higher means more likely; comparable between users for a message, and between messages for a
            user.
        users: ``(U,)`` distinct users, one per column; `UNSEEN` for all others.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in
        Federated Learning", 2018, arXiv:1805.05838, section 6, "Evaluation Metrics".
    """

    inferred = "which of the known users sent it"
    truth = ("user",)
    metrics = ("ap", "times-chance", "times-random", "top1", "top5")
    scores: Tensor
    users: Tensor

    def check(self, view: View) -> None:
        check_tensor("scores", self.scores, (view.victims, len(self.users)))
        if len(torch.unique(self.users)) != len(self.users):
            raise EstimateError("users: expected each once")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Scores of each known user who has a message.

        ``ap`` is the area under the precision-recall curve over all messages; ``times-chance`` is ``ap`` divided by the
        mean share of messages per user, the paper's chance level; ``times-random`` is ``ap`` divided by its expectation
        under a random order, which is larger for few messages; ``top1`` and ``top5`` are the shares of a user's
        messages for which the user is ranked first, or among the first five.
        """
        return self._scored(truth["user"])

    def _scored(self, users: Tensor) -> Scores:
        labels = torch.where(torch.isin(users, self.users), users, UNSEEN)
        positive = labels[:, None] == self.users
        counts = positive.sum(0)
        seen = counts > 0
        precision = average_precision(self.scores[:, seen], positive[:, seen])
        total, column = len(users), positive.int().argmax(1)
        chance = (counts[seen].double() / total).mean()
        random = random_average_precision(counts[seen], total).mean()
        metrics = {"ap": precision, "times-chance": precision / chance, "times-random": precision / random}
        for places in (1, 5):
            hits = top_share(self.scores, column, places) * positive.any(1)
            sums = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, column, hits)
            metrics[f"top{places}"] = sums[seen] / counts[seen]
        asks, one_row_per_user = "did this user send this message?", (self.scores[:, seen].T, positive[:, seen].T)
        return Scores(
            *(metrics, torch.full_like(counts[seen], total), counts[seen]),
            units=self.users[seen],
            candidates=Candidates.of_rows(asks, *one_row_per_user),
            answers=Choices(
                scores=self.scores.double().flatten(),
                labels=positive.flatten(),
                places=torch.where(positive.any(1), (seen.cumsum(0) - 1)[column], -1).repeat_interleave(len(seen)),
                people=users.repeat_interleave(len(seen)),
                questions=torch.arange(total).repeat_interleave(len(seen)),
                rescored=lambda odds: dataclasses.replace(self, scores=odds.reshape(positive.shape))._scored(users),
            ),
        )
