"""Federated learning from texts: a language model (NNLM-FL) or a sentiment regressor (NNSA-FL).

References:
    Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in Federated
    Learning", 2018, arXiv:1805.05838, section 5.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torchmetrics import MeanMetric, Metric

from client.cohort import Cohort
from client.engine.fast.gradients import Gradients, Parameters
from client.engine.fast.lstm import LSTM
from client.engine.fast.text_gradients import TextGradients, last_places
from client.engine.local_hyperparameters import LocalTraining
from client.engine.task import Task
from modules.federated import FederatedModule, Federation, Unpack
from modules.learners.word_rows import WORDS, text_cohort, with_word_rows
from modules.round_record import TrainingExamples
from modules.simulator import Shapes, Simulator
from protocol.errors import require
from protocol.ranges import PositiveInt
from protocol.seeding import PERSISTENT, generator_for

PAPER_LOCAL = LocalTraining(learning_rate=0.01, batch_size=32)
"""Learning rate and number of epochs of the paper, which gives no batch size; this one is its library's default."""
EMBEDDING = WORDS
"""Word table, of which a client trains the rows of its own words."""
OUTPUT = "output"
"""Name of the last layer."""
PLACE, TOKEN, LABEL = "place", "tokens", "label"
"""Fields of an example: ``(L,)`` rows of its words in the client's part of the table, ``(L,)`` word numbers padded with
0, and a rating."""
TOP = 5
"""Number of predicted words among which the next word counts as a hit."""
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


