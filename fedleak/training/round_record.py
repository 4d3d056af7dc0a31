"""One communication round as the server saw it, with the ground truth of its clients."""

from dataclasses import dataclass, field

from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.defenses.base import Update


@dataclass(frozen=True)
class TrainingExamples:
    """The training examples in each message, for evaluations of reconstructions.

    Attributes:
        values: ``(C, N, *shape)`` inputs of the network.
        labels: ``(C, N)`` classes, None if they have none.
        mask: ``(C, N)`` True for real examples.
    """

    values: Tensor
    labels: Tensor | None
    mask: Tensor

    def joined(self, groups: Tensor) -> "TrainingExamples":
        """Examples of messages that each contain the clients ``groups (C', P)``."""
        values = self.values[groups].flatten(1, 2)
        mask = self.mask[groups].flatten(1, 2)
        labels = None
        if self.labels is not None:
            labels = self.labels[groups].flatten(1, 2)
        return TrainingExamples(values, labels, mask)

    def select(self, order: Tensor) -> "TrainingExamples":
        """Those of the messages ``order (C',)``."""
        return self.joined(order[:, None])


@dataclass
class RoundRecord:
    """Server view of one round, and the ground truth that only an evaluation may read.

    Attributes:
        round: number of the round.
        cohort: this rank's clients; only those that the update contains, if a defence hides the others.
        participants: ``(C,)`` numbers of all of this rank's clients of the round, including clients that sent nothing:
            they add no noise, but their silence depends on their data, so privacy accounting must count them.
        update: what the clients sent; without deltas if no callback reads them and they would be too large.
        model: public parameters before the round.
        served: ``(C, R, ...)`` tensors of what the server showed each client; ``served`` ``(C, R)`` holds item numbers,
            padded with -1. Empty if the server shows nothing.
        truth: ``(C, R)`` ground truth of the served items.
        client_truth: ``(C, ...)`` ground truth of the clients themselves.
        of_clients: ``(C, ...)`` tensors that the server has of each client in addition to its update, by their names in
            a recording.
        item_features: ``(I, F)`` features of the items that ``served`` refers to, the same for all clients, or None.
        examples: training examples in each message, None if the learner has none to reconstruct.
        contributors: ``(C, P)`` numbers of the clients whose updates each message sums up; None for those of `cohort`.
    """

    round: int
    cohort: Cohort
    participants: Tensor
    update: Update
    model: Parameters
    served: dict[str, Tensor]
    truth: dict[str, Tensor]
    client_truth: dict[str, Tensor] = field(default_factory=dict)
    of_clients: dict[str, Tensor] = field(default_factory=dict)
    item_features: Tensor | None = None
    examples: TrainingExamples | None = None
    contributors: Tensor | None = None
