"""Comparison of simulated with recorded updates: attacks with a learner that does not match infer too little."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, one_hot

from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.auxiliary_images import IMAGES
from fedleak.client.auxiliary_images import LABELS as CLASSES
from fedleak.client.ranked_lists import ranked_lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.client.simulated_clients import as_released, random_compositions
from fedleak.core.additions import room
from fedleak.core.attack import Attack
from fedleak.core.class_paths import classes_in
from fedleak.core.declared_noise import noise_is_refuted
from fedleak.core.errors import ViewError
from fedleak.core.likeness import Likeness, Twins, flat_alike
from fedleak.core.metric_table import METRICS
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.misassigned import misassigned
from fedleak.evaluation.noise_floor import declared_noise
from fedleak.evaluation.scores import AttackInfo
from fedleak.recordings.adversary_devices import FEATURES, LABELS
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording

_CLIENTS = 16
"""Largest number of clients whose updates are compared."""
_FACTOR = 3.0
"""Ratio of lengths, or its inverse, above which a learner does not match clients of any other examples."""
_TWIN_FACTOR = 1.25
"""The same for clients of the same class shares, in addition to how much simulated clients differ."""
_TURNED, _LESS_ALIKE = 0.05, 0.5
"""How much smaller a cosine may be, and by which part of what simulated cosines lack: clients' images are others."""
_TENSOR_FACTOR = 2.0
"""Ratio by which a tensor may be longer or shorter than the whole update is, in addition."""
_OFF, _OFF_SIMULATED = 0.05, 0.025
"""Mean squared distance of counts from whole numbers that refutes a learner, if that of simulated clients is less."""
_FEW = 0.5
"""Share of repeated values above which numbers are rounded; part of the model above which updates are weights."""
_MODEL = 0.01
"""Part of the global model that updates may have in them, e.g. by the last digits of float16."""
_ZEROS = 0.3
"""Share of zeros, more than in simulated updates, from which on only a part was sent."""
_MIRRORED = 0.5
"""1 minus the cosine of negated updates and their twins over that of the updates, below which the sign is wrong."""
_EQUAL_LENGTHS = 1e-3
"""Relative spread of the clients' lengths below which they were clipped."""
_USUAL = 0.95
"""Quantile of simulated clients, and 1 minus it, between which a sentence says that they are."""
_OPPOSITE, _ONE_WAY = -0.2, 0.5
"""Cosine of recorded and simulated mean below which a sign is wrong, if two simulated means have at least the other."""
_HYPER_PARAMETERS = "learning_rate, epochs, batch_size and optimizer"
_BETTER, _SIGNIFICANT = 0.1, 3.0
"""Difference of two attacks' metrics that shows a wrong learner, and the same in standard errors."""
_NOISY = 0.5
"""Share of declared noise in the updates above which their lengths say nothing about the learner."""
_POOLS = ((IMAGES, CLASSES), (FEATURES, LABELS))
_UNCHECKED = "whether the learner is the clients' was not checked"


@dataclasses.dataclass(frozen=True)
class LearnerMatch:
    """How like a learner's updates are to the recorded ones.

    Attributes:
        ratio: median length of the simulated updates over that of the recorded ones.
        tensors: the same by tensor.
        cosine: median cosine of a client's update and its twin's, see `fedleak.core.likeness.Twins`; without twins,
            that of the mean updates.
        clients: number of clients compared.
        finding: what refutes the learner, and the next thing to try; empty for nothing.
        expected: what holds for simulated clients in place of the recorded ones, for a sentence; empty without twins.
    """

    ratio: float
    tensors: dict[str, float]
    cosine: float
    clients: int
    finding: str
    expected: str = ""

    @property
    def right(self) -> bool:
        """Whether nothing refutes the learner."""
        return not self.finding

    @property
    def measured(self) -> str:
        """What was measured, as a sentence without its full stop."""
        tensors = sorted(self.tensors, key=lambda name: self.tensors[name])
        extremes = [f"{name} {self.tensors[name]:.2g} x" for name in dict.fromkeys((tensors[0], tensors[-1]))]
        kind = "median cosine" if self.expected else "cosine of the means"
        details = [", ".join(extremes), f"{kind} {self.cosine:.2f}", f"n = {self.clients} clients of the first round"]
        if self.expected:
            details.append(f"for simulated clients in place of the recorded ones {self.expected}")
        shares = " of clients with the same class shares" if self.expected else ""
        return (
            f"updates that the learner simulates{shares} are {self.ratio:.2g} times as long as the recorded ones"
            f" ({'; '.join(details)})"
        )


