"""Sentences of clients and what an attack infers of them, as text."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.estimates import Detail
from fedleak.core.view import View

_SHOWN = 8
"""Largest number of texts that are shown."""
_LONGEST = 400
"""Letters of a text that are shown."""


def shown_texts(guesses: Sequence[Tensor], originals: Sequence[Tensor], view: View) -> list[Detail]:
    """Rows of the first texts and of the most similar reconstruction of each; none without the network's own tokens.

    Args:
        guesses: ``(M_v, L)`` token numbers of the reconstructions of each client, padded with 0.
        originals: ``(N_v, L)`` those of its texts.
        view: what the server saw, with the clients' algorithm.
    """
    algorithm = view.algorithm
    if not isinstance(algorithm, PretrainedAlgorithm) or algorithm.tokens is None:
        return []
    rows: list[Detail] = []
    for victim, (guessed, true) in enumerate(zip(guesses, originals, strict=True)):
        for text in true:
            if len(rows) == _SHOWN:
                return rows
            rows.append(
                {
                    "what": "a text and its reconstruction",
                    "client": victim,
                    "text": algorithm.tokens.text(text.tolist())[:_LONGEST],
                    "reconstruction": algorithm.tokens.text(_nearest(text, guessed).tolist())[:_LONGEST],
                }
            )
    return rows


def _nearest(text: Tensor, guesses: Tensor) -> Tensor:
    """The reconstruction ``(L',)`` with most tokens at the places where the text has them; empty if there is none."""
    if not len(guesses):
        return text[:0]
    length = min(len(text), guesses.shape[1])
    is_equal = (guesses[:, :length] == text[:length]) & (text[:length] > 0)
    best: Tensor = guesses[int(is_equal.sum(1).argmax())]
    return best.to(torch.int64)
