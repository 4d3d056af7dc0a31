"""Sentences of a client, from the spans of a language model's layer changes."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.applicability import without_texts
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.attacks.reconstruction.next_words import NextWords, next_words
from fedleak.attacks.reconstruction.span import Span, span_of
from fedleak.attacks.reconstruction.word_layers import RecurrentLayers, word_layers
from fedleak.client.text import EMBEDDING, TextAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Scores
from fedleak.core.metric_table import POSITIVE, SHARE, Metric
from fedleak.core.progress import with_progress
from fedleak.core.ranges import OpenUnitInterval, PositiveInt, UnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

_UNEXPLAINED = 3.0
"""Sentences explain a change of the last layer if they leave at most so many times its noise."""

_MOST = 2**14
"""Largest number of prefixes of one length that are checked in the deeper layer."""
_MOST_PREFIXES = 2**12
"""Largest number of prefixes of all lengths: more take minutes to tell apart, and mostly cannot be."""
_AT_ONCE = 512
_LOOSE = 100.0
"""What is accepted in the first layer of an input that passes the strict check of the deeper one: a direction may be
lost in the rounding."""
_SLACK = 16.0
"""What is accepted in the deeper layer of an input that passes the strict check of the first one: deeper inputs are
more alike, so that more of them is lost below the noise."""


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of sentences: ``words (P, L)`` padded with 0, shorter ones first, and the number of the longest proper
    prefix of each, ``parents (P,)``, -1 for single words.
    """

    words: Tensor
    parents: Tensor

    @property
    def lengths(self) -> Tensor:
        """``(P,)`` numbers of words."""
        return (self.words > 0).sum(1)

    def started(self) -> Tensor:
        """``(P,)`` number of longest prefixes that start with each: how many sentences do, at least."""
        counts = torch.ones(len(self.words), dtype=torch.int64)
        counts[self.parents[self.parents >= 0]] = 0
        for length in range(int(self.lengths.max()), 1, -1):
            own = self.lengths == length
            counts.index_add_(0, self.parents[own], counts[own])
        return counts


