"""Words of a client from the update of adapters of low rank, also of many more words than the rank."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedleak.attacks.words.adapter_sums import AdapterSums, adapter_sums
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.attacks.words.joint_pursuit import Pursuit, VectorSums, pursue
from fedleak.attacks.words.only_words import are_only_words
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.progress import report_progress, say_what_starts
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_OF_A_CLIENT = 100
"""Words of a client for which the time is announced."""


@dataclass(frozen=True, kw_only=True)
class AdapterWords(Attack):
    """Words whose vectors, few of a large table, explain the change of the first adapters.

    With ``W = W0 + s B A`` and inputs z_t, the gradient of A is ``s B^T sum_t g_t z_t^T``. All below the first adapted
    layers is frozen, so z_t is a known vector of the word at place t, the same in every local step. The rows of the
    summed change of A, of all layers that read the same inputs, are therefore sums of the vectors of the client's
    words. Few of them explain the rows, so sparse recovery finds them, also when they are many more than the rows: the
    rank limits how many words a check of the span finds, but not how many are determined. It holds for any number of
    steps of plain SGD, with momentum and clipping, and for a sum over clients; the words are then those of all of them.

    Before the first step B is zero and A does not move; a single step then changes B only, by sums of ``A z_t``,
    vectors with as many numbers as the rank: so many words can be found, and no more. The same is true where A is
    frozen (FFA-LoRA).

    What limits it on the table of a real network, of which one common vector may be three quarters, is the rounding of
    A, not the coherence: the change of A is proportional to B, so that it is some thousand times smaller than A in
    early rounds, and the words with the smallest gradients come near to the spacing of float32 numbers of the size of
    A. They are looked for down to that spacing, which is known for each number, see `VectorSums.least_error`. What is
    certain rests on a bound some twenty times larger, so that updates of real networks are seldom certified. Two words
    of nearly the same vector, such as a word at neighbouring places, are told apart only if their difference is above
    the rounding too.

    In an encoder every place has a vector for each word. These are layer norms of a word's and a place's vector, so no
    table of them is stored (`NormedSums`), and a place that is wrong leaves the word right.

    Adam, weight decay in the gradient and dropout bend the rows out of the span. What is not explained to the error of
    rounding is a ranking: the words in the order of their choice, as long as each lies further in the row space than
    the best of a table of random vectors would, which are called present; then the others by their share in the span.

    An F1 of 1 is predicted where the words are certain to be the only ones that explain the update, see
    `only_words.are_only_words`, and nothing was rounded or noised; otherwise nothing is predicted.

    Threat model: passive server, one update or a secure sum; knows the base network, the adapter and the tokenizer, and
    no text.

    Args:
        words: largest number of words of a client.
        places: length of the longest text, for networks whose inputs depend on the place; tokens after it are not
            found.

    References:
        This project. [Davies12], for the recovery.
    """

    name = "adapter-words"
    with_prior = "rank"
    family = "words"
    exact = True
    cost = "seconds per victim"
    estimates = WordSetEstimate
    threat_model = ThreatModel(
        sees="the update of the adapters",
        knows="the base network, the adapters and the tokenizer",
        needs=("deltas", "model", PretrainedAlgorithm),
    )

    words: PositiveInt = 1000
    places: PositiveInt = 64

    def run(self, view: RoundView, *, generator: torch.Generator) -> WordSetEstimate:
        systems, pursuits_of_clients = pursuits(view, self.words, self.places)
        decided = torch.zeros(view.victims, systems.vocabulary, dtype=torch.bool)
        scores = torch.zeros(view.victims, systems.vocabulary, dtype=torch.float64)
        for victim, (pursuit, client_sums) in enumerate(zip(pursuits_of_clients, systems.sums, strict=True)):
            squared_shares = torch.stack([sums.span_shares() for sums in client_sums]).square().amax(0)
            # Shares are at most 1, so chosen words, with 1 to 2 more, come before all others: the first choice first.
            chosen = pursuit.present
            order = torch.arange(len(chosen), 0, -1) / max(len(chosen), 1)
            squared_shares[chosen] += 1 + order
            scores[victim].scatter_reduce_(0, systems.tokens, squared_shares, "amax")
            decided[victim, systems.tokens[chosen]] = True
        # Word 0 is padding.
        scores[:, 0] = 0
        decided[:, 0] = False
        is_exact = not any(view.noise_scale(name) or name in view.rounded for name in systems.names)
        expected = torch.full((view.victims,), torch.nan, dtype=torch.float64)
        for victim, (pursuit, client_sums) in enumerate(zip(pursuits_of_clients, systems.sums, strict=True)):
            if is_exact and are_only_words(client_sums, pursuit, systems.tokens):
                expected[victim] = 1.0
        return WordSetEstimate(scores=scores, decisions=decided, expected=expected, of_read=True)


def pursuits(view: RoundView, most_words: int, text_length: int) -> tuple[AdapterSums, list[Pursuit]]:
    """Sums of the vectors of each client's words, and the words that explain them; computed once for a view.

    Args:
        view: what the server saw; each client's words are found from its own update alone.
        most_words: largest number of words of a client.
        text_length: length of the longest text.
    """
    systems = adapter_sums(view, text_length)

    def compute() -> list[Pursuit]:
        announce(systems.sums)
        pursuits_of_clients = []
        for number, client_sums in enumerate(systems.sums):

            def report(share: float, before: int = number) -> None:
                report_progress((before + share) / len(systems.sums))

            pursuits_of_clients.append(pursue(client_sums, most_words, report))
            report(1.0)
        return pursuits_of_clients

    # Of a network in which places do not differ, the text length changes nothing.
    candidates = len(systems.tokens)
    return systems, view.shared.value(("words of adapters", most_words, candidates), compute)


def announce(sums_of_clients: Sequence[Sequence[VectorSums]]) -> None:
    """Prints how long the pursuit takes, measured by one pass over the candidates, if a person watches."""
    if not sums_of_clients:
        return
    start = time.perf_counter()
    for system in sums_of_clients[0]:
        system.vectors.squares_along([system.rows, system.rows[:1]])
    seconds = time.perf_counter() - start
    count = len(sums_of_clients[0][0].vectors)
    say_what_starts(
        f"words of {len(sums_of_clients)} adapters among {count:,} candidates: "
        f"{_OF_A_CLIENT * seconds:.0f} s for a client of {_OF_A_CLIENT} words, {seconds:.2g} s for each word more"
    )
