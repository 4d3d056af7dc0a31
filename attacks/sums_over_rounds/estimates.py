"""Estimates of single clients from the sums of several rounds, and how many rounds reveal a client."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_sums
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, Scores, check_tensor
from fedleak.core.history import History
from fedleak.core.metric import POSITIVE, Metric
from fedleak.core.scoring import composition_errors, exact_counts
from fedleak.core.view import View

ROUNDS_TO_REVEAL = Metric(
    "rounds-to-reveal",
    "Rounds to reveal is the number of rounds after which the attack's 95 % interval of a client is first narrower than"
    " what is declared as sensitive; of the clients of whom it is within the recorded rounds.",
    lower_is_better=True,
    guessing=float("inf"),
    span=POSITIVE,
)
PREDICTED = Metric(
    "predicted-rounds-to-reveal",
    "Predicted rounds to reveal is that number as it follows from who takes part alone, before any update is read.",
    leak=False,
    lower_is_better=True,
    predicts="rounds-to-reveal",
    span=POSITIVE,
)
REVEALED = Metric(
    "revealed",
    "Revealed is the share of clients whose 95 % interval is narrower than what is declared as sensitive.",
    binary=True,
    span=(0.0, 1.0),
)
INTERVAL = Metric(
    "interval", "Interval is the mean width of the 95 % intervals.", leak=False, lower_is_better=True, span=POSITIVE
)
PREDICTED_INTERVAL = Metric(
    "predicted-interval",
    "Predicted interval is that width as it follows from who takes part and the declared noise.",
    leak=False,
    lower_is_better=True,
    predicts=INTERVAL.name,
    span=POSITIVE,
)


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """After how many rounds each client is revealed.

    Attributes:
        first: ``(U,)`` number of rounds after which a client is revealed for the first time; NaN for never.
        predicted: ``(U,)`` the same from participation alone; NaN for never or for no prediction.
    """

    first: Tensor
    predicted: Tensor

    def of(self, clients: Tensor) -> "Revealed":
        """Of the clients in a mask ``(U,)``."""
        return Revealed(first=self.first[clients], predicted=self.predicted[clients])

    def at_the_end(self, lengths: int) -> dict[str, Tensor]:
        """The two metrics, one value per client after each of so many numbers of rounds; NaN before the last number."""
        before = torch.full(((lengths - 1) * len(self.first),), torch.nan, dtype=torch.float64)
        metrics = {}
        for name, rounds in ((ROUNDS_TO_REVEAL.name, self.first), (PREDICTED.name, self.predicted)):
            if bool(rounds.isfinite().any()):
                metrics[name] = torch.cat([before, rounds.double()])
        return metrics


def first_revealed(hidden: Tensor) -> Tensor:
    """``(U,)`` float64 number of rounds after which ``hidden (T, U)`` is False for the first time; NaN for never.

    Example:
        >>> first_revealed(torch.tensor([[True, True], [False, True], [True, True]])).tolist()
        [2.0, nan]
    """
    first = (~hidden).int().argmax(0) + 1.0
    return torch.where(hidden.all(0), torch.nan, first).double()


def truth_after(view: View, values: Tensor, senders: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Truth ``(G, U, ...)`` of clients after numbers of rounds, and which clients ``(U,)`` have one.

    It is that of the client's last message up to then, or else of its first one.

    Args:
        view: the history, with a victim for each message.
        values: ``(V, ...)`` truth of the messages.
        senders: ``(U,)`` pseudonyms.
        after: ``(G,)`` numbers of rounds.
    """
    assert isinstance(view, History)
    sent_in = view.sent_in
    numbers = torch.unique(sent_in)
    # The round that is the last of the first `after` ones.
    ends = numbers[(after - 1).clamp(max=len(numbers) - 1)]
    has_truth = torch.isin(senders, view.pseudonyms)
    truth = torch.zeros(len(after), len(senders), *values.shape[1:], dtype=values.dtype)
    for index, sender in enumerate(senders.tolist()):
        messages = (view.pseudonyms == sender).nonzero().flatten()
        if not len(messages):
            continue
        by_round = messages[sent_in[messages].argsort()]
        sent_until_then = torch.searchsorted(sent_in[by_round].contiguous(), ends, right=True)
        last = (sent_until_then - 1).clamp(min=0)
        truth[:, index] = values[by_round[last]]
    return truth, has_truth


