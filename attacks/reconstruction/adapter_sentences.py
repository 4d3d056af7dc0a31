"""Sentences of a client that fine-tunes a language model by adapters of low rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, reconstruction
from fedleak.attacks.reconstruction.last_words import last_words
from fedleak.attacks.reconstruction.sentence_span import Prefixes, SpanEstimate, grown_prefixes, number_variances
from fedleak.attacks.reconstruction.simulated_step import explains
from fedleak.attacks.reconstruction.span import Span, span_of
from fedleak.attacks.words.adapter_words import pursuits
from fedleak.attacks.words.joint_pursuit import Sums
from fedleak.attacks.words.only_words import no_word_can_be_another
from fedleak.client.adapted_layers import LayerInputs
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.ranges import OpenUnitInterval, PositiveInt, UnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_MOST = 2**15
"""Largest number of prefixes of one length that are checked."""
_AT_ONCE = 512
_SLACKS = (1.0, 4.0, 16.0)
"""Largest accepted excess: first that of noise, then more, since a direction of the span may be lost in the noise."""
_CLEAR = 3.0
"""Smallest singular value of a span, over the edge of noise, above which none is expected to be lost below it."""
_APART = 0.05
"""Relative distance of the vectors of two words of a client, below which the simulated step would hardly show that they
change places: one other word, at a distance of about 1, changes it by 2e-2 or more, and 1e-4 is accepted."""


@dataclass(frozen=True)
class Reading:
    """Row space of the change of adapters that read the same inputs.

    Attributes:
        layer: number of the inputs among those of `PretrainedAlgorithm.adapted_inputs`.
        span: the row space.
        spare: rows and dimensions, the fewer of them, beyond its rank: 0 if the row space may be a part of the span of
            the inputs.
        matrix: ``(r, d)`` A through which the inputs are seen where only B moved; None for the inputs themselves.
    """

    layer: int
    span: Span
    spare: int
    matrix: Tensor | None

    @property
    def clear(self) -> bool:
        """Whether all directions of the span are far above the noise, so that none is likely to be lost in it."""
        return bool(self.span.values[-1] >= _CLEAR * self.span.edge)

    def excess(self, inputs: Tensor, missed: float) -> Tensor:
        """``(N,)`` squared distance of inputs ``(N, d)`` from the row space, over what noise explains."""
        vectors = inputs.double() if self.matrix is None else inputs.double() @ self.matrix.double().T
        return self.span.excess(vectors, vectors.new_zeros(1, vectors.shape[1]), missed=missed)[:, 0]


@dataclass(frozen=True, kw_only=True)
class AdapterSentences(ReconstructionAttack):
    """Span check of prefixes in adapted layers above the first attention, extended word by word.

    The change of A is ``s B^T sum_t g_t z_t^T`` over the places t of all sentences. All layers that read the same
    inputs z_t together give as many rows as the rank times their number. The first adapted layers read words, which
    `AdapterWords` finds there. (1) In later layers, z_t is a function of the words up to t. A prefix grows by those
    words whose inputs lie in every row space that is complete, which has spare rows, the largest rank of all, and one
    of at least the number of words. This needs fewer different prefixes than rows; with more of them, the row space is
    a part of the inputs' span and holds none of them. Where B is small, the rounding of A hides a part of it too.
    Before the first step B is zero and A does not move; then the rows of the change of B span the ``A z_t``, one layer
    at a time, and the limit is the rank. (2) The last word of a sentence is never read. It is solved from the whole
    update, which is linear in the words that should have been predicted, see `last_words`. (3) One step on the
    sentences is simulated.

    Sentences are certified only if all of this holds. The simulated step gives the whole update up to rounding. They
    are as many as the client reports. No other word can take the place of one in the sums of the first layer
    (`only_words.norm_after_swap`), and no two of their words have nearly the same vector. No other last word explains
    the update nearly as well. A client that sends the update of another one has its sentences certified: they are those
    in the update.

    Sentences are predicted to be exact if a complete row space has no direction near the noise, and not to be if none
    has. Nothing is predicted where the row spaces promise sentences and a check refutes them: the simulated step is not
    the update, because the clients do something else than the server knows (another rate, scale or clip), or other
    words could take the place of some.

    Of several local steps the inputs drift, so that `drift` is accepted as their relative distance, and inputs are
    those of the mean of the models before and after; nothing is certified or predicted.

    Threat model: passive server, one update of plain gradient descent; knows the base network, the adapters and the
    tokenizer, and no text.

    Args:
        margin: spare rows below which a check is not conclusive.
        missed: probability that noise hides a true prefix, in each check.
        drift: relative distance of true inputs after several local steps.
        longest: largest number of words of a sentence, and of places of a network whose inputs depend on them.
        words: largest number of words of a client.
        width: prefixes of one length, for each reported sentence, above which the search ends.

    Raises:
        ViewError: the network predicts no words, clients do not descend plainly, or no adapted layer reads prefixes.

    References:
        This project for adapters, the last words and the certificates. I. Petrov, D. Dimitrov, M. Baader, M. Müller and
        M. Vechev, "DAGER: Exact Gradient Inversion for Large Language Models", NeurIPS 2024, arXiv:2405.15586,
        algorithm 2 and section 5.4, for the span check.
    """

    name = "adapter-sentences"
    estimates = SpanEstimate
    exact = True
    certifies = True
    cost = "seconds per victim"
    threat_model = ThreatModel(
        sees="the update of the adapters",
        knows="the base network, the adapters and the tokenizer",
        needs=("deltas", "model", PretrainedAlgorithm),
    )

    margin: PositiveInt = 4
    missed: OpenUnitInterval = 1e-9
    drift: UnitInterval = 0.003
    longest: PositiveInt = 32
    words: PositiveInt = 1000
    width: PositiveInt = 3

    def run(self, view: RoundView, *, generator: torch.Generator) -> SpanEstimate:
        algorithm = view.require(PretrainedAlgorithm)
        _check_descent(view, algorithm)
        systems, pursuits_of_words = pursuits(view, self.words, self.longest)
        layers = algorithm.adapted_inputs(dict(view.model), torch.ones(1, 2, dtype=torch.int64))
        variances = number_variances(view)
        records, certified, deciding, predicted = list[Tensor](), list[Tensor](), list[Reading](), list[float]()
        for v in with_progress(range(view.victims)):
            steps = int(algorithm.steps(view.example_counts)[v])
            pursuit = pursuits_of_words[v]
            words = torch.unique(systems.tokens[pursuit.present])
            readings = _readings(view, v, layers, variances, 0.0 if steps == 1 else self.drift)
            least = max(len(words) if pursuit.explained else 1, *(one.span.rank for one in readings))
            useful = [one for one in readings if one.spare >= self.margin and one.span.rank >= least]
            victim = Victim(
                algorithm=algorithm,
                model=_model_between(view, v, steps),
                gradient={name: -change[v] / algorithm.learning_rate / steps for name, change in view.deltas.items()},
                readings=useful,
                words=words,
                sentences=int(view.example_counts[v]),
            )
            for slack in _SLACKS:
                texts, clear = self.sentences(victim, slack)
                explained = steps == 1 and len(texts) == victim.sentences > 0 and explains(view, v, texts)
                if explained:
                    break
            are_distinct = _are_apart(systems.sums[v][0], systems.tokens, words) and no_word_can_be_another(
                systems.sums[v], pursuit.present, systems.tokens
            )
            is_explained = explained and are_distinct
            certain = is_explained and clear
            records.append(texts)
            certified.append(torch.full((len(texts),), certain))
            deciding.append(max(useful or readings, key=lambda one: one.spare))
            is_promised = any(reading.clear for reading in useful)
            is_refuted = is_promised and not is_explained
            predicted.append(torch.nan if steps > 1 or is_refuted else float(is_promised or certain))
        longest = max((texts.shape[1] for texts in records), default=1)
        padded = [pad(texts, (0, longest - texts.shape[1])) for texts in records]
        return SpanEstimate(
            **vars(reconstruction(padded, certified=certified)),
            rank=torch.tensor([one.span.rank for one in deciding]).double(),
            spare=torch.tensor([one.spare for one in deciding]).double(),
            predicted=torch.tensor(predicted, dtype=torch.float64),
        )

    def sentences(self, victim: "Victim", slack: float) -> tuple[Tensor, bool]:
        """``(M, L)`` sentences of one client, and whether no other last words explain its gradient as well."""
        prefixes = self.prefixes(victim, slack)
        if prefixes is None:
            return torch.zeros(0, 1, dtype=torch.int64), False
        complete = torch.ones(len(prefixes.words), dtype=torch.bool)
        complete[prefixes.parents[prefixes.parents >= 0]] = False
        texts = prefixes.words[complete]
        if len(texts) > victim.sentences:
            texts = texts[~_repetitive(texts)][-victim.sentences :]  # the longest: wrong ones end soon
        if not len(texts):
            return torch.zeros(0, 1, dtype=torch.int64), False
        last = last_words(victim.algorithm, victim.model, victim.gradient, texts)
        records = pad(texts, (0, 1))
        records[torch.arange(len(texts)), (texts > 0).sum(1)] = last.words
        if victim.sentences % len(records) == 0:
            records = records.repeat_interleave(victim.sentences // len(records), 0)
        return records, bool(last.clear.all())

    def prefixes(self, victim: "Victim", slack: float) -> Prefixes | None:
        """Prefixes whose inputs lie in all row spaces; None if there are none, too many, or no spare rows."""
        if not victim.readings or not len(victim.words):
            return None
        return grown_prefixes(lambda known: self.extended(victim, known, slack), self.longest - 1)

    def extended(self, victim: "Victim", prefixes: Tensor, slack: float) -> tuple[Tensor, Tensor] | None:
        """Longer prefixes ``(P', L + 1)`` and the number of the prefix that each continues; None for none."""
        count = len(victim.words)
        if len(prefixes) * count > _MOST:
            return None
        origin = torch.arange(len(prefixes)).repeat_interleave(count)
        longer = torch.cat([prefixes[origin], victim.words.repeat(len(prefixes))[:, None]], dim=1)
        for reading in victim.readings:
            parts = [victim.excess(some, reading, self.missed) for some in torch.split(longer, _AT_ONCE)]
            kept = torch.cat(parts) <= slack
            longer, origin = longer[kept], origin[kept]
            if not len(longer):
                return None
        if len(longer) > self.width * victim.sentences or bool(_repetitive(longer).all()):
            return None  # with more prefixes than sentences, the check shows nothing
        return longer, origin


@dataclass(frozen=True, kw_only=True)
class Victim:
    """What the attack uses of one client.

    Attributes:
        algorithm: the clients' network and its loss.
        model: the adapters from which inputs are computed.
        gradient: mean gradient of its steps.
        readings: row spaces that are complete.
        words: ``(W,)`` words that may occur.
        sentences: number of sentences that the client reports.
    """

    algorithm: PretrainedAlgorithm
    model: dict[str, Tensor]
    gradient: Mapping[str, Tensor]
    readings: Sequence[Reading]
    words: Tensor
    sentences: int

    def excess(self, prefixes: Tensor, reading: Reading, missed: float) -> Tensor:
        """``(P,)`` excess of a layer's inputs at the last words of prefixes ``(P, L)``."""
        inputs = self.algorithm.adapted_inputs(self.model, prefixes, most=reading.layer + 1)[reading.layer]
        return reading.excess(inputs.vectors[:, -1], missed)


def _check_descent(view: RoundView, algorithm: PretrainedAlgorithm) -> None:
    """Refuses what is no update of a language model by plain gradient descent.

    Raises:
        ViewError: with what it is instead.
    """
    local = algorithm.local
    if view.client_models is not None:
        raise ViewError("expected one global model for all clients, got a model of each client's own")
    if algorithm.task != "causal-lm":
        raise ViewError(f"expected a network that predicts the next words, got one for {algorithm.task}")
    if algorithm.random:
        raise ViewError("expected clients without dropout, which changes the inputs; `adapter-words` ranks their words")
    if not local.plain_sgd or local.example_clip is not None or algorithm.update_l1 is not None:
        raise ViewError(f"expected plain gradient descent, got {local.optimizer} with changes; try `adapter-words`")


def _repetitive(texts: Tensor) -> Tensor:
    """``(P,)`` whether texts ``(P, L)`` repeat one word: attention without places reads that like the word alone."""
    return ((texts == texts[:, :1]) | (texts == 0)).all(1) & ((texts > 0).sum(1) > 1)


def _readings(
    view: RoundView, victim: int, layers: Sequence[LayerInputs], variances: Mapping[str, Tensor], drift: float
) -> list[Reading]:
    """Row spaces of the changes of all adapters but the first, which read words and no prefixes."""

    def whitened(name: str) -> Tensor:
        """A change in units of its noise, because adapters differ much in it."""
        variance = variances[name][min(victim, len(variances[name]) - 1)]
        return view.deltas[name][victim].double() / variance.mean().sqrt()

    values = {**view.require(PretrainedAlgorithm).frozen, **view.model}
    found = list[Reading]()
    changes: list[tuple[Tensor, Tensor | None]]
    for number, layer in enumerate(layers[1:], 1):
        moved = [a for a, _ in layer.adapters if a in view.deltas and bool(view.deltas[a][victim].any())]
        if moved:
            changes = [(torch.cat([whitened(a) for a in moved]), None)]
        else:
            changes = [(whitened(b), values[a]) for a, b in layer.adapters if b in view.deltas]
        for change, matrix in changes:
            span = span_of(change, 1.0, drift=drift)
            found.append(Reading(number, span, min(change.shape) - span.rank, matrix))
    if not found:
        raise ViewError("expected recorded adapters above the first attention, where inputs depend on earlier words")
    return found


def _model_between(view: RoundView, victim: int, steps: int) -> dict[str, Tensor]:
    """The global model; the mean of the models before and after one client's training of several steps."""
    share = 0.0 if steps == 1 else 0.5
    return {
        name: value + share * view.deltas[name][victim] if name in view.deltas else value
        for name, value in view.model.items()
    }


def _are_apart(sums: Sums, tokens: Tensor, words: Tensor) -> bool:
    """Whether no two of a client's words ``(W,)`` have nearly the same vector."""
    places = torch.isin(tokens, words).nonzero().flatten()
    vectors = sums.table[places].double()
    near = torch.cdist(vectors, vectors) <= _APART * vectors.norm(dim=1)[:, None]
    return not bool((near & (tokens[places][:, None] != tokens[places])).any())
