"""Clients that learn from texts: a language model (NNLM-FL) or a sentiment regressor (NNSA-FL).

References:
    [Orekondy18], section 5.
"""

import dataclasses
import functools
import threading
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.algorithm import ExampleAlgorithm, Shapes
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Gradients, Parameters
from fedleak.client.engine.fast.lstm import LSTM
from fedleak.client.engine.fast.text_gradients import TextGradients, last_places
from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt

EMBEDDING = "embedding.weight"
"""Word table, of which a client trains the rows of its own words."""
OUTPUT = "output"
"""Name of the last layer."""
PLACE, TOKEN, LABEL = "place", "tokens", "label"
"""Fields of an example: ``(L,)`` rows of its words in the client's part of the table, ``(L,)`` word numbers padded with
0, and a rating."""
TextGoal = Literal["next-word", "rating"]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Network of an embedding, one LSTM and a linear layer.

    Attributes:
        task: ``next-word``: a logit for every word of the vocabulary at every position; ``rating``: one number from the
            hidden state after the last word.
        vocabulary: number of words, including padding.
        embedding: length of a word's vector.
        hidden: hidden units.
    """

    task: TextGoal = "next-word"
    vocabulary: PositiveInt = 5000
    embedding: PositiveInt = 100
    hidden: PositiveInt = 64

    def __post_init__(self) -> None:
        require(
            self.task in ("next-word", "rating") and min(self.vocabulary - 1, self.embedding, self.hidden) >= 1,
            "a task next-word or rating, a vocabulary above 1, embedding and hidden above 0",
            f"{self.task}, {self.vocabulary}, {self.embedding} and {self.hidden}",
            "The paper has 5000, 100 and 64 for the next word, 1000, 50 and 128 for a rating.",
        )

    @property
    def outputs(self) -> int:
        """Number of outputs of the last layer."""
        return self.vocabulary if self.task == "next-word" else 1

    @property
    def states(self) -> int:
        """Length of the last layer's input."""
        return self.hidden


SENTIMENT = TextOptions(task="rating", vocabulary=1000, embedding=50, hidden=128)
"""Network of NNSA-FL; the default is that of NNLM-FL."""


