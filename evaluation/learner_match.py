"""Comparison of simulated with recorded updates: attacks with a learner that does not match infer too little."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, one_hot

from attacks.base import Attack
from attacks.composition.base import IMAGES
from attacks.composition.base import LABELS as CLASSES
from attacks.composition.simulation import as_released, random_compositions
from attacks.ranking.lists import ranked_lists
from client.algorithm import ExampleAlgorithm
from client.ranking import RankingAlgorithm
from client.recommendation import RecommenderAlgorithm
from evaluation.noise_floor import declared_noise
from evaluation.runner import Evaluation
from protocol.seeding import generator_for
from protocol.view import RoundView, is_statistic
from recordings.adversary_devices import FEATURES, LABELS
from recordings.recorded_learner import recorded_learner
from recordings.recording import Recording

_CLIENTS = 16
"""Largest number of clients whose updates are compared."""
_FACTOR = 3.0
"""Ratio of lengths, or its inverse, above which a learner does not match."""
_NOISY = 0.5
"""Share of declared noise in the updates above which their lengths say nothing about the learner."""
_POOLS = ((IMAGES, CLASSES), (FEATURES, LABELS))
_UNCHECKED = "whether the learner is the clients' was not checked"


@dataclasses.dataclass(frozen=True)
class LearnerMatch:
    """How long a learner's updates are, compared with the recorded ones.

    Attributes:
        ratio: median length of the simulated updates over that of the recorded ones.
        tensors: the same by tensor.
        cosine: cosine of the mean updates.
        clients: number of clients compared.
    """

    ratio: float
    tensors: dict[str, float]
    cosine: float
    clients: int

    @property
    def right(self) -> bool:
        """Whether the lengths are alike."""
        return 1 / _FACTOR <= self.ratio <= _FACTOR


def with_learner_check(
    evaluation: Evaluation, recording: Recording, attacks: Sequence[Attack], *, seed: int
) -> Evaluation:
    """An evaluation of `attacks` with `mismatch` and `learner_check`, if one of them simulates clients."""
    learner = recorded_learner(recording)
    ran = {attack.name for attack in attacks if simulates(attack)} & {*evaluation.scores["attack"]}
    if learner is None or not ran:
        return evaluation
    view = next(recording.views(victims_per_view=_CLIENTS, rounds=recording.rounds[:1], learner=learner))
    found = learner_match(view, generator=generator_for(seed, "learner match"))
    if isinstance(found, str):
        return dataclasses.replace(evaluation, learner_check=f"{_UNCHECKED}: {found}")
    length = f"{found.ratio:.2g} times as long as the recorded ones"
    tensors = sorted(found.tensors, key=lambda name: found.tensors[name])
    spread = ", ".join(f"{name} {found.tensors[name]:.2g} x" for name in dict.fromkeys((tensors[0], tensors[-1])))
    known = f"({spread}; cosine of the means {found.cosine:.2f}; n = {found.clients} clients of the first round)"
    sentence = f"updates that the learner simulates are {length} {known}"
    if found.right:
        sentence += f"; a ratio up to {_FACTOR:g} is no sign of a wrong learner"
        return dataclasses.replace(evaluation, learner_check=sentence)
    sentence += (
        ": check learning_rate, epochs, batch_size and optimizer; until"
        " then, results of attacks that simulate clients may show less than a server can infer"
        f" ({', '.join(sorted(ran))})"
    )
    return dataclasses.replace(evaluation, mismatch=sentence, learner_check=sentence)


def simulates(attack: Attack) -> bool:
    """Whether an attack needs the clients' learner."""
    return "algorithm" in attack.threat_model.fields


def learner_match(view: RoundView, *, generator: torch.Generator) -> LearnerMatch | str:
    """Compares updates of simulated clients, of random examples, with the recorded ones of a view.

    Clients of other examples have updates of another length, but not much: the ratio was 0.6 to 1.7
    for matching classifiers, a recommender and a text model; taggers and rankers were not measured.

    A text says why there is no comparison.
    """
    noise = declared_noise(view)
    if noise is not None and not float(noise.share.nanmean()) < _NOISY:
        return f"declared noise is {float(noise.share.nanmean()):.0%} of the energy of the updates"
    if view.client_models is not None:
        return "each client was sent a model of its own"
    made = simulated_updates(view, generator=generator)
    if made is None:
        return "clients cannot be simulated, because the recording has no examples of the server's own (`auxiliary:`)"
    made = as_released(view, made, generator=generator)
    # The rows of a table that a client uses depend on its examples, so tables of such rows cannot be compared.
    alike = [name for name in view.deltas if name in made and made[name].shape == view.deltas[name].shape]
    names = [name for name in alike if not is_statistic(name)]
    if not names:
        return "its updates have other shapes than the recorded ones"
    own, real = ({name: source[name].double().flatten(1) for name in names} for source in (made, view.deltas))
    whole = [torch.cat([source[name] for name in names], dim=1) for source in (own, real)]
    if not bool(whole[1].any()):
        return "the recorded updates are zero"
    cosine = cosine_similarity(whole[0].mean(0), whole[1].mean(0), dim=0)
    tensors = {name: _ratio(own[name], real[name]) for name in names if bool(real[name].any())}
    return LearnerMatch(_ratio(*whole), tensors, float(cosine), view.victims)


def _ratio(simulated: Tensor, recorded: Tensor) -> float:
    return float(simulated.norm(dim=1).median() / recorded.norm(dim=1).median())


def simulated_updates(view: RoundView, *, generator: torch.Generator) -> dict[str, Tensor] | None:
    """Updates ``(V, *shape)`` of as many simulated clients with as many examples; None if there are no examples."""
    learner = view.algorithm
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
    for features, labels_name in _POOLS if isinstance(learner, ExampleAlgorithm) else ():
        if {features, labels_name} <= view.auxiliary.keys():
            assert isinstance(learner, ExampleAlgorithm)
            pool = view.auxiliary[features], view.auxiliary[labels_name]
            drawn = _drawn(pool[1], view.example_counts, generator)
            return learner.simulate_examples(view.model, *pool, drawn, generator=generator)
    return None


def _drawn(labels: Tensor, sizes: Tensor, generator: torch.Generator) -> Tensor:
    """``(B, N)`` numbers of examples, with random shares of the classes if there are such, padded with -1."""
    weights = torch.ones(len(sizes), len(labels), dtype=torch.float64)
    if labels.dim() == 1 and not labels.is_floating_point():
        classes = one_hot(labels.long()).double()
        weights = random_compositions(len(sizes), classes.shape[1], generator=generator) @ classes.T + 1e-9
    drawn = torch.multinomial(weights, max(int(sizes.max()), 1), replacement=True, generator=generator)
    return drawn.masked_fill(torch.arange(drawn.shape[1]) >= sizes[:, None], -1)
