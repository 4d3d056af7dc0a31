"""Agreement of the clients of a round on what they received."""

from fedleak.defenses.model_checks.allow_list import model_hash
from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel


class Commitment(ModelCheck):
    """Share of the other clients of the round whose received model has another hash than the client's, in [0, 1].

    The only check that detects models that differ between clients for certain, whatever they are; it needs a channel
    between clients that the server does not control. Without hashes of others the statistic is 0.
    """

    name = "commitment"
    reads_examples = False

    def statistic(self, received: ReceivedModel) -> float:
        if not received.commitments:
            return 0.0
        received_hash = model_hash(received.model)
        different = sum(commitment != received_hash for commitment in received.commitments)
        return different / len(received.commitments)
