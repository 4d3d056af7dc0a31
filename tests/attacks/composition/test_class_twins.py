"""Twins have the class shares of an update, whatever its length, and other images than simulated clients."""

import dataclasses

import pytest

from fedleak.attacks.composition.class_twins import ClassTwins
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from tests.composition_toys import l1, views

ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)


def test_shares_are_those_of_the_clients_at_any_length() -> None:
    (view,), true = views(ONE_STEP)
    longer = {name: 100 * value for name, value in view.deltas.items()}
    for deltas in (view.deltas, longer):
        twins = ClassTwins(dataclasses.replace(view, deltas=deltas), generator_for(0, "twins"))
        assert l1(twins.shares, true) < (0.2 if deltas is view.deltas else 0.6)


def test_the_halves_of_the_pool_have_no_image_in_common() -> None:
    (view,), _ = views(ONE_STEP)
    twins = ClassTwins(view, generator_for(0, "twins"))
    first, second = (half.auxiliary["images"].flatten(1) for half in (twins.first, twins.second))
    assert not bool((first[:, None] == second).all(2).any())


def test_likeness_of_updates_that_are_twice_as_long() -> None:
    (view,), _ = views(ONE_STEP)
    twins = ClassTwins(view, generator_for(0, "twins"))
    once, twice = (twins.likeness({n: f * v for n, v in view.deltas.items()}) for f in (1, 2))
    assert float((once.length - twice.length).median()) == pytest.approx(1, abs=0.1)
    assert float(once.cosine.median()) > 0.9
    assert float(once.off_whole.nanmean()) < 0.02 < 0.05 < float(twice.off_whole.nanmean())


def test_few_images_of_a_class_make_no_twins() -> None:
    (view,), _ = views(ONE_STEP)
    few = view.auxiliary["labels"].argsort(stable=True).reshape(10, -1)[:, :3].flatten()
    chosen = {name: view.auxiliary[name][few] for name in ("images", "labels")}
    with pytest.raises(ViewError, match="every class"):
        ClassTwins(dataclasses.replace(view, auxiliary=chosen), generator_for(0, "twins"))
