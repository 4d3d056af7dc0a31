"""What all tests of image sets share."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torchvision.datasets


@pytest.fixture
def own_hashes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Takes the files of a folder for CIFAR-10's own."""

    def trust(root: Path) -> None:
        source = torchvision.datasets.CIFAR10
        folder = root / source.base_folder
        md5 = torchvision.datasets.utils.calculate_md5
        for name in ("train_list", "test_list"):
            monkeypatch.setattr(source, name, [[file, md5(folder / file)] for file, _ in getattr(source, name)])
        meta = source.meta["filename"]
        monkeypatch.setattr(source, "meta", source.meta | {"md5": md5(folder / meta)})

    return trust
