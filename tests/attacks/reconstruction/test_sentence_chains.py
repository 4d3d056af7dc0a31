"""Sentences are found and certified where the span check has no dimension left, and only those in the update."""

import dataclasses
import functools

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.reconstruction import SentenceChains, SentenceSpan
from fedleak.attacks.reconstruction.estimates import ReconstructionEstimate
from fedleak.attacks.reconstruction.simulated_step import explains
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, run, with_noise
from tests.text_toys import KINDS, plain, seen

VOCABULARY = 300
SIZES = {"lstm": 8, "decoder": 24}
"""Lengths of the words' vectors. The first layers have 33 and 25 dimensions, the clients some 60 prefixes."""
COMMON = 8
"""Words that occur often: half of the places."""


def texts(client: int) -> list[list[int]]:
    """Twelve sentences of six words."""
    generator = generator_for(client, "sentences")
    rare = torch.randint(COMMON + 1, VOCABULARY, (12, 6), generator=generator)
    common = torch.randint(1, COMMON + 1, (12, 6), generator=generator)
    found: list[list[int]] = torch.where(torch.rand(12, 6, generator=generator) < 0.5, common, rare).tolist()
    return found


CLIENTS = [texts(0), texts(1)]


@functools.cache
def view(kind: str, **training: float) -> RoundView:
    local = LocalTraining(learning_rate=0.3, **training)  # type: ignore[arg-type]
    return seen(kind, CLIENTS, local=local, vocabulary=VOCABULARY, embedding=SIZES[kind])


def attacked(what: RoundView, attack: SentenceChains = SentenceChains()) -> ReconstructionEstimate:  # noqa: B008 - frozen
    with torch.no_grad():
        return run(attack, what, ReconstructionEstimate)


def sentences(found: ReconstructionEstimate) -> list[list[list[int]]]:
    return [plain(records[:count]) for records, count in zip(found.records, found.count.tolist(), strict=True)]


def found_own(found: ReconstructionEstimate) -> int:
    """Sentences found that a client has."""
    return sum(own in CLIENTS[victim] for victim, records in enumerate(sentences(found)) for own in records)


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_sentences_above_the_rank_are_found_and_certified(kind: str) -> None:
    span, chains = run(SentenceSpan(), view(kind), ReconstructionEstimate), attacked(view(kind))
    assert span.count.tolist() == [0, 0]
    assert sentences(chains) == [sorted(own) for own in CLIENTS]
    assert chains.certified.sum(1).tolist() == [12, 12]


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_another_client_give_nothing_and_its_whole_update_its_sentences(kind: str) -> None:
    others = {n: v if n == "embedding.weight" else v.flip(0) for n, v in view(kind).deltas.items()}
    mixed = attacked(dataclasses.replace(view(kind), deltas=others), SentenceChains(work=2_000_000))
    assert not mixed.certified.any()
    assert found_own(mixed) == 0
    swapped = attacked(view(kind).select(torch.tensor([1, 0])))
    assert sentences(swapped) == [sorted(own) for own in CLIENTS[::-1]]
    assert bool(swapped.certified.all())


@pytest.mark.parametrize("kind", KINDS)
def test_noise_and_a_foreign_model_give_nothing(kind: str) -> None:
    foreign = seen(kind, CLIENTS, seed=1, vocabulary=VOCABULARY, embedding=SIZES[kind]).model
    for other in (of_noise(view(kind)), dataclasses.replace(view(kind), model=foreign)):
        found = attacked(other, SentenceChains(work=2_000_000))
        assert not found.certified.any()
        assert found_own(found) == 0


@pytest.mark.parametrize(
    ("what", "word"),
    [
        (lambda: with_noise(view("lstm"), 1e-3), "noisy"),
        (lambda: view("lstm", epochs=2), "one local step"),
        (lambda: view("lstm", optimizer="adam"), "adam"),
        (lambda: view("lstm", momentum=0.0, weight_decay=0.1), "plain"),
    ],
)
def test_updates_that_are_no_gradient_are_refused_with_the_reason(what, word: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ViewError, match=word):
        attacked(what())


def test_search_ends_at_the_limit_of_its_work_and_gives_the_same_twice() -> None:
    limited = SentenceChains(work=200_000)
    first, again = attacked(view("lstm"), limited), attacked(view("lstm"), limited)
    assert torch.equal(first.records, again.records)
    assert found_own(first) < found_own(attacked(view("lstm")))
    assert not first.certified.any()


def padded(own: list[list[int]]) -> Tensor:
    return pad_sequence([torch.tensor(sentence) for sentence in own], batch_first=True)


@pytest.mark.parametrize("kind", KINDS)
def test_step_on_other_sentences_does_not_explain_an_update(kind: str) -> None:
    """The order of sentences does not matter; a word, a sentence less and a repeated one do, as does their client."""
    own = CLIENTS[0]
    assert explains(view(kind), 0, padded(own))
    assert explains(view(kind), 0, padded(own[::-1]))
    for place in range(6):
        altered = [list(sentence) for sentence in own]
        altered[5][place] = altered[5][place] % (VOCABULARY - 1) + 1
        assert not explains(view(kind), 0, padded(altered))
    for other in (own[1:], [*own, own[0]], [*own[1:], own[1]], CLIENTS[1], [own[0][::-1], *own[1:]]):
        assert not explains(view(kind), 0, padded(other))
    assert not explains(of_noise(view(kind)), 0, padded(own))
