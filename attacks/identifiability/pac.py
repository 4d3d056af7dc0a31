"""The published attack: the sum of all messages (London 2020, Protocol 2)."""

import torch

from attacks.base import Attack, ServerView, VectorEstimate
from attacks.identifiability.messages import THREAT_MODEL, messages_of


class PAC(Attack):
    """Sums a client's messages: ``u = (alpha l'(0) T B)^-1 sum_t sum_i dv_i``, Protocol 2; Protocol 3 alike.

    With all item vectors zero a message about item i is ``-alpha l'(0) y_i u``, so the sum is the user's vector times
    minus the mean label, ``1 - 2p``: of the right sign where most labels are negative, of the other where most are
    positive, and nothing where p = 1/2. ``T B`` is the number of messages, which the server counts.

    Threat model: an active server that sends zero item vectors T times; passive where it only adds up the messages
    of honest rounds. It knows which way the client leans.

    Raises:
        ViewError: the loss breaks Assumption 2, or a client sent nothing.
    """

    name = "pac"
    threat_model = THREAT_MODEL
    estimates = VectorEstimate

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        """See `Attack.run`."""
        messages = messages_of(view)
        mean = messages.sums.sum(1) / messages.updates.sum(1, keepdim=True)
        return VectorEstimate(vectors=-messages.leaning[:, None] * mean / messages.factor)
