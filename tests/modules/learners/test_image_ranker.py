"""Users who vote on images: a training, its recording, what the server can infer, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.pointwise_descent import VoteAlgorithm
from fedleak.commands import program, train
from fedleak.core.cache import CACHE_VARIABLE
from fedleak.core.errors import InputError
from fedleak.core.view import RoundView
from fedleak.datamodules.images.synthetic_features import SyntheticFeatures, natural_features
from fedleak.datamodules.images.voters import SyntheticPhotos
from fedleak.defenses.base import Defense
from fedleak.defenses.local_dp import LocalDP
from fedleak.defenses.update_l1 import UpdateL1
from fedleak.modules.learners.image_ranker import ImageRanker
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.server.fast_gradient_sign import FastGradientSign
from fedleak.server.feature_noise import FeatureNoise
from fedleak.server.image_manipulation import ImageManipulation
from tests.places import CONFIGS
from tests.toys import quiet_trainer

CONFIG = CONFIGS / "train/image_ranker_synthetic.yaml"
SMALL = (
    *("--model.extractor", '{"name": "resnet18", "weights": "random", "features": 8, "crop": 32}'),
    *("--model.manipulation.search.steps", "4", "--model.batch_size", "8"),
    *("--data.images", "20", "--data.users", "10", "--data.item_sets", "2"),
    *("--trainer.accelerator", "cpu"),
)


@pytest.fixture(autouse=True)
def _images(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path_factory.getbasetemp() / "image-ranker"))


def arguments(folder: Path, *more: str) -> list[str]:
    return ["fit", "--config", str(CONFIG), *SMALL, "--trainer.default_root_dir", str(folder), *more]


def only_view(recording: Recording, number: int) -> RoundView:
    (view,) = recording.views(rounds=[number], learner=recorded_learner(recording))
    return view


@pytest.mark.integration
def test_votes_are_recorded_and_inferred(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train.run(arguments(tmp_path)) == 0
    recording = Recording(tmp_path / "deltas")
    assert (recording.rounds, recording.closed, recording.manifest.config["manipulation"]) == ([0, 1], True, "noise")
    view = only_view(recording, 1)
    truth = recording.truth(view)
    assert sorted(truth["clients"].tolist()) == [1, 3, 5, 7, 9]
    assert view.features is not None
    assert view.features.shape == (5, 8, 8)
    assert view.features.stride(0) == 0  # one copy for all
    # Noise lies in one half of the features: of the first items in the first, of the others in the second.
    own, other = view.features[0, :4], view.features[0, 4:]
    assert float(own[:, :4].mean() - other[:, :4].mean()) > 0.02
    learner = view.require(VoteAlgorithm)
    models = view.sent_models()["ranker.weight"]
    assert len(torch.unique(models, dim=0)) == 5
    for victim in range(5):
        alone = trained(models[victim], view.features[victim], truth["labels"][victim], learner)
        torch.testing.assert_close(models[victim] + view.deltas["ranker.weight"][victim], alone)
    assert not bool(recording.model(1)["ranker.weight"].any())  # nobody trains the global model
    assert program.main(["audit", str(tmp_path / "deltas"), "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    found = {result["attack"]: result for result in results if result["metric"] == "auc"}
    assert found["affine-inversion"]["n"] == 10
    assert found["affine-inversion"]["mean"] > 0.9
    assert abs(found["chance"]["mean"] - 0.5) < 0.3
    assert "raifle" in found
    assert "Traceback" not in capsys.readouterr().err


def trained(model: Tensor, features: Tensor, votes: Tensor, learner: VoteAlgorithm) -> Tensor:
    """One client, by autograd and torch's loss and optimizer."""
    weight = model.clone().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=learner.learning_rate)
    for _ in range(learner.full_batch_steps):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(features @ weight, votes).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return weight.detach()


class FewFeatures(SyntheticFeatures):
    num_features = 6


def drawn(
    folder: Path, *, manipulation: ImageManipulation | None = None, defenses: tuple[Defense, ...] = (), hidden: int = 0
) -> Recording:
    module = ImageRanker(ratio=2, manipulation=manipulation, defenses=defenses, hidden=hidden)
    quiet_trainer(-1, folder, DeltaRecorder()).fit(module, datamodule=FewFeatures(users=9, item_sets=2))
    return Recording(folder / "deltas")


@pytest.mark.integration
def test_votes_are_the_same_whatever_is_done_to_the_items(tmp_path: Path) -> None:
    real, noise = drawn(tmp_path / "a"), drawn(tmp_path / "b", manipulation=FeatureNoise(scale=2.0))
    one, two = only_view(real, 0), only_view(noise, 0)
    assert one.features is not None
    assert two.features is not None
    assert torch.equal(real.truth(one)["labels"], noise.truth(two)["labels"])
    assert torch.equal(one.sent_models()["ranker.weight"], two.sent_models()["ranker.weight"])
    assert not torch.equal(one.features, two.features)
    assert not bool(two.features[0, :6, 3:].any())
    assert not bool(two.features[0, 6:, :3].any())
    assert (one.manipulation, two.manipulation) == (None, "noise")


@pytest.mark.integration
def test_each_set_of_items_is_a_round_of_its_users(tmp_path: Path) -> None:
    recording = drawn(tmp_path)
    first, second = only_view(recording, 0), only_view(recording, 1)
    assert recording.rounds == [0, 1]
    assert (first.victims, second.victims) == (5, 4)
    assert first.features is not None
    assert second.features is not None
    assert not torch.equal(first.features[0], second.features[0])


@pytest.mark.integration
def test_clients_protect_their_updates(tmp_path: Path) -> None:
    plain = only_view(drawn(tmp_path / "a", hidden=2), 0)
    noised = only_view(drawn(tmp_path / "b", hidden=2, defenses=(LocalDP(clip=1.0, epsilon=1.0, delta=1e-5),)), 0)
    scale = noised.noise_scale("hidden.weight")
    change = torch.cat([(noised.deltas[name] - plain.deltas[name]).flatten() for name in plain.deltas])
    assert scale > 1
    assert float(change.std()) == pytest.approx(scale, rel=0.25)


def test_a_loss_that_clients_do_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="UpdateL1"):
        ImageRanker(num_features=6, defenses=[UpdateL1(strength=1.0)])


@pytest.mark.integration
def test_features_have_no_pixels_to_change(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fgsm"):
        drawn(tmp_path, manipulation=FastGradientSign())


def test_every_set_has_a_user_and_images_are_there() -> None:
    with pytest.raises(InputError, match="3 users"):
        SyntheticPhotos(users=3)
    with pytest.raises(InputError, match="65 images"):
        _ = SyntheticPhotos(images=65).numbers


def test_real_features_are_drawn_as_described() -> None:
    features = natural_features(800, 256, generator=torch.Generator().manual_seed(0))
    assert float(features.mean()) == pytest.approx(0.92, abs=0.02)
    assert float(features.std()) == pytest.approx(0.82, abs=0.03)
    directions = torch.nn.functional.normalize(features, dim=1)
    cosines = directions[:400] @ directions[400:].T
    assert float(cosines.mean()) == pytest.approx(0.55, abs=0.02)
