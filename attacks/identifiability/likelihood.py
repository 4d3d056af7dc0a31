"""Attacks on private user vectors by maximum likelihood, which differ in what fixes the sign of a vector."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.attacks.identifiability.pac import (
    VectorAttack,
    VectorEstimate,
    VectorMessages,
    facing,
    leading_axis,
    messages_of,
)
from fedleak.core.ranges import PositiveInt
from fedleak.core.view import ITEM_EMBEDDING, RoundView

_STILL = 1e-4
"""Relative change of every client's vector below which the iteration stops."""
_LABELLED = 0.1
"""Share of labelled items from which the iteration starts if every row has noise."""


@dataclass(frozen=True, kw_only=True)
class PACLikelihood(VectorAttack):
    """Maximum likelihood of the user vector and the rate of likes by expectation-maximisation over the labels.

    With ``m = -alpha l'(0) u``, the sum s_i of n_i messages is N(n_i y_i m, n_i sigma^2 I), and y_i is +1 with the
    unknown rate q. Given m and q, the expected label is ``tanh(s_i.m / sigma^2 + logit(q) / 2)``; given the expected
    labels, m is ``sum_i E[y_i] s_i / sum_i n_i`` and q their mean share. It starts from the singular vector and from
    the published sum, which is better if nearly all labels are equal, and keeps the solution with the higher
    likelihood.

    If clients add noise to every row, so that the server does not see which items they labelled, y_i has a third value,
    0 for an item without a label, whose rate is estimated too; then m is ``sum_i E[y_i] s_i / sum_i E[y_i^2] n_i``.

    Threat model: an active server that sends zero item vectors T times, or a passive one that adds up the messages of
    honest rounds. It knows each client's leaning and the scale of the noise. Without noise the expected labels are
    signs.

    Args:
        iterations: maximum number of iterations from either start.

    References:
        This project; the noise model is that of [London20], Equation 3.

    Example:
        >>> import torch
        >>> from fedleak.attacks.identifiability import PACLikelihood
        >>> from fedleak.attacks.identifiability.toy import toy
        >>> view, truth = toy()
        >>> estimate = PACLikelihood()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["error"].mean()), 2)
        0.0
    """

    name = "pac-likelihood"
    with_prior = "rank"
    cost = "`iterations` passes over the messages from each of two starts"

    iterations: PositiveInt = 30

    def run(self, view: RoundView, *, generator: torch.Generator) -> VectorEstimate:
        messages = messages_of(view)
        vectors, votes = self.up_to_sign(messages, view.noise_scale(ITEM_EMBEDDING))
        return VectorEstimate(vectors=facing(vectors, votes, messages.leaning))

    def up_to_sign(self, messages: VectorMessages, scale: float) -> tuple[Tensor, Tensor]:
        """Vectors ``(V, d)`` of either sign, and the sums of the labels ``(V,)`` that go with that sign.

        `scale` is the standard deviation of the noise.
        """
        # Without noise the likelihood is degenerate; a small multiple of the messages' size takes its place.
        message_size = messages.sums.norm(dim=2).sum(1) / messages.updates.sum(1)
        if scale:
            variance = torch.full_like(message_size, scale**2)
        else:
            variance = (1e-6 * message_size).square().clamp(min=1e-300)
        # Either start may end in a maximum that is only local: each client keeps the more likely end.
        mean_message = messages.sums.sum(1) / messages.updates.sum(1, keepdim=True)
        vectors, votes, likelihood = _climb(messages, leading_axis(messages), variance, self.iterations)
        other_vectors, other_votes, other_likelihood = _climb(messages, mean_message, variance, self.iterations)
        is_better = likelihood >= other_likelihood
        vectors = torch.where(is_better[:, None], vectors, other_vectors)
        # A loss falls with the margin, so that -alpha l'(0) is positive and m = -alpha l'(0) u has the sign of u.
        return vectors / abs(messages.factor), torch.where(is_better, votes, other_votes)


