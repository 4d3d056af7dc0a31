"""Every attack reads a client's own update on a leaky toy, and nothing of the client in another's update or in noise.

A new attack is a case by itself, on each toy of `tests.attack_toys` that has what it needs. One that needs more work
than a test has time for gets smaller arguments in `CHEAPER`; one that no toy fits needs a toy.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch

from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.metric_table import JUDGED_BY, METRICS
from fedleak.core.seeding import generator_for
from fedleak.core.threat_model import Need, described_need
from fedleak.core.view import View
from fedleak.evaluation.registry import REGISTRY
from tests.attack_toys import TOYS, toy
from tests.attacks.runs import of_noise, of_others, state, unchanged, with_deltas

pytestmark = [pytest.mark.integration, pytest.mark.inventory]

CHEAPER: dict[str, dict[str, Any]] = {
    "recommendation/raifle": {"max_iter": 8},
    "ranking/raifle": {"max_iter": 30},
    "ranking/list-posterior": {"sweeps": 40, "simulated": 16},
    "ranking/list-posterior+prior": {"sweeps": 40, "simulated": 16},
    "re-identification/reid-mlp": {"epochs": 60, "accelerator": "cpu"},
    "matching/matching-mlp": {"epochs": 40, "accelerator": "cpu"},
    "matching/matching-siamese": {"steps": 75, "accelerator": "cpu"},
    "identifiability/pac-consensus": {"majority": "likes"},
    "composition/decaf-match": {"shared": 40, "local": 10, "passes": 1},
    "reconstruction/dlg": {"max_iter": 100, "accelerator": "cpu"},
    "reconstruction/inverting-gradients": {"max_iter": 100, "total_variation": 0.002, "accelerator": "cpu"},
    "reconstruction/fedavg-matching": {"max_iter": 100, "total_variation": 0.002, "accelerator": "cpu"},
    "reconstruction/informed-matching": {"max_iter": 100, "total_variation": 0.002, "accelerator": "cpu"},
    "reconstruction/separate-matching": {"max_iter": 100, "total_variation": 0.002},
    "reconstruction/head-images": {"max_iter": 60},
    "reconstruction/tableak": {"max_iter": 150, "members": 4},
    "reconstruction/memory-rows": {"words": 6},
}
"""Arguments with which an attack needs a second, or fits its toy."""

JUDGED: dict[str, tuple[str, float]] = {
    # Images that are near and never equal; at 40 dB no eye tells them apart.
    "reconstruction/dlg": ("psnr", 40.0),
    "reconstruction/inverting-gradients": ("psnr", 40.0),
    "reconstruction/fedavg-matching": ("psnr", 40.0),
    "reconstruction/informed-matching": ("psnr", 40.0),
    "reconstruction/separate-matching": ("psnr", 40.0),
    "reconstruction/head-images": ("psnr", 40.0),
    # Rows of a table of which the numbers are near and the categories right.
    "reconstruction/tableak": ("categories", 1.0),
    # Sentences without their last words, which the published attack cannot read.
    "reconstruction/dager": ("rouge1", 1.0),
    "reconstruction/decepticons": ("rouge1", 1.0),
    # Words of which some are right.
    "reconstruction/tag": ("rouge1", 1.0),
    "reconstruction/lamp": ("rouge1", 1.0),
}
"""Attacks that are judged by another metric than the first of their question, and its value for certainty."""

WITHOUT_UPDATES = {
    "sums-over-rounds/participation": "reads who took part, and predicts from how many rounds on sums tell",
    "declared-privacy/release-check": "has no ground truth: tests/attacks/declared_privacy/test_release_check.py",
    "record-membership/gradient-norm": "reads the global model alone, on which members have smaller gradients later",
}
"""Attacks for which an update that is another client's is no control, and why."""

TOO_SLOW = {
    "reconstruction/tag": "tests/attacks/reconstruction/test_tag.py",
    "reconstruction/tag-touched-rows": "tests/attacks/reconstruction/test_tag.py",
    "reconstruction/lamp": "tests/attacks/reconstruction/test_lamp.py",
    "reconstruction/lamp-tag": "tests/attacks/reconstruction/test_lamp.py",
    "reconstruction/lamp-touched-rows": "tests/attacks/reconstruction/test_lamp.py",
}
"""Published attacks that search for minutes on each toy that they fit, and the tests of their success and controls."""

