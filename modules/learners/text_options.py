"""Sizes of the recurrent networks over texts (deanonymization, section 5)."""

from dataclasses import dataclass
from typing import Literal

from protocol.errors import InputError

TextGoal = Literal["next-word", "rating"]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """An embedding, one LSTM, and a linear layer.

    Attributes:
        task: ``next-word``: the layer gives a logit for every word of the vocabulary, at every place; ``rating``: one
            number from the hidden state after the last word.
        vocabulary: token numbers, padding included.
        embedding: length of a word's vector.
        hidden: hidden units.
    """

    task: TextGoal = "next-word"
    vocabulary: int = 5000
    embedding: int = 100
    hidden: int = 64

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        if self.task not in ("next-word", "rating") or min(self.vocabulary - 1, self.embedding, self.hidden) < 1:
            raise InputError(
                expected="a task next-word or rating, a vocabulary above 1, embedding and hidden above 0",
                found=f"{self.task}, {self.vocabulary}, {self.embedding} and {self.hidden}",
                way_out="The paper has 5000, 100 and 64 for the next word, 1000, 50 and 128 for a rating.",
            )

    @property
    def outputs(self) -> int:
        """Numbers that the last layer gives."""
        return self.vocabulary if self.task == "next-word" else 1


SENTIMENT = TextOptions(task="rating", vocabulary=1000, embedding=50, hidden=128)
"""The paper's NNSA; the default is its NNLM."""
