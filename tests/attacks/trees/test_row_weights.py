"""Numbers of rows that candidates stand for."""

import torch

from fedleak.attacks.trees.row_weights import whole_numbers


def test_whole_numbers_have_the_sum_and_are_next_to_their_shares() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.rand(40, generator=generator).double()
    for total in (0, 7, 1000):
        drawn = whole_numbers(shares, total, generator)
        assert int(drawn.sum()) == total
        assert float((drawn - shares / shares.sum() * total).abs().max()) < 1 + 1e-9


def test_equal_shares_are_as_likely() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = sum(whole_numbers(torch.ones(10), 3, generator) for _ in range(2000))
    assert isinstance(drawn, torch.Tensor)
    # 2,000 draws of 3 in 10 have a standard deviation of 20 about 600.
    assert float((drawn - 600).abs().max()) < 100
