"""Which of the two signs: the catalogue tells it at once, where the labels tell it after many interactions; ours."""

import dataclasses

import torch

from attacks.base import ITEM_EMBEDDING, ServerView, VectorEstimate
from attacks.identifiability.likelihood import PACLikelihood
from attacks.identifiability.messages import facing, messages_of


class PACCatalogue(PACLikelihood):
    """`PACLikelihood`, turned so that it dislikes most of the catalogue where the client dislikes most of its labels.

    The labels are a sample of a few hundred items, nearly balanced where p is near 1/2, and the server has seen only
    some of them. The honest item vectors are thousands, all known to the server, and a model that has learned to
    predict mostly dislikes predicts them nearly everywhere: the sign that it would have to have is known before the
    first interaction. It needs no majority of labels, so it would serve at p = 1/2 too.

    Threat model: as of `PACLikelihood`, and that what a client leans to in its labels it leans to in the catalogue.

    Args:
        iterations: see `PACLikelihood`.

    Raises:
        ViewError: the loss breaks Assumption 2, or a client sent nothing.
    """

    name = "pac-catalogue"
    threat_model = dataclasses.replace(
        PACLikelihood.threat_model,
        knows=f"{PACLikelihood.threat_model.knows}; and that it leans over the catalogue as over its labels",
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        """See `Attack.run`."""
        vectors = super().run(view, generator=generator).vectors
        votes = (vectors @ view.model[ITEM_EMBEDDING].double().T).sign().sum(1)
        return VectorEstimate(vectors=facing(vectors, votes, messages_of(view).leaning))
