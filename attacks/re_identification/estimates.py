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
        [Orekondy18], section 6, "Evaluation Metrics".
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
        # All users of whom the adversary has no data share one column, if there is one.
        labels = torch.where(torch.isin(users, self.users), users, UNSEEN)
        is_sender = labels[:, None] == self.users
        counts = is_sender.sum(0)
        has_message = counts > 0
        counts_of_senders = counts[has_message]
        total = len(users)
        column = is_sender.int().argmax(1)
        precision = average_precision(self.scores[:, has_message], is_sender[:, has_message])
        chance = (counts_of_senders.double() / total).mean()
        random = random_average_precision(counts_of_senders, total).mean()
        metrics = {"ap": precision, "times-chance": precision / chance, "times-random": precision / random}
        for rank in (1, 5):
            hits = top_share(self.scores, column, rank) * is_sender.any(1)
            sums = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, column, hits)
            metrics[f"top{rank}"] = sums[has_message] / counts_of_senders
        candidates = Candidates.of_rows(
            "did this user send this message?",
            self.scores[:, has_message].T,
            is_sender[:, has_message].T,
        )
        return Scores(
            metrics,
            torch.full_like(counts_of_senders, total),
            counts_of_senders,
            units=self.users[has_message],
            candidates=candidates,
            answers=self._answers(users, is_sender, has_message),
        )

    def _answers(self, users: Tensor, is_sender: Tensor, has_message: Tensor) -> Choices:
        """A question for each message, with a row for each user who could be its sender."""
        # Number of each message's user among those with a message, -1 without a column.
        numbers = has_message.cumsum(0) - 1
        number_of_user = numbers[is_sender.int().argmax(1)]
        number_of_user = torch.where(is_sender.any(1), number_of_user, -1)
        columns = len(self.users)

        def rescored(odds: Tensor) -> Scores:
            return dataclasses.replace(self, scores=odds.reshape(is_sender.shape))._scored(users)

        return Choices(
            scores=self.scores.double().flatten(),
            labels=is_sender.flatten(),
            places=number_of_user.repeat_interleave(columns),
            people=users.repeat_interleave(columns),
            questions=torch.arange(len(users)).repeat_interleave(columns),
            rescored=rescored,
        )