class PACCatalogue(PACLikelihood):
    """`PACLikelihood` with the sign by which the predictions over the catalogue agree with the client's leaning.

    Labels are a sample of a few hundred items, nearly balanced where p is near 1/2, and the server has seen messages
    about some of them only. The catalogue has thousands of items, all known to the server. A client whose model mostly
    predicts dislikes does so for nearly the whole catalogue, which determines the sign of its vector even at p = 1/2.

    Threat model: an active server that sends zero item vectors T times, or a passive one that adds up the messages of
    honest rounds. It knows each client's leaning and the scale of the noise. A client's leaning is the same over the
    catalogue as over its labels, which is true of dislikes that are drawn at random, and false for a third of
    MovieLens' users with their own dislikes.

    References:
        This project; see `PACLikelihood`.

    Example:
        >>> import torch
        >>> from fedleak.attacks.identifiability import PACCatalogue
        >>> from fedleak.attacks.identifiability.toy import toy
        >>> view, truth = toy("catalogue")
        >>> estimate = PACCatalogue()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["error"].mean()), 2)
        0.04
    """

    name = "pac-catalogue"
    threat_model = dataclasses.replace(
        PACLikelihood.threat_model,
        knows=f"{PACLikelihood.threat_model.knows}, which is the same over the catalogue as over its labels",
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> VectorEstimate:
        vectors = super().run(view, generator=generator).vectors
        votes = (vectors @ view.model[ITEM_EMBEDDING].double().T).sign().sum(1)
        return VectorEstimate(vectors=facing(vectors, votes, messages_of(view).leaning))


@dataclass(frozen=True, kw_only=True)
class PACConsensus(PACLikelihood):
    """`PACLikelihood` with the sign on which the clients agree; no client's leaning is given.

    No message changes if a client's vector and all of its labels are negated, so messages alone never fix the sign of a
    vector. But users of a recommender agree more than they disagree: the leading eigenvector of the Gram matrix of all
    clients' scores over the catalogue, each scaled to length one, gives their signs up to one common sign. One bit
    about all clients together fixes it: whether most of their labels are likes. Clients with unusual taste get the
    wrong sign, so the error is little more than their share. Of few clients the common sign may be wrong too, and then
    nearly all vectors are: with 25 in one of three trainings, with 50 or 200 in none (docs/results.md).

    Threat model: an active server that sends zero item vectors T times, or a passive one that adds up the messages of
    honest rounds. It knows the scale of the noise, attacks at least a few dozen clients together, and knows whether all
    their labels together are mostly likes or mostly dislikes.

    Args:
        majority: what most of the labels of all clients together are.

    References:
        This project; see `PACLikelihood`. The signs are a synchronisation over two elements: [Singer11].

    Example:
        >>> import torch
        >>> from fedleak.attacks.identifiability import PACConsensus
        >>> from fedleak.attacks.identifiability.toy import toy
        >>> view, truth = toy("consensus")
        >>> estimate = PACConsensus(majority="likes")(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["error"].mean()), 2)
        0.0
    """

    name = "pac-consensus"
    threat_model = dataclasses.replace(
        PACLikelihood.threat_model,
        knows="the loss, the local learning rate, the noise, and one bit about all clients together: whether most of"
        " their labels are likes; no client's leaning",
    )

    majority: Literal["likes", "dislikes"] = "likes"

    def run(self, view: RoundView, *, generator: torch.Generator) -> VectorEstimate:
        vectors, votes = self.up_to_sign(messages_of(view), view.noise_scale(ITEM_EMBEDDING))
        scores = functional.normalize(vectors @ view.model[ITEM_EMBEDDING].double().T)
        # The leading eigenvector of the Gram matrix is the relaxed vector of signs by which the clients agree most.
        common: Tensor = torch.linalg.eigh(scores @ scores.T).eigenvectors[:, -1]
        signs = torch.where(common < 0, -1.0, 1.0).double()
        # An eigenvector has no sign of its own: the known majority of all labels gives the common one.
        mostly_likes = float((votes * signs).sum()) > 0
        if mostly_likes != (self.majority == "likes"):
            signs = -signs
        return VectorEstimate(vectors=vectors * signs[:, None])


def _climb(messages: VectorMessages, start: Tensor, variance: Tensor, iterations: int) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors ``(V, d)``, sums of expected labels ``(V,)`` and log-likelihoods ``(V,)`` after the iterations."""
    unlabelled = 0.0
    states = 2
    if messages.hidden:
        unlabelled = 1 - _LABELLED
        states = 3
    # Rates of a like, a dislike and no label, by client; the last is 0 if the server sees which items are labelled.
    rates = torch.tensor([(1 - unlabelled) / 2, (1 - unlabelled) / 2, unlabelled], dtype=torch.float64)
    rates = rates.expand(len(start), 3)
    # Rows without a label dilute the mean message from which the iteration starts.
    vectors = start / (1 - unlabelled)
    sent = messages.sent
    votes = torch.zeros_like(variance)
    for _ in range(iterations):
        before = vectors
        # E step: the probability of each label given m and the rates; E[y] and E[y^2] follow from it.
        p_label = _log_shares(messages, vectors, variance, rates).softmax(2) * sent[..., None]
        expected_labels = p_label[..., 0] - p_label[..., 1]
        is_labelled = p_label[..., :2].sum(2)
        votes = expected_labels.sum(1)
        # M step: m = sum_i E[y_i] s_i / sum_i E[y_i^2] n_i.
        weight = (is_labelled * messages.updates).sum(1, keepdim=True)
        vectors = torch.einsum("vr,vrd->vd", expected_labels, messages.sums) / weight.clamp(min=1e-12)
        # One more item of each kind: a rate of exactly 0 or 1 would never change again.
        rates = (p_label.sum(1) + 1) / (sent.sum(1, keepdim=True) + states)
        rates = rates * (torch.arange(3) < states)
        if bool(((vectors - before).norm(dim=1) <= _STILL * vectors.norm(dim=1)).all()):
            break
    likelihood = (_log_shares(messages, vectors, variance, rates).logsumexp(2) * sent).sum(1)
    return vectors, votes, likelihood


def _log_shares(messages: VectorMessages, vectors: Tensor, variance: Tensor, rates: Tensor) -> Tensor:
    """``(V, R, 3)`` unnormalised log-probabilities of a like, a dislike, and no label, given ``rates (V, 3)``."""
    # log N(s; n y m, n sigma^2 I) = y s.m / sigma^2 - y^2 n |m|^2 / (2 sigma^2) + what does not depend on y.
    agreement = torch.einsum("vrd,vd->vr", messages.sums, vectors) / variance[:, None]
    size = messages.updates * (vectors.square().sum(1) / (2 * variance))[:, None]
    log_likelihood = torch.stack([agreement - size, -agreement - size, torch.zeros_like(agreement)], 2)
    return log_likelihood + rates.log()[:, None]
