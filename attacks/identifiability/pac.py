"""Attacks on a client's private vector: the published sum of its messages, their leading axis, and baselines."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import VectorEstimate
from protocol.simulators import MarginSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ITEM_EMBEDDING, LEANING, ServerView, ViewError


@dataclass(frozen=True)
class MessageSums:
    """MessageSums in float64; row i of a client sums ``updates_i`` times ``-alpha l'(0) y_i u`` plus noise.

    Attributes:
        sums: ``(V, R, d)``, zero where nothing was sent.
        updates: ``(V, R)`` messages in each row, 0 where nothing was sent.
        leaning: ``(V,)`` -1 or +1.
        factor: ``alpha l'(0)``, not zero.
    """

    sums: Tensor
    updates: Tensor
    leaning: Tensor
    factor: float

    @property
    def sent(self) -> Tensor:
        """``(V, R)`` True for the rows about which something was sent."""
        return self.updates > 0


def messages_of(view: ServerView) -> MessageSums:
    """Reads the messages from a view; where none says which way the clients lean, they dislike more than they like.

    Raises:
        ViewError: the learner is of another kind, its loss breaks Assumption 2, or a client has sent nothing.
    """
    learner = view.require(MarginSimulator)
    if learner.slope_at_zero == 0:
        raise ViewError("expected a loss whose derivative at 0 is not zero (Assumption 2), got one that is flat there")
    sums = view.deltas[ITEM_EMBEDDING].double()
    shown = view.served_mask
    changed = (sums.abs().sum(2) > 0) & shown
    updates = changed.double() if view.updates is None else view.updates.double() * shown
    silent = torch.nonzero(updates.sum(1) == 0).flatten().tolist()
    if silent:
        raise ViewError(f"expected messages of every client, got none of the client at {silent[0]} in the view")
    return MessageSums(sums * shown[..., None], updates, _leaning(view), learner.learning_rate * learner.slope_at_zero)


def _leaning(view: ServerView) -> Tensor:
    """``(V,)`` -1 or +1."""
    return view.priors.get(LEANING, -torch.ones(view.victims)).double()


def facing(vectors: Tensor, votes: Tensor, leaning: Tensor) -> Tensor:
    """Turns each vector so that the votes lean as the client does; a tie leaves it.

    Args:
        vectors: ``(V, d)``.
        votes: ``(V,)``, positive where more items would be liked than not, were the vector the user's.
        leaning: ``(V,)`` -1 or +1.
    """
    return torch.where((votes * leaning < 0)[:, None], -vectors, vectors)


class VectorAttack(Attack):
    """An attack on the private vectors of a recommender's clients."""

    family = "identifiability"
    estimates = VectorEstimate
    tells = "the client's private vector, which predicts what it likes"
    threat_model = ThreatModel(
        sees="the clients' messages about each item, summed over all interactions, and how often each item was sent",
        knows="the loss and the local learning rate, the noise, and which way each client leans (Assumption 1)",
        needs=("served", f"deltas:{ITEM_EMBEDDING}", "learner:MarginSimulator"),
    )


class RandomVector(VectorAttack):
    """A random direction: what any attack must beat; it is wrong about half of the items.

    Threat model: a server that does not look at the messages.
    """

    name = "chance"
    baseline = True
    threat_model = ThreatModel(
        sees="nothing of the update", knows="how long a user's vector is", needs=VectorAttack.threat_model.needs
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        view.require(MarginSimulator)
        shape = view.victims, view.deltas[ITEM_EMBEDDING].shape[-1]
        return VectorEstimate(vectors=torch.randn(shape, generator=generator, dtype=torch.float64))


class MeanItem(VectorAttack):
    """The mean item vector, turned away from the items where the client dislikes more than it likes.

    Users of one recommender are alike: most like the same few items and dislike the mean one. An estimate that is no
    better than this has learned nothing of *this* user.

    Threat model: a server that reads its own model, and knows which way each client leans.
    """

    name = "mean-item"
    baseline = True
    threat_model = ThreatModel(
        sees="nothing of the update",
        knows="its own model, and which way each client leans",
        needs=VectorAttack.threat_model.needs,
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        view.require(MarginSimulator)
        return VectorEstimate(vectors=_leaning(view)[:, None] * view.model[ITEM_EMBEDDING].double().mean(0))


class PAC(VectorAttack):
    """Sum of a client's messages: ``u = (alpha l'(0) T B)^-1 sum_t sum_i dv_i``, Protocol 2; Protocol 3 alike.

    With all item vectors zero a message about item i is ``-alpha l'(0) y_i u``, so the sum is the user's vector times
    minus the mean label, ``1 - 2p``: of the right sign where most labels are negative, of the other where most are
    positive, and nothing where p = 1/2. ``T B`` is the number of messages, which the server counts.

    Threat model: an active server that sends zero item vectors T times; passive where it only adds up the messages
    of honest rounds. It knows which way the client leans.

    References:
        London, "PAC Identifiability in Federated Personalization", 2020.
    """

    name = "pac"
    exact = True
    references = ("PAC Identifiability, Protocols 2 and 3",)

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        messages = messages_of(view)
        mean = messages.sums.sum(1) / messages.updates.sum(1, keepdim=True)
        return VectorEstimate(vectors=-messages.leaning[:, None] * mean / messages.factor)


class PACSpectral(VectorAttack):
    """Leading right singular vector of the summed messages, turned so that the majority of items leans as the client.

    The sum of n_i messages about item i is ``n_i (-alpha l'(0)) y_i u`` plus noise of n_i times the variance of one.
    Divided by the root of n_i all rows are equally noisy and the matrix is ``y' u^T``, of rank one, plus white noise:
    its leading right singular vector is +-u, whatever the labels sum to. Each item's side is one vote for its label.

    Threat model: as of `PAC`.
    """

    name = "pac-spectral"
    exact = True
    cost = "one d x d eigenproblem per victim"

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        messages = messages_of(view)
        axis = leading_axis(messages)
        votes = torch.einsum("vrd,vd->vr", messages.sums, axis).sign().sum(1)
        return VectorEstimate(vectors=facing(axis, votes, messages.leaning))


def leading_axis(messages: MessageSums) -> Tensor:
    """``(V, d)`` leading right singular vector of each client's whitened messages, as long as a mean message."""
    whitened = messages.sums / messages.updates.clamp(min=1).sqrt()[..., None]
    gram = torch.einsum("vrd,vre->vde", whitened, whitened)
    leading: Tensor = torch.linalg.eigh(gram).eigenvectors[..., -1]
    along = torch.einsum("vrd,vd->vr", messages.sums, leading).abs().sum(1) / messages.updates.sum(1)
    return leading * along[:, None]
