"""MobileNet as a learner of several labels: both engines agree, weights come from a file, nothing of norms is kept."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import Engine, LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.tagger import Tagger, TaggerAlgorithm, TaggerOptions
from fedleak.core.errors import InputError
from fedleak.modules.learners.photo_tagger import FederatedTagger
from fedleak.recordings.named_algorithm import learner_from

SMALL = TaggerOptions(name="mobilenetv3_small_050")


def photographs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (12, 3, 48, 48), generator=generator, dtype=torch.uint8)
    return images, torch.rand(12, 5, generator=generator) < 0.3


def cohort() -> Cohort:
    images, labels = photographs()
    examples = {"image": (images.float() / 255).view(2, 6, 3, 48, 48), "label": labels.view(2, 6, 5)}
    return Cohort(0, torch.arange(2), examples, torch.ones(2, 6, dtype=torch.bool))


@pytest.mark.integration
def test_both_engines_agree_and_a_simulated_device_sends_the_same() -> None:
    module = FederatedTagger(num_classes=5, network=SMALL, local=LocalTraining(learning_rate=0.01))
    public = {name: value.clone() for name, value in module.public_parameters().items()}
    engines: tuple[Engine, Engine] = ("sequential", "vectorized")
    both = [
        train_clients(module.algorithm, public, {}, cohort(), LocalTraining(learning_rate=0.01, engine=engine), seed=0)
        for engine in engines
    ]
    learner = learner_from(module.learner_description())
    assert isinstance(learner, TaggerAlgorithm)
    images, labels = photographs()
    simulated = learner.simulate_examples(
        public, images, labels, torch.arange(12).view(2, 6), generator=torch.Generator()
    )
    for name, delta in both[0].deltas.items():
        scale = float(delta.norm())
        assert float((delta - both[1].deltas[name]).norm()) <= 1e-2 * scale + 1e-6
        torch.testing.assert_close(simulated[name], delta)
    assert float(both[0].deltas["network.classifier.weight"].norm()) > 1e-3


def test_the_papers_network_has_its_size_and_its_last_layer() -> None:
    module = FederatedTagger(num_classes=19)
    assert sum(value.numel() for value in module.parameters()) == pytest.approx(3.2e6, rel=0.02)
    assert module.get_parameter("network.classifier.weight").shape == (19, 1024)
    assert list(module.network.buffers()) == []


@pytest.mark.integration
def test_training_lowers_the_loss_and_precision_is_told() -> None:
    module = FederatedTagger(num_classes=5, network=SMALL)
    public = {name: value.clone() for name, value in module.public_parameters().items()}
    locals_ = [LocalTraining(learning_rate=0.05, epochs=number) for number in (1, 9)]
    results = [train_clients(module.algorithm, public, {}, cohort(), local, seed=0) for local in locals_]
    losses = [float(result.losses.mean()) for result in results]
    assert losses[1] < 0.9 * losses[0]
    images, labels = photographs()
    with torch.no_grad():
        module.update_metrics({"image": images.float() / 255, "label": labels})
    assert 0 < float(module.quality.compute()) <= 1


def test_weights_come_from_a_file_but_for_another_last_layer(tmp_path: Path) -> None:
    import timm

    source = timm.create_model(SMALL.name, pretrained=False, num_classes=7)
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    network = TaggerOptions(name=SMALL.name, weights=str(tmp_path / "weights.safetensors"))
    made = Tagger(network, labels=5, generator=torch.Generator())
    assert torch.equal(made.network.conv_stem.weight, source.conv_stem.weight)
    assert made.network.classifier.weight.shape[0] == 5
    described = FederatedTagger(num_classes=5, network=network).learner_description()
    assert described is not None
    assert described["arguments"]["network"]["weights"] is None


def test_a_file_of_other_weights_or_an_unknown_network_is_refused(tmp_path: Path) -> None:
    save_file({"some.weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("no weights")
    for name in ("other", "text", "absent"):
        network = TaggerOptions(name=SMALL.name, weights=str(tmp_path / f"{name}.safetensors"))
        with pytest.raises(InputError, match="safetensors"):
            Tagger(network, labels=5, generator=torch.Generator())
    with pytest.raises(InputError, match="mobilenetv1_100"):
        Tagger(TaggerOptions(name="resnet18"), labels=5, generator=torch.Generator())