BETTER_THAN_A_GUESS = {
    # A guess of a mean does not know its unit.
    "composition/target-mean": 0.6,
    # Clients of one taste like the same items.
    "identifiability/pac-consensus": 0.4,
}
"""As `NEAR_CHANCE`, where the answer for another client is nearer than a guess."""

ATTACKS = {key: kind for key, kind in REGISTRY.items() if not kind.baseline}


WEAK = {
    "recommendation/imia": 0.05,
    "composition/rlg": 0.15,
    # Features are means over places, which say what is in an image and not where: a likeness of its class.
    "reconstruction/head-images": 0.01,
    # Middles of ranges between splits, which any tree of the same table puts near to some rows.
    "trees/timberstrike": 0.05,
    "trees/timberstrike-unfilled": 0.05,
    "trees/timberstrike-first-tree": 0.02,
    "trees/tree-rows-masked": 0.2,
    # Reads one thing only: of which classes a client has no record.
    "record-membership/class-counts": 0.1,
}
"""Published attacks that go less of the way to certainty than `ENOUGH`, also by their papers, and how much."""

ENOUGH = 0.3
"""Share of the way from the update of another client to certainty that an attack goes on its best toy."""

NEAR_CHANCE = 0.2
"""Share of the way from a guess to certainty by which an estimate from nothing may beat it: toys are small."""

ATTACKS = {
    key: kind
    for key, kind in REGISTRY.items()
    if not kind.baseline and key not in WITHOUT_UPDATES and key not in TOO_SLOW
}


class Measured(NamedTuple):
    """Leakage of an attack on a toy, with the sign with which more is more leakage.

    Attributes:
        own: mean over clients, for their own updates.
        exchanged: the same for the update of another client in place of each.
        noise: the same for noise of the size of the updates.
        guess: of the best answer that reads no update.
        certainty: of a perfect attack.
    """

    own: float
    exchanged: float
    noise: float
    guess: float
    certainty: float

    @property
    def share(self) -> float:
        """How much of the way from the update of another client to certainty the client's own update goes."""
        return (self.own - self.exchanged) / (self.certainty - self.exchanged)


def attack_of(key: str) -> Attack:
    return REGISTRY[key](**CHEAPER.get(key, {}))


def can_be_scored(attack: Attack, name: str) -> bool:
    """Whether a toy has what the attack needs, and what its estimate is scored by."""
    view, truth = toy(name)
    if not isinstance(view, attack.view) or view.missing(attack.threat_model.needs):
        return False
    return set(attack.estimates.truth) <= set(truth)


def metric_of(key: str) -> tuple[str, float, int]:
    """The metric that attacks on a question are compared by, its value for certainty, and its sign."""
    if key in JUDGED:
        return (*JUDGED[key], 1)
    kind = REGISTRY[key].estimates
    names = JUDGED_BY.get(kind.question()) or [name for name in kind.metric_names() if METRICS[name].judged]
    metric = METRICS[(names or kind.metric_names())[0]]
    return metric.name, metric.certainty, metric.sign


def with_changed_updates(view: View, change: Callable[[Any], Any]) -> View:
    """The view, or each of its rounds, with other updates."""
    if isinstance(view, History) and view.by_round:
        return dataclasses.replace(view, by_round={number: change(part) for number, part in view.by_round.items()})
    changed: View = change(view)
    return changed


def exchanged(view: View) -> View:
    """The view in which every client, or every sum of a round, has the update of another."""
    if isinstance(view, History) and view.by_round:
        parts = list(view.by_round.values())
        following = [*parts[1:], parts[0]]
        rounds = zip(view.by_round.items(), following, strict=True)
        return dataclasses.replace(
            view, by_round={number: dataclasses.replace(part, deltas=other.deltas) for (number, part), other in rounds}
        )
    if not isinstance(view, History):
        return of_others(view)
    # In each round by another number of places, so that a client's messages do not stay together, and never by all.
    sender = torch.arange(view.victims)
    for number in torch.unique(view.sent_in).tolist():
        in_round = (view.sent_in == number).nonzero().flatten()
        sender[in_round] = in_round.roll(1 + number % max(len(in_round) - 1, 1))
    return with_deltas(view, lambda delta: delta[sender])


