"""Words of clients from sums over rounds: found on generated posts, at chance if sums or participants are others'."""

import pytest
import torch

from fedleak.attacks.sums_over_rounds.estimates import Revealed
from fedleak.attacks.sums_over_rounds.words_over_rounds import WordsOverRounds, WordsToReveal
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import TextOptions
from fedleak.core.estimates import EstimateError
from fedleak.datamodules.devices.device_split import Devices
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts
from fedleak.modules.learners.text import FederatedText
from fedleak.recordings.control import ControlRecording
from fedleak.recordings.recording import Recording
from tests.attacks.runs import plain_view
from tests.sum_toys import scored, sums
from tests.toys import quiet_trainer


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    place = tmp_path_factory.mktemp("words")
    devices = Devices(adversary=False)
    data = SyntheticPosts(writers=8, posts=6, vocabulary=80, clients_per_round=3, devices=devices)
    network = TextOptions(vocabulary=80, embedding=8, hidden=8)
    local = LocalTraining(learning_rate=1.0, batch_size=None)
    module = FederatedText(network=network, local=local, defenses=(sums(3),))
    recorder = DeltaRecorder(directory=str(place / "deltas"), parameters=["embedding.weight", "output.*"])
    quiet_trainer(14, place, recorder).fit(module, datamodule=data)
    return Recording(place / "deltas")


@pytest.mark.integration
def test_words_are_found_as_sums_exclude_and_equations_separate(recording: Recording) -> None:
    after, metrics = scored(WordsToReveal(after=(1, 5)), recording)
    f1, auc = metrics["f1"].mean(1), metrics["auc"].mean(1)
    assert after == [1, 5, 14]
    assert bool((f1.diff() > 0).all())
    assert float(f1[-1]) > 0.9
    assert float(auc[-1]) > 0.95
    assert bool((metrics["revealed"][-1] == 1).all())
    assert bool((metrics["rounds-to-reveal"][-1] <= 14).all())


@pytest.mark.integration
def test_other_participants_do_not_gain_with_the_rounds(recording: Recording) -> None:
    """Words that all clients have, and the first sum, tell something of anybody."""
    _, metrics = scored(WordsToReveal(after=(1, 5), shuffled=True), recording)
    f1 = metrics["f1"].mean(1)
    assert float(f1[-1]) < float(f1[0]) < 0.5
    assert float(metrics["auc"].mean(1)[-1]) < 0.7
    assert "predicted-rounds-to-reveal" not in metrics


@pytest.mark.integration
@pytest.mark.parametrize("control", ["others", "noise"])
def test_other_sums_are_at_chance(recording: Recording, control: str) -> None:
    changed = ControlRecording(recording.directory, control)  # type: ignore[arg-type]
    _, metrics = scored(WordsToReveal(after=(1, 5)), changed)
    assert float(metrics["auc"].mean(1)[-1]) == pytest.approx(0.5, abs=0.1)
    assert not bool(metrics["revealed"].any())


def estimate(decisions: torch.Tensor) -> WordsOverRounds:
    never = torch.full((2,), torch.nan)
    return WordsOverRounds(
        senders=torch.tensor([0, 1]),
        after=torch.tensor([1, 2]),
        scores=decisions.double(),
        decisions=decisions,
        hidden=torch.tensor([[True, True], [False, True]]),
        revealed=Revealed(first=torch.tensor([2.0, torch.nan]), predicted=never),
    )


def test_decisions_are_of_every_client_and_number_of_rounds() -> None:
    with pytest.raises(EstimateError, match="decisions"):
        estimate(torch.zeros(2, 2, 5)).check(plain_view(2))
    with pytest.raises(EstimateError, match="scores"):
        estimate(torch.zeros(2, 3, 5, dtype=torch.bool)).check(plain_view(2))
    estimate(torch.zeros(2, 2, 5, dtype=torch.bool)).check(plain_view(2))
