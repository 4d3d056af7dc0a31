"""A permutation keeps every value, in its column and among its documents."""

from typing import Literal

import pytest
import torch

from fedleak.server.permutation import Permutation


def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.arange(5) < torch.tensor([[5, 3], [1, 4], [2, 0]])[..., None]
    return torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0)) * mask[..., None], mask


@pytest.mark.parametrize("among", ["list", "client"])
def test_values_stay_in_their_column_and_group(among: Literal["list", "client"]) -> None:
    features, mask = ragged()
    sent = Permutation(among=among).features({}, features, mask, generator=torch.Generator().manual_seed(1))
    assert float(sent[~mask].abs().sum()) == 0
    assert not torch.equal(sent, features)
    for client in range(3):
        groups = [(client, number) for number in range(2)] if among == "list" else [(client,)]
        for group in groups:
            before, after = features[group][mask[group]], sent[group][mask[group]]
            assert torch.equal(before.sort(0).values, after.sort(0).values)


def test_every_order_is_as_likely_and_columns_are_independent() -> None:
    features = torch.arange(2.0)[:, None].expand(4000, 1, 2, 2)
    mask = torch.ones(4000, 1, 2, dtype=torch.bool)
    first = Permutation().features({}, features, mask, generator=torch.Generator().manual_seed(2))[:, 0, 0]
    torch.testing.assert_close(first.mean(0), torch.full((2,), 0.5), atol=0.04, rtol=0)
    assert abs(float((first[:, 0] * first[:, 1]).mean()) - 0.25) < 0.03


def test_another_group_is_refused() -> None:
    with pytest.raises(ValueError, match="list"):
        Permutation(among="query")  # type: ignore[arg-type]
