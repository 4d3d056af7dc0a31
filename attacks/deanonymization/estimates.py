"""What an attack says of messages without a name: whose each is, or which two come from one user."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import Estimate, EstimateError, ServerView, ViewError

UNSEEN = -1
"""In place of a user's number: somebody of whom the adversary knows nothing."""
PAIRS = "pairs"
"""Name in the auxiliary data of the question which pairs ``(M, 2)`` match. Messages are numbered: first those of the
view, then those of the known devices."""


@dataclass(frozen=True, kw_only=True)
class IdentityEstimate(Estimate):
    """Whose message it is.

    Attributes:
        scores: ``(V, U)``, higher means more likely; of one message among users, and of one user among messages.
        users: ``(U,)`` numbers of the users that the columns are about, each once; `UNSEEN` for anybody else.
    """

    scores: Tensor
    users: Tensor

    def check(self, view: ServerView) -> None:
        """See `Estimate.check`."""
        expected = (view.victims, len(self.users))
        if self.scores.shape != expected:
            raise EstimateError(f"scores: expected shape {expected}, got {tuple(self.scores.shape)}")
        if len(torch.unique(self.users)) != len(self.users):
            raise EstimateError("users: expected each once")
        if not bool(torch.isfinite(self.scores).all()):
            raise EstimateError("scores: expected finite numbers")


@dataclass(frozen=True, kw_only=True)
class MatchingEstimate(Estimate):
    """Which pairs of messages come from one user.

    Attributes:
        scores: ``(M,)``, higher means more likely, of the pairs that the view asks about.
    """

    scores: Tensor

    def check(self, view: ServerView) -> None:
        """See `Estimate.check`."""
        expected = (len(asked_pairs(view)),)
        if self.scores.shape != expected:
            raise EstimateError(f"scores: expected shape {expected}, got {tuple(self.scores.shape)}")
        if not bool(torch.isfinite(self.scores).all()):
            raise EstimateError("scores: expected finite numbers")


def asked_pairs(view: ServerView) -> Tensor:
    """``(M, 2)`` numbers of the messages that the view asks about; see `PAIRS`.

    Raises:
        ViewError: a number is of no message.
    """
    pairs = view.auxiliary[PAIRS]
    messages = view.victims + (0 if view.known is None else view.known.victims)
    if len(pairs) and not 0 <= int(pairs.min()) <= int(pairs.max()) < messages:
        raise ViewError(f"expected pairs of messages below {messages}, got one of {int(pairs.max())}")
    return pairs