def with_learner_check(
    evaluation: Evaluation, recording: Recording, attacks: Sequence[Attack], *, seed: int
) -> Evaluation:
    """An evaluation of `attacks` with `mismatch` and `learner_check`, if one of them simulates clients.

    Where the learner does not match, what attacks predict of themselves is left out: it assumes that it does.
    """
    learner = recorded_learner(recording)
    ran = {attack.name for attack in attacks if simulates(attack)} & {*evaluation.scores["attack"]}
    if learner is None or not ran:
        return evaluation
    view = next(recording.views(victims_per_view=_CLIENTS, rounds=recording.rounds[:1], learner=learner))
    match = learner_match(view, generator=generator_for(seed, "learner match"))
    finding, measured = ("", "") if isinstance(match, str) else (match.finding, match.measured)
    finding = finding or misassigned(evaluation, view) or learner_free_is_better(evaluation, attacks)
    if not finding:
        check = (
            f"{_UNCHECKED}: {match}" if isinstance(match, str) else f"{measured}; this is no sign of a wrong learner"
        )
        return dataclasses.replace(evaluation, learner_check=check)
    sentence = (
        f"{'; '.join(part for part in (finding, measured) if part)}; until this is explained, results of attacks that"
        f" simulate clients may show less than a server can infer ({', '.join(sorted(ran))})"
    )
    predictions = [name for name, metric in METRICS.items() if metric.predicts is not None]
    scores = evaluation.scores[~evaluation.scores["metric"].isin(predictions)]
    return dataclasses.replace(evaluation, scores=scores, mismatch=sentence, learner_check=sentence)


def simulates(attack: Attack) -> bool:
    """Whether an attack needs the clients' learner."""
    return "algorithm" in attack.threat_model.fields


def learner_match(view: RoundView, *, generator: torch.Generator) -> LearnerMatch | str:
    """Compares updates of simulated clients with the recorded ones of a view.

    Clients of a kind that a family of attacks makes twins of (`fedleak.core.likeness.Twins`), as of classifiers, are
    compared with these, and these with what is expected of simulated clients: length, direction, ratios between
    tensors, and whole numbers of examples. Others are compared with clients of random examples, which have updates of
    another length, but not much, and another direction, but rarely the opposite one: the ratio was 0.6 to 1.7 for a
    recommender and a text model; taggers and rankers were not measured.

    A text says why there is no comparison.
    """
    noise = declared_noise(view)
    if noise is not None and not float(noise.share.nanmean()) < _NOISY:
        return f"declared noise is {float(noise.share.nanmean()):.0%} of the energy of the updates"
    if view.client_models is not None:
        return "each client was sent a model of its own"
    if view.participants is not None:
        return "the server gets sums of several clients' updates"
    if not any(bool(value.any()) for value in view.deltas.values()):
        return "the recorded updates are zero"
    twins = _twins_of(view, generator)
    if twins is None:
        return _match_of_others(view, generator)
    return _match_of_twins(view, twins)


def _twins_of(view: RoundView, generator: torch.Generator) -> Twins | None:
    """Twins of the clients of a view by the first family that can make them; None if none can."""
    for kind in classes_in(room("attacks"), Twins):
        try:
            return kind(view, generator)
        except ViewError:
            continue
    return None


def _match_of_twins(view: RoundView, twins: Twins) -> LearnerMatch:
    likeness, expected = twins.likeness(view.deltas), twins.expected()
    differences = _Differences.of(likeness, expected)
    finding = ""
    if differences.sentence:
        finding = f"{differences.sentence}: {_next_to_try(view, twins, differences, likeness, expected)}"
    shortest, longest = (2 ** float(expected.length.quantile(part)) for part in (1 - _USUAL, _USUAL))
    least = float(expected.cosine.quantile(1 - _USUAL))
    return LearnerMatch(
        ratio=2 ** float(likeness.length.median()),
        tensors={name: 2 ** float(value.median()) for name, value in likeness.tensors.items()},
        cosine=float(likeness.cosine.median()),
        clients=view.victims,
        finding=finding,
        expected=f"{shortest:.2g} to {longest:.2g} times, cosine from {least:.2f}",
    )


