"""The messages of a client lie along its vector, on two sides: their leading singular vector; ours."""

import torch
from torch import Tensor

from attacks.base import Attack, ServerView, VectorEstimate
from attacks.identifiability.messages import THREAT_MODEL, Messages, facing, messages_of


class PACSpectral(Attack):
    """Leading right singular vector of the summed messages, turned so that the majority of items leans as the client.

    The sum of n_i messages about item i is ``n_i (-alpha l'(0)) y_i u`` plus noise of n_i times the variance of one.
    Divided by the root of n_i all rows are equally noisy and the matrix is ``y' u^T``, of rank one, plus white noise:
    its leading right singular vector is +-u, whatever the labels sum to. Each item's side is one vote for its label.
    Cost: one d x d eigenproblem per victim.

    Threat model: as of `PAC`.

    Raises:
        ViewError: the loss breaks Assumption 2, or a client sent nothing.
    """

    name = "pac-spectral"
    threat_model = THREAT_MODEL
    estimates = VectorEstimate

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        """See `Attack.run`."""
        messages = messages_of(view)
        axis = leading_axis(messages)
        votes = torch.einsum("vrd,vd->vr", messages.sums, axis).sign().sum(1)
        return VectorEstimate(vectors=facing(axis, votes, messages.leaning))


def leading_axis(messages: Messages) -> Tensor:
    """``(V, d)`` leading right singular vector of each client's whitened messages, as long as a mean message."""
    whitened = messages.sums / messages.updates.clamp(min=1).sqrt()[..., None]
    gram = torch.einsum("vrd,vre->vde", whitened, whitened)
    leading: Tensor = torch.linalg.eigh(gram).eigenvectors[..., -1]
    along = torch.einsum("vrd,vd->vr", messages.sums, leading).abs().sum(1) / messages.updates.sum(1)
    return leading * along[:, None]
