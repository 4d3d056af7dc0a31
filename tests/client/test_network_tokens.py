"""Texts become the numbers that a network reads, with 0 for padding whatever the network's own number is."""

from pathlib import Path

import pytest
import torch

from fedleak.client.network_tokens import NetworkTokens, exchanged, padding_in
from fedleak.core.errors import InputError
from tests.real_weights import real_weights
from tests.token_files import write_tokens


def test_a_special_token_of_number_0_is_padding_as_it_is(tmp_path: Path) -> None:
    tokens = NetworkTokens(write_tokens(tmp_path, special=("[PAD]", "[CLS]", "[SEP]"), around=True))
    assert (tokens.padding, tokens.size) == (0, 10)
    encoded = tokens.encode(tokens.split(["the cat sat on a mat", "cat", ""]), 5)
    # Long texts are cut within the tokens around them.
    assert encoded.tolist() == [[1, 3, 4, 5, 2], [1, 4, 2, 0, 0], [1, 2, 0, 0, 0]]
    assert [tokens.text(text) for text in encoded.tolist()] == ["the cat sat", "cat", ""]


def test_where_0_is_a_word_it_changes_places_with_padding(tmp_path: Path) -> None:
    tokens = NetworkTokens(write_tokens(tmp_path, first=("!",), special=("<|endoftext|>",)))
    assert tokens.padding == 1
    encoded = tokens.encode(tokens.split(["! cat !"]), 4)
    # The network reads 0, 3, 0 and padding of number 1.
    assert encoded.tolist() == [[1, 3, 1, 0]]
    assert exchanged(encoded, tokens.padding).tolist() == [[0, 3, 0, 1]]
    assert tokens.text(encoded[0].tolist()) == "! cat !"
    assert tokens.token(1) == "!"
    assert tokens.known_number("!") == 1


def test_0_for_what_is_no_word_is_no_padding(tmp_path: Path) -> None:
    tokens = NetworkTokens(write_tokens(tmp_path, first=("[UNK]",), special=("<pad>",)))
    assert tokens.padding == 1
    assert tokens.encode(tokens.split(["cat dog"]), 3).tolist() == [[3, 1, 0]]


def test_0_that_begins_every_text_is_no_padding(tmp_path: Path) -> None:
    tokens = NetworkTokens(write_tokens(tmp_path, special=("[CLS]", "[SEP]", "<pad>"), around=True))
    assert tokens.padding == 2
    encoded = tokens.encode(tokens.split(["cat"]), 4)
    assert encoded.tolist() == [[2, 4, 1, 0]]
    assert exchanged(encoded, 2).tolist() == [[0, 4, 1, 2]]


def test_names_of_special_tokens_in_a_text_are_text(tmp_path: Path) -> None:
    tokens = NetworkTokens(write_tokens(tmp_path, special=("[PAD]", "[CLS]", "[SEP]"), around=True))
    assert 2 not in tokens.split(["cat [SEP] mat"])[0]


def test_words_of_several_tokens_have_no_number(tmp_path: Path) -> None:
    tokens = NetworkTokens(write_tokens(tmp_path, special=("[PAD]",)))
    assert tokens.known_number("cat") == 2
    assert tokens.known_number("cat mat") is None


def test_exchanging_twice_is_nothing() -> None:
    numbers = torch.arange(9)
    assert torch.equal(exchanged(exchanged(numbers, 7), 7), numbers)
    assert torch.equal(exchanged(numbers, 0), numbers)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no such file"),
        ("{", "as the tokenizers library writes them"),
        ("[]", "as the tokenizers library writes"),
    ],
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=expected):
        NetworkTokens(tmp_path)


def test_without_a_token_for_padding_there_is_a_way_out(tmp_path: Path) -> None:
    write_tokens(tmp_path, first=("!",), special=())
    with pytest.raises(InputError, match=r"a token for padding.*Add \[PAD\]"):
        NetworkTokens(tmp_path)


def test_texts_need_room_beside_the_tokens_around_them(tmp_path: Path) -> None:
    tokens = NetworkTokens(write_tokens(tmp_path, special=("[PAD]", "[CLS]", "[SEP]"), around=True))
    with pytest.raises(InputError, match=r"text\.words above 2"):
        tokens.encode([[3]], 2)


def test_a_folder_without_tokens_has_padding_0(tmp_path: Path) -> None:
    assert padding_in(tmp_path) == 0
    assert padding_in(None) == 0


def test_minilm_reads_its_own_tokens(tmp_path_factory: pytest.TempPathFactory) -> None:
    tokens = NetworkTokens(real_weights("minilm", tmp_path_factory))
    encoded = tokens.encode(tokens.split(["Patients with diabetes"]), 8)
    assert (tokens.size, tokens.padding) == (30_522, 0)
    assert encoded.tolist() == [[101, 5022, 2007, 14671, 102, 0, 0, 0]]
    assert tokens.text(encoded[0].tolist()) == "patients with diabetes"