class TextTask(Task):
    """Mean cross-entropy of the words after the first, or mean squared error of the ratings.

    Args:
        network: sizes.
    """

    def __init__(self, network: TextOptions) -> None:
        self.network = network
        self._local = threading.local()

    @property
    def rates(self) -> bool:
        """Whether the task is to predict a text's rating."""
        return self.network.task == "rating"

    @property
    def template(self) -> nn.Module:
        """Network between the word table and the last layer, of which only the structure is used."""
        return nn.LSTM(self.network.embedding, self.network.hidden)

    @property
    def body(self) -> nn.Module:
        """Network of the calling thread, because `functional_call` swaps the parameters of the module while it runs."""
        if not hasattr(self._local, "body"):
            # Without initial weights, which would be drawn from the global generator and never used.
            with torch.device("meta"):
                empty = self.template
            self._local.body = empty.to_empty(device="cpu")
        body: nn.Module = self._local.body
        return body

    def states(self, parameters: Parameters, examples: Parameters) -> Tensor:
        """Hidden states ``(T, B, H)`` after the words from which something is predicted."""
        inputs = functional.embedding(examples[PLACE].T, parameters[EMBEDDING])
        own = {name.removeprefix(f"{LSTM}."): value for name, value in parameters.items() if name.startswith(LSTM)}
        states, _ = functional_call(self.body, own, (inputs if self.rates else inputs[:-1],))
        made: Tensor = states
        return made

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        token, states = examples[TOKEN].T, self.states(parameters, examples)
        weight, bias = parameters[f"{OUTPUT}.weight"], parameters[f"{OUTPUT}.bias"]
        if not self.rates:
            real = (token[1:] > 0) & mask
            logits = functional.linear(states[real], weight, bias)
            return functional.cross_entropy(logits, token[1:][real], reduction="sum") / max(len(logits), 1)
        predicted = functional.linear(last_states(states, token), weight, bias)[:, 0]
        return ((predicted - examples[LABEL]).square() * mask).sum() / mask.sum().clamp(min=1)

    def stacked_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Losses of one client after another, because `torch.nn.LSTM` has no batching rule."""
        return torch.stack(
            [
                self.loss({n: v[c] for n, v in parameters.items()}, {n: v[c] for n, v in examples.items()}, own)
                for c, own in enumerate(mask)
            ]
        )

    def fast(self) -> Gradients | None:
        return TextGradients(self.states, rates=self.rates)


def last_states(states: Tensor, token: Tensor) -> Tensor:
    """``(B, H)`` states after the last word, from states ``(T, B, H)`` and texts ``(T, B)``."""
    at = last_places(token)
    return states[at, torch.arange(len(at), device=at.device)]


def with_one(inputs: Tensor) -> Tensor:
    """``(..., D)`` -> ``(..., D + 1)`` inputs of a layer, with the 1 that its bias multiplies."""
    return functional.pad(inputs, (0, 1), value=1.0)


def with_bias(deltas: Mapping[str, Tensor], layers: Sequence[str]) -> Tensor:
    """``(V, M, D + 1)`` changes of the weights and biases of layers with common inputs, one under the other."""
    return torch.cat(
        [torch.cat([deltas[f"{name}.weight"], deltas[f"{name}.bias"][..., None]], dim=-1) for name in layers], dim=-2
    )


@dataclass(frozen=True, kw_only=True)
class TextSimulator(Simulator):
    """Simulator of clients of `FederatedText`: an `ExampleSimulator`, for the next word also a `NextWordSimulator`.

    Attributes:
        network: sizes and task.
    """

    name: ClassVar[str] = "text"

    network: TextOptions

    @property
    def task(self) -> TextTask:
        return TextTask(self.network)

    @property
    def word_table(self) -> str:
        return EMBEDDING

    def layer_gradients(self, deltas: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        parts = [deltas[f"{LSTM}.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih")]
        last = with_bias(deltas, (OUTPUT,))
        return torch.cat([*parts[:2], parts[2][..., None]], dim=-1), last, last

    def word_inputs(self, model: Mapping[str, Tensor], place: int) -> Tensor:
        return functional.pad(model[EMBEDDING].double(), (0, self.network.hidden + 1))

    def prefix_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        hidden = self._last_states(model, prefixes) if prefixes.shape[1] else prefixes.new_zeros(1, self.network.hidden)
        return functional.pad(with_one(hidden.double()), (self.network.embedding, 0))

    def deeper_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        return self.last_inputs(model, prefixes)

    def last_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        return with_one(self._last_states(model, prefixes))

    def _last_states(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        """``(P, H)`` float64 hidden states after prefixes."""
        own = {name.removeprefix(f"{LSTM}."): value.double() for name, value in model.items() if LSTM in name}
        inputs = functional.embedding(prefixes.T, model[EMBEDDING].double())
        _, (last, _) = functional_call(self.task.body, own, (inputs,))
        states: Tensor = last[0]
        return states

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        words, hidden = self.network.embedding, self.network.hidden
        return {
            EMBEDDING: (self.network.vocabulary, words),
            f"{LSTM}.weight_ih_l0": (4 * hidden, words),
            f"{LSTM}.weight_hh_l0": (4 * hidden, hidden),
            f"{LSTM}.bias_ih_l0": (4 * hidden,),
            f"{LSTM}.bias_hh_l0": (4 * hidden,),
            f"{OUTPUT}.weight": (self.network.outputs, hidden),
            f"{OUTPUT}.bias": (self.network.outputs,),
        }

    def simulate_examples(
        self,
        model: Parameters,
        features: Tensor,
        labels: Tensor,
        examples: Tensor,
        /,
        *,
        generator: torch.Generator,
    ) -> Parameters:
        """Deltas of simulated clients, with all rows of the word table; zero for words that a client does not have."""
        seed = int(torch.randint(2**62, (), generator=generator))
        cohort = text_cohort(0, torch.arange(len(examples)), features, labels, examples)
        deltas = self.train(model, {}, cohort, seed=seed)
        rows = cohort.rows[EMBEDDING]
        whole = torch.zeros(len(rows), *model[EMBEDDING].shape)
        client, place = (rows >= 0).nonzero(as_tuple=True)
        whole[client, rows[client, place]] = deltas[EMBEDDING][client, place]
        return {**deltas, EMBEDDING: whole}


class TextLearner(FederatedModule):
    """Base of learners of texts, with a word table and a last layer.

    Args:
        network: sizes and task.
        local: how clients train.
        federation: arguments of `FederatedModule`.

    Attributes:
        objective: class of the clients' objective.
        body: name of the network between the word table and the last layer.
    """

    rows_are_public = False
    objective: type[TextTask] = TextTask
    body: str = LSTM

    def __init__(self, *, network: TextOptions, local: LocalTraining, **federation: Unpack[Federation]) -> None:
        super().__init__(local=local, **federation)
        self.options = network
        self.embedding = nn.Embedding(network.vocabulary, network.embedding)
        self._task = self.objective(network)
        self.add_module(self.body, self._task.template)
        self.output = nn.Linear(network.states, network.outputs)
        self.quality = MeanMetric()

    @property
    def task(self) -> TextTask:
        return self._task

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """Word table, of which a client trains the rows of its own words."""
        return (EMBEDDING,)

    @property
    def metric(self) -> str:
        """Name of the utility metric: ``top5`` (higher is better) or ``mae`` (lower is better)."""
        return "mae" if self.options.task == "rating" else "top5"

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Adds the rows of each client's words to the cohort.

        Raises:
            InputError: the examples are not texts.
        """
        require(
            "tokens" in cohort.examples,
            "data whose examples are texts, e.g. Blog or SyntheticPosts",
            f"examples of {', '.join(cohort.examples)}",
            "Give other --data, or a --model that learns from these.",
        )
        return with_word_rows(cohort)

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Each client's ``words (C, R)``, padded with 0, and how often each is predicted, ``next_words (C, R)``.

        Plain numbers: a salted hash of one of a few thousand words would be guessed in no time.
        """
        rows, place = cohort.rows[EMBEDDING], cohort.examples[PLACE]
        target = (cohort.examples[TOKEN][..., 1:] > 0) & cohort.mask[..., None] & (not self.task.rates)
        counts = torch.zeros(rows.shape, dtype=torch.int64, device=rows.device)
        counts.scatter_add_(1, place[..., 1:].flatten(1), target.long().flatten(1))
        return {"words": rows.clamp(min=0), "next_words": counts * (rows > 0)}

    def examples(self, cohort: Cohort) -> TrainingExamples:
        """Token numbers of the texts, padded with 0."""
        return TrainingExamples(cohort.examples[TOKEN], None, cohort.mask)

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Metrics by name, after adding a batch of held-out texts."""
        predicted = self(batch["tokens"])
        if self.options.task == "rating":
            self.quality.update((predicted - batch["label"]).abs())
        else:
            following = batch["tokens"][:, 1:]
            real = following > 0
            hits = (predicted[real].topk(TOP, dim=1).indices == following[real][:, None]).any(1)
            self.quality.update(hits.float())
        return {f"val/{self.metric}": self.quality}


