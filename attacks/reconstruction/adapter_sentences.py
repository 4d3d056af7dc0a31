"""Sentences of a client that fine-tunes a language model by adapters of low rank."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedleak.attacks.reconstruction.adapter_spans import InputSpan, adapter_spans
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, reconstruction
from fedleak.attacks.reconstruction.last_words import last_words
from fedleak.attacks.reconstruction.sentence_prefixes import Prefixes, grown_prefixes
from fedleak.attacks.reconstruction.simulated_step import explains
from fedleak.attacks.reconstruction.span import number_variances
from fedleak.attacks.reconstruction.span_estimate import SpanEstimate
from fedleak.attacks.words.adapter_sums import AdapterSums, changes_by_gradients
from fedleak.attacks.words.adapter_words import pursuits
from fedleak.attacks.words.joint_pursuit import Pursuit, VectorSums
from fedleak.attacks.words.only_words import no_word_can_be_another
from fedleak.client.adapted_layers import MixedInputsError
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import progress_part, with_progress
from fedleak.core.ranges import OpenUnitInterval, PositiveInt, UnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_AT_ONCE = 512
"""Prefixes whose inputs are computed together."""
_SLACKS = (1.0, 4.0, 16.0)
"""Largest accepted excess: first that of noise, then more, since a direction of the span may be lost in the noise."""
_OF_WORDS = 0.5
"""Share of the time in which the words are found."""
_APART = 0.05
"""Relative distance of the vectors of two words of a client, below which the simulated step would hardly show that they
change places: one other word, at a distance of about 1, changes it by 2e-2 or more, and 1e-4 is accepted."""

_CLIPPED = 0.999
"""Length of an update, over that of a clipped one, from which it may have been clipped."""


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
    in the update. Of a client that reports each sentence twice, the update is that of each once, so that each is
    certified as often as is reported.

    Sentences are predicted to be exact if a complete row space has no direction near the noise, and not to be if none
    has. Nothing is predicted where the row spaces promise sentences and a check refutes them: the simulated step is not
    the update, because the clients do something else than the server knows (another rate, scale or clip), or other
    words could take the place of some.

    Where the first adapted layers read mixtures of several words (adapters at the output of attention, in the MLP, or
    in later blocks alone), each word of the vocabulary is tried at each place. Each prefix then costs a part of a
    forward pass for every word.

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
        candidates: prefixes of one length that are checked at most; more than the vocabulary times the sentences where
            the first adapted layers read no single words.

    Raises:
        ViewError: the network predicts no words, clients do not descend plainly, no adapted layer reads prefixes, or
            the vocabulary is larger than `candidates` where each word must be tried.

    References:
        This project for adapters, the last words and the certificates. [Petrov24], algorithm 2 and section 5.4, for the
        span check.
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
    candidates: PositiveInt = 2**15

    def run(self, view: RoundView, *, generator: torch.Generator) -> SpanEstimate:
        algorithm = view.require(PretrainedAlgorithm)
        _check_descent(view, algorithm)
        with progress_part(0.0, _OF_WORDS):
            readable = _readable_words(view, algorithm, self)
        descent = dataclasses.replace(view, deltas=changes_by_gradients(view, view.deltas))
        layers = algorithm.adapted_inputs(dict(view.model), torch.ones(1, 2, dtype=torch.int64))
        variances = number_variances(view)
        answers = list[_Answer]()
        with progress_part(_OF_WORDS, 1.0):
            for v in with_progress(range(view.victims)):
                steps = int(algorithm.steps(view.example_counts)[v])
                drift = 0.0 if steps == 1 else self.drift
                spans = adapter_spans(descent, v, layers, variances, drift, first=readable.first_layer)
                answers.append(self._answer(view, descent, v, steps, spans, readable))
        return _estimate(answers)

    def _answer(
        self,
        view: RoundView,
        descent: RoundView,
        number: int,
        steps: int,
        spans: Sequence[InputSpan],
        readable: "_WordsOfSums | _WholeVocabulary",
    ) -> "_Answer":
        """Sentences of one client, from the row spaces of its changes and the words that it may have."""
        algorithm = view.require(PretrainedAlgorithm)
        known = readable.of_client(number)
        # A row space is complete if it has spare rows, and as many dimensions as any other, and as there are words.
        least = max(known.least, *(adapter.span.rank for adapter in spans))
        complete = list[InputSpan]()
        incomplete = list[InputSpan]()
        for adapter in spans:
            is_complete = adapter.spare >= self.margin and adapter.span.rank >= least
            (complete if is_complete else incomplete).append(adapter)
        client = AdapterClient(
            algorithm=algorithm,
            model=_model_between(view, number, steps),
            gradient=_mean_gradient(descent, number, algorithm.learning_rate * steps),
            spans=complete,
            incomplete=incomplete,
            words=known.words,
            sentences=int(view.example_counts[number]),
            is_scale_known=_is_unclipped(descent, number, algorithm, steps),
        )
        texts, is_clear, is_explained = self._explained_sentences(view, number, client, is_one_step=steps == 1)
        # The simulated step shows all words only if none has the vector of another, and none can take its place.
        is_proved = is_explained and readable.are_distinct(number, texts)
        is_certain = is_proved and is_clear
        predicted = self._predicted(client, is_proved=is_proved, is_certain=is_certain)
        if steps > 1:
            predicted = torch.nan
        return _Answer(
            texts=texts,
            certified=torch.full((len(texts),), is_certain),
            deciding=max(complete or spans, key=lambda adapter: adapter.spare),
            predicted=predicted,
        )

    def _predicted(self, client: "AdapterClient", *, is_proved: bool, is_certain: bool) -> float:
        """Share of exact sentences that is predicted after one step; NaN for no prediction."""
        is_promised = any(adapter.clear for adapter in client.spans)
        if is_promised and not is_proved:
            return torch.nan
        return float(is_promised or is_certain)

    def _explained_sentences(
        self, view: RoundView, number: int, client: "AdapterClient", *, is_one_step: bool
    ) -> tuple[Tensor, bool, bool]:
        """Sentences ``(M, L)`` of a client, whether their last words are clear, and whether they explain its update.

        Each of `_SLACKS` is tried until one step on the sentences, made again, is the update; else the last counts.
        """
        texts = torch.zeros(0, 1, dtype=torch.int64)
        for slack in _SLACKS:
            texts, is_clear = self.sentences(client, slack)
            are_all = len(texts) == client.sentences > 0
            is_explained = is_one_step and are_all and explains(view, number, texts)
            if is_explained:
                return texts, is_clear, True
        if is_one_step and client.is_scale_known:
            # Clients may have another rate or clip than the server knows: then the last words are those of any scale.
            scaled, _ = self.sentences(dataclasses.replace(client, is_scale_known=False), slack)
            if len(scaled) and explains(view, number, scaled, is_scale_known=False):
                texts = scaled
        return texts, False, False

    def sentences(self, client: "AdapterClient", slack: float) -> tuple[Tensor, bool]:
        """``(M, L)`` sentences of one client, and whether no other last words explain its gradient as well."""
        prefixes = self.prefixes(client, slack)
        if prefixes is None:
            return torch.zeros(0, 1, dtype=torch.int64), False
        # Prefixes that none continues are sentences but for their last words, which are never read.
        texts = prefixes.words[prefixes.complete()]
        texts = texts[~_explained_by_others(texts)]
        if len(texts) > client.sentences:
            texts = texts[~_repetitive(texts)][-client.sentences :]  # the longest: wrong ones end soon
        if not len(texts):
            return torch.zeros(0, 1, dtype=torch.int64), False
        return with_last_words(client, texts)

    def prefixes(self, client: "AdapterClient", slack: float) -> Prefixes | None:
        """Prefixes whose inputs lie in all row spaces; None if there are none, too many, or no spare rows."""
        if not client.spans or not len(client.words):
            return None
        return grown_prefixes(lambda shorter: self.extended(client, shorter, slack), self.longest - 1)

    def extended(self, client: "AdapterClient", prefixes: Tensor, slack: float) -> tuple[Tensor, Tensor] | None:
        """Longer prefixes ``(P', L + 1)`` and the number of the prefix that each continues; None for none."""
        count = len(client.words)
        if len(prefixes) * count > self.candidates:
            return None
        # Every prefix with every word, of which each row space in turn leaves those that lie in it.
        origin = torch.arange(len(prefixes)).repeat_interleave(count)
        longer = torch.cat([prefixes[origin], client.words.repeat(len(prefixes))[:, None]], dim=1)
        for adapter in client.spans:
            excess = [client.excess(some, adapter, self.missed) for some in torch.split(longer, _AT_ONCE)]
            is_inside = torch.cat(excess) <= slack
            longer = longer[is_inside]
            origin = origin[is_inside]
            if not len(longer):
                return None
        if len(longer) > self.width * client.sentences or bool(_repetitive(longer).all()):
            return None  # with more prefixes than sentences, the check shows nothing
        return longer, origin


@dataclass(frozen=True, kw_only=True)
class AdapterClient:
    """What the attack uses of one client.

    Attributes:
        algorithm: the clients' network and its loss.
        model: the adapters from which inputs are computed.
        gradient: mean gradient of its steps.
        spans: row spaces that are complete.
        incomplete: the others, which may be a part of the span of the inputs.
        words: ``(W,)`` words that may occur.
        sentences: number of sentences that the client reports.
        is_scale_known: whether the gradient has its length, or a clip has changed it.
    """

    algorithm: PretrainedAlgorithm
    model: dict[str, Tensor]
    gradient: Mapping[str, Tensor]
    spans: Sequence[InputSpan]
    incomplete: Sequence[InputSpan]
    words: Tensor
    sentences: int
    is_scale_known: bool = True

    def excess(self, prefixes: Tensor, adapter: InputSpan, missed: float) -> Tensor:
        """``(P,)`` excess of a layer's inputs at the last words of prefixes ``(P, L)``."""
        inputs = self.algorithm.adapted_inputs(self.model, prefixes, most=adapter.layer + 1)[adapter.layer]
        return adapter.excess(inputs.vectors[:, -1], missed)


def with_last_words(client: AdapterClient, texts: Tensor) -> tuple[Tensor, bool]:
    """``(M, L + 1)`` texts with their last words, and whether no other last words explain the update as well.

    A client may have each sentence several times; then the texts are repeated as often.
    """
    last = last_words(client.algorithm, client.model, client.gradient, texts, is_scale_known=client.is_scale_known)
    records = pad(texts, (0, 1))
    records[torch.arange(len(texts)), (texts > 0).sum(1)] = last.words
    if client.sentences % len(records) == 0:
        records = records.repeat_interleave(client.sentences // len(records), 0)
    return records, bool(last.clear.all())


@dataclass(frozen=True, kw_only=True)
class _KnownWords:
    """Words ``(W,)`` that a client's texts may have, and the least number of them that these have."""

    words: Tensor
    least: int


class _WordsOfSums:
    """Words that `AdapterWords` finds in the first adapted layers, which read single ones."""

    first_layer = 1

    def __init__(self, systems: AdapterSums, pursuits_of_words: Sequence[Pursuit]) -> None:
        self.systems = systems
        self.pursuits = pursuits_of_words

    def of_client(self, victim: int) -> _KnownWords:
        pursuit = self.pursuits[victim]
        words = torch.unique(self.systems.tokens[pursuit.present])
        least = 1
        if pursuit.explained:
            least = len(words)
        return _KnownWords(words=words, least=least)

    def are_distinct(self, victim: int, texts: Tensor) -> bool:
        """Whether no word of a client has nearly the vector of another, and none can take the place of one."""
        sums = self.systems.sums[victim]
        tokens = self.systems.tokens
        pursuit = self.pursuits[victim]
        words = self.of_client(victim).words
        return _are_apart(sums[0], tokens, words) and no_word_can_be_another(sums, pursuit.present, tokens)


class _WholeVocabulary:
    """All words, each of which is tried, where the first adapted layers read mixtures of several."""

    first_layer = 0

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors.double()

    def of_client(self, victim: int) -> _KnownWords:
        return _KnownWords(words=torch.arange(1, len(self.vectors)), least=1)

    def are_distinct(self, victim: int, texts: Tensor) -> bool:
        """Whether no word of the vocabulary has nearly the vector of one of the texts ``(M, L)``."""
        words = torch.unique(texts[texts > 0])
        read = self.vectors[words]
        near = torch.cdist(read, self.vectors) <= _APART * read.norm(dim=1)[:, None]
        return bool((near.sum(1) <= 1).all())  # each is near to itself


def _readable_words(
    view: RoundView, algorithm: PretrainedAlgorithm, attack: AdapterSentences
) -> _WordsOfSums | _WholeVocabulary:
    """What is known of the words before any prefix is checked.

    Raises:
        ViewError: nothing, and the vocabulary is too large to try each word.
    """
    try:
        return _WordsOfSums(*pursuits(view, attack.words, attack.longest))
    except MixedInputsError:
        words = algorithm.vocabulary - 1
        if words > attack.candidates:
            raise ViewError(
                "expected adapters below all attention, or a vocabulary of which each word can be tried at each place;"
                f" got {words} words; for some seconds to minutes a prefix, give candidates of {4 * words} or more"
            ) from None
        return _WholeVocabulary(algorithm.word_vectors(view.model))


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """Sentences ``(M, L)`` of one client, whether each is certain, and the row space that decides, with what it says.

    Of the row spaces that are complete, or of all, the one with most spare rows decides.
    """

    texts: Tensor
    certified: Tensor
    deciding: InputSpan
    predicted: float


def _estimate(answers: Sequence[_Answer]) -> SpanEstimate:
    longest = max((answer.texts.shape[1] for answer in answers), default=1)
    padded = [pad(answer.texts, (0, longest - answer.texts.shape[1])) for answer in answers]
    return SpanEstimate(
        **vars(reconstruction(padded, certified=[answer.certified for answer in answers])),
        rank=torch.tensor([answer.deciding.span.rank for answer in answers]).double(),
        spare=torch.tensor([answer.deciding.spare for answer in answers]).double(),
        predicted=torch.tensor([answer.predicted for answer in answers], dtype=torch.float64),
    )


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
    others: list[str] = []
    if local.optimizer != "sgd":
        others.append(local.optimizer)
    if local.momentum and bool((algorithm.steps(view.example_counts) > 1).any()):
        others.append("momentum over several steps")
    if local.example_clip is not None:
        others.append("clipped examples")
    if algorithm.update_l1 is not None:
        others.append("a penalty of the update")
    if others:
        raise ViewError(f"expected plain gradient descent, got {' and '.join(others)}; try `adapter-words`")


def _mean_gradient(view: RoundView, victim: int, rates: float) -> dict[str, Tensor]:
    """Mean gradient of one client's steps, from the sum of their rates."""
    return {name: -change[victim] / rates for name, change in view.deltas.items()}


def _is_unclipped(view: RoundView, victim: int, algorithm: PretrainedAlgorithm, steps: int) -> bool:
    """Whether the declared clip of a client's steps cannot have changed the length of its update."""
    most = algorithm.local.max_grad_norm
    if most is None:
        return True
    # Of clipped steps, the update is as long as the clip allows; of several ones it may be shorter all the same.
    squares = [change[victim].double().square().sum() for change in view.deltas.values()]
    length = float(torch.stack(squares).sum().sqrt()) / algorithm.learning_rate
    return steps == 1 and length < _CLIPPED * most


def _repetitive(texts: Tensor) -> Tensor:
    """``(P,)`` whether texts ``(P, L)`` repeat one word: attention without places reads that like the word alone."""
    return ((texts == texts[:, :1]) | (texts == 0)).all(1) & ((texts > 0).sum(1) > 1)


def _explained_by_others(texts: Tensor) -> Tensor:
    """``(P,)`` whether texts ``(P, L)`` repeat the first word of another, whose first place is read alike."""
    is_repetitive = _repetitive(texts)
    first_words = texts[~is_repetitive][:, 0]
    return is_repetitive & torch.isin(texts[:, 0], first_words)


def _model_between(view: RoundView, victim: int, steps: int) -> dict[str, Tensor]:
    """The global model; the mean of the models before and after one client's training of several steps."""
    # The inputs drift over several steps; those in the middle are nearest to all of them.
    share = 0.0 if steps == 1 else 0.5
    model = dict(view.model)
    for name in view.model:
        if name in view.deltas:
            model[name] = view.model[name] + share * view.deltas[name][victim]
    return model


def _are_apart(sums: VectorSums, tokens: Tensor, words: Tensor) -> bool:
    """Whether no two of a client's words ``(W,)`` have nearly the same vector."""
    rows = torch.isin(tokens, words).nonzero().flatten()
    vectors = sums.table[rows].double()
    is_near = torch.cdist(vectors, vectors) <= _APART * vectors.norm(dim=1)[:, None]
    is_other_word = tokens[rows][:, None] != tokens[rows]
    return not bool((is_near & is_other_word).any())
