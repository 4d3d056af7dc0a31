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
        [Sattler19]: the cosine of updates as the similarity of two clients.

    Example:
        >>> import torch
        >>> from fedleak.attacks.linkability import PlainCosine
        >>> from fedleak.attacks.linkability.toy import toy
        >>> view, truth = toy()
        >>> estimate = PlainCosine()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
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
        rounds = view.sent_in[messages]
        pseudonyms = view.pseudonyms[messages]
        columns: Tensor | None = None
        vectors = torch.zeros(0)
        # Updates are read a part at a time, and only the compared numbers of each are held.
        for part in view.each_part(messages):
            updates = layer_vectors(part, None)
            if columns is None:
                columns = torch.randperm(updates.shape[1], generator=generator)[:_NUMBERS].sort().values
                vectors = torch.zeros(len(messages), len(columns))
            in_part = ((rounds == part.round) & torch.isin(pseudonyms, part.pseudonyms)).nonzero().flatten()
            # The part has the same pseudonyms in an order of its own: match them by their ranks.
            rank = pseudonyms[in_part].argsort().argsort()
            row_in_part = part.pseudonyms.argsort()[rank]
            vectors[in_part] = updates[row_in_part][:, columns].float()
        for number in torch.unique(rounds).tolist():
            of_round = (rounds == number).nonzero().flatten()
            vectors[of_round] = normalize(self.vectors(vectors[of_round]), dim=1)
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

    Example:
        >>> import torch
        >>> from fedleak.attacks.linkability import Linkability
        >>> from fedleak.attacks.linkability.toy import toy
        >>> view, truth = toy()
        >>> estimate = Linkability()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
    """

    name = "linkability"
    references = ()

    def vectors(self, updates: Tensor) -> Tensor:
        centred = updates - updates.mean(0)
        spread = centred.square().mean(0).sqrt()
        # Numbers without spread are zero after centring; they stay so.
        return centred / spread.where(spread > 0, 1)