def leak(key: str, attack: Attack, view: View, truth: Mapping[str, torch.Tensor]) -> float:
    """Mean over clients of the question's metric, with the sign with which more is more leakage.

    It is NaN where the attack refuses what it is given.
    """
    name, _, sign = metric_of(key)
    try:
        estimate = attack(view, generator=generator_for(0, "attack"))
        values = estimate.score(view, truth).metrics[name].double()
    except ViewError:
        return math.nan
    after = getattr(estimate, "after", None)
    if after is not None:
        # Estimates after several numbers of rounds: the last of them knows most.
        values = values.reshape(len(after), -1)[-1]
    return sign * float(values.nanmean())


@functools.cache
def guess(question: type[Estimate], name: str, metric: str) -> float:
    """The best answer of a baseline that reads no update, or the metric's value of guessing."""
    view, truth = toy(name)
    answers = []
    for key, kind in REGISTRY.items():
        if kind.comparison() in ("prior", "blind") and kind.estimates.question() == question.question():
            attack = kind()
            if can_be_scored(attack, name) and metric_of(key)[0] == metric:
                answers.append(leak(key, attack, view, truth))
    guessing = METRICS[metric].guessing
    if guessing is not None:
        answers.append(METRICS[metric].sign * guessing)
    finite = [answer for answer in answers if math.isfinite(answer)]
    return max(finite, default=math.nan)


@functools.cache
def measured(key: str, name: str) -> Measured | None:
    """What an attack reads off a toy, or None where it cannot read it."""
    attack = attack_of(key)
    if not can_be_scored(attack, name):
        return None
    view, truth = toy(name)
    own = leak(key, attack, view, truth)
    if math.isnan(own):
        return None
    metric, certainty, sign = metric_of(key)
    return Measured(
        own=own,
        exchanged=leak(key, attack, exchanged(view), truth),
        noise=leak(key, attack, with_changed_updates(view, of_noise), truth),
        guess=guess(attack.estimates, name, metric),
        certainty=sign * certainty,
    )


@functools.cache
def best(key: str) -> tuple[str, Measured]:
    """The first toy on which the attack goes far enough, or the one on which it goes farthest."""
    enough = WEAK.get(key, ENOUGH)
    tried: dict[str, Measured] = {}
    for name in TOYS:
        found = measured(key, name)
        if found is not None:
            tried[name] = found
            if found.share >= enough:
                return name, found
    assert tried, f"no toy has what {key} needs: add one to tests/attack_toys.py"
    farthest = max(tried, key=lambda name: tried[name].share)
    return farthest, tried[farthest]


@pytest.mark.parametrize("key", ATTACKS)
def test_reads_its_own_client_and_no_other(key: str) -> None:
    name, values = best(key)
    assert values.share >= WEAK.get(key, ENOUGH), (name, values)
    tolerance = BETTER_THAN_A_GUESS.get(key, NEAR_CHANCE) * (values.certainty - values.guess)
    for nothing in (values.exchanged, values.noise):
        assert not nothing > values.guess + tolerance, (name, values)


@pytest.mark.parametrize("key", ATTACKS)
def test_leaves_its_view_as_it_was_and_repeats_itself(key: str) -> None:
    name, _ = best(key)
    view, _ = toy(name)
    before = state(view)
    random = torch.get_rng_state()
    first, second = (attack_of(key)(view, generator=generator_for(0, "same")) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), random)
    assert unchanged(view, before)
    for field in dataclasses.fields(first):
        value = getattr(first, field.name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.nan_to_num(), getattr(second, field.name).nan_to_num()), field.name


def without(view: View, need: Need) -> View:
    """The view without one thing that an attack needs."""
    if isinstance(need, type):
        return dataclasses.replace(view, algorithm=None)
    field, _, key = need.partition(":")
    changed: dict[str, Any] = {field: None}
    if key:
        changed[field] = {name: value for name, value in getattr(view, field).items() if name != key}
    return dataclasses.replace(view, **changed)


@pytest.mark.parametrize("key", ATTACKS)
def test_refuses_a_view_without_any_of_what_it_needs(key: str) -> None:
    attack = attack_of(key)
    view, _ = toy(best(key)[0])
    for need in attack.threat_model.needs:
        with pytest.raises(ViewError, match=re.escape(described_need(need) if isinstance(need, type) else need)):
            attack(without(view, need), generator=generator_for(0, "attack"))