@dataclass(frozen=True, kw_only=True)
class SpanEstimate(ReconstructionEstimate):
    """Sentences of each client, with what the ranks predict.

    Attributes:
        rank: ``(V,)`` float64 rank, above the noise, of the change of the layer whose inputs tell prefixes apart: the
            first layer of a recurrent network; the deeper one of a decoder, whose first inputs are words and places.
        spare: ``(V,)`` float64 dimensions outside its span.
        predicted: ``(V,)`` float64 share of exact sentences that these predict: 1 if enough dimensions are spare and
            the rank is not below the number of sentences, else 0; NaN where a check of the attack refutes that.
    """

    inferred = "which sentences it was trained on, word by word"
    metrics = (
        *ReconstructionEstimate.metrics,
        Metric(
            "rank", "Rank is the number of independent inputs that show in a layer's change.", leak=False, span=POSITIVE
        ),
        Metric(
            "spare", "Spare is the number of dimensions in which a wrong sentence shows.", leak=False, span=POSITIVE
        ),
        Metric(
            "predicted",
            "Predicted is the share of exact sentences that the rank implies, without the truth.",
            leak=False,
            predicts="recovered",
            span=SHARE,
        ),
    )
    rank: Tensor
    spare: Tensor
    predicted: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_texts(view, truth)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        metrics = {**scores.metrics, "rank": self.rank, "spare": self.spare}
        if bool(self.predicted.isfinite().any()):
            metrics["predicted"] = self.predicted
        return dataclasses.replace(scores, metrics=metrics)


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
        This project for recurrent networks, the noise, the last words and repetitions. For decoders: I. Petrov, D.
        Dimitrov, M. Baader, M. Müller and M. Vechev, "DAGER: Exact Gradient Inversion for Large Language Models",
        NeurIPS 2024, arXiv:2405.15586, algorithms 1 and 2.
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
        noises = layers.layer_gradients(number_variances(view))
        model = {name: value.double() for name, value in view.model.items()}
        steps = learner.steps(view.example_counts)
        found = []
        # Each has spans and prefixes of its own; products are over all its candidates.
        for v in with_progress(range(view.victims)):
            one = Victim(
                layers=layers,
                model=model if int(steps[v]) == 1 else _between(view, v, EMBEDDING),
                changes=[change[v].double() for change in changes],
                noises=[float(noise[min(v, len(noise) - 1)].mean().sqrt()) for noise in noises],
                words=moved[v].nonzero().flatten(),
                sentences=int(view.example_counts[v]),
                steps=int(steps[v]),
            )
            found.append(self.sentences(one))
        longest = max((records.shape[1] for records, _, _ in found), default=1)
        padded = [torch.nn.functional.pad(records, (0, longest - records.shape[1])) for records, _, _ in found]
        made = reconstruction(padded, certified=[certain for _, certain, _ in found])
        rank, spare = (torch.tensor([getattr(f, n) for _, _, f in found]).double() for n in ("rank", "free"))
        predicted = ((spare >= self.margin) & (rank >= view.example_counts)).double()
        # Of one step, sentences that the ranks promise must explain the last layer.
        is_explained = torch.tensor([len(certain) > 0 and bool(certain.all()) for _, certain, _ in found])
        predicted[(predicted == 1) & (steps == 1) & ~is_explained] = torch.nan
        return SpanEstimate(**vars(made), rank=rank, spare=spare, predicted=predicted)

    def sentences(self, victim: "Victim") -> tuple[Tensor, Tensor, Span]:
        """``(M, L)`` sentences of one client, ``(M,)`` whether they are certain, and the span that decides."""
        first, deeper = self.spans(victim)
        prefixes = self.prefixes(victim, first, deeper)
        deciding = first if victim.first_sees_prefixes else deeper
        if prefixes is None:
            return torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, dtype=torch.bool), deciding
        following = victim.next_words(prefixes)
        records = endings(prefixes, following.counts.clamp(max=victim.sentences))
        if victim.steps == 1 and len(records) and victim.sentences % len(records) == 0:
            records = records.repeat_interleave(victim.sentences // len(records), 0)
        certain = victim.steps == 1 and following.excess <= _UNEXPLAINED and len(records) == victim.sentences
        return records, torch.full((len(records),), certain), deciding

    def spans(self, victim: "Victim") -> tuple[Span, Span]:
        """Spans of the first and of the deeper layer."""
        drift = 0.0 if victim.steps == 1 else self.drift
        first, deeper = (span_of(victim.changes[n], victim.noises[n], drift=drift) for n in (0, 1))
        return first, deeper

    def prefixes(self, victim: "Victim", first: Span, deeper: Span) -> Prefixes | None:
        """Prefixes whose inputs lie in both spans; None if there are none, too many, or too few free dimensions."""
        if first.free < self.margin or not first.rank:
            return None
        return grown_prefixes(lambda known: self.extended(victim, first, deeper, known), self.longest)

    def extended(self, victim: "Victim", first: Span, deeper: Span, prefixes: Tensor) -> tuple[Tensor, Tensor] | None:
        """Longer prefixes ``(P', L + 1)`` and the number of the prefix that each continues; None for none."""
        inputs = victim.word_inputs(prefixes.shape[1])
        if inputs is None:
            return None
        excess = first.excess(victim.layers.prefix_inputs(victim.model, prefixes), inputs, missed=self.missed)
        excess = excess.expand(len(prefixes), -1)
        checked_again = deeper.free >= self.margin
        origin, word = (excess <= (_LOOSE if checked_again else 1)).nonzero(as_tuple=True)
        if len(origin) > _MOST:
            best = excess[origin, word].argsort()[:_MOST]
            origin, word = origin[best], word[best]
        longer = torch.cat([prefixes[origin], victim.words[word][:, None]], dim=1)
        if not len(longer):
            return None
        most = self.width * victim.sentences
        if checked_again:
            parts = [victim.layers.deeper_inputs(victim.model, some) for some in torch.split(longer, _AT_ONCE)]
            states = torch.cat(parts)
            second = deeper.excess(states, states.new_zeros(1, states.shape[1]), missed=self.missed)[:, 0]
            kept = second <= torch.where(excess[origin, word] <= 1, _SLACK, 1.0)
            best = second.where(kept, torch.inf).argsort()[:most]
            best = best[kept[best]].sort().values
            longer, origin = longer[best], origin[best]
        if not 0 < len(longer) <= most:
            return None  # with more prefixes than sentences, the check shows nothing
        return longer, origin


@dataclass(frozen=True, kw_only=True)
class Victim:
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
        two = self.layers.prefix_inputs(self.model, torch.tensor([[1], [2]]))
        return not torch.equal(two[0], two[1])

    def word_inputs(self, place: int) -> Tensor | None:
        """``(W', D)`` parts of the first layer's input; None if the model takes no sentence so long."""
        try:
            return self.layers.word_inputs(self.model, place)[self.words]
        except IndexError:
            return None

    def next_words(self, prefixes: Prefixes) -> NextWords:
        lengths, parts = prefixes.lengths, []
        for length in torch.unique(lengths).tolist():
            parts.append(self.layers.last_inputs(self.model, prefixes.words[lengths == length, :length]))
        states = torch.cat(parts)
        last = self.layers.layer_gradients(self.model)[2].double()
        started = prefixes.started()
        repeated = self.sentences / float(started[prefixes.parents < 0].sum())
        return next_words(self.changes[2], states, states @ last.T, started, self.noises[2], repeated=repeated)


def grown_prefixes(extended: Callable[[Tensor], tuple[Tensor, Tensor] | None], longest: int) -> Prefixes | None:
    """Prefixes that grow by one word at a time; None if there are none, or too many.

    Args:
        extended: longer prefixes ``(P', L + 1)`` of some ``(P, L)``, and the number of the prefix that each continues;
            None for none.
        longest: largest number of words.
    """
    words, parents = [torch.zeros(1, 0, dtype=torch.int64)], list[Tensor]()
    total = 0
    for place in range(longest):
        grown = extended(words[-1])
        if grown is None:
            break
        longer, origin = grown
        parents.append(origin + total - len(words[-1]) if place else torch.full_like(origin, -1))
        words.append(longer)
        total += len(longer)
        if total > _MOST_PREFIXES:
            return None
    if not parents:
        return None
    rows = [row for level in words[1:] for row in level]
    return Prefixes(pad_sequence(rows, batch_first=True), torch.cat(parents))


def endings(prefixes: Prefixes, counts: Tensor) -> Tensor:
    """``(M, L)`` sentences, from how often each word follows each prefix, ``(P, W)``.

    A word that follows a prefix more often than their continuation is continued itself ends a sentence there.
    """
    ends, followed = counts.clone(), counts.sum(1)
    longer = (prefixes.parents >= 0).nonzero().flatten()
    last = prefixes.words.gather(1, prefixes.lengths[:, None] - 1)[:, 0]
    ends[prefixes.parents[longer], last[longer]] -= followed[longer]
    place, word = (ends > 0).nonzero(as_tuple=True)
    records = torch.nn.functional.pad(prefixes.words[place], (0, 1))
    records[torch.arange(len(place)), prefixes.lengths[place]] = word
    return records.repeat_interleave(ends[place, word], 0)


def moved_rows(view: RoundView, table: str) -> Tensor:
    """``(V, W)`` True for rows of a table that moved, except that of padding: with noise, all of them."""
    moved = view.deltas[table].flatten(2).ne(0).any(2)
    if table in view.row_parameters:
        rows = view.served_items
        found = torch.zeros(view.victims, len(view.model[table]), dtype=torch.bool)
        client, place = (moved & (rows >= 0)).nonzero(as_tuple=True)
        found[client, rows[client, place]] = True
        moved = found
    moved[:, 0] = False
    return moved


def number_variances(view: RoundView) -> dict[str, Tensor]:
    """Variance of the error of each recorded number: declared noise, and rounding of the local model and of the sum."""
    made = {}
    for name, change in view.deltas.items():
        if name in view.row_parameters:
            continue
        eps = torch.finfo(torch.float16 if name in view.rounded else change.dtype).eps
        unit = 2.0 ** view.model[name].double().abs().clamp(min=1e-30).log2().floor()
        single = torch.finfo(change.dtype).eps
        of_change = eps**2 * change.double().square().flatten(1).mean(1)
        made[name] = (
            view.noise_scale(name) ** 2
            + (single * unit).square() / 12
            + of_change.reshape(-1, *[1] * view.model[name].dim())
        )
    return made


def _between(view: RoundView, victim: int, table: str) -> dict[str, Tensor]:
    """Mean of the models before and after one client's training."""
    change = {name: value[victim] for name, value in view.deltas.items() if name not in view.row_parameters}
    if table in view.row_parameters:
        rows = view.served_items[victim]
        real = rows >= 0
        whole = torch.zeros_like(view.model[table])
        change[table] = whole.index_add_(0, rows[real], view.deltas[table][victim][real])
    return {n: (value + change[n] / 2 if n in change else value).double() for n, value in view.model.items()}
