"""The tokens of a pretrained network: texts into the numbers that it reads, and back."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak_recorder.files import regular_file

FILE = "tokenizer.json"
"""File of a network's folder with its tokens, as the tokenizers library writes it."""
_MOST_BYTES = 2**28
"""Largest size of that file; those of vocabularies of 256,000 tokens have some 35 MB."""
_PADS = ("<pad>", "[PAD]", "<|pad|>", "<|endoftext|>", "</s>", "<|im_end|>", "<eos>", "<|end_of_text|>")
"""Tokens that pad texts or end them, which stand for padding where 0 is a word; the first that there is."""


class NetworkTokens:
    """Texts as the tokens that a network reads, numbered as in every data set here: 0 is padding.

    A network may give number 0 to a word, as GPT-2 to ``!``, and another number p to padding. Then 0 and p change
    places: number 0 of an example is the network's p, and number p is the network's 0, see `exchanged`.

    Args:
        folder: folder with the network's ``tokenizer.json``. It is read as data; nothing in it is executed.

    Attributes:
        padding: the network's number p of padding.
        size: number of tokens.

    Raises:
        InputError: there is no such file, it is damaged, or no token of it can stand for padding.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = _tokenizer(folder / FILE)
        # Texts are cut and padded by `encode`; a file may say that each is padded to 128 tokens, as that of MiniLM.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # A text that holds the name of a special token, e.g. "[SEP]", is read as the text that it is.
        self._tokenizer.encode_special_tokens = True
        self._around = self._tokenizer.num_special_tokens_to_add(False)
        self.size: int = self._tokenizer.get_vocab_size()
        self.padding = self._padding(folder)

    def _padding(self, folder: Path) -> int:
        # A special token that no text has may stand for padding as it is: none that is around every text, nor the one
        # of letters that have no token.
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        in_texts = {*self._tokenizer.encode("a").ids, self._tokenizer.token_to_id(unknown or "")}
        unused = self._special.keys() - in_texts
        if 0 in unused:
            return 0
        numbers = [self._tokenizer.token_to_id(token) for token in _PADS]
        free = [number for number in numbers if number in unused]
        require(
            free,
            f"a token for padding, one of {', '.join(_PADS)}, in {folder / FILE}",
            "none",
            "Add [PAD] with the tokenizers library (add_special_tokens), as in the network's own training.",
        )
        return int(free[0])

    @functools.cached_property
    def _special(self) -> dict[int, str]:
        added = self._tokenizer.get_added_tokens_decoder()
        return {number: token.content for number, token in added.items() if token.special}

    def split(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, without those that the network has around a text, in the network's numbers."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode(self, texts: Sequence[Sequence[int]], length: int) -> Tensor:
        """``(N, L)`` int64 numbers of N texts of `split`, cut to L = `length` tokens with those around, padded with 0.

        Raises:
            InputError: the tokens around a text leave no room for one of its own.
        """
        require(
            length > self._around,
            f"text.words above {self._around}, the number of tokens that the network has around every text",
            length,
            "Give a larger number.",
        )
        before, after = self._around_texts
        encoded = torch.full((len(texts), length), self.padding, dtype=torch.int64)
        for row, text in enumerate(texts):
            numbers = [*before, *text[: length - self._around], *after]
            encoded[row, : len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
        return exchanged(encoded, self.padding)

    @functools.cached_property
    def _around_texts(self) -> tuple[list[int], list[int]]:
        """Numbers of the tokens before and after every text, e.g. [CLS] and [SEP] of BERT."""
        inside = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a").ids
        begin = next(start for start in range(len(whole)) if whole[start : start + len(inside)] == inside)
        return whole[:begin], whole[begin + len(inside) :]

    def known_number(self, word: str) -> int | None:
        """Number in examples of a word inside of a sentence; None for one of several tokens."""
        numbers = self.split([f" {word}"])[0]
        if len(numbers) != 1:
            return None
        return int(exchanged(torch.tensor(numbers), self.padding))

    def text(self, numbers: Sequence[int]) -> str:
        """The text of numbers of an example, without padding and special tokens."""
        real = torch.tensor([number for number in numbers if number], dtype=torch.int64)
        decoded: str = self._tokenizer.decode(exchanged(real, self.padding).tolist(), skip_special_tokens=True)
        return decoded

    def token(self, number: int) -> str:
        """The text of one number: with its space before, if it has one."""
        decoded: str = self._tokenizer.decode([int(exchanged(torch.tensor(number), self.padding))])
        return decoded


def exchanged(numbers: Tensor, padding: int) -> Tensor:
    """Numbers of tokens in which 0 and the network's number of padding have changed places; twice is nothing.

    >>> exchanged(torch.tensor([5, 0, 3]), padding=3)
    tensor([5, 3, 0])
    """
    if padding == 0:
        return numbers
    return torch.where(numbers == 0, padding, torch.where(numbers == padding, 0, numbers))


@functools.lru_cache(maxsize=4)
def network_tokens(folder: Path) -> NetworkTokens:
    """The tokens of a folder, read once."""
    return NetworkTokens(folder)


def padding_in(folder: Path | None) -> int:
    """The number that a network's folder gives to padding; 0 where it has no tokens of its own."""
    if folder is None or not (folder / FILE).exists():
        return 0
    return network_tokens(folder).padding


def _tokenizer(file: Path) -> Any:
    way_out = "Give the folder of the network, which `fedleak weights` or save_pretrained writes."
    require(file.exists(), f"the tokens of a network in {file}", "no such file", way_out)
    regular_file(file)
    size = file.stat().st_size
    require(size <= _MOST_BYTES, f"a file of at most {_MOST_BYTES} bytes at {file}", size, way_out)
    try:
        from tokenizers import Tokenizer  # with the transformers library
    except ImportError as error:
        raise InputError(
            expected="the package tokenizers, for texts in a network's own tokens",
            found=str(error),
            way_out="Install the extra: in the checkout, pip install ./recorder '.[transformers]'.",
        ) from None
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise InputError(
            expected=f"tokens as the tokenizers library writes them in {file}",
            found=str(error)[:160],
            way_out=way_out,
        ) from None
