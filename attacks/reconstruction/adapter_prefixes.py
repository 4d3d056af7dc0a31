"""Sentences of a client that fine-tunes a language model by adapters, also of many more words than the rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.adapter_sentences import AdapterClient, AdapterSentences, with_last_words
from fedleak.attacks.reconstruction.adapter_spans import InputSpan
from fedleak.attacks.reconstruction.prefix_pursuit import pursued_prefixes
from fedleak.attacks.reconstruction.simulated_step import explains
from fedleak.attacks.reconstruction.span_estimate import SpanEstimate
from fedleak.client.prefix_inputs import PrefixInputs
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.ranges import PositiveInt
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class AdapterPrefixes(AdapterSentences):
    """Pursuit of the prefixes whose states explain the changes of the adapters of all layers together.

    `AdapterSentences` needs fewer places than rows, e.g. 16 for rank 8 at query and value: one short text. With more
    places, the row space of a layer is a part of the span of its inputs and holds none of them. But the rows are still
    sums of few of the inputs that prefixes of the client's words can have, and an input that is in the sums lies
    further in their row space than others, in every layer. `prefix_pursuit.pursued_prefixes` chooses prefixes one after
    another by the evidence of all layers together, until nothing is left but noise: fewer places than a state has
    numbers are determined, whatever the rank. Last words and certificates are those of `AdapterSentences`.

    Nothing is predicted but of sentences that are certified, and of updates in which A did not move, of which none are
    found.

    Threat model: passive server, one update of one step of plain gradient descent; knows the base network, the adapters
    and the tokenizer, and no text.

    Args:
        layers: largest number of layers whose changes are explained together.
        states: largest number of states that are computed for a client: about its words times its places.

    Raises:
        ViewError: as `AdapterSentences`, or clients take several steps, in which the states change.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction.adapter_prefixes import AdapterPrefixes
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("adapters")  # 18 places, and 16 rows in each layer
        >>> estimate = AdapterPrefixes()(view, generator=torch.Generator().manual_seed(0))
        >>> estimate.score(view, truth).metrics["recovered"].tolist()
        [1.0, 1.0]
    """

    name = "adapter-prefixes"
    slow = True
    audited_victims = 2
    cost = "minutes per victim"

    layers: PositiveInt = 15
    states: PositiveInt = 2**14

    def run(self, view: RoundView, *, generator: torch.Generator) -> SpanEstimate:
        algorithm = view.require(PretrainedAlgorithm)
        steps = algorithm.steps(view.example_counts)
        if bool((steps > 1).any()):
            raise ViewError("expected clients that take one step; of several, `adapter-sentences` finds short texts")
        return super().run(view, generator=generator)

    def _predicted(self, client: AdapterClient, *, is_proved: bool, is_certain: bool) -> float:
        if is_certain:
            return 1.0
        if not self._summed(client):
            return 0.0
        return torch.nan

    def _explained_sentences(
        self, view: RoundView, number: int, client: AdapterClient, *, is_one_step: bool
    ) -> tuple[Tensor, bool, bool]:
        texts, is_clear = self.sentences(client, 1.0)
        are_all = len(texts) == client.sentences > 0
        return texts, is_clear, are_all and explains(view, number, texts)

    def sentences(self, client: AdapterClient, slack: float) -> tuple[Tensor, bool]:
        """``(M, L)`` sentences of one client, and whether no other last words explain its gradient as well."""
        layers = self._summed(client)
        if not layers or not len(client.words):
            return torch.zeros(0, 1, dtype=torch.int64), False
        table = PrefixInputs(client.algorithm, client.model, [layer.layer for layer in layers])
        # The rows of a change in units of its noise: singular values times the basis of the row space.
        sums = [layer.span.values[:, None] * layer.span.basis for layer in layers]
        pursued = pursued_prefixes(table.after, sums, client.words, most_states=self.states, longest=self.longest - 1)
        texts = pursued.texts
        if len(texts) > client.sentences:
            # Wrong prefixes are short branches beside the right ones.
            lengths = (texts > 0).sum(1)
            texts = texts[lengths.argsort(descending=True)[: client.sentences]]
        if not len(texts):
            return torch.zeros(0, 1, dtype=torch.int64), False
        return with_last_words(client, texts)

    def _summed(self, client: AdapterClient) -> Sequence[InputSpan]:
        """Layers with the most rows, the first ones of these, in which A moved; ascending."""
        moved = [layer for layer in (*client.spans, *client.incomplete) if layer.matrix is None and layer.span.rank]
        moved.sort(key=lambda layer: (-layer.span.rank, layer.layer))
        return sorted(moved[: self.layers], key=lambda layer: layer.layer)
