"""Updates of simulated clients with examples of a single class, or of a set of classes."""

import torch
from torch import Tensor

from fedleak.client.auxiliary_images import Auxiliary
from fedleak.client.last_layer import flat_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.view import RoundView

_NUMBERS_AT_ONCE = 2**26
"""Largest number of delta entries of simulated clients that are kept at once."""


def gradient_bases(
    view: RoundView,
    known: Auxiliary,
    present: Tensor,
    *,
    sizes: Tensor | None = None,
    layer: str | None = None,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Gradient bases (Algorithm 2) for present classes ``(V, K)``.

    Each distinct set of classes is trained once, for each distinct number of images, on equally many images per class:
    ``sizes (V,)`` of each victim, the auxiliary ones in turn, or each image once. The noise of clients with private
    local training is left out: the images are the server's own.

    Changes of the layer (see `flat_change`) for each class are ``(K, D)`` for all victims without `sizes`, else ``(V,
    K, D)`` and zero for absent classes; those for each victim's present classes together are ``(V, D)``.
    """
    classes = present.shape[1]
    single = torch.eye(classes, dtype=torch.bool)
    if sizes is None:
        distinct, own, wanted = torch.zeros(1).long(), torch.zeros(len(present)).long(), single.any(0)[None]
        amounts = known.per_class, present.long() @ known.per_class
    else:
        distinct, own = torch.unique(sizes, return_inverse=True)
        wanted = torch.zeros(len(distinct), classes).index_add_(0, own, present.float()) > 0
        amounts = distinct[wanted.nonzero()[:, 0]], sizes
    sets, union = torch.unique(torch.cat([present.long(), amounts[1][:, None]], dim=1), dim=0, return_inverse=True)
    place, label = wanted.nonzero().T
    chosen = torch.cat([single[label], sets[:, :-1].bool()])
    examples = round_robin_images(known, chosen, torch.cat([amounts[0], sets[:, -1]]))
    learner = view.require(ClassifierAlgorithm).without_noise()
    at_once = max(1, _NUMBERS_AT_ONCE // sum(value.numel() for value in view.model.values()))
    flat = torch.cat(
        [
            flat_change(
                view,
                layer,
                learner.simulate_examples(view.model, known.images, known.labels, part, generator=generator),
            )
            for part in torch.split(examples, at_once)
        ]
    )
    bases = flat.new_zeros(len(distinct), classes, flat.shape[1])
    bases[place, label] = flat[: len(label)]
    return (bases[0] if sizes is None else bases[own]), flat[len(label) :][union]


def round_robin_images(known: Auxiliary, sets: Tensor, sizes: Tensor) -> Tensor:
    """``(B, N)`` auxiliary images, padded with -1, of clients with ``sizes (B,)`` and classes ``sets (B, K)`` bool.

    The classes take turns, and the images of each class.
    """
    held = sets.sum(1)[:, None]
    members = sets.long().argsort(dim=1, descending=True, stable=True)
    place = torch.arange(int(sizes.max())).expand(len(sets), -1)
    label = members.gather(1, place % held)
    return known.by_class[label, (place // held) % known.per_class[label]].where(place < sizes[:, None], -1)
