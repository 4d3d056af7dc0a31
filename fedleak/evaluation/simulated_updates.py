"""Updates of simulated clients of random examples, of any kind of learner."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.auxiliary_images import IMAGES
from fedleak.client.auxiliary_images import LABELS as CLASSES
from fedleak.client.ranked_lists import ranked_lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.client.simulated_clients import random_compositions
from fedleak.core.view import RoundView
from fedleak.recordings.adversary_devices import FEATURES, LABELS

_POOLS = ((IMAGES, CLASSES), (FEATURES, LABELS))


def simulated_updates(view: RoundView, *, generator: torch.Generator) -> dict[str, Tensor] | None:
    """Updates ``(V, *shape)`` of as many simulated clients with as many examples; None if there are no examples."""
    learner = view.algorithm
    # Each client answers yes with a probability of its own, drawn uniformly.
    share = torch.rand(view.victims, 1, generator=generator)
    if isinstance(learner, RecommenderAlgorithm) and view.served is not None:
        labels = (torch.rand(view.served.shape, generator=generator) < share) & view.served_mask
        users = torch.randn(view.victims, learner.user_dim, generator=generator)
        return learner.simulate(view.model, view.served, labels.float(), users)
    if isinstance(learner, RankingAlgorithm) and view.lists is not None and view.features is not None:
        lists = ranked_lists(view)
        assert lists.features is not None
        clicks = (torch.rand(lists.mask.shape, generator=generator) < share[..., None]) & lists.mask
        return learner.simulate_lists(view.model, lists.features, lists.mask, clicks.float())
    if not isinstance(learner, ExampleAlgorithm):
        return None
    for features_name, labels_name in _POOLS:
        if {features_name, labels_name} <= view.auxiliary.keys():
            features, labels = view.auxiliary[features_name], view.auxiliary[labels_name]
            chosen = _examples_of_clients(labels, view.example_counts, generator)
            return learner.simulate_examples(view.model, features, labels, chosen, generator=generator)
    return None


def _examples_of_clients(labels: Tensor, sizes: Tensor, generator: torch.Generator) -> Tensor:
    """``(B, N)`` numbers of examples, with random shares of the classes if there are such, padded with -1."""
    clients = len(sizes)
    weights = torch.ones(clients, len(labels), dtype=torch.float64)
    if labels.dim() == 1 and not labels.is_floating_point():
        classes = one_hot(labels.long()).double()
        shares = random_compositions(clients, classes.shape[1], generator=generator)
        # Positive also for a client whose shares are all of classes that the pool lacks.
        weights = shares @ classes.T + 1e-9
    largest = max(int(sizes.max()), 1)
    chosen = torch.multinomial(weights, largest, replacement=True, generator=generator)
    is_padding = torch.arange(largest) >= sizes[:, None]
    return chosen.masked_fill(is_padding, -1)
