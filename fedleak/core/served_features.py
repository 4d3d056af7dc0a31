"""Features of the items that the server showed to each client."""

from torch import Tensor


def features_of(items: Tensor, served: Tensor) -> Tensor:
    """``(V, R, F)`` features of ``served (V, R)`` among ``items (I, F)``, stored once if all are equal."""
    is_same_for_all = len(served) > 0 and bool((served == served[:1]).all())
    distinct = served[:1] if is_same_for_all else served
    # Padding (-1) takes any item's features, and then none.
    features = items[distinct.clamp(min=0)] * (distinct >= 0)[..., None]
    if is_same_for_all:
        features = features.expand(len(served), -1, -1)
    return features
