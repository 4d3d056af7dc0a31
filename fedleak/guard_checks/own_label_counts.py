"""The client's class counts that the server can solve for."""

import numpy as np

from fedleak.attacks.composition.counts import CountEstimate
from fedleak.attacks.composition.output_counts import OutputCounts
from fedleak.guard_checks.own_estimate import estimate_of_round, own_view
from fedleak_guard.check import NotMadeError
from fedleak_guard.declared_checks import OwnLabelCounts
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy
from fedleak_recorder.arrays import as_array


class CountsByOutput(OwnLabelCounts):
    """Share of the client's examples whose class follows from the change of the last layer (output-counts)."""

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        if message.labels is None:
            raise NotMadeError("the guard was not given the labels")
        estimate = estimate_of_round(OutputCounts(), CountEstimate, own_view(message, policy))
        counts = estimate.counts[0].numpy()
        true_counts = np.bincount(as_array(message.labels).astype(int), minlength=len(counts))
        # Each example in a wrong class is one too many there and one too few in its own.
        misplaced = np.abs(counts - true_counts).sum() / 2
        share = 1 - misplaced / max(true_counts.sum(), 1)
        sentence = f"the server assigns a share of {share:.4g} of the examples to the right classes"
        return float(share), sentence
