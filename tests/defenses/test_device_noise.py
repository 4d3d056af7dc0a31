"""Noise of a given variance, from the devices that hide and from no other."""

from pathlib import Path

import pytest
import torch

from fedleak.client.text import TextOptions
from fedleak.core.errors import InputError
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts
from fedleak.defenses.base import Update
from fedleak.defenses.device_noise import DeviceNoise
from fedleak.modules.learners.text import FederatedText
from tests.toys import LastRecord, quiet_trainer


def protected(noise: DeviceNoise) -> Update:
    rows = torch.tensor([[0, 1, 2], [1, -1, -1], [0, 2, -1]])
    deltas = {"lstm": torch.zeros(3, 200, 50), "table": torch.zeros(3, 3, 4)}
    update = Update(deltas, {"table": rows}, clients=torch.tensor([4, 7, 9]))
    return noise.protect(update, lambda position: generator_for(0, "noise", position))


def test_only_the_named_devices_are_noised_by_the_stated_variance() -> None:
    found = protected(DeviceNoise(variance=0.25, clients=[4, 9])).deltas
    assert not bool(found["lstm"][1].any() or found["table"][1].any())
    for position in (0, 2):
        assert float(found["lstm"][position].var()) == pytest.approx(0.25, rel=0.03)
        assert abs(float(found["lstm"][position].mean())) < 0.02
    assert not torch.equal(found["lstm"][0], found["lstm"][2])
    assert bool(found["table"][0].all())
    assert not bool(found["table"][2, 2].any())  # padding


def test_all_devices_are_noised_where_none_is_named() -> None:
    assert bool(protected(DeviceNoise(variance=1.0)).deltas["lstm"].all())


def test_the_scale_is_public_where_all_devices_or_all_anonymous_ones_add_noise() -> None:
    assert DeviceNoise(variance=0.25).releases(("a", "b")) == (Release(noise_scale=0.5, parameters=("a", "b")),)
    anonymous = DeviceNoise(variance=0.25, clients="anonymous").releases(("a",))
    assert anonymous == (Release(noise_scale=0.5, parameters=("a",), own_devices=False),)
    assert DeviceNoise(variance=0.25, clients=[4]).releases(("a",)) == ()
    assert DeviceNoise(variance=0.0).releases(("a",)) == ()
    with pytest.raises(InputError, match="variance"):
        DeviceNoise(variance=-1.0)


def test_the_anonymous_devices_are_known_once_a_training_starts() -> None:
    noise = DeviceNoise(variance=0.25, clients="anonymous")
    known = torch.zeros(10, dtype=torch.bool)
    known[7] = True
    noise.prepare(known)
    found, named = protected(noise).deltas, protected(DeviceNoise(variance=0.25, clients=[4, 9])).deltas
    torch.testing.assert_close(found, named, rtol=0, atol=0)
    with pytest.raises(InputError, match="anonymous"):
        noise.prepare(None)


@pytest.mark.integration
def test_a_training_noises_its_anonymous_devices_only(tmp_path: Path) -> None:
    trained = {}
    for name, defenses in {"plain": (), "noised": (DeviceNoise(variance=1.0, clients="anonymous"),)}.items():
        source = SyntheticPosts(writers=4, posts=12, vocabulary=30, clients_per_round=1.0)
        module = FederatedText(network=TextOptions(vocabulary=30, embedding=4, hidden=4), defenses=defenses)
        quiet_trainer(1, tmp_path, last := LastRecord()).fit(module, datamodule=source)
        trained[name] = last.record.update.deltas["lstm.weight_hh_l0"]
    alike = (trained["plain"] == trained["noised"]).flatten(1).all(1)
    assert torch.equal(alike, source.client_known)
