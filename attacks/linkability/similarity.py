"""Links by the cosine of two updates, as they are or without what all clients of a round have in common."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedleak.attacks.linkability.links import LinkAttack, LinkEstimate, compared_messages
from fedleak.attacks.re_identification.messages import layer_vectors
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel

_NUMBERS = 2**18
"""Numbers of an update that are compared; of a larger one a random part, the same of every update."""


class PlainCosine(LinkAttack):
    """Cosine of two updates.

    Threat model: passive server that sees the updates of two rounds or more under names that change with every round.

    References:
        Sattler, Müller and Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multi-Task Optimization
        under Privacy Constraints", 2019, arXiv:1910.01991: the cosine of updates as the similarity of two clients.
    """

    name = "plain-cosine"
    references: ClassVar[tuple[str, ...]] = ("Clustered Federated Learning, cosine similarity",)
    threat_model = ThreatModel(
        sees="the updates of several rounds, under names that change with every round",
        knows="nothing",
        needs=("deltas", "sent_in"),
    )

    def run(self, view: History, *, generator: torch.Generator) -> LinkEstimate:
        messages = compared_messages(view, generator=generator)
        entries, vectors = None, torch.zeros(0)
        for part in view.each_part(messages):
            numbers = layer_vectors(part, None)
            if entries is None:
                entries = torch.randperm(numbers.shape[1], generator=generator)[:_NUMBERS].sort().values
                vectors = torch.zeros(len(messages), len(entries))
            place = (view.sent_in[messages] == part.round) & torch.isin(view.pseudonyms[messages], part.pseudonyms)
            inside = place.nonzero().flatten()
            order = part.pseudonyms.argsort()[view.pseudonyms[messages[inside]].argsort().argsort()]
            vectors[inside] = numbers[order][:, entries].float()
        for number in torch.unique(view.sent_in[messages]).tolist():
            inside = (view.sent_in[messages] == number).nonzero().flatten()
            vectors[inside] = normalize(self.vectors(vectors[inside]), dim=1)
        return LinkEstimate(messages=messages, scores=vectors @ vectors.T)

    def vectors(self, updates: Tensor) -> Tensor:
        """``(V, D)`` vectors to compare, from the updates ``(V, D)`` of one round."""
        return updates


class Linkability(PlainCosine):
    """Cosine of two updates without the mean of their rounds, each number in units of its spread in the round.

    What all clients of a round have in common says nothing about a client. The division makes layers and numbers of
    different scales count alike; a number that is the same in all updates of the round counts nothing.

    Threat model: passive server that sees the updates of two rounds or more under names that change with every round.

    References:
        This project.
    """

    name = "linkability"
    references = ()

    def vectors(self, updates: Tensor) -> Tensor:
        centred = updates - updates.mean(0)
        spread = centred.square().mean(0).sqrt()
        return centred / spread.where(spread > 0, 1)
