"""Networks for features: a training by fedleak train, the file that an extractor loads, and moved images."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedleak.client.feature_extractor import Crop
from fedleak.commands import train
from fedleak.datamodules.images.cifar10 import CIFAR10
from fedleak.modules.image_features.feature_extractors import extractor
from fedleak.modules.references.feature_network import FeatureNetwork, moved_images
from tests.datamodules import image_trees
from tests.places import CONFIGS

CONFIG = CONFIGS / "train" / "feature_network_cifar10.yaml"


@pytest.mark.integration
def test_a_trained_network_is_what_the_extractor_loads(tmp_path: Path) -> None:
    tree = image_trees.class_tree(tuple(CIFAR10.class_names), (3, 32, 32), per_class=16)
    image_trees.write_tree(tmp_path / "data" / "cifar10", tree)
    options = {
        "data.root": tmp_path / "data",
        "data.split": "{clients: 6, examples_per_client: 15}",
        "data.clients_per_round": 2,
        "data.auxiliary_per_class": 3,
        "trainer.max_steps": 3,
        "trainer.val_check_interval": 3,
        "trainer.default_root_dir": tmp_path / "run",
        "trainer.accelerator": "cpu",
        "trainer.enable_progress_bar": "false",
        "model.name": "timm:resnet10t",
    }
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    assert train.run(["fit", "--config", str(CONFIG), *given]) == 0
    file = tmp_path / "run" / "network.safetensors"
    made = extractor("timm:resnet10t", weights=str(file), crop=Crop(32, 32))
    assert made.classifier.weight.shape == (10, 512)
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    module = FeatureNetwork(name="timm:resnet10t", num_classes=10).eval()
    fresh = module(pixels)
    module.network.load_state_dict(load_file(file))
    with torch.no_grad():
        torch.testing.assert_close(made.logits(pixels), module(pixels))
    assert not torch.allclose(module(pixels), fresh)


def test_images_are_flipped_and_shifted_by_whole_pixels() -> None:
    images = torch.rand(40, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    moved = moved_images(images, shift=1, generator=torch.Generator().manual_seed(1))
    seen = set()
    for image, found in zip(images, moved, strict=True):
        cases = {
            (flip, x, y): nn.functional.pad(image.flip(2) if flip else image, (1, 1, 1, 1))[:, y : y + 6, x : x + 6]
            for flip in (False, True)
            for x in range(3)
            for y in range(3)
        }
        same = [case for case, expected in cases.items() if torch.allclose(found, expected)]
        assert len(same) == 1
        seen.add(same[0])
    assert len(seen) > 10
