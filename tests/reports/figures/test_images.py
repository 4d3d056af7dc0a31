"""Images stand above their reconstructions."""

import pytest
import torch

from fedleak.core.estimates import Reconstruction
from fedleak.reports.figures.images import reconstructions


@pytest.mark.parametrize("channels", [1, 3])
def test_images_stand_above_their_reconstructions(channels: int) -> None:
    originals, found = torch.rand(2, 3, channels, 8, 8)
    figure = reconstructions("dlg", Reconstruction(originals, found))
    assert len(figure.figure.axes) == 6
    assert "dlg" in figure.caption
    assert figure.svg.startswith("<svg")
