"""The client's class counts that the server can solve for."""

from typing import ClassVar

import numpy as np

from fedleak_guard.check import NotMadeError
from fedleak_guard.message import Message
from fedleak_guard.own_attack import OwnAttack, estimate_of
from fedleak_guard.policy import Action, Policy
from fedleak_recorder.arrays import as_array


class OwnLabelCounts(OwnAttack):
    """Share of the client's examples whose class follows from the change of the last layer (output-counts).

    It needs the labels, with which the inferred counts are compared. The class counts of a classifier's client follow
    from its update in most trainings without noise, so a finding is logged unless the policy says otherwise.
    """

    name = "own-label-counts"
    text = "share of the examples that the server assigns to the right classes (output-counts)"
    action: ClassVar[Action] = "log"
    most = 0.9

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        if message.labels is None:
            raise NotMadeError("the guard was not given the labels")
        found = estimate_of("fedleak.attacks.composition.output_counts.OutputCounts", message, policy)
        counts = found.counts[0].numpy()
        own = np.bincount(as_array(message.labels).astype(int), minlength=len(counts))
        share = 1 - np.abs(counts - own).sum() / (2 * max(own.sum(), 1))
        sentence = f"the server assigns a share of {share:.4g} of the examples to the right classes"
        return float(share), sentence
