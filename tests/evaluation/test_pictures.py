"""Pictures of an attack are shown once."""

import torch

from attacks.estimates import Reconstruction
from evaluation.drawing import Drawing
from evaluation.pictures import first_of_each, side_by_side


def test_images_stand_above_their_reconstructions() -> None:
    pictures = Reconstruction(torch.rand(3, 1, 8, 8), torch.rand(3, 1, 8, 8))
    drawing = side_by_side("dlg", pictures)
    assert drawing.figure is not None
    assert len(drawing.figure.axes) == 6
    assert "dlg" in drawing.caption
    assert drawing.svg.startswith("<svg")


def test_only_the_first_pictures_of_an_attack_are_kept() -> None:
    pictures = Reconstruction(torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8))
    first, second = side_by_side("dlg", pictures), side_by_side("dlg", pictures)
    curve = Drawing("a curve")
    assert first_of_each([first, curve, second, curve]) == [first, curve, curve]
