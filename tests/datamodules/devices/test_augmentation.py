"""What devices mix into their data, and the clusters that they take it from."""

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.datamodules.devices.augmentation import Mitigation, background_modes, mixed_in
from fedleak.datamodules.devices.device_split import Devices
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts, synthetic_posts
from fedleak.recordings.adversary_devices import prior_knowledge

OWN, CROWD = torch.arange(40), torch.arange(100, 200)


def mixed(kind: str, amount: float, modes: torch.Tensor | None = None, client: int = 0) -> torch.Tensor:
    made = Mitigation(kind=kind, amount=amount)  # type: ignore[arg-type]
    generator = generator_for(0, "mix", client)
    return mixed_in(OWN, made, background=CROWD, modes=modes, generator=generator)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_replacing_keeps_the_number_and_the_rest_of_ones_own(share: float) -> None:
    found = mixed("bkg-repl", share)
    assert len(found) == 40
    assert int((found >= 100).sum()) == 40 * share
    assert len(torch.unique(found)) == 40


@pytest.mark.parametrize("amount", [0.0, 0.5, 2.0])
def test_adding_keeps_all_of_ones_own(amount: float) -> None:
    found = mixed("rand-aug", amount)
    assert torch.equal(found[:40], OWN)
    assert len(found) == 40 * (1 + amount)
    assert len(torch.unique(found)) == len(found)
    assert bool((found[40:] >= 100).all())


def test_a_mode_is_one_cluster_and_another_for_other_devices() -> None:
    modes = torch.arange(100) // 10
    picked = [set(modes[mixed("mm-aug", 0.5, modes, client)[40:] - 100].tolist()) for client in range(8)]
    assert {len(one) for one in picked} == {1}
    assert len(set.union(*picked)) > 3
    # Ten examples in a cluster, twenty wanted: each comes twice.
    assert torch.unique(mixed("mm-aug", 0.5, modes)[40:], return_counts=True)[1].tolist() == [2] * 10


def test_texts_of_the_same_words_are_of_one_mode() -> None:
    generator = generator_for(0, "topics")
    topic = torch.arange(60) // 20
    tokens = 2 + 10 * topic[:, None] + torch.randint(10, (60, 12), generator=generator)
    modes = background_modes(tokens, 3, generator=generator)
    assert [len(torch.unique(modes[topic == number])) for number in range(3)] == [1, 1, 1]
    assert len(torch.unique(modes)) == 3


def test_images_of_the_same_colour_are_of_one_mode() -> None:
    images = torch.zeros(12, 3, 16, 16, dtype=torch.uint8)
    images[torch.arange(12), torch.arange(12) % 3] = 200
    modes = background_modes(images, 3, generator=generator_for(0, "colours"))
    assert [len(torch.unique(modes[number::3])) for number in range(3)] == [1, 1, 1]


def test_only_anonymous_devices_mix_in_and_all_fields_follow() -> None:
    plain = SyntheticPosts(writers=4, posts=20)
    mixing = SyntheticPosts(writers=4, posts=20, mitigation=Mitigation(kind="rand-aug", amount=1.0))
    for client, (own, with_crowd) in enumerate(zip(plain.client_examples(), mixing.client_examples(), strict=True)):
        assert len(with_crowd) == (len(own) if plain.client_known[client] else 2 * len(own))
        assert torch.equal(with_crowd[: len(own)], own)
    one = mixing.cohort(0).examples["tokens"][0]
    crowd = mixing.client_examples()[0][-1] - len(mixing.examples)
    assert torch.equal(one[len(mixing.client_examples()[0]) - 1], mixing.background.features[crowd])


def test_an_adaptive_adversary_mixes_the_background_into_its_own_devices_and_knows_its_examples() -> None:
    plain = SyntheticPosts(writers=4, posts=20)
    mixing = SyntheticPosts(writers=4, posts=20, mitigation=Mitigation(kind="rand-aug", amount=1.0, adaptive=True))
    for own, with_crowd in zip(plain.client_examples(), mixing.client_examples(), strict=True):
        assert len(with_crowd) == 2 * len(own)
    first, second = (mixing.client_examples()[client][-8:] for client in (0, 4))
    assert set(first.tolist()) != set(second.tolist())
    prior = prior_knowledge(mixing, lambda client: client)
    held = mixing.client_examples()[4]
    assert torch.equal(prior["prior_features"][: len(held)], mixing.raw_examples(held)[0])


def test_the_background_is_of_writers_who_take_no_part() -> None:
    data = SyntheticPosts(writers=4, posts=20)
    everyone = synthetic_posts(users=24, posts=20)
    assert torch.equal(data.examples.features, everyone.features[:80])
    assert torch.equal(data.background.features, everyone.features[80:])


def test_fewer_known_examples_are_among_more() -> None:
    sizes = {}
    for most in (1, 5, None):
        data = SyntheticPosts(writers=4, posts=20, known_examples=most, devices=Devices(share=(0.5, 0.5)))
        known = data.client_known.tolist()
        sizes[most] = [set(part.tolist()) for part, own in zip(data.client_examples(), known, strict=True) if own]
        anonymous = [len(part) for part, own in zip(data.client_examples(), known, strict=True) if not own]
        assert anonymous == [8] * 4
    assert [len(part) for part in sizes[1]] == [1] * 4
    assert all(one < five < whole for one, five, whole in zip(*sizes.values(), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "bkg-repl", "amount": 1.5}, "0 to 1"),
        ({"kind": "hide", "amount": 0.5}, "kind"),
        ({"kind": "rand-aug", "amount": -1.0}, "at least 0"),
    ],
)
def test_an_impossible_mitigation_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Mitigation(**options)  # type: ignore[arg-type]


def test_more_modes_than_examples_and_no_known_example_are_refused() -> None:
    with pytest.raises(InputError, match="background"):
        background_modes(torch.ones(3, 4, dtype=torch.int64), 5, generator=torch.Generator())
    with pytest.raises(InputError, match="known_examples"):
        SyntheticPosts(known_examples=0)