def scores_after(
    metrics: Mapping[str, Tensor],
    revealed: Revealed,
    items: Tensor,
    positives: Tensor,
    *,
    clients: Tensor,
    after: Tensor,
) -> Scores:
    """Scores of ``clients (U,)`` after each of ``after (G,)`` numbers of rounds; other tensors are ``(G * U,)``."""
    return Scores(
        {**metrics, **revealed.at_the_end(len(after))},
        items,
        positives,
        units=clients.repeat(len(after)),
        settings={"rounds": after.repeat_interleave(len(clients)).tolist()},
    )


@dataclass(frozen=True, kw_only=True)
class SharesOverRounds(Estimate):
    """The share of each class among a client's examples, after several numbers of rounds.

    Attributes:
        senders: ``(U,)`` pseudonyms of the clients.
        after: ``(G,)`` numbers of rounds.
        shares: ``(G, U, K)``, at least 0, summing to one over the classes.
        low: ``(G, U, K)`` lower bounds of intervals of 95 %, NaN for none.
        high: ``(G, U, K)`` upper bounds.
        predicted_interval: ``(G, U)`` mean width of the intervals as predicted, NaN for no prediction.
        sensitive: width of an interval of a share below which a client is revealed.
        revealed: from which round on.
    """

    inferred = "what share of its examples each class has, although the server receives only sums of updates"
    truth = ("class_counts", "clients")
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        "l1",
        "exact",
        "coverage",
        REVEALED,
        ROUNDS_TO_REVEAL,
        PREDICTED,
        INTERVAL,
        PREDICTED_INTERVAL,
    )
    senders: Tensor
    after: Tensor
    shares: Tensor
    low: Tensor
    high: Tensor
    predicted_interval: Tensor
    sensitive: float
    revealed: Revealed

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_sums(view, truth)

    def check(self, view: View) -> None:
        shape = (len(self.after), len(self.senders), self.shares.shape[-1])
        check_tensor("shares", self.shares, shape)
        for name, value in (("low", self.low), ("high", self.high)):
            check_tensor(name, value, shape, dtype=self.shares.dtype, finite=False)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Distances, exact counts and intervals of every client after every number of rounds.

        Raises:
            ViewError: the ground truth has no client, or other classes.
        """
        counts, has_truth = truth_after(view, truth["class_counts"].double(), self.senders, self.after)
        if counts.shape[2] != self.shares.shape[2] or not bool(has_truth.any()):
            raise ViewError(f"expected class counts of {self.shares.shape[2]} classes of some clients, got others")
        clients, _ = truth_after(view, truth["clients"], self.senders, self.after[:1])
        # A row for each client after each number of rounds.
        counts = counts[:, has_truth].flatten(0, 1)
        inferred = self.shares[:, has_truth].flatten(0, 1)
        low = self.low[:, has_truth].flatten(0, 1)
        high = self.high[:, has_truth].flatten(0, 1)
        shares = counts / counts.sum(1, keepdim=True)
        metrics = {"l1": composition_errors(inferred, shares)["l1"]} | exact_counts(inferred, counts)
        has_interval = low.isfinite().all(1)
        if bool(has_interval.any()):
            # Intervals of no width, of whole numbers of examples, hold the truth up to rounding.
            inside = ((shares >= low - 1e-6) & (shares <= high + 1e-6)).double().mean(1)
            width = high - low
            metrics["coverage"] = inside.masked_fill(~has_interval, torch.nan)
            metrics[INTERVAL.name] = width.mean(1)
            is_revealed = (width.amax(1) < self.sensitive).double()
            metrics[REVEALED.name] = is_revealed.masked_fill(~has_interval, torch.nan)
            predicted = self.predicted_interval[:, has_truth].flatten()
            if bool(predicted.isfinite().any()):
                metrics[PREDICTED_INTERVAL.name] = predicted
        return scores_after(
            metrics,
            self.revealed.of(has_truth),
            items=torch.full((len(counts),), counts.shape[1]),
            positives=(counts > 0).sum(1),
            clients=clients[0, has_truth],
            after=self.after,
        )
