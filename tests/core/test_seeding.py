"""Draws by key: all bits of the key count, and the streams are the generator's own."""

import itertools

import numpy as np
import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.seeding import KEY_VARIABLE, generator_for, secret_key

KEY = bytes(range(32))


def first(*key: int | bytes | str) -> int:
    return int(torch.randint(2**62, (), generator=generator_for(*key)))  # type: ignore[arg-type]


def state_words(generator: torch.Generator) -> torch.Tensor:
    """The 624 words of 32 bits of a Mersenne Twister."""
    return generator.get_state()[24 : 24 + 8 * 624].view(torch.int64)


def test_a_stream_has_more_than_32_bits_of_state() -> None:
    """With 32 bits, 150,000 clients have some three pairs in common."""
    for client in range(20):
        words = state_words(generator_for(KEY, "pseudonym", 0, client))
        assert not torch.equal(state_words(torch.Generator().manual_seed(int(words[0]))), words)
    assert len({first(KEY, "pseudonym", 0, client) for client in range(2000)}) == 2000


def test_every_part_of_the_key_counts() -> None:
    keys: list[tuple[int | bytes | str, ...]] = [
        (KEY, "noise", 1, 2),
        (KEY + b"0", "noise", 1, 2),
        (KEY[:-1], "noise", 1, 2),
        (0, "noise", 1, 2),
        (1, "noise", 1, 2),
        (KEY, "noises", 1, 2),
        (KEY, "noise", 2, 1),
        (KEY, "noise", 1),
        (KEY, "noise", 12),
    ]
    assert len({first(*key) for key in keys}) == len(keys)
    assert first(KEY, "noise", 1, 2) == first(KEY, "noise", np.int64(1), 2)  # type: ignore[arg-type]


def test_the_stream_is_a_mersenne_twisters() -> None:
    generator = generator_for(KEY, "test")
    words = state_words(generator).numpy().astype(np.uint32)
    reference = np.random.MT19937()
    reference.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    # torch makes a number below 2^62 of two of the twister's, the first of them in the upper half.
    expected = [int(high) << 32 | int(low) for high, low in reference.random_raw((1000, 2))]
    drawn = torch.randint(2**62, (1000,), generator=generator).tolist()
    assert drawn == [value % 2**62 for value in expected]


def test_streams_of_neighbours_are_independent() -> None:
    draws = torch.stack([torch.randn(20_000, generator=generator_for(KEY, "noise", 0, c)) for c in range(4)])
    for one, other in itertools.combinations(draws, 2):
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.035  # 5 standard errors


def test_a_key_is_random_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    assert secret_key() != secret_key()
    assert len(secret_key()) == 32
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 16)
    assert secret_key() == b"\xab" * 16


@pytest.mark.parametrize("given", ["", "ab", "ab" * 15, "a" * 33, "g" * 32])
def test_a_key_that_is_short_or_no_number_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, given)
    with pytest.raises(InputError, match="hexadecimal"):
        secret_key()
