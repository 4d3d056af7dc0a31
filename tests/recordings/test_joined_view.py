"""All messages of a recording in one view: whose they are is apart, and what the adversary knows is in it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import TextOptions
from fedleak.core.errors import InputError, ViewError
from fedleak.core.view import HOLDOUT, USERS
from fedleak.datamodules.devices.device_split import HOLDOUT as ROLE
from fedleak.datamodules.devices.device_split import Devices, OpenWorld
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts
from fedleak.defenses.base import Defense
from fedleak.defenses.device_noise import DeviceNoise
from fedleak.evaluation.message_selection import client_truth, message_truth
from fedleak.modules.learners.text import FederatedText
from fedleak.recordings import shard_view
from fedleak.recordings.adversary_devices import PSEUDONYMS
from fedleak.recordings.joined_view import joined_view, messages_view
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from fedleak_recorder.format import shard_name
from fedleak_recorder.journal import append_journal, write_shard
from tests import toys
from tests.toys import quiet_trainer

pytestmark = pytest.mark.integration


def record(
    folder: Path, rounds: int = 4, defenses: tuple[Defense, ...] = (), **options: object
) -> tuple[SyntheticPosts, Recording]:
    given: dict[str, object] = {"writers": 6, "posts": 20, "vocabulary": 40, "clients_per_round": 0.5, **options}
    data = SyntheticPosts(**given)  # type: ignore[arg-type]
    network = TextOptions(vocabulary=40, embedding=4, hidden=4)
    module = FederatedText(network=network, local=LocalTraining(learning_rate=0.3), defenses=defenses)
    recorder = DeltaRecorder(directory=str(folder / "deltas"), parameters=["lstm.*", "embedding.*"])
    quiet_trainer(rounds, folder, recorder).fit(module, datamodule=data)
    return data, Recording(folder / "deltas")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[SyntheticPosts, Recording]:
    return record(tmp_path_factory.mktemp("plain"))


def test_messages_are_joined_and_their_users_are_known_apart(plain: tuple[SyntheticPosts, Recording]) -> None:
    data, recording = plain
    view = joined_view(recording, learner=learner_from(recording.manifest.learner))
    assert view.known is not None
    assert view.victims + view.known.victims == 4 * 6
    clients = torch.cat([data.participants(number) for number in range(4)])
    users = data.client_users[clients]
    known = data.client_known[clients]
    assert torch.equal(message_truth(recording, view)["user"].sort().values, users[~known].sort().values)
    assert torch.equal(view.known.priors[USERS], message_truth(recording, view)["known_user"])
    # A device keeps its pseudonym, which says nothing of its number.
    names: dict[int, int] = {}
    for name, user in zip(view.pseudonyms.tolist(), message_truth(recording, view)["user"].tolist(), strict=True):
        assert names.setdefault(name, user) == user
    assert min(names) > 10**6
    assert view.auxiliary["prior_features"].shape[0] == len(view.auxiliary["prior_users"])
    held = data.client_examples()
    expected = torch.cat([data.examples.features[held[c]] for c in data.client_known.nonzero().flatten().tolist()])
    assert torch.equal(view.auxiliary["prior_features"], expected)


def test_strangers_are_known_by_what_the_server_wrote_down(
    tmp_path: Path, plain: tuple[SyntheticPosts, Recording]
) -> None:
    world = Devices(world=OpenWorld(seen_fraction=0.5, holdout_fraction=1 / 3))
    data, recording = record(tmp_path, devices=world, clients_per_round=1.0)
    view = joined_view(recording)
    assert view.known is not None
    held = (data.device_split.roles == ROLE).nonzero().flatten()
    assert recording.auxiliary()["holdout_users"].tolist() == held.tolist()
    assert torch.equal(view.known.priors[HOLDOUT], torch.isin(message_truth(recording, view)["known_user"], held))
    assert 0 < int(view.known.priors[HOLDOUT].sum()) < view.known.victims
    assert "holdout_users" not in plain[1].auxiliary()


def test_a_joined_view_holds_what_was_sent(plain: tuple[SyntheticPosts, Recording]) -> None:
    _, recording = plain
    view = joined_view(recording, rounds=[1, 3])
    assert set(view.sent_in.tolist()) == {1, 3}
    assert list(view.round_models) == [1, 3]
    for number in (1, 3):
        (single,) = recording.views(rounds=[number])
        inside = view.sent_in == number
        place = [single.pseudonyms.tolist().index(name) for name in view.pseudonyms[inside].tolist()]
        torch.testing.assert_close(view.deltas["lstm.weight_hh_l0"][inside], single.deltas["lstm.weight_hh_l0"][place])
        torch.testing.assert_close(view.round_models[number]["output.bias"], single.model["output.bias"])
        width = single.served_items.shape[1]
        assert torch.equal(view.served_items[inside][:, :width], single.served_items[place])
        rows = view.deltas["embedding.weight"][inside]
        torch.testing.assert_close(rows[:, :width], single.deltas["embedding.weight"][place])
        assert not bool(rows[:, width:].any())
    with pytest.raises(KeyError, match="2"):
        view.round_models[2]


def test_messages_are_read_round_by_round_without_the_adversarys_devices(
    plain: tuple[SyntheticPosts, Recording],
) -> None:
    _, recording = plain
    view, whole = messages_view(recording, rounds=[1, 3]), joined_view(recording, rounds=[1, 3])
    assert view.deltas == {}
    for name in ("pseudonyms", "example_counts", "sent_in"):
        assert torch.equal(getattr(view, name), getattr(whole, name))
    users = message_truth(recording, whole)["user"]
    assert torch.equal(client_truth(recording, view, ["user"])["user"], users)
    assert client_truth(recording, view, []) == client_truth(recording, view, ["coins"]) == {}
    assert [part.round for part in view.each_round()] == [part.round for part in whole.each_round()] == [1, 3]
    for one, other in zip(view.each_round(), whole.each_round(), strict=True):
        assert torch.equal(one.pseudonyms, other.pseudonyms)
        assert torch.equal(one.deltas["lstm.weight_hh_l0"], other.deltas["lstm.weight_hh_l0"])
        assert torch.equal(one.model["output.bias"], other.model["output.bias"])


def test_noise_of_anonymous_devices_is_declared_of_those_alone(tmp_path: Path) -> None:
    noise = DeviceNoise(variance=0.25, clients="anonymous")
    _, recording = record(tmp_path, defenses=(noise,))
    view = joined_view(recording)
    assert view.known is not None
    assert view.noise_scale("lstm.weight_hh_l0") == 0.5
    assert view.known.noise_scale("lstm.weight_hh_l0") == 0
    nobody = dataclasses.replace(view, known=view.known.select(torch.zeros(0, dtype=torch.long)))
    with pytest.raises(InputError, match="known_pseudonyms"):
        message_truth(recording, nobody)
    _, everyone = record(tmp_path / "all", defenses=(DeviceNoise(variance=0.25),))
    assert joined_view(everyone).known.noise_scale("lstm.weight_hh_l0") == 0.5  # type: ignore[union-attr]


def test_neither_the_view_nor_places_in_it_say_whose_a_message_is(plain: tuple[SyntheticPosts, Recording]) -> None:
    _, recording = plain
    view = joined_view(recording)
    assert USERS not in view.auxiliary
    assert not bool(torch.isin(view.pseudonyms, recording.auxiliary()["known_pseudonyms"]).any())
    shard = load_file(recording.directory / shard_name("rounds", 0, 0))
    assert not [name for name in shard if "user" in name]
    for one in (view, view.known):
        assert one is not None
        assert one.sent_in.tolist() == sorted(one.sent_in.tolist())
        for number in torch.unique(one.sent_in):
            names = one.pseudonyms[one.sent_in == number].tolist()
            assert names == sorted(names)


def test_a_pseudonym_that_repeats_in_a_round_is_refused(tmp_path: Path) -> None:
    _, recording = record(tmp_path)
    name = shard_name("rounds", 2, 0)
    shard = load_file(tmp_path / "deltas" / name)
    shard["clients"][1] = shard["clients"][0]
    save_file(shard, tmp_path / "again.safetensors")
    line = write_shard(tmp_path / "deltas", name, (tmp_path / "again.safetensors").read_bytes())
    append_journal(tmp_path / "deltas", 0, [line])
    with pytest.raises(InputError, match="twice"):
        joined_view(Recording(recording.directory))


def test_a_recording_without_known_devices_is_refused(tmp_path: Path) -> None:
    toys.train(tmp_path, rounds=1)
    assert PSEUDONYMS not in Recording(tmp_path / "deltas").auxiliary()
    with pytest.raises(InputError, match="devices"):
        joined_view(Recording(tmp_path / "deltas"))


def test_messages_of_sums_name_their_participants(tmp_path: Path) -> None:
    """The first round has groups of two, the other one a group of four, of which two are padding elsewhere."""
    with Recorder(tmp_path, parameters={"bias": (2,)}) as recorder:
        for number in (0, 1):
            sent = {name: ({"bias": np.full(2, number, np.float32)}, 3) for name in ("a", "b")}
            recorder.round(number, model={"bias": np.zeros(2)}, updates=sent)
    groups = {0: [[5, 6], [7, 8]], 1: [[5, 6, 7, 8], [5, 6, 7, 8]]}
    for number, own in groups.items():
        name = shard_name("rounds", number, 0)
        shard = load_file(tmp_path / name)
        save_file({**shard, "participants": torch.tensor(own)}, tmp_path / "changed.safetensors")
        line = write_shard(tmp_path, name, (tmp_path / "changed.safetensors").read_bytes())
        append_journal(tmp_path, 0, [line])
    recording = Recording(tmp_path)
    names = [recording.participants(number) for number in (0, 1)]
    assert [sorted(found.values()) for found in names] == [sorted(groups[0]), groups[1]]
    whole = messages_view(recording)
    assert whole.participants is not None
    assert whole.participants.shape == (4, 4)
    for sender, number, found in zip(
        whole.pseudonyms.tolist(), whole.sent_in.tolist(), whole.participants, strict=True
    ):
        assert found[found >= 0].tolist() == names[number][sender]
    for part in whole.each_round():
        assert part.participants is not None
        expected = [names[part.round][sender] for sender in part.pseudonyms.tolist()]
        assert part.participants.tolist() == expected
    assert messages_view(recording, rounds=[0]).participants.shape == (2, 2)  # type: ignore[union-attr]


def test_messages_of_single_clients_name_no_participants(plain: tuple[SyntheticPosts, Recording]) -> None:
    _, recording = plain
    assert recording.participants(0) == {}
    assert messages_view(recording).participants is None
    assert joined_view(recording).participants is None


def test_parts_of_bounded_size_hold_what_the_rounds_do(
    plain: tuple[SyntheticPosts, Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = messages_view(plain[1])
    rounds = {part.round: part for part in view.each_round()}
    monkeypatch.setattr(shard_view, "_NUMBERS_PER_VIEW", 1)
    chosen = torch.tensor([view.victims - 1, 0, 2])
    assert all(part.victims == 1 for part in view.each_part())
    for messages, expected in ((None, range(view.victims)), (chosen, [0, 2, view.victims - 1])):
        parts = list(view.each_part(messages))
        sent = [(part.round, int(part.pseudonyms)) for part in parts]
        assert sent == [(int(view.sent_in[place]), int(view.pseudonyms[place])) for place in expected]
        for part in parts:
            whole = rounds[part.round]
            own = whole.pseudonyms == part.pseudonyms
            assert torch.equal(part.deltas["lstm.weight_hh_l0"], whole.deltas["lstm.weight_hh_l0"][own])


def test_what_does_not_fit_into_memory_is_refused_with_its_size(
    plain: tuple[SyntheticPosts, Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = messages_view(plain[1])
    monkeypatch.setattr("fedleak.recordings.joined_view.memory_bound", lambda: 2**10)
    with pytest.raises(ViewError, match="reads a whole round, and round 0 has 6 messages"):
        next(view.each_round())
    with pytest.raises(InputError, match="24 messages"):
        joined_view(plain[1])
