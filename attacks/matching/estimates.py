"""Estimate of matching messages: which pairs come from the same user."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.answers import Choices
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Candidates, Estimate, Scores, check_tensor
from fedleak.core.history import History
from fedleak.core.scoring import precision_at_positives
from fedleak.core.view import View


@dataclass(frozen=True, kw_only=True)
class MatchingEstimate(Estimate):
    """Which pairs of messages come from the same user.

    Attributes:
        scores: ``(M,)``, higher means more likely, of the pairs in the view.

    References:
        [Orekondy18], section 6, "Evaluation Metrics".
    """

    inferred = "which other updates come from the same user"
    truth = ("user", "known_user")
    metrics = ("ap", "times-chance")
    scores: Tensor

    def check(self, view: View) -> None:
        check_tensor("scores", self.scores, (len(asked_pairs(view)),))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Average precision over all pairs, decomposed into the mean precision at each user's matching pairs.

        Each user has the same weight. All users share one ranking, so a user's pairs also affect the precision of
        others: the influences are jackknife pseudo-values, from the ranking without the pairs that involve a user.
        """
        first, second = torch.cat([truth["user"], truth["known_user"]])[asked_pairs(view)].T
        return self._scored(first, second, view.victims)

    def _scored(self, first: Tensor, second: Tensor, messages: int) -> Scores:
        is_match = first == second
        users, match_counts, precision = _shared_ranking(self.scores, first, is_match)
        user_count = len(users)
        mean_precision = precision.mean()
        # Jackknife pseudo-values of the mean: n m - (n - 1) m', with m' without the pairs of a user.
        pseudo_values = []
        for user in users.tolist():
            without_user = (first != user) & (second != user)
            others_precision = _shared_ranking(self.scores[without_user], first[without_user], is_match[without_user])[
                2
            ]
            mean_without = others_precision.mean() if len(others_precision) else mean_precision
            pseudo_values.append(user_count * mean_precision - (user_count - 1) * mean_without)
        influence = torch.stack(pseudo_values) if pseudo_values else precision
        chance = is_match.double().mean()  # average precision of a random ranking
        return Scores(
            {"ap": precision, "times-chance": precision / chance},
            torch.full_like(match_counts, messages),
            match_counts,
            units=users,
            influences={"ap": influence, "times-chance": influence / chance},
            candidates=Candidates("does the same user send both messages?", self.scores, is_match, first),
            answers=Choices(
                scores=self.scores.double(),
                labels=is_match,
                places=torch.where(torch.isin(first, users), torch.searchsorted(users, first.contiguous()), -1),
                people=first,
                rescored=lambda odds: MatchingEstimate(scores=odds)._scored(first, second, messages),
            ),
        )


def asked_pairs(view: View) -> Tensor:
    """``(M, 2)`` message numbers of the pairs in the view; see `History.pairs`.

    Raises:
        ViewError: the view has no pairs, or a number is out of range.
    """
    if not isinstance(view, History) or view.pairs is None:
        raise ViewError("expected a view that asks about pairs of messages, got one without")
    messages = view.victims
    if view.known is not None:
        messages += view.known.victims  # known messages are numbered after the anonymous ones
    if len(view.pairs) and not 0 <= int(view.pairs.min()) <= int(view.pairs.max()) < messages:
        raise ViewError(f"expected pairs of messages below {messages}, got one of {int(view.pairs.max())}")
    return view.pairs


def _shared_ranking(scores: Tensor, first: Tensor, match: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Users with a match ``(U,)``, their numbers of matches, and their mean precision in the ranking of all pairs."""
    precision = precision_at_positives(scores, match)
    numbers, owner, counts = torch.unique(first[match], return_inverse=True, return_counts=True)
    sums = torch.zeros(len(numbers), dtype=torch.float64).index_add_(0, owner, precision)
    return numbers, counts, sums / counts
