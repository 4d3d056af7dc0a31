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
from fedleak.attacks.reconstruction.following_words import next_words
from fedleak.attacks.reconstruction.sentence_prefixes import Prefixes, endings
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
"""Prefixes with a next word whose inputs of the second layer are computed together."""
_WORDS_AT_ONCE = 2**9
"""Words of which the inputs of the first layer fit into a processor's cache."""
_SCREENS = 8
"""Directions outside of the first span along which words are compared before their distance is computed."""
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
        [Petrov24], algorithms 1 and 2, and the code of the authors.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import Dager
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("decoder")
        >>> estimate = Dager()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["rouge1"].mean()), 2)
        0.47
    """

    name = "dager"
    references = ("Petrov24, algorithms 1 and 2",)
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
        projections = [_projections(number) for number in range(_LAYERS)]
        needed = [*itertools.chain(*projections)]
        if self.last_words:
            needed += _LAST_LAYER
        missing = [name for name in needed if name not in view.deltas]
        if missing:
            raise ViewError(f"expected the deltas of {', '.join(needed)}; got a recording without {missing[0]}")
        exact = layers.body(view.model)
        table = view.model[EMBEDDING]
        table = table.to(torch.promote_types(table.dtype, torch.float32))
        bodies = copy.deepcopy(exact).to(table.dtype), exact
        records = list[Tensor]()
        for v in with_progress(range(view.victims)):
            # Query, key and value read the same inputs, so their gradients are rows of one matrix.
            gradients = [torch.cat([view.deltas[name][v] for name in of_layer]) for of_layer in projections]
            prefixes = self.prefixes(bodies, table, gradients)
            if prefixes is None:
                records.append(torch.zeros(0, 1, dtype=torch.int64))
            elif self.last_words:
                sentences = int(view.example_counts[v])
                change = with_bias({name: view.deltas[name][v] for name in _LAST_LAYER}, [OUTPUT]).double()
                counts = next_words_of(layers, view.model, change, prefixes, sentences)
                records.append(endings(prefixes, counts.clamp(max=sentences)))
            else:
                # Sentences that cannot grow are complete; a single word is none.
                records.append(prefixes.words[prefixes.complete() & (prefixes.lengths > 1)])
        longest = max(texts.shape[1] for texts in records)
        return reconstruction([functional.pad(texts, (0, longest - texts.shape[1])) for texts in records])

    def prefixes(self, bodies: tuple[Decoder, Decoder], table: Tensor, gradients: list[Tensor]) -> Prefixes | None:
        """Prefixes whose inputs of both layers are accepted; None for none.

        Args:
            bodies: the network in the precision of the table and in double precision.
            table: ``(W, d)`` word table.
            gradients: ``(3 d, d)`` changes of the projections of the first two layers.
        """
        (first_span, second_span), outside = self.spans(gradients)
        levels = [torch.zeros(1, 0, dtype=torch.int64)]
        parents = list[Tensor]()
        total = 0
        for position in range(len(bodies[0].position.weight)):
            # Words at this place by the first layer, then sentences that they continue by the second one.
            accepted = self.words_at(bodies, table, first_span, outside, position)
            if not 0 < len(accepted) * len(levels[-1]) <= _CANDIDATES:
                break
            origin, word = self.grown(bodies, table, second_span, levels[-1], accepted)
            if not len(origin):
                break
            if position == 0:
                parents.append(torch.full_like(origin, -1))
            else:
                parents.append(origin + total - len(levels[-1]))
            levels.append(torch.cat([levels[-1][origin], word[:, None]], dim=1))
            total += len(origin)
        if not parents:
            return None
        rows = [row for level in levels[1:] for row in level]
        return Prefixes(pad_sequence(rows, batch_first=True), torch.cat(parents))

    def spans(self, gradients: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """First right singular vectors of each gradient ``(M, d)``, ``(R, d)``, and last ones of the first gradient."""
        values, vectors = list[Tensor](), list[Tensor]()
        for gradient in gradients:
            # The triangular factor has the same singular values and right vectors, of fewer rows.
            triangle = torch.linalg.qr(gradient.double(), mode="r")[1]
            _, of_layer, right_vectors = torch.linalg.svd(triangle)
            values.append(of_layer)
            vectors.append(right_vectors)
        rank = max(int((of_layer > self.tolerance).sum()) for of_layer in values)
        rank = max(min(rank, gradients[0].shape[1] - self.cut), 0)
        spans = [right_vectors[:rank] for right_vectors in vectors]
        outside_first = vectors[0][max(rank, len(vectors[0]) - _SCREENS) :]
        return spans, outside_first

    def words_at(
        self, bodies: tuple[Decoder, Decoder], table: Tensor, span: Tensor, outside: Tensor, position: int
    ) -> Tensor:
        """``(A,)`` words whose input of the first layer is accepted at a place.

        No input has a component along a vector `outside` the span that is longer than its distance, so that a few
        products in the precision of the table leave few words for the exact distance.
        """
        rough, exact = bodies
        screens = outside.T.to(table)
        is_near = list[Tensor]()
        for vectors in torch.split(table, _WORDS_AT_ONCE):
            inputs = _first_inputs(rough, vectors, position)
            components = inputs.new_zeros(len(inputs))
            if len(outside):
                components = (inputs @ screens).abs_().amax(1)
            is_near.append(components <= (self.first + _ROUNDING) * torch.linalg.vector_norm(inputs, dim=1))
        words = torch.cat(is_near).nonzero().flatten()
        words = words[words > 0]  # 0 is padding
        return words[distances(span, _first_inputs(exact, table[words], position)) < self.first]

    def grown(
        self, bodies: tuple[Decoder, Decoder], table: Tensor, span: Tensor, prefixes: Tensor, words: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``(G,)`` prefixes and the words that they are continued by, accepted in the second layer."""
        rough, exact = bodies
        # All pairs of a prefix and a word in the table's precision; those near enough again in double precision.
        is_near = []
        for some in torch.split(prefixes, max(1, _AT_ONCE // len(words))):
            inputs = _second_inputs(rough, table, some, words)
            is_near.append(distances(span.to(table), inputs) < self.second + _ROUNDING)
        origin, word = torch.cat(is_near).nonzero(as_tuple=True)
        accepted = torch.zeros(len(origin), dtype=torch.bool)
        for pairs in torch.split(torch.arange(len(origin)), _AT_ONCE):
            inputs = _second_inputs(exact, table, prefixes[origin[pairs]], words[word[pairs]][:, None])
            accepted[pairs] = distances(span, inputs)[:, 0] < self.second
        return origin[accepted], words[word[accepted]]


def _projections(layer: int) -> list[str]:
    """Names of the weights of a layer's attention."""
    return [f"{BODY}.layers.{layer}.{part}.weight" for part in ("query", "key", "value")]


def _first_inputs(body: Decoder, vectors: Tensor, position: int) -> Tensor:
    """``(W, d)`` inputs of the first layer at a place, for ``vectors (W, d)`` of words."""
    first = body.layers[0]
    assert isinstance(first, DecoderLayer)
    position_vector = body.position.weight[position]
    inputs: Tensor = first.norm(vectors.to(position_vector) + position_vector)
    return inputs


def _second_inputs(body: Decoder, table: Tensor, prefixes: Tensor, words: Tensor) -> Tensor:
    """``(P, W, d)`` inputs of the second layer at the words ``(W,)`` or ``(P, W)`` after prefixes ``(P, T)``."""
    first, second = body.layers[0], body.layers[1]
    assert isinstance(first, DecoderLayer)
    assert isinstance(second, DecoderLayer)
    length = prefixes.shape[1]
    positions = body.position.weight
    before = table[prefixes].to(positions) + positions[:length]
    last = table[words].to(positions) + positions[length]
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
    states = torch.cat(parts)
    started = prefixes.started()
    logits = states @ with_bias(model, [OUTPUT]).double().T
    repeated = sentences / float(started[prefixes.parents < 0].sum())
    return next_words(change, states, logits, started, 0.0, repeated=repeated).counts
