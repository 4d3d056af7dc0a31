"""DAGER: sentences of a transformer decoder by span checks of the inputs of its first two layers, as published."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from attacks.base import Variants
from attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from attacks.reconstruction.next_words import next_words
from attacks.reconstruction.sentence_span import Prefixes, endings
from attacks.reconstruction.word_layers import DecoderLayers
from client.decoder import BODY, Decoder, DecoderAlgorithm, DecoderLayer
from client.text import EMBEDDING
from protocol.errors import ViewError
from protocol.progress import with_progress
from protocol.ranges import NonNegativeInt, OpenUnitInterval, PositiveFloat
from protocol.threat_model import ThreatModel
from protocol.view import RoundView

_CANDIDATES = 2**20
"""Largest number of sentences of one length that are checked in the second layer."""
_AT_ONCE = 2**14
_LAYERS = 2
"""Layers whose gradients are used."""


@dataclass(frozen=True, kw_only=True)
class Dager(ReconstructionAttack):
    """DAGER for decoders: words at each place by the first layer's span, then sentences by the second layer's.

    The gradient of an attention projection is ``sum_t d_t z_t^T``, so the inputs z_t lie in its row space. With R the
    largest numerical rank of the projections' gradients, and at most d - `cut`, the R first right singular vectors of
    each layer span what is accepted. (1) Word w may be at place i if its normalised first input has a distance below
    `first` from the first span; the search ends at the first place without a word. (2) A sentence grows by the words of
    its next place as long as the input of the second layer has a distance below `second`; one that cannot grow is
    complete. As in the authors' code for GPT-2, the projections of query, key and value are one matrix: the query alone
    has no gradient at the first place. Singular vectors are exact here, and not those of a randomised decomposition.
    The authors fill a batch with the best of the rejected sentences, which are not exact; they are left out.

    The last word of a sentence is no input if the next word is the task, so that the published attack ends before it.

    Threat model: passive server, one update of one step; it knows the global model and holds no text.

    Args:
        first: largest distance of an input of the first layer, relative to its length.
        second: largest distance of an input of the second layer.
        tolerance: singular values of the recorded change above it count for the rank. The authors choose 1e-7 to 1e-9
            by the size of the batch; rounding of float32 changes leaves singular values of 2e-8 here.
        cut: dimensions below that of the inputs to which the rank is limited.
        last_words: add the last words by this project's `next_words`.

    Variants:
        last-words: adds the last words, so that exact sentences can be counted.

    Raises:
        ViewError: the network has one layer.

    References:
        I. Petrov, D. Dimitrov, M. Baader, M. Müller and M. Vechev, "DAGER: Exact Gradient Inversion for Large Language
        Models", NeurIPS 2024, arXiv:2405.15586, algorithms 1 and 2, and the code of the authors.
    """

    name = "dager"
    references = ("DAGER, algorithms 1 and 2",)
    variants: ClassVar[Variants] = {"last-words": {"last_words": True, "references": ()}}
    exact = True
    cost = "seconds per victim"
    threat_model = ThreatModel(
        sees="the deltas of all layers in one round",
        knows="the global model",
        needs=(DecoderAlgorithm, "deltas:output.weight"),
    )

    first: OpenUnitInterval = 1e-5
    second: OpenUnitInterval = 1e-3
    tolerance: PositiveFloat = 1e-7
    cut: NonNegativeInt = 20
    last_words: bool = False

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        layers = DecoderLayers(view.require(DecoderAlgorithm))
        if layers.algorithm.network.layers < _LAYERS:
            raise ViewError("expected a decoder of two layers or more, got one; `sentence-span` needs one only")
        model = {name: value.double() for name, value in view.model.items()}
        names = [[f"{BODY}.layers.{n}.{part}.weight" for part in ("query", "key", "value")] for n in range(_LAYERS)]
        last = layers.layer_gradients(view.deltas)[2].double()
        found = []
        for v in with_progress(range(view.victims)):
            gradients = [torch.cat([view.deltas[name][v] for name in own]) for own in names]
            prefixes = self.prefixes(layers.body(model), model[EMBEDDING], gradients)
            if prefixes is None:
                found.append(torch.zeros(0, 1, dtype=torch.int64))
            elif self.last_words:
                counts = next_words_of(layers, model, last[v], prefixes, int(view.example_counts[v]))
                found.append(endings(prefixes, counts.clamp(max=int(view.example_counts[v]))))
            else:
                complete = torch.ones(len(prefixes.words), dtype=torch.bool)
                complete[prefixes.parents[prefixes.parents >= 0]] = False
                found.append(prefixes.words[complete & (prefixes.lengths > 1)])
        longest = max(texts.shape[1] for texts in found)
        return reconstruction([torch.nn.functional.pad(texts, (0, longest - texts.shape[1])) for texts in found])

    def prefixes(self, body: Decoder, table: Tensor, gradients: list[Tensor]) -> Prefixes | None:
        """Prefixes whose inputs of both layers are accepted; None for none.

        Args:
            body: the network in double precision.
            table: ``(W, d)`` word table.
            gradients: ``(3 d, d)`` changes of the projections of the first two layers.
        """
        spans = self.spans(gradients)
        words, parents, total = [torch.zeros(1, 0, dtype=torch.int64)], list[Tensor](), 0
        for place in range(len(body.position.weight)):
            accepted = self.words_at(body, table, spans[0], place)
            if not 0 < len(accepted) * len(words[-1]) <= _CANDIDATES:
                break
            origin, word = self.grown(body, table, spans[1], words[-1], accepted)
            if not len(origin):
                break
            parents.append(origin + total - len(words[-1]) if place else torch.full_like(origin, -1))
            words.append(torch.cat([words[-1][origin], word[:, None]], dim=1))
            total += len(origin)
        if not parents:
            return None
        return Prefixes(pad_sequence([row for level in words[1:] for row in level], True), torch.cat(parents))

    def spans(self, gradients: list[Tensor]) -> list[Tensor]:
        """``(R, d)`` first right singular vectors of each gradient ``(M, d)``."""
        rank = max(int((torch.linalg.svdvals(gradient) > self.tolerance).sum()) for gradient in gradients)
        rank = min(rank, gradients[0].shape[1] - self.cut)
        return [torch.linalg.svd(gradient.double(), full_matrices=False)[2][: max(rank, 0)] for gradient in gradients]

    def words_at(self, body: Decoder, table: Tensor, span: Tensor, place: int) -> Tensor:
        """``(A,)`` words whose input of the first layer is accepted at a place."""
        layer = body.layers[0]
        assert isinstance(layer, DecoderLayer)
        inputs = layer.norm(table + body.position.weight[place])
        near = distances(span, inputs) < self.first
        near[0] = False  # padding
        return near.nonzero().flatten()

    def grown(
        self, body: Decoder, table: Tensor, span: Tensor, prefixes: Tensor, words: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``(G,)`` prefixes and the words that they are continued by, accepted in the second layer."""
        place = prefixes.shape[1]
        first, second = body.layers[0], body.layers[1]
        assert isinstance(first, DecoderLayer)
        assert isinstance(second, DecoderLayer)
        last = table[words] + body.position.weight[place]
        near = []
        for some in torch.split(prefixes, max(1, _AT_ONCE // len(words))):
            inputs = second.norm(first.at_last(table[some] + body.position.weight[:place], last))
            near.append(distances(span, inputs) < self.second)
        origin, word = torch.cat(near).nonzero(as_tuple=True)
        return origin, words[word]


def distances(span: Tensor, inputs: Tensor) -> Tensor:
    """``(...,)`` distance of normalised inputs ``(..., d)`` from a span ``(R, d)``."""
    unit = normalize(inputs, dim=-1)
    outside: Tensor = (unit - unit @ span.T @ span).norm(dim=-1)
    return outside


def next_words_of(
    layers: DecoderLayers, model: dict[str, Tensor], change: Tensor, prefixes: Prefixes, sentences: int
) -> Tensor:
    """``(P, W)`` times that each word follows each prefix, see `next_words`."""
    lengths = prefixes.lengths
    parts = [layers.last_inputs(model, prefixes.words[lengths == n, :n]) for n in torch.unique(lengths).tolist()]
    states, started = torch.cat(parts), prefixes.started()
    logits = states @ layers.layer_gradients(model)[2].T
    repeated = sentences / float(started[prefixes.parents < 0].sum())
    return next_words(change, states, logits, started, 0.0, repeated=repeated).counts
