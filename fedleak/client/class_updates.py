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
    auxiliary: Auxiliary,
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
    # Sizes of the simulated clients of single classes: which are needed, and the one that each victim reads.
    if sizes is None:
        # One client for each class, with each auxiliary image once; victims share them.
        distinct_sizes = torch.zeros(1).long()
        size_of_victim = torch.zeros(len(present)).long()
        needed = single.any(0)[None]
        single_counts = auxiliary.per_class
        union_counts = present.long() @ auxiliary.per_class
    else:
        # A class is trained with a size only if some victim of this size has the class.
        distinct_sizes, size_of_victim = torch.unique(sizes, return_inverse=True)
        needed = torch.zeros(len(distinct_sizes), classes).index_add_(0, size_of_victim, present.float()) > 0
        single_counts = distinct_sizes[needed.nonzero()[:, 0]]
        union_counts = sizes
    # Victims with the same classes and the same size share the simulated client of all their classes.
    keys = torch.cat([present.long(), union_counts[:, None]], dim=1)
    sets, union = torch.unique(keys, dim=0, return_inverse=True)
    size_index, label = needed.nonzero().T
    chosen = torch.cat([single[label], sets[:, :-1].bool()])
    examples = round_robin_images(auxiliary, chosen, torch.cat([single_counts, sets[:, -1]]))
    algorithm = view.require(ClassifierAlgorithm).without_noise()
    delta_size = sum(value.numel() for value in view.model.values())
    parts = []
    for part in torch.split(examples, max(1, _NUMBERS_AT_ONCE // delta_size)):
        deltas = algorithm.simulate_examples(
            view.model,
            auxiliary.images,
            auxiliary.labels,
            part,
            generator=generator,
        )
        parts.append(flat_change(view, layer, deltas))
    changes = torch.cat(parts)
    # The first changes are those of single classes, by size and class; the others those of the sets.
    bases = changes.new_zeros(len(distinct_sizes), classes, changes.shape[1])
    bases[size_index, label] = changes[: len(label)]
    of_sets = changes[len(label) :][union]
    if sizes is None:
        return bases[0], of_sets
    return bases[size_of_victim], of_sets


def round_robin_images(auxiliary: Auxiliary, sets: Tensor, sizes: Tensor) -> Tensor:
    """``(B, N)`` auxiliary images, padded with -1, of clients with ``sizes (B,)`` and classes ``sets (B, K)`` bool.

    The classes take turns, and the images of each class.
    """
    set_sizes = sets.sum(1)[:, None]
    # The classes of each set come first in its row of `members`; example n is of class n modulo their number.
    members = sets.long().argsort(dim=1, descending=True, stable=True)
    position = torch.arange(int(sizes.max())).expand(len(sets), -1)
    label = members.gather(1, position % set_sizes)
    turn = position // set_sizes  # earlier examples of the same class, whose images are used in turn
    image = auxiliary.by_class[label, turn % auxiliary.per_class[label]]
    return image.where(position < sizes[:, None], -1)
