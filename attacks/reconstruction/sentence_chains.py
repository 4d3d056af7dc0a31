"""Sentences of a client where the span check of prefixes has no free dimension, from the sums of their states."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.attacks.reconstruction.prefix_states import prefix_states
from fedleak.attacks.reconstruction.sentence_span import SentenceSpan, moved_rows
from fedleak.attacks.reconstruction.simulated_step import explains
from fedleak.attacks.reconstruction.word_chains import word_chains
from fedleak.attacks.reconstruction.word_layers import word_layers
from fedleak.attacks.reconstruction.word_sums import word_sums
from fedleak.client.text import EMBEDDING, OUTPUT, TextAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import progress_listener, with_progress
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_NOISY = 0.02
"""Error of the sums of states, relative to one state, above which prefixes cannot be told apart."""


@dataclass(frozen=True, kw_only=True)
class SentenceChains(ReconstructionAttack):
    """Next-word chaining: `SentenceSpan`, and a second stage for the clients of which that certifies nothing.

    The span check ends where a batch has more prefixes than the layer has dimensions. The rows of the last layer have
    no such limit. Row w of its change is ``r / T (sum_{t: next = w} z_t - sum_t q_tw z_t)``, for the learning rate r,
    the T predicted words, the inputs z_t of the layer and the predicted probabilities q_tw. The rows of words that do
    not occur give the second sum by one regression (`word_sums`), so that for each word the number of its occurrences
    and the sum of the states before it are known, for an LSTM to 2e-5 of their length. Sentences are chained from these
    (`WordChains`): a word that is next once gives the state of its prefix, and a prefix is recognised by its state.

    The result is certified if one local step on all found sentences, simulated, gives the received update up to
    rounding (`explains`); otherwise sentences may lack their ends. A client that sends the update of another one has
    its sentences certified: they are those in the update.

    Clients that take several local steps keep the result of `SentenceSpan`.

    Threat model: passive server, one update; it knows the global model and the clients' algorithm, and holds no text.

    Args:
        work: numbers of all layers that are computed for the states of one client's prefixes, after which the search
            ends; `PrefixStates.numbers` for each.

    Raises:
        ViewError: no client takes one step of plain gradient descent, or clients clip their updates or add noise.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import SentenceChains
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("sentences")
        >>> estimate = SentenceChains()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["rouge1"].mean()), 2)
        1.0
    """

    name = "sentence-chains"
    exact = True
    certifies = True
    cost = "a second to a minute per victim"
    audited_victims = 8
    slow = True
    threat_model = ThreatModel(
        sees="the deltas of all layers in one round",
        knows="the clients' training algorithm",
        needs=(TextAlgorithm, "deltas:output.weight"),
    )

    work: PositiveInt = 750_000_000

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        learner = view.require(TextAlgorithm)
        steps = learner.steps(view.example_counts)
        _check_plain(view, learner, steps)
        with progress_listener(lambda _: None):  # seconds; what follows takes minutes
            span = SentenceSpan().run(view, generator=generator)
        records, certified = list[Tensor](), list[Tensor]()
        for v, count in with_progress(list(enumerate(span.count.tolist()))):
            sentences = span.records[v, :count]
            certain = span.certified[v, :count]
            if int(steps[v]) == 1 and not bool(certain.any()):
                sentences, certain = self._chained(view.select(torch.tensor([v])), sentences)
            records.append(sentences)
            certified.append(certain)
        longest = max((sentences.shape[1] for sentences in records), default=1)
        padded = [pad(sentences, (0, longest - sentences.shape[1])) for sentences in records]
        return reconstruction(padded, certified=certified)

    def _chained(self, view: RoundView, first: Tensor) -> tuple[Tensor, Tensor]:
        """``(M, L)`` sentences of one client, and ``(M,)`` whether they are certain.

        Args:
            view: the round with this client alone.
            first: ``(M, L)`` result of the span check, which is kept if it explains the update.
        """
        learner = view.require(TextAlgorithm)
        layers = word_layers(learner)
        model = {name: value.double() for name, value in view.model.items()}
        uncertain = torch.zeros(len(first), dtype=torch.bool)
        if len(first) and explains(view, 0, first):
            return first, ~uncertain
        change = layers.layer_gradients(view.deltas)[2][0]
        output_layer = layers.layer_gradients(model)[2]
        sums = word_sums(change, output_layer, learner.learning_rate)
        # The sum of a word that is next once is one state, by whose length the error of the sums is judged.
        single = sums.sums[sums.counts == 1].norm(dim=1)
        if not len(single) or not sums.error <= _NOISY * float(single.median()):
            return first, uncertain
        states = prefix_states(layers, model)
        search = word_chains(
            states,
            moved_rows(view, EMBEDDING)[0].nonzero().flatten(),
            sums,
            sentences=int(view.example_counts[0]),
            most_states=self.work // states.numbers,
        )
        search.run()
        sentences = [torch.tensor(words) for words in search.forest.sentences()]
        if not sentences:
            return first, uncertain
        texts = pad_sequence(sentences, batch_first=True)
        certain = search.complete and explains(view, 0, texts)
        return texts, torch.full((len(texts),), certain)


def _check_plain(view: RoundView, learner: TextAlgorithm, steps: Tensor) -> None:
    """Refuses updates that are not one gradient.

    Raises:
        ViewError: with what the clients do instead.
    """
    local = learner.local
    way_out = "`sentence-span` alone may find sentences"
    if not bool((steps == 1).any()):
        raise ViewError(f"expected clients of one local step, got {int(steps.min())} or more; {way_out}")
    if not local.plain_sgd or local.example_clip is not None or learner.update_l1 is not None:
        raise ViewError(f"expected a step of plain gradient descent, got {local.optimizer} with changes; {way_out}")
    if view.noise_scale(f"{OUTPUT}.weight") or view.clip(f"{OUTPUT}.weight") is not None:
        raise ViewError(f"expected updates as they are, got clipped or noisy ones; {way_out}")
