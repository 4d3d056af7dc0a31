"""Maximum likelihood over the user's vector and its rate of likes, the labels summed out."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.estimates import VectorEstimate
from attacks.identifiability.pac import MessageSums, VectorAttack, facing, leading_axis, messages_of
from protocol.view import ITEM_EMBEDDING, ServerView
from ranges import PositiveInt

_STILL = 1e-4
"""Relative change of every client's vector below which the climb is over."""


@dataclass(frozen=True, kw_only=True)
class PACLikelihood(VectorAttack):
    """Maximum likelihood by expectation-maximisation over the signs of the items.

    With ``m = -alpha l'(0) u``, the sum s_i of n_i messages is N(n_i y_i m, n_i sigma^2 I), and y_i is +1 with the
    unknown rate q. Given m and q, the expected label is ``tanh(s_i.m / sigma^2 + logit(q) / 2)``; given the expected
    labels, m is ``sum_i E[y_i] s_i / sum_i n_i`` and q their mean share. It starts from the singular vector and from
    the published sum, and keeps the likelier end: of a client whose labels are nearly all alike the sum says more.

    Threat model: as of `PAC`, and it uses the scale of the noise; without noise the expected labels are signs.

    Args:
        iterations: most rounds of expectation-maximisation from either start.
    """

    name = "pac-likelihood"
    cost = "`iterations` passes over the messages from each of two starts"

    iterations: PositiveInt = 30

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        messages = messages_of(view)
        scale = view.noise_scale(ITEM_EMBEDDING)
        # Without noise the likelihood has no width; a sliver of the messages' own size stands for it.
        size = messages.sums.norm(dim=2).sum(1) / messages.updates.sum(1)
        variance = torch.full_like(size, scale**2) if scale else (1e-6 * size).square().clamp(min=1e-300)
        mean = messages.sums.sum(1) / messages.updates.sum(1, keepdim=True)
        ends = [_climb(messages, start, variance, self.iterations) for start in (leading_axis(messages), mean)]
        better = (ends[0][2] >= ends[1][2])[:, None]
        vectors = torch.where(better, ends[0][0], ends[1][0])
        votes = torch.where(better[:, 0], ends[0][1], ends[1][1])
        return VectorEstimate(vectors=facing(vectors, votes, messages.leaning) / abs(messages.factor))


class PACCatalogue(PACLikelihood):
    """Maximum likelihood, its sign chosen so that the vector dislikes most of the catalogue as the client its labels.

    The labels are a sample of a few hundred items, nearly balanced where p is near 1/2, and the server has seen only
    some of them. The honest item vectors are thousands, all known to the server, and a model that has learned to
    predict mostly dislikes predicts them nearly everywhere: the sign that it would have to have is known before the
    first interaction. It needs no majority of labels, so it would serve at p = 1/2 too.

    Threat model: as of `PACLikelihood`, and that what a client leans to in its labels it leans to in the catalogue.
    """

    name = "pac-catalogue"
    threat_model = dataclasses.replace(
        PACLikelihood.threat_model,
        knows=f"{PACLikelihood.threat_model.knows}; and that it leans over the catalogue as over its labels",
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        vectors = super().run(view, generator=generator).vectors
        votes = (vectors @ view.model[ITEM_EMBEDDING].double().T).sign().sum(1)
        return VectorEstimate(vectors=facing(vectors, votes, messages_of(view).leaning))


def _climb(messages: MessageSums, start: Tensor, variance: Tensor, iterations: int) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors ``(V, d)``, sums of expected labels ``(V,)`` and log-likelihoods ``(V,)`` after the iterations."""
    vectors, rate = start, torch.full_like(variance, 0.5)
    items, sent = messages.sent.sum(1), messages.sent
    labels = torch.zeros_like(messages.updates)
    for _ in range(iterations):
        before = vectors
        labels = torch.tanh(_evidence(messages, vectors, variance) + 0.5 * torch.logit(rate)[:, None]) * sent
        vectors = torch.einsum("vr,vrd->vd", labels, messages.sums) / messages.updates.sum(1, keepdim=True)
        # One item more on either side: a rate of exactly 0 or 1 could never be left again.
        rate = ((labels + 1) * sent / 2).sum(1).add(1) / (items + 2)
        if bool(((vectors - before).norm(dim=1) <= _STILL * vectors.norm(dim=1)).all()):
            break
    evidence = _evidence(messages, vectors, variance)
    either = torch.logaddexp(torch.log(rate)[:, None] + evidence, torch.log(1 - rate)[:, None] - evidence)
    fit = (either * sent).sum(1) - messages.updates.sum(1) * vectors.square().sum(1) / (2 * variance)
    return vectors, labels.sum(1), fit


def _evidence(messages: MessageSums, vectors: Tensor, variance: Tensor) -> Tensor:
    """``(V, R)`` half the log-odds that each item is liked."""
    return torch.einsum("vrd,vd->vr", messages.sums, vectors) / variance[:, None]
