import torch

from fedleak.modules.attackers.update_gaps import total_variation


def test_total_variation_by_hand() -> None:
    image = torch.tensor([[[[[1.0, 3.0], [0.0, 0.0]]]]])
    # Right: 2, 3, 0, 0; below: 1, 3, 0, 0.
    assert total_variation(image, torch.tensor([[True]])).tolist() == [9 / 4]
    padded = torch.cat([image, image * 7], dim=1)
    assert total_variation(padded, torch.tensor([[True, False]])).tolist() == [9 / 4]
