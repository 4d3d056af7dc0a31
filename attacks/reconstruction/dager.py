"""DAGER: sentences of a transformer decoder by span checks of the inputs of its first two layers, as published."""

import copy
import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.attacks.reconstruction.next_words import next_words
from fedleak.attacks.reconstruction.sentence_span import Prefixes, endings
from fedleak.attacks.reconstruction.word_layers import DecoderLayers, with_bias
from fedleak.client.decoder import BODY, Decoder, DecoderAlgorithm, DecoderLayer
from fedleak.client.text import EMBEDDING, OUTPUT
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.ranges import NonNegativeInt, OpenUnitInterval, PositiveFloat
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_CANDIDATES = 2**20
"""Largest number of sentences of one length that are checked in the second layer."""
_AT_ONCE = 2**14
_WORDS_AT_ONCE = 2**9
"""Words of which the inputs of the first layer fit into a processor's cache."""
_SCREENS = 8
_ROUNDING = 1e-4
"""Far above what single precision loses of a component, far below components of wrong words."""
_LAST_LAYER = (f"{OUTPUT}.weight", f"{OUTPUT}.bias")
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
        ViewError: the network has one layer, or a change is not recorded.

    References:
        I. Petrov, D. Dimitrov, M. Baader, M. Müller and M. Vechev, "DAGER: Exact Gradient Inversion for Large Language
        Models", NeurIPS 2024, arXiv:2405.15586, algorithms 1 and 2, and the code of the authors.
    """

    name = "dager"
    references = ("DAGER, algorithms 1 and 2",)
    exact = True
    cost = "seconds per victim"
    threat_model = ThreatModel(
        sees="the deltas of the first two layers' attention in one round",
        knows="the global model",
        needs=(DecoderAlgorithm, f"deltas:{BODY}.layers.0.query.weight"),
    )
    variants: ClassVar[Variants] = {
        "last-words": {
            "last_words": True,
            "references": (),
            "threat_model": dataclasses.replace(
                threat_model,
                sees="the deltas of the first two layers' attention and of the last layer in one round",
                needs=(*threat_model.needs, f"deltas:{OUTPUT}.weight"),
            ),
        }
    }

    first: OpenUnitInterval = 1e-5
    second: OpenUnitInterval = 1e-3
    tolerance: PositiveFloat = 1e-7
    cut: NonNegativeInt = 20
    last_words: bool = False

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        layers = DecoderLayers(view.require(DecoderAlgorithm))
        if layers.algorithm.network.layers < _LAYERS:
            raise ViewError("expected a decoder of two layers or more, got one; `sentence-span` needs one only")
        names = [[f"{BODY}.layers.{n}.{part}.weight" for part in ("query", "key", "value")] for n in range(_LAYERS)]
        wanted = [*itertools.chain(*names), *(_LAST_LAYER if self.last_words else ())]
        missing = [name for name in wanted if name not in view.deltas]
        if missing:
            raise ViewError(f"expected the deltas of {', '.join(wanted)}; got a recording without {missing[0]}")
        exact = layers.body(view.model)
        table = view.model[EMBEDDING]
        table = table.to(torch.promote_types(table.dtype, torch.float32))
        bodies = copy.deepcopy(exact).to(table.dtype), exact
        found = []
        for v in with_progress(range(view.victims)):
            gradients = [torch.cat([view.deltas[name][v] for name in own]) for own in names]
            prefixes = self.prefixes(bodies, table, gradients)
            if prefixes is None:
                found.append(torch.zeros(0, 1, dtype=torch.int64))
            elif self.last_words:
                sentences = int(view.example_counts[v])
                change = with_bias({name: view.deltas[name][v] for name in _LAST_LAYER}, [OUTPUT]).double()
                counts = next_words_of(layers, view.model, change, prefixes, sentences)
                found.append(endings(prefixes, counts.clamp(max=sentences)))
            else:
                complete = torch.ones(len(prefixes.words), dtype=torch.bool)
                complete[prefixes.parents[prefixes.parents >= 0]] = False
                found.append(prefixes.words[complete & (prefixes.lengths > 1)])
        longest = max(texts.shape[1] for texts in found)
        return reconstruction([functional.pad(texts, (0, longest - texts.shape[1])) for texts in found])

    def prefixes(self, bodies: tuple[Decoder, Decoder], table: Tensor, gradients: list[Tensor]) -> Prefixes | None:
        """Prefixes whose inputs of both layers are accepted; None for none.

        Args:
            bodies: the network in the precision of the table and in double precision.
            table: ``(W, d)`` word table.
            gradients: ``(3 d, d)`` changes of the projections of the first two layers.
        """
        spans, outside = self.spans(gradients)
        words, parents, total = [torch.zeros(1, 0, dtype=torch.int64)], list[Tensor](), 0
        for place in range(len(bodies[0].position.weight)):
            accepted = self.words_at(bodies, table, spans[0], outside, place)
            if not 0 < len(accepted) * len(words[-1]) <= _CANDIDATES:
                break
            origin, word = self.grown(bodies, table, spans[1], words[-1], accepted)
            if not len(origin):
                break
            parents.append(origin + total - len(words[-1]) if place else torch.full_like(origin, -1))
            words.append(torch.cat([words[-1][origin], word[:, None]], dim=1))
            total += len(origin)
        if not parents:
            return None
        return Prefixes(pad_sequence([row for level in words[1:] for row in level], True), torch.cat(parents))

    def spans(self, gradients: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """First right singular vectors of each gradient ``(M, d)``, ``(R, d)``, and last ones of the first gradient."""
        found = [torch.linalg.svd(torch.linalg.qr(one.double(), mode="r")[1])[1:] for one in gradients]
        rank = max(int((values > self.tolerance).sum()) for values, _ in found)
        rank = max(min(rank, gradients[0].shape[1] - self.cut), 0)
        first = found[0][1]
        return [vectors[:rank] for _, vectors in found], first[max(rank, len(first) - _SCREENS) :]

    def words_at(
        self, bodies: tuple[Decoder, Decoder], table: Tensor, span: Tensor, outside: Tensor, place: int
    ) -> Tensor:
        """``(A,)`` words whose input of the first layer is accepted at a place.

        No input has a component along a vector `outside` the span that is longer than its distance, so that a few
        products in the precision of the table leave few words for the exact distance.
        """
        screens, near = outside.T.to(table), list[Tensor]()
        for some in torch.split(table, _WORDS_AT_ONCE):
            inputs = _first_inputs(bodies[0], some, place)
            components = (inputs @ screens).abs_().amax(1) if len(outside) else inputs.new_zeros(len(inputs))
            near.append(components <= (self.first + _ROUNDING) * torch.linalg.vector_norm(inputs, dim=1))
        words = torch.cat(near).nonzero().flatten()
        words = words[words > 0]  # 0 is padding
        return words[distances(span, _first_inputs(bodies[1], table[words], place)) < self.first]

    def grown(
        self, bodies: tuple[Decoder, Decoder], table: Tensor, span: Tensor, prefixes: Tensor, words: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``(G,)`` prefixes and the words that they are continued by, accepted in the second layer."""
        rough, exact = bodies
        near = []
        for some in torch.split(prefixes, max(1, _AT_ONCE // len(words))):
            inputs = _second_inputs(rough, table, some, words)
            near.append(distances(span.to(table), inputs) < self.second + _ROUNDING)
        origin, word = torch.cat(near).nonzero(as_tuple=True)
        accepted = torch.zeros(len(origin), dtype=torch.bool)
        for some in torch.split(torch.arange(len(origin)), _AT_ONCE):
            inputs = _second_inputs(exact, table, prefixes[origin[some]], words[word[some]][:, None])
            accepted[some] = distances(span, inputs)[:, 0] < self.second
        return origin[accepted], words[word[accepted]]


def _first_inputs(body: Decoder, vectors: Tensor, place: int) -> Tensor:
    """``(W, d)`` inputs of the first layer at a place, for ``vectors (W, d)`` of words."""
    first, position = body.layers[0], body.position.weight[place]
    assert isinstance(first, DecoderLayer)
    inputs: Tensor = first.norm(vectors.to(position) + position)
    return inputs


def _second_inputs(body: Decoder, table: Tensor, prefixes: Tensor, words: Tensor) -> Tensor:
    """``(P, W, d)`` inputs of the second layer at the words ``(W,)`` or ``(P, W)`` after prefixes ``(P, T)``."""
    place = prefixes.shape[1]
    first, second = body.layers[0], body.layers[1]
    assert isinstance(first, DecoderLayer)
    assert isinstance(second, DecoderLayer)
    places = body.position.weight
    before, last = table[prefixes].to(places) + places[:place], table[words].to(places) + places[place]
    inputs: Tensor = second.norm(first.at_last(before, last))
    return inputs


def distances(span: Tensor, inputs: Tensor) -> Tensor:
    """``(...,)`` distance of normalised inputs ``(..., d)`` from a span ``(R, d)``."""
    unit = functional.normalize(inputs, dim=-1)
    outside: Tensor = (unit - unit @ span.T @ span).norm(dim=-1)
    return outside


def next_words_of(
    layers: DecoderLayers, model: Mapping[str, Tensor], change: Tensor, prefixes: Prefixes, sentences: int
) -> Tensor:
    """``(P, W)`` times that each word follows each prefix, see `next_words`; ``change (W, D)`` of the last layer."""
    lengths = prefixes.lengths
    parts = [layers.last_inputs(model, prefixes.words[lengths == n, :n]) for n in torch.unique(lengths).tolist()]
    states, started = torch.cat(parts), prefixes.started()
    logits = states @ with_bias(model, [OUTPUT]).double().T
    repeated = sentences / float(started[prefixes.parents < 0].sum())
    return next_words(change, states, logits, started, 0.0, repeated=repeated).counts