@dataclasses.dataclass(frozen=True)
class _Differences:
    """In what updates differ from those of simulated clients with the same class shares.

    Attributes:
        longer: binary logarithm of how many times as long the updates are, 0 for no difference.
        turned: whether they have another direction.
        uneven: tensors that are longer or shorter by another factor than the whole update.
        model: how many times they have the model itself in them, 0 for no difference.
        zeros: share of their numbers that are 0 though the learner's are not; 0 for no difference.
        broken: whether class counts are no whole numbers.
    """

    longer: float
    turned: bool
    uneven: tuple[str, ...]
    model: float
    zeros: float
    broken: bool

    @classmethod
    def of(cls, likeness: Likeness, expected: Likeness) -> "_Differences":
        length = _Shift.of(likeness.length, expected.length)
        names = [name for name in expected.tensors if name in likeness.tensors]
        tensors = {name: _Shift.of(likeness.tensors[name], expected.tensors[name]) for name in names}
        factor = math.log2(_TENSOR_FACTOR)
        uneven = [name for name, shift in tensors.items() if shift.is_beyond(factor, length.middle)]
        model = _Shift.of(likeness.model, expected.model)
        zeros = _Shift.of(likeness.zeros, expected.zeros)
        off, off_simulated = float(likeness.off_whole.nanmean()), float(expected.off_whole.nanmean())
        return cls(
            longer=-length.middle if length.is_beyond(math.log2(_TWIN_FACTOR)) else 0.0,
            turned=_is_turned(likeness, expected),
            uneven=tuple(uneven),
            model=model.middle if model.is_beyond(_MODEL) else 0.0,
            zeros=zeros.middle if zeros.is_beyond(_ZEROS) else 0.0,
            broken=off > _OFF and off_simulated < _OFF_SIMULATED,
        )

    @property
    def sentence(self) -> str:
        """The differences in words, empty for none."""
        parts = []
        if self.longer:
            parts.append(f"the updates are {_times(self.longer)} than the learner makes them")
        if self.turned:
            parts.append("the updates point elsewhere than the learner's")
        if self.uneven:
            parts.append(f"tensors disagree about the length ({', '.join(self.uneven[:3])})")
        if self.model:
            parts.append(f"the updates have the model itself in them ({self.model:.2g} times)")
        if self.zeros:
            parts.append(f"{self.zeros:.0%} of the numbers that should have changed are 0")
        if self.broken:
            parts.append("the class counts behind the updates are no whole numbers")
        return ", and ".join(parts)


def _times(binary_logarithm: float) -> str:
    return f"{2 ** abs(binary_logarithm):.2g} times {'longer' if binary_logarithm > 0 else 'shorter'}"


class _Shift(NamedTuple):
    """By how much a number of recorded clients differs from that of simulated clients with the same class shares.

    ``middle`` is the median difference of a client from the mean of its simulated ones; ``spread`` is the largest
    difference of a simulated client from the mean of the others.
    """

    middle: float
    spread: float

    @classmethod
    def of(cls, recorded: Tensor, simulated: Tensor) -> "_Shift":
        """Compares numbers ``(V,)`` of recorded clients with those of simulated ones ``(R, V)``."""
        others = (simulated.sum(0) - simulated) / (len(simulated) - 1)
        spread = float((simulated - others).abs().max())
        return cls(float((recorded - simulated.mean(0)).median()), spread)

    def is_beyond(self, tolerance: float, usual: float = 0.0) -> bool:
        """Whether the difference, from a usual one, is more than what is tolerated and what simulated clients show."""
        return abs(self.middle - usual) > tolerance + self.spread


def _is_turned(likeness: Likeness, expected: Likeness) -> bool:
    """Whether updates are less like their twins than simulated ones are."""
    cosine = _Shift.of(likeness.cosine, expected.cosine)
    tolerance = _TURNED + _LESS_ALIKE * (1 - float(expected.cosine.median()))
    return -cosine.middle > max(tolerance, cosine.spread)


def _next_to_try(
    view: RoundView, twins: Twins, differences: _Differences, likeness: Likeness, expected: Likeness
) -> str:
    """What may explain updates that differ from simulated ones, the most specific first."""
    mirrored = twins.likeness({name: -value for name, value in view.deltas.items()}).cosine
    if 1 - float(mirrored.median()) < _MIRRORED * (1 - float(likeness.cosine.median())):
        return "they point against the simulated ones, so record local minus global, not global minus local"
    if what_is_sent := _what_is_sent(view, differences, expected):
        return what_is_sent
    if differences.model and not differences.longer:
        return "check the weight decay"
    if differences.turned:
        return (
            "check the optimizer, the batch size, clips of gradients, and the loss, which may be another than"
            " cross-entropy; noise, or examples unlike the server's, turn updates too"
        )
    if differences.uneven:
        return "bias and weights disagree: check the loss, class weights, the optimizer, and clips for each tensor"
    if differences.longer:
        return (
            "they point where the learner points, so check the learning rate, the number of steps (epochs, batch size,"
            " numbers of examples), clips, the loss, terms that hold clients back (FedProx), and sums of several"
            " clients"
        )
    return "check the numbers of examples, class weights, label smoothing and the learning rate"