@dataclass(frozen=True, kw_only=True)
class TextAlgorithm(ExampleAlgorithm):
    """Clients that minimise the cross-entropy of the words after the first, or the squared error of the ratings.

    Attributes:
        network: sizes and task.
    """

    name: ClassVar[str] = "text"

    network: TextOptions

    @property
    def rates(self) -> bool:
        """Whether the task is to predict a text's rating."""
        return self.network.task == "rating"

    @property
    def template(self) -> nn.Module:
        """Network between the word table and the last layer, of which only the structure is used."""
        return nn.LSTM(self.network.embedding, self.network.hidden)

    @functools.cached_property
    def _copies(self) -> threading.local:
        return threading.local()

    @property
    def body(self) -> nn.Module:
        """Network of the calling thread, because `functional_call` swaps the parameters of the module while it runs."""
        if not hasattr(self._copies, "body"):
            # Without initial weights, which would be drawn from the global generator and never used.
            with torch.device("meta"):
                empty = self.template
            self._copies.body = empty.to_empty(device="cpu")
        body: nn.Module = self._copies.body
        return body

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        words = self.network.embedding
        hidden = self.network.hidden
        return {
            EMBEDDING: (self.network.vocabulary, words),
            f"{LSTM}.weight_ih_l0": (4 * hidden, words),
            f"{LSTM}.weight_hh_l0": (4 * hidden, hidden),
            f"{LSTM}.bias_ih_l0": (4 * hidden,),
            f"{LSTM}.bias_hh_l0": (4 * hidden,),
            f"{OUTPUT}.weight": (self.network.outputs, hidden),
            f"{OUTPUT}.bias": (self.network.outputs,),
        }

    def encode(self, features: Tensor, labels: Tensor, examples: Tensor) -> tuple[Self, Cohort]:
        return self, text_cohort(0, torch.arange(len(examples)), features, labels, examples)

    def states(self, parameters: Parameters, examples: Parameters) -> Tensor:
        """Hidden states ``(T, B, H)`` after the words from which something is predicted."""
        inputs = functional.embedding(examples[PLACE].T, parameters[EMBEDDING])
        lstm = {name.removeprefix(f"{LSTM}."): value for name, value in parameters.items() if name.startswith(LSTM)}
        if not self.rates:
            inputs = inputs[:-1]  # nothing follows the last word
        states, _ = functional_call(self.body, lstm, (inputs,))
        outputs: Tensor = states
        return outputs

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        token = examples[TOKEN].T
        states = self.states(parameters, examples)
        weight = parameters[f"{OUTPUT}.weight"]
        bias = parameters[f"{OUTPUT}.bias"]
        if not self.rates:
            # Word t + 1 is predicted from the state after word t, if there is one.
            real = (token[1:] > 0) & mask
            logits = functional.linear(states[real], weight, bias)
            return functional.cross_entropy(logits, token[1:][real], reduction="sum") / max(len(logits), 1)
        predicted = functional.linear(last_states(states, token), weight, bias)[:, 0]
        squared_errors = (predicted - examples[LABEL]).square()
        return (squared_errors * mask).sum() / mask.sum().clamp(min=1)

    def stacked_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Losses of one client after another, because `torch.nn.LSTM` has no batching rule."""
        losses = []
        for client, client_mask in enumerate(mask):
            of_client = {name: value[client] for name, value in parameters.items()}
            texts = {name: value[client] for name, value in examples.items()}
            losses.append(self.loss(of_client, texts, client_mask))
        return torch.stack(losses)

    def fast(self) -> Gradients | None:
        return TextGradients(self.states, rates=self.rates)


def last_states(states: Tensor, token: Tensor) -> Tensor:
    """``(B, H)`` states after the last word, from states ``(T, B, H)`` and texts ``(T, B)``."""
    at = last_places(token)
    return states[at, torch.arange(len(at), device=at.device)]


def text_cohort(round_number: int, clients: Tensor, features: Tensor, labels: Tensor, examples: Tensor) -> Cohort:
    """Cohort of devices with texts of a pool.

    Args:
        round_number: number of the round.
        clients: ``(C,)`` numbers of the devices.
        features: ``(M, L)`` int64 token numbers, padded with 0.
        labels: ``(M,)`` ratings.
        examples: ``(C, N)`` int64 positions in the pool of each device's texts, padded with -1 at the end.
    """
    mask = examples >= 0
    tokens = features[examples.clamp(min=0)] * mask[..., None]
    fields = {"tokens": tokens, "label": labels[examples.clamp(min=0)].float()}
    return with_word_rows(Cohort(round_number, clients, fields, mask))


def with_word_rows(cohort: Cohort) -> Cohort:
    """Adds each device's words as rows of the table, and cuts padding after the longest text.

    Args:
        cohort: devices whose ``examples["tokens"]`` ``(C, N, L)`` are token numbers, padded with 0.

    Returns:
        The cohort with ``examples["place"]`` ``(C, N, L)``: positions of the same words among the device's rows, which
        include that of padding.
    """
    tokens = cohort.examples["tokens"]
    longest = int((tokens > 0).sum(2).max()) if tokens.numel() else 0
    tokens = tokens[..., :longest].contiguous()
    tables = []
    rows_of_devices = []
    # A device's rows are its different words, 0 of padding among them; each word is then its position in this list.
    for texts in tokens:
        table, rows_of_words = torch.unique(texts, return_inverse=True)
        tables.append(table)
        rows_of_devices.append(rows_of_words)
    rows = tokens.new_zeros(0, 0)
    words = tokens
    if tables:
        rows = pad_sequence(tables, batch_first=True, padding_value=-1)
        words = torch.stack(rows_of_devices)
    fields = {**cohort.examples, "tokens": tokens, "place": words}
    return dataclasses.replace(cohort, examples=fields, rows={**cohort.rows, EMBEDDING: rows})
