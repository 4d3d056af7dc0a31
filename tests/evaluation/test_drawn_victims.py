"""Clients of an audit of some: drawn at random, and of very many by strata of their reported examples."""

import pytest
import torch

from fedleak.core.seeding import generator_for
from fedleak.evaluation import drawn_victims as module
from fedleak.evaluation.drawn_victims import by_strata, drawn_victims, messages_of_few
from fedleak.recordings.joined_view import messages_view
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("recorded")
    with Recorder(folder, parameters={"weight": (2,)}, holds="deltas") as recorder:
        for number in range(2):
            sent = {str(c): ({"weight": [c + 1.0, number]}, 1 if c % 2 else 1000 + c) for c in range(40)}
            recorder.round(number, None, sent, truth={str(c): {"client": c} for c in range(40)})
    return Recording(folder)


def test_every_stratum_has_its_share() -> None:
    draws = torch.Generator().manual_seed(0)
    sizes = torch.cat([torch.full((900,), 5), torch.full((90,), 50), torch.full((10,), 500)])
    sizes = sizes[torch.randperm(1000, generator=draws)]
    for wanted in (100, 200, 1000, 2000):
        chosen = by_strata(sizes, wanted)
        assert len(chosen) == len(set(chosen.tolist())) == min(wanted, 1000)
        large = int((sizes[chosen] > 5).sum())
        assert abs(large - min(wanted, 1000) / 10) <= 1


def test_a_few_clients_are_drawn_at_random_and_of_many_by_strata(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = drawn_victims(recording, 10, generator=generator_for(0, "victims"))
    assert len(plain) == 10
    monkeypatch.setattr(module, "MANY", 39)
    for seed in range(5):
        examples = recording.example_counts(0)
        drawn = drawn_victims(recording, 10, generator=generator_for(seed, "victims"))
        assert sum(examples[name] == 1 for name in drawn) == 5


def test_all_messages_of_the_drawn_people_are_kept(recording: Recording) -> None:
    view = messages_view(recording)
    few = messages_of_few(view, view.pseudonyms, 7, generator=generator_for(0, "people"))
    assert few.victims == 14
    assert len(set(few.pseudonyms.tolist())) == 7
    for part, whole in zip(few.each_round(), view.each_round(), strict=True):
        inside = torch.isin(whole.pseudonyms, few.pseudonyms)
        assert torch.equal(part.deltas["weight"], whole.deltas["weight"][inside])
    assert [part.victims for part in few.each_part()] == [7, 7]
