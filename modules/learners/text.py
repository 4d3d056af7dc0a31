"""Federated learning from texts: a language model (NNLM-FL) or a sentiment regressor (NNSA-FL).

References:
    [Orekondy18], section 5.
"""

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.fast.lstm import LSTM
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import EMBEDDING, PLACE, TOKEN, TextAlgorithm, TextOptions, last_states, with_word_rows
from fedleak.core.errors import require
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.training.federated import FederatedModule, Federation, Unpack
from fedleak.training.round_record import TrainingExamples

PAPER_LOCAL = LocalTraining(learning_rate=0.01, batch_size=32)
"""Learning rate and number of epochs of the paper, which gives no batch size; this one is its library's default."""
TOP = 5
"""Number of predicted words among which the next word counts as a hit."""


class TextLearner(FederatedModule):
    """Base of learners of texts, with a word table and a last layer.

    Args:
        network: sizes and task.
        local: how clients train.
        federation: arguments of `FederatedModule`.

    Attributes:
        kind: class of the clients' algorithm.
        body: name of the network between the word table and the last layer.
    """

    rows_are_public = False
    algorithm: TextAlgorithm
    kind: type[TextAlgorithm] = TextAlgorithm
    body: str = LSTM

    def __init__(self, *, network: TextOptions, local: LocalTraining, **federation: Unpack[Federation]) -> None:
        super().__init__(local=local, **federation)
        self.options = network
        self.embedding = nn.Embedding(network.vocabulary, network.embedding)
        self.algorithm = self.kind(network=network, local=self.local, update_l1=self.update_l1)
        self.add_module(self.body, self.algorithm.template)
        self.output = nn.Linear(network.states, network.outputs)
        self.quality = MeanMetric()

    @property
    def row_parameters(self) -> tuple[str, ...]:
        return (EMBEDDING,)

    @property
    def metric(self) -> str:
        """Name of the utility metric: ``top5`` (higher is better) or ``mae`` (lower is better)."""
        return "mae" if self.options.task == "rating" else "top5"

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Adds the rows of each client's words to the cohort."""
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
        rows = cohort.rows[EMBEDDING]
        row = cohort.examples[PLACE]
        # Every word after the first is predicted, unless the task is a rating.
        tokens = cohort.examples[TOKEN]
        target = (tokens[..., 1:] > 0) & cohort.mask[..., None] & (not self.algorithm.rates)
        counts = torch.zeros(rows.shape, dtype=torch.int64, device=rows.device)
        counts.scatter_add_(1, row[..., 1:].flatten(1), target.long().flatten(1))
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
            first_words = predicted[real].topk(TOP, dim=1).indices
            hits = (first_words == following[real][:, None]).any(1)
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
        network: TextOptions = TextOptions(),  # noqa: B008 - frozen
        local: LocalTraining = PAPER_LOCAL,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(network=network, local=local, **federation)
        _initialise(self, generator_for(self.seed, "global-model", PERSISTENT))

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
