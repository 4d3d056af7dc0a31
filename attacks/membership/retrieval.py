"""Membership of a document among those that a client retrieved in private (RAIFLE, section VII.C)."""

import math

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import MembershipEstimate
from attacks.manipulation.direct import marked_feature
from protocol.rankers import HIDDEN, LINEAR
from protocol.threat_model import ThreatModel
from protocol.view import ServerView, ViewError


class RetrievalFingerprint(Attack):
    """Norm, or likelihood ratio, of the update's entries of a feature that only the marked document has.

    Without noise they are zero unless the client trained on the document: any other value decides. (They are zero as
    well where the document's list changes nothing, or no hidden unit is on for it: then the attack errs.) Under noise
    the decision is the likelihood ratio's, of entries of the size of the clip norm against none.

    Threat model: an active server (`attacks.manipulation.MarkedDocument`); it does not know which documents a client
    retrieved.

    Raises:
        ViewError: the ranker's first layer was not recorded.
    """

    name = "pir-fingerprint"
    family = "membership"
    exact = True
    tells = "whether a certain document was among those that the client retrieved"
    threat_model = ThreatModel(
        sees="each client's update, clip norm and noise scale; not what it retrieved",
        knows="which feature it gave to one document alone",
        needs=("deltas",),
    )
    estimates = MembershipEstimate

    def run(self, view: ServerView, *, generator: torch.Generator) -> MembershipEstimate:
        name = LINEAR if LINEAR in view.deltas else HIDDEN
        if name not in view.deltas:
            raise ViewError(f"expected the deltas of {LINEAR} or {HIDDEN}, got those of {', '.join(view.deltas)}")
        entries = view.deltas[name][..., marked_feature(view.model)].double().reshape(view.victims, -1)
        noise, clip = view.noise_scale(name), view.clip(name)
        if not noise:
            scores = entries.norm(dim=1)
            return MembershipEstimate(scores=scores, decisions=scores > 0)
        if clip is None:
            raise ViewError("expected clients that clip what they noise, got no clip norm")
        ratio = log_likelihood_ratio(entries, noise=noise, spread=clip / math.sqrt(entries.shape[1]))
        return MembershipEstimate(scores=ratio, decisions=ratio > 0)


def log_likelihood_ratio(entries: Tensor, *, noise: float, spread: float) -> Tensor:
    """Of entries of unknown signs and sizes, and noise, against noise alone.

    Args:
        entries: ``(V, H)``.
        noise: standard deviation of the noise.
        spread: standard deviation of what a marked document adds to an entry.

    Returns:
        ``(V,)``; above 0 where the document was more likely there, if that was as likely as not beforehand.
    """
    both = noise**2 + spread**2
    energy = entries.square().sum(1)
    return energy / 2 * (1 / noise**2 - 1 / both) - entries.shape[1] / 2 * math.log(both / noise**2)
