"""What all devices of a round have in common, taken out of every message; ours."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from attacks.base import ServerView, ThreatModel
from attacks.deanonymization.messages import Messages, unit
from attacks.deanonymization.published import REIDENTIFICATION, Reidentification, svm_scores
from attacks.deanonymization.span import in_span


class CentredSVM(Reidentification):
    """The published machine on messages without their shared part, its scores made comparable between messages; ours.

    All deltas of a training point the same way, towards what all users write. That part names nobody, and because
    vectors are brought to length one it takes room from the part that does. It is estimated as the mean of the known
    messages, each of length one first, because it grows with the number of a device's examples. Then each message's
    distances from the users' planes are standardised and made probabilities, so that a message which is far from all
    planes does not go before one that is near one and far from the others.

    Args:
        layers: see `Reidentification`.
        penalty: see `ReidSVM`.
        sharpness: the standardised scores are multiplied by it before they are made probabilities.
    """

    name = "centred-svm"
    threat_model = ThreatModel(sees=REIDENTIFICATION.sees, knows=REIDENTIFICATION.knows, needs=REIDENTIFICATION.needs)

    def __init__(self, *, layers: Sequence[str] | None = None, penalty: float = 1.0, sharpness: float = 3.0) -> None:
        super().__init__(layers=layers)
        if penalty <= 0 or sharpness <= 0:
            raise ValueError(f"expected penalty and sharpness > 0, got {penalty} and {sharpness}")
        self.penalty = penalty
        self.sharpness = sharpness

    def prepared(self, view: ServerView, messages: Messages) -> Messages:
        """See `Reidentification.prepared`."""
        mean = unit(messages.known).mean(0)
        known, anonymous = in_span(unit(unit(messages.known) - mean), unit(unit(messages.anonymous) - mean))
        return dataclasses.replace(messages, anonymous=anonymous, known=known)

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        """See `Reidentification.scores`."""
        return standardised(svm_scores(messages, self.penalty, generator), self.sharpness).exp()


def standardised(scores: Tensor, sharpness: float) -> Tensor:
    """``(V, U)`` log-probabilities of the users from scores of any scale."""
    spread = scores.std(1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    return (sharpness * (scores - scores.mean(1, keepdim=True)) / spread).log_softmax(1)