class FederatedText(TextLearner):
    """Federated text model of NNLM-FL or NNSA-FL.

    Args:
        network: sizes and task; `SENTIMENT` for NNSA-FL.
        local: how clients train.
        federation: arguments of `FederatedModule`.
    """

    lstm: nn.LSTM

    def __init__(
        self,
        *,
        network: TextOptions = TextOptions(),
        local: LocalTraining = PAPER_LOCAL,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(network=network, local=local, **federation)
        _initialise(self, generator_for(self.seed, "global-model", PERSISTENT))

    def simulator(self) -> TextSimulator:
        return TextSimulator(network=self.options, local=self.local, update_l1=self.update_l1)

    def forward(self, tokens: Tensor) -> Tensor:
        """``(B, L)`` token numbers -> logits ``(B, L - 1, V)`` of the words after the first, or ratings ``(B,)``."""
        times = tokens.T
        predicted: Tensor
        if self.options.task == "rating":
            states, _ = self.lstm(self.embedding(times))
            predicted = self.output(last_states(states, times))[:, 0]
        else:
            states, _ = self.lstm(self.embedding(times[:-1]))
            predicted = self.output(states.transpose(0, 1))
        return predicted


@torch.no_grad()
def _initialise(model: FederatedText, generator: torch.Generator) -> None:
    """Draws weights from torch's default distributions: word vectors from N(0, 1), layers from U(-1, 1) / sqrt(H)."""
    model.embedding.weight.normal_(generator=generator)
    bound = model.options.hidden**-0.5
    for value in (*model.lstm.parameters(), *model.output.parameters()):
        value.uniform_(-bound, bound, generator=generator)
