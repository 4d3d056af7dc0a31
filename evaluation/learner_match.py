"""Comparison of a learner's simulated updates with the recorded ones: a wrong learner makes a system look safe."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attacks.composition.simulation import as_released, random_compositions
from attacks.ranking.lists import ranked_lists
from datamodules.recordings.adversary_devices import FEATURES, LABELS
from datamodules.recordings.recording import Recording
from protocol.errors import ViewError
from protocol.seeding import generator_for
from protocol.simulators import AnySimulator, ExampleSimulator, RankingSimulator, RecommenderSimulator
from protocol.view import ServerView, is_statistic

_CLIENTS = 16
"""Largest number of clients whose updates are compared."""
_FACTOR = 4.0
_POOLS = (("images", "labels"), (FEATURES, LABELS))


@dataclass(frozen=True)
class LearnerMatch:
    """How a learner's updates compare with the recorded ones.

    Attributes:
        checked: whether they could be compared.
        ratio: median norm of the simulated updates over that of the recorded ones, NaN if not checked.
        tensors: the same by tensor.
        cosine: cosine of the mean updates.
    """

    checked: bool
    ratio: float = torch.nan
    tensors: tuple[tuple[str, float], ...] = ()
    cosine: float = torch.nan


def learner_match(recording: Recording, learner: AnySimulator, *, seed: int) -> LearnerMatch:
    """Compares simulated with recorded updates of the first round."""
    view = next(recording.views(victims_per_view=_CLIENTS, rounds=recording.rounds[:1], learner=learner))
    return match(view, generator=generator_for(seed, "learner match"))


def match(view: ServerView, *, generator: torch.Generator) -> LearnerMatch:
    made = simulated(view, generator=generator)
    if made is None:
        return LearnerMatch(False)
    made = as_released(view, made, generator=generator)
    names = [name for name in view.deltas if name in made and not is_statistic(name)]
    own, real = ({name: source[name].double().flatten(1) for name in names} for source in (made, view.deltas))
    ratios = tuple((name, _ratio(own[name], real[name])) for name in names)
    whole = [torch.cat([source[name] for name in names], dim=1) for source in (own, real)]
    means = [each.mean(0) for each in whole]
    cosine = float(torch.nn.functional.cosine_similarity(*means, dim=0))
    return LearnerMatch(True, _ratio(*whole), ratios, cosine)


def _ratio(simulated: Tensor, recorded: Tensor) -> float:
    return float(simulated.norm(dim=1).median() / recorded.norm(dim=1).median())


def simulated(view: ServerView, *, generator: torch.Generator) -> dict[str, Tensor] | None:
    """Updates ``(B, *shape)`` of simulated clients of a view's sizes; None if they cannot be simulated."""
    learner = view.learner
    if isinstance(learner, RecommenderSimulator) and view.served is not None:
        shown = view.served >= 0
        share = torch.rand(view.victims, 1, generator=generator)
        labels = (torch.rand(shown.shape, generator=generator) < share) & shown
        users = torch.randn(view.victims, learner.user_dim, generator=generator)
        return learner.simulate(view.model, view.served, labels.float(), users)
    if isinstance(learner, RankingSimulator) and view.lists is not None and view.features is not None:
        lists = ranked_lists(view)
        share = torch.rand(view.victims, 1, 1, generator=generator)
        clicks = ((torch.rand(lists.mask.shape, generator=generator) < share) & lists.mask).float()
        assert lists.features is not None
        return learner.simulate_lists(view.model, lists.features, lists.mask, clicks)
    if isinstance(learner, ExampleSimulator):
        for features, labels_name in _POOLS:
            if {features, labels_name} <= view.auxiliary.keys():
                pool, labels = view.auxiliary[features], view.auxiliary[labels_name]
                chosen = _drawn(labels, view.example_counts, generator)
                return learner.simulate_examples(view.model, pool, labels, chosen, generator=generator)
    return None


def _drawn(labels: Tensor, sizes: Tensor, generator: torch.Generator) -> Tensor:
    """``(B, N)`` numbers of examples with random shares of the labels, padded with -1."""
    if labels.dim() == 1 and not labels.is_floating_point():
        classes = one_hot(labels.long()).double()
        weights = random_compositions(len(sizes), classes.shape[1], generator=generator) @ classes.T
        weights = weights + 1e-9
    else:
        weights = torch.ones(len(sizes), len(labels), dtype=torch.float64)
    drawn = torch.multinomial(weights, int(sizes.max()), replacement=True, generator=generator)
    return drawn.masked_fill(torch.arange(drawn.shape[1]) >= sizes[:, None], -1)