def _what_is_sent(view: RoundView, differences: _Differences, expected: Likeness) -> str:
    """What clients may have sent instead of the change of their weights; empty for nothing."""
    if noise_is_refuted(view):
        return "they are too short to hold the declared noise, so check what is declared"
    if differences.model > _FEW:
        return "these are weights, so record them as weights, or subtract the model"
    if _takes_few_values(view):
        return "they take few values, so clients may send signs, rounded numbers, or a single step of Adam"
    if differences.zeros:
        return "clients may send only the largest"
    lengths = torch.cat([value.double().reshape(view.victims, -1) for value in view.deltas.values()], dim=1).norm(dim=1)
    if len(lengths) > 2 and float(lengths.std() / lengths.mean()) < _EQUAL_LENGTHS < float(expected.length.std()):
        return f"all are {float(lengths.mean()):.3g} long, so clients may clip them: declare the clip"
    return ""


def _takes_few_values(view: RoundView) -> bool:
    """Whether the numbers of the largest tensor, without zeros, are mostly repetitions of the same absolute values."""
    largest = max(view.deltas.values(), key=lambda value: value[0].numel())
    values = [update[update != 0].abs() for update in largest.reshape(len(largest), -1)]
    distinct = sum(len(torch.unique(update)) for update in values)
    return distinct < (1 - _FEW) * sum(len(update) for update in values)


def _match_of_others(view: RoundView, generator: torch.Generator) -> LearnerMatch | str:
    """Compares clients of any kind with clients of random examples."""
    draws = [simulated_updates(view, generator=generator) for _ in range(2)]
    if draws[0] is None or draws[1] is None:
        return "clients cannot be simulated, because the recording has no examples of the server's own (`auxiliary:`)"
    released = [as_released(view, draw, generator=generator) for draw in draws if draw is not None]
    real, made, again = flat_alike(view.deltas, *released)
    if not real:
        return "its updates have other shapes than the recorded ones"
    whole, simulated, repeated = (torch.cat(list(part.values()), dim=1) for part in (real, made, again))
    ratio = _ratio(simulated, whole)
    means = [part.mean(0) for part in (simulated, whole, repeated)]
    cosine = float(cosine_similarity(means[0], means[1], dim=0))
    finding = ""
    if not 1 / _FACTOR <= ratio <= _FACTOR:
        finding = f"the updates are {_times(-math.log2(ratio))} than the learner makes them: check {_HYPER_PARAMETERS}"
    elif cosine < _OPPOSITE and float(cosine_similarity(means[0], means[2], dim=0)) > _ONE_WAY:
        finding = "the updates point against the simulated ones: record local minus global, not global minus local"
    tensors = {name: _ratio(made[name], real[name]) for name in real if bool(real[name].any())}
    return LearnerMatch(ratio, tensors, cosine, view.victims, finding)


def _ratio(simulated: Tensor, recorded: Tensor) -> float:
    return float(simulated.norm(dim=1).median() / recorded.norm(dim=1).median())


def learner_free_is_better(evaluation: Evaluation, attacks: Sequence[Attack]) -> str:
    """That an attack which does not rely on the learner infers more than all of ours that do; empty if none does.

    Ours use all of what the learner says, so they are weaker only where it says what is wrong. Both answer the same
    question about the same clients; the difference of the judged metric is significant and larger than `_BETTER` of its
    span.
    """
    simulating = {attack.name for attack in attacks if simulates(attack)}
    labels = evaluation.lines
    scores = evaluation.scores[evaluation.scores["metric"].isin([n for n, one in METRICS.items() if one.judged])]
    for (question, name), rows in scores.groupby([scores["attack"].map(_question(labels)), "metric"]):
        sign = METRICS[str(name)].sign
        clients = ["seed", "round", "victim"]
        table = sign * rows.pivot_table(index=clients, columns="attack", values="value", aggfunc="mean")
        names = [str(label) for label in table]
        ours = [label for label in names if labels[label].role == "ours" and label in simulating]
        others = [label for label in names if labels[label].role == "published"]
        if not ours or not others or not question:
            continue
        best = table[ours].mean().idxmax()
        other = table[others].mean().idxmax()
        gaps = (table[other] - table[best]).dropna()
        if len(gaps) > 2 and gaps.mean() > max(_BETTER, _SIGNIFICANT * gaps.std() / len(gaps) ** 0.5):
            return (
                f"{other}, which relies less on the learner, infers more than {best} ({name}"
                f" {abs(table[other].mean()):.3f} and {abs(table[best].mean()):.3f}), which uses all of it"
            )
    return ""


def _question(labels: Mapping[str, AttackInfo]) -> dict[str, str]:
    """The question of each attack's label."""
    return {label: f"{line.family}/{line.tells}" for label, line in labels.items()}


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
