"""What a server knows of an adapter that it made, whose units are excited by single texts."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp

from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import TOKENS
from fedleak.core.seeding import generator_for

_TEXTS_AT_ONCE = 2048
"""Texts whose states are computed together."""


_RANDOM_TEXTS = 256
"""Random texts from which the mean state is computed."""


_UNITS = 6
"""Largest number of units of one text from which its last word is computed."""


@dataclass(frozen=True)
class Memory:
    """What the server knows of the adapter that it sent.

    Attributes:
        algorithm: the clients' network and its loss.
        model: the adapters that were sent.
        down: ``(R, D)`` A.
        up: name of B.
        position: place T of a text whose state the rows have.
        mean: ``(R,)`` mean of A z_T.
        table: ``(T + 1, V, R)`` change of A z_T by each word at each place, from the mean.
    """

    algorithm: PretrainedAlgorithm
    model: dict[str, Tensor]
    down: Tensor
    up: str
    position: int
    mean: Tensor
    table: Tensor

    @classmethod
    def of(
        cls, algorithm: PretrainedAlgorithm, model: dict[str, Tensor], down: str, up: str, position: int
    ) -> "Memory":
        """Memory of an adapter for a place."""
        matrix = {**algorithm.frozen, **model}[down].float()
        vocabulary = algorithm.vocabulary
        generator = generator_for(0, "texts of a memory")
        random_texts = torch.randint(1, vocabulary, (_RANDOM_TEXTS, position + 1), generator=generator)
        memory = cls(algorithm, model, matrix, up, position, torch.zeros(len(matrix)), torch.zeros(0))
        mean = memory.states(random_texts).mean(0)
        # To first order a state is the mean and one vector for the word at each place: the states of one text in which
        # each word stands there, less their mean.
        tables = []
        for changed in range(position + 1):
            texts = random_texts[0].repeat(vocabulary, 1)
            texts[:, changed] = torch.arange(vocabulary)
            states = memory.states(texts)
            tables.append(states - states[1:].mean(0))  # word 0 is padding
        return dataclasses.replace(memory, mean=mean, table=torch.stack(tables))

    def states(self, texts: Tensor) -> Tensor:
        """``(N, R)`` A z_T of texts ``(N, T + 1)``."""
        states = []
        for some in torch.split(texts, _TEXTS_AT_ONCE):
            inputs = self.algorithm.adapted_inputs(self.model, some, layers=1)[0]
            states.append(inputs.vectors[:, -1])
        return torch.cat(states).float() @ self.down.T

    def next_words(self, texts: Tensor, rows: Sequence[Tensor], change: Tensor) -> Tensor:
        """``(N,)`` word after each of the texts ``(N, T + 1)``, of which unit numbers ``rows[n]`` have the state.

        Row u of the change is ``-c (p^T j_u - j_u[w]) A z``, where p are the predicted probabilities, j_u the
        derivative of the logits by the unit's input and w the next word. c is the median of those that fit best.
        """
        fits = [self._fits(text, units, change) for text, units in zip(texts, rows, strict=True)]
        if not fits:
            return torch.zeros(0, dtype=torch.int64)
        # With three units or more, a word shows by the proportions of the lengths alone, whatever c is.
        misfits_and_scales = []
        for lengths, slopes in fits:
            if len(lengths) > 2:
                scale = (slopes * lengths[:, None]).sum(0) / slopes.square().sum(0).clamp(min=1e-30)
                misfit = (lengths[:, None] - scale * slopes).square().sum(0).where(scale > 0, torch.inf)
                misfits_and_scales.append((float(misfit.min() / lengths.square().sum()), float(scale[misfit.argmin()])))
        if not misfits_and_scales:
            return torch.zeros(len(texts), dtype=torch.int64)
        # The better half of them gives the common c, at which the words of all texts are those of least misfit.
        best = sorted(misfits_and_scales)[: len(misfits_and_scales) // 2 + 1]
        common_scale = float(torch.tensor([scale for _, scale in best]).median())
        words = []
        for lengths, slopes in fits:
            misfit = (lengths[:, None] - common_scale * slopes).square().sum(0)
            words.append(misfit[1:].argmin() + 1)  # 0 is padding
        return torch.stack(words)

    def _fits(self, text: Tensor, rows: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
        """``(U,)`` lengths of a text's rows along its state, and ``(U, V)`` ``j_u[w] - p^T j_u`` by next word w."""
        state = self.states(text[None])[0]
        units = rows[:_UNITS]
        lengths = change[units] @ state / state.square().sum()
        matrix = self.model[self.up]

        def logits(up: Tensor) -> Tensor:
            return self.algorithm.outputs({**self.model, self.up: up}, {TOKENS: text[None]})[0, -1]

        slopes = []
        for unit in units.tolist():
            # A change of B that adds 1 to the unit's output: j_u is the derivative of the logits along it.
            direction = torch.zeros_like(matrix)
            direction[unit] = state.to(matrix) / state.square().sum()
            predicted, slope = jvp(logits, (matrix,), (direction,))[:2]
            slopes.append(slope - predicted.softmax(0) @ slope)
        return lengths, torch.stack(slopes)
