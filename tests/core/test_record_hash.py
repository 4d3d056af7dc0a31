"""Hashes of records agree exactly where the records do, at their own precision."""

import torch

from fedleak.core.record_hash import record_bytes, record_hashes

SALT = torch.arange(16, dtype=torch.uint8)


def test_pixels_agree_at_eight_bits() -> None:
    levels = torch.randint(256, (3, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    images = levels.float() / 255
    assert torch.equal(record_hashes(images + 0.49 / 255, SALT), record_hashes(images, SALT))
    moved = images.clone()
    moved[1, 0, 2, 2] += 0.51 / 255
    same = (record_hashes(moved, SALT) == record_hashes(images, SALT)).all(1)
    assert same.tolist() == [True, False, True]
    assert torch.equal(record_hashes(images.double(), SALT), record_hashes(images, SALT))


def test_padding_of_sentences_does_not_count_and_order_does() -> None:
    short, long = torch.tensor([[4, 7, 2]]), torch.tensor([[4, 7, 2, 0, 0]], dtype=torch.int32)
    assert record_bytes(short) == record_bytes(long)
    assert record_bytes(short) != record_bytes(short.flip(1))


def test_without_the_salt_a_guess_is_not_confirmed() -> None:
    record = torch.tensor([[4, 7, 2]])
    assert not torch.equal(record_hashes(record, SALT), record_hashes(record, SALT + 1))
    assert record_hashes(record[:0], SALT).shape == (0, 32)


def test_standardised_columns_agree_within_half_a_step_of_their_own() -> None:
    grid = torch.tensor([0.5, 0.01], dtype=torch.float64), torch.tensor([-0.1, 0.003], dtype=torch.float64)
    rows = grid[1] + grid[0] * torch.tensor([[3.0, -7.0], [0.0, 40.0]], dtype=torch.float64)
    near = rows + torch.tensor([[0.24, 0.0049], [-0.24, 0.0]])
    far = rows + torch.tensor([[0.0, 0.0051], [0.26, 0.0]])
    assert torch.equal(record_hashes(near.float(), SALT, grid), record_hashes(rows, SALT, grid))
    assert not (record_hashes(far, SALT, grid) == record_hashes(rows, SALT, grid)).all(1).any()
