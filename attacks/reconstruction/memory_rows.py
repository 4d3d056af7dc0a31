"""Texts from the change of an adapter whose units are excited by single texts."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedleak.attacks.applicability import without_texts
from fedleak.attacks.reconstruction.adapter_memory import Memory
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.attacks.reconstruction.memory_search import RowSearch
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Scores
from fedleak.core.metric import Metric
from fedleak.core.progress import with_progress
from fedleak.core.ranges import AtLeastTwo, OpenUnitInterval, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

_SAME = 1e-4
"""Relative difference of inputs below which they are the same."""


@dataclass(frozen=True, kw_only=True)
class MemoryRowsEstimate(ReconstructionEstimate):
    """Texts of each client, of which the last word may be wrong where the others are right."""

    inferred = "which texts it was trained on, word by word"
    metrics = (
        *ReconstructionEstimate.metrics,
        Metric(
            "read-recovered",
            "Read recovered is the share of a client's texts of which all words but the last are reconstructed.",
            judged=True,
            span=(0.0, 1.0),
            words="rebuilds {} of 100 training texts but for the last word",
        ),
    )

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_texts(view, truth)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        if "records" not in truth:
            return scores
        shares = []
        for victim, texts in enumerate(truth["records"]):
            true_texts = [_words_but_the_last(text) for text in texts if bool(text.any())]
            count = int(self.count[victim])
            guessed_texts = {_words_but_the_last(text) for text in self.records[victim, :count]}
            shares.append(sum(text in guessed_texts for text in true_texts) / max(len(true_texts), 1))
        return dataclasses.replace(scores, metrics={**scores.metrics, "read-recovered": torch.tensor(shares).double()})


def _words_but_the_last(text: Tensor) -> tuple[int, ...]:
    return tuple(text[text > 0].tolist()[:-1])


@dataclass(frozen=True, kw_only=True)
class MemoryRows(ReconstructionAttack):
    """Search for the text whose state at one place is a row of the change of B.

    For an adapter ``B A`` of a feed-forward layer with input z, row u of the change of B is a sum of multiples of
    ``A z_T``, one for each text that excites unit u at its place T. With `fedleak.server.memory_adapter.MemoryAdapter`
    this is often one text. (1) T is the last place of a text that predicts a word. (2) Parallel
    rows are one text. Its words up to T are the sum, over the places, of vectors of a table that is nearest to the
    row: coordinate descent, then steps to the neighbouring text (another word, or two words exchanged) whose own state,
    computed by the network, is nearest, until it is the row. (3) The last word is the one whose gradient gives the
    lengths of the text's rows, which are linear in what should have been predicted. A text is returned if its state's
    cosine with the row is at least `cosine`. Under Adam the rows' signs are compared, and lengths give no last word.

    Texts are not certified: the last word is a choice among all words by few numbers.

    Threat model: active server, which sends the adapter; an update or a sum of updates; knows the base network and the
    tokenizer, and no text of the client.

    Args:
        words: number of words of the texts for which the server made its adapter.
        texts: number of rows whose texts are searched, for each reported text.
        cosine: least cosine of a text's state and its row.
        signs: under Adam, least cosine of a text's state and its row's signs, over the largest that signs can have.

    Raises:
        ViewError: the network does not predict next words, its first adapter has no recorded B, or it reads single
            words, so that no row of its change is of a text.

    References:
        This project for LoRA; the server's adapter is that of NeuroImprint, see `fedleak.server.memory_adapter`.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import MemoryRows
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("memory")
        >>> estimate = MemoryRows(words=6)(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["rouge1"].mean()), 2)
        0.83
    """

    name = "memory-rows"
    estimates = MemoryRowsEstimate
    cost = "minutes per victim"
    threat_model = ThreatModel(
        sees="the update of the adapters",
        knows="the base network, the adapters and the tokenizer",
        needs=("deltas", "model", PretrainedAlgorithm),
    )

    words: AtLeastTwo = 8
    texts: PositiveInt = 4
    cosine: OpenUnitInterval = 0.99
    signs: OpenUnitInterval = 0.9999

    def run(self, view: RoundView, *, generator: torch.Generator) -> MemoryRowsEstimate:
        algorithm = view.require(PretrainedAlgorithm)
        if algorithm.task != "causal-lm":
            raise ViewError(f"expected a network that predicts the next words, got one for {algorithm.task}")
        model = dict(view.model)
        down, up = algorithm.adapted_inputs(model, torch.ones(1, 2, dtype=torch.int64), most=1)[0].adapters[0]
        if up not in view.deltas:
            raise ViewError(f"expected the delta of the first adapter, {up}; record it")
        if _reads_single_words(algorithm, model):
            raise ViewError("expected an adapter that reads whole texts; the first one reads single words, no text")
        # The last word is predicted only, so the place before it, counted from 0, is the last that is read.
        memory = Memory.of(algorithm, model, down, up, self.words - 2)
        # An update may be a sum of several clients, of which each has as many texts.
        participants = max((release.participants or 1 for release in view.releases), default=1)
        records = list[Tensor]()
        for victim in with_progress(range(view.victims)):
            change = view.deltas[up][victim].float()
            if not bool(change.any()):
                records.append(torch.zeros(0, 1, dtype=torch.int64))
                continue
            count = int(view.example_counts[victim]) * participants
            signs = algorithm.local.optimizer != "sgd"
            cosine = self.signs if signs else self.cosine
            search = RowSearch(memory, change, signs=signs, cosine=cosine)
            texts, rows = search.texts(self.texts * count)
            texts = texts[:count]
            last_words = memory.next_words(texts, rows[:count], change)
            records.append(torch.cat([texts, last_words[:, None]], dim=1))
        longest = max((texts.shape[1] for texts in records), default=1)
        padded = [pad(texts, (0, longest - texts.shape[1])) for texts in records]
        return MemoryRowsEstimate(**vars(reconstruction(padded)))


def _reads_single_words(algorithm: PretrainedAlgorithm, model: Mapping[str, Tensor]) -> bool:
    """Whether the first adapter reads the same of a word whatever is before it."""
    texts = torch.tensor([[1, 2], [2, 2]])
    inputs = algorithm.adapted_inputs(dict(model), texts, layers=1)[0].vectors[:, -1]
    return bool((inputs[0] - inputs[1]).norm() <= _SAME * inputs[0].norm())
