"""Sentences of a client, from the spans of a language model's layer changes."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, reconstruction
from fedleak.attacks.reconstruction.following_words import FollowingWords, next_words
from fedleak.attacks.reconstruction.sentence_prefixes import Prefixes, endings, grown_prefixes
from fedleak.attacks.reconstruction.span import Span, number_variances, span_of
from fedleak.attacks.reconstruction.span_estimate import SpanEstimate
from fedleak.attacks.reconstruction.word_layers import RecurrentLayers, word_layers
from fedleak.client.text import EMBEDDING, TextAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.ranges import OpenUnitInterval, PositiveInt, UnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_UNEXPLAINED = 3.0
"""Sentences explain a change of the last layer if they leave at most so many times its noise."""
_MOST = 2**14
"""Largest number of prefixes of one length that are checked in the deeper layer."""
_AT_ONCE = 512
"""Prefixes whose inputs of the deeper layer are computed together."""
_LOOSE = 100.0
"""What is accepted in the first layer of an input that passes the strict check of the deeper one: a direction may be
lost in the rounding."""
_SLACK = 16.0
"""What is accepted in the deeper layer of an input that passes the strict check of the first one: deeper inputs are
more alike, so that more of them is lost below the noise."""


@dataclass(frozen=True, kw_only=True)
class SentenceSpan(ReconstructionAttack):
    """Span check of prefixes, extended word by word, for recurrent networks and for transformer decoders.

    The gradient of a linear layer is ``sum_t delta_t z_t^T`` over the places t of all sentences, so each input z_t lies
    in its row space, unless this is all of the space. In a network in which no word sees later ones, z_t is a function
    of the words up to t. (1) Only rows of the word table that moved belong to words that occur. (2) A prefix grows by
    the words whose input of the first layer, and then of a deeper layer, lies in the span. For a decoder, these are the
    first layer's attention, and its second half, which is cheaper to compute than DAGER's second attention. For an
    LSTM, the first layer has the input ``(x_t, h_{t-1}, 1)``, and the changes of both weight matrices and of the bias
    are side by side: the capacity is d + H + 1 different prefixes, not the H of the recurrent matrix alone. The deeper
    layer is the last one, where it has free dimensions. (3) Given all prefixes, the change of the last layer says how
    often each word follows each of them (`next_words`), and so the last words and repeated sentences: a prefix that a
    word follows more often than it is continued ends there.

    Whether an input lies in the span is decided by the noise, see `Span`: that which the clients declare, and rounding
    of the recorded numbers. The sentences are certified if the update is one step, at least `margin` dimensions are
    outside the span of the first layer, there are as many sentences as the client reports, and together they explain
    the change of the last layer up to its noise. A random direction passes the check of one layer at a relative
    distance e with probability ``I(e^2; (D - R) / 2, R / 2)``, the regularised incomplete beta function
    (`Span.false_acceptance`), for a span of R of D dimensions: with 4 free ones and e = 1e-4 below 1e-12. A client that
    sends the update of another one has its sentences certified: they are those in the update.

    Of several local steps the inputs drift, so that `drift` is accepted as their relative distance, and inputs are
    those of the mean of the models before and after; nothing is certified. Under noise, the rank is the number of
    singular values above it; below the number of sentences, nothing can be found. Where prefixes fill the dimensions of
    the first layer, the span check fails; `SentenceChains` goes on. Where the ranks of one step promise sentences, and
    those found do not explain the change of the last layer, nothing is predicted.

    Threat model: passive server, one update; it knows the global model and the clients' algorithm, and holds no text.

    Args:
        margin: free dimensions below which a span check is not conclusive.
        missed: probability that noise hides a true prefix, in each check.
        drift: relative distance of true inputs after several local steps.
        longest: largest number of words of a sentence.
        width: prefixes of one length, for each reported sentence, above which the search ends.

    References:
        This project for recurrent networks, the noise, the last words and repetitions. For decoders: [Petrov24],
        algorithms 1 and 2.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import SentenceSpan
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("sentences")
        >>> estimate = SentenceSpan()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["rouge1"].mean()), 2)
        1.0
    """

    name = "sentence-span"
    estimates = SpanEstimate
    exact = True
    certifies = True
    cost = "a tenth of a second to seconds per victim"
    threat_model = ThreatModel(
        sees="the deltas of all layers in one round",
        knows="the clients' training algorithm",
        needs=(TextAlgorithm, "deltas:output.weight"),
    )

    margin: PositiveInt = 4
    missed: OpenUnitInterval = 1e-9
    drift: UnitInterval = 0.003
    longest: PositiveInt = 64
    width: PositiveInt = 8

    def run(self, view: RoundView, *, generator: torch.Generator) -> SpanEstimate:
        if view.client_models is not None:
            raise ViewError("expected one global model for all clients, got a model of each client's own")
        learner = view.require(TextAlgorithm)
        layers = word_layers(learner)
        try:
            changes = layers.layer_gradients(view.deltas)
            moved = moved_rows(view, EMBEDDING)
        except KeyError as error:
            raise ViewError(f"expected the deltas of all layers, got a recording without {error}") from None
        if changes[2].shape[1] != moved.shape[1]:
            raise ViewError(f"expected a model that predicts words, got one with {changes[2].shape[1]} output(s)")
        variances = layers.layer_gradients(number_variances(view))
        model = {name: value.double() for name, value in view.model.items()}
        steps = learner.steps(view.example_counts)
        records, certified, deciding = list[Tensor](), list[Tensor](), list[Span]()
        # Each has spans and prefixes of its own; products are over all its candidates.
        for v in with_progress(range(view.victims)):
            client = TextClient(
                layers=layers,
                model=model if int(steps[v]) == 1 else _between(view, v, EMBEDDING),
                changes=[change[v].double() for change in changes],
                noises=[float(variance[min(v, len(variance) - 1)].mean().sqrt()) for variance in variances],
                words=moved[v].nonzero().flatten(),
                sentences=int(view.example_counts[v]),
                steps=int(steps[v]),
            )
            texts, certain, span = self.sentences(client)
            records.append(texts)
            certified.append(certain)
            deciding.append(span)
        return self._estimate(view, steps, records, certified, deciding)

    def _estimate(
        self, view: RoundView, steps: Tensor, records: list[Tensor], certified: list[Tensor], deciding: list[Span]
    ) -> SpanEstimate:
        """Sentences ``(M, L)`` of each client, and what the rank of the span that decides predicts of them."""
        longest = max((texts.shape[1] for texts in records), default=1)
        padded = [torch.nn.functional.pad(texts, (0, longest - texts.shape[1])) for texts in records]
        rank = torch.tensor([span.rank for span in deciding]).double()
        spare = torch.tensor([span.free for span in deciding]).double()
        predicted = ((spare >= self.margin) & (rank >= view.example_counts)).double()
        # Of one step, sentences that the ranks promise must explain the last layer.
        is_explained = torch.tensor([len(certain) > 0 and bool(certain.all()) for certain in certified])
        predicted[(predicted == 1) & (steps == 1) & ~is_explained] = torch.nan
        return SpanEstimate(
            **vars(reconstruction(padded, certified=certified)),
            rank=rank,
            spare=spare,
            predicted=predicted,
        )

    def sentences(self, client: "TextClient") -> tuple[Tensor, Tensor, Span]:
        """``(M, L)`` sentences of one client, ``(M,)`` whether they are certain, and the span that decides."""
        first, deeper = self.spans(client)
        prefixes = self.prefixes(client, first, deeper)
        deciding = first if client.first_sees_prefixes else deeper
        if prefixes is None:
            return torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, dtype=torch.bool), deciding
        following = client.next_words(prefixes)
        records = endings(prefixes, following.counts.clamp(max=client.sentences))
        # The last layer's change gives shares of words only: a client may have all sentences several times.
        if client.steps == 1 and len(records) and client.sentences % len(records) == 0:
            records = records.repeat_interleave(client.sentences // len(records), 0)
        are_all = len(records) == client.sentences
        certain = client.steps == 1 and following.excess <= _UNEXPLAINED and are_all
        return records, torch.full((len(records),), certain), deciding

    def spans(self, client: "TextClient") -> tuple[Span, Span]:
        """Spans of the first and of the deeper layer."""
        drift = 0.0 if client.steps == 1 else self.drift
        first = span_of(client.changes[0], client.noises[0], drift=drift)
        deeper = span_of(client.changes[1], client.noises[1], drift=drift)
        return first, deeper

    def prefixes(self, client: "TextClient", first: Span, deeper: Span) -> Prefixes | None:
        """Prefixes whose inputs lie in both spans; None if there are none, too many, or too few free dimensions."""
        if first.free < self.margin or not first.rank:
            return None
        return grown_prefixes(lambda shorter: self.extended(client, first, deeper, shorter), self.longest)

    def extended(
        self, client: "TextClient", first: Span, deeper: Span, prefixes: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """Longer prefixes ``(P', L + 1)`` and the number of the prefix that each continues; None for none."""
        # The first layer's input is the sum of a part of the prefix and one of the word: all pairs are checked at once.
        word_inputs = client.word_inputs(prefixes.shape[1])
        if word_inputs is None:
            return None
        prefix_inputs = client.layers.prefix_inputs(client.model, prefixes)
        first_excess = first.excess(prefix_inputs, word_inputs, missed=self.missed).expand(len(prefixes), -1)
        checked_again = deeper.free >= self.margin
        accepted = _LOOSE if checked_again else 1
        origin, word = (first_excess <= accepted).nonzero(as_tuple=True)
        if len(origin) > _MOST:
            best = first_excess[origin, word].argsort()[:_MOST]
            origin = origin[best]
            word = word[best]
        longer = torch.cat([prefixes[origin], client.words[word][:, None]], dim=1)
        if not len(longer):
            return None
        most = self.width * client.sentences
        if checked_again:
            # Either layer may be lenient where the other is strict.
            parts = [client.layers.deeper_inputs(client.model, some) for some in torch.split(longer, _AT_ONCE)]
            states = torch.cat(parts)
            deeper_excess = deeper.excess(states, states.new_zeros(1, states.shape[1]), missed=self.missed)[:, 0]
            is_inside = deeper_excess <= torch.where(first_excess[origin, word] <= 1, _SLACK, 1.0)
            # Of those inside, at most as many as the clearest, in the order of the prefixes that they continue.
            best = deeper_excess.where(is_inside, torch.inf).argsort()[:most]
            best = best[is_inside[best]].sort().values
            longer = longer[best]
            origin = origin[best]
        if not 0 < len(longer) <= most:
            return None  # with more prefixes than sentences, the check shows nothing
        return longer, origin


@dataclass(frozen=True, kw_only=True)
class TextClient:
    """What the attack uses of one client.

    Attributes:
        layers: the clients' network.
        model: the model from which inputs are computed.
        changes: ``(M, D)`` changes of three layers, see `RecurrentLayers.layer_gradients`.
        noises: standard deviation of the noise in each number of a layer's change.
        words: ``(W',)`` words that may occur.
        sentences: number of sentences that the client reports.
        steps: number of local steps.
    """

    layers: RecurrentLayers
    model: Mapping[str, Tensor]
    changes: list[Tensor]
    noises: list[float]
    words: Tensor
    sentences: int
    steps: int

    @property
    def first_sees_prefixes(self) -> bool:
        """Whether the first layer's inputs differ between prefixes, and not only between words and places."""
        after_one, after_two = self.layers.prefix_inputs(self.model, torch.tensor([[1], [2]]))
        return not torch.equal(after_one, after_two)

    def word_inputs(self, position: int) -> Tensor | None:
        """``(W', D)`` parts of the first layer's input; None if the model takes no sentence so long."""
        try:
            return self.layers.word_inputs(self.model, position)[self.words]
        except IndexError:
            return None

    def next_words(self, prefixes: Prefixes) -> FollowingWords:
        """Words that follow each prefix, from the change of the last layer."""
        lengths = prefixes.lengths
        states = []
        for length in torch.unique(lengths).tolist():  # shorter prefixes come first, so the states are in their order
            states.append(self.layers.last_inputs(self.model, prefixes.words[lengths == length, :length]))
        prefix_states = torch.cat(states)
        output_layer = self.layers.layer_gradients(self.model)[2].double()
        started = prefixes.started()
        repeated = self.sentences / float(started[prefixes.parents < 0].sum())
        return next_words(
            self.changes[2],
            prefix_states,
            prefix_states @ output_layer.T,
            started,
            self.noises[2],
            repeated=repeated,
        )


def moved_rows(view: RoundView, table: str) -> Tensor:
    """``(V, W)`` True for rows of a table that moved, except that of padding: with noise, all of them."""
    moved = view.deltas[table].flatten(2).ne(0).any(2)
    if table in view.row_parameters:
        # The recording has served rows only: put each at its number in the table.
        served = view.served_items
        of_table = torch.zeros(view.victims, len(view.model[table]), dtype=torch.bool)
        client, row = (moved & (served >= 0)).nonzero(as_tuple=True)
        of_table[client, served[client, row]] = True
        moved = of_table
    moved[:, 0] = False
    return moved


def _between(view: RoundView, victim: int, table: str) -> dict[str, Tensor]:
    """Mean of the models before and after one client's training."""
    change = {name: value[victim] for name, value in view.deltas.items() if name not in view.row_parameters}
    if table in view.row_parameters:
        served = view.served_items[victim]
        is_row = served >= 0
        of_table = torch.zeros_like(view.model[table])
        change[table] = of_table.index_add_(0, served[is_row], view.deltas[table][victim][is_row])
    model = {}
    for name, value in view.model.items():
        middle = value + change[name] / 2 if name in change else value
        model[name] = middle.double()
    return model
