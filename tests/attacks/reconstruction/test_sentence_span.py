"""Sentences are exact while their prefixes are fewer than the dimensions, and certified only then."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import SentenceSpan
from fedleak.attacks.reconstruction.sentence_span import moved_rows
from fedleak.attacks.reconstruction.span_estimate import SpanEstimate
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.defenses.local_dp import LocalDP
from tests.attacks.runs import of_noise, run
from tests.text_toys import CLIENTS, KINDS, WORDS, plain, seen

ATTACK = SentenceSpan()


def attacked(view: RoundView) -> SpanEstimate:
    with torch.no_grad():
        return run(ATTACK, view, SpanEstimate)


def sentences(found: SpanEstimate) -> list[list[list[int]]]:
    return [plain(records[:count]) for records, count in zip(found.records, found.count.tolist(), strict=True)]


def whole_tables(view: RoundView) -> dict[str, Tensor]:
    """Deltas with the whole word table, as a client sends them that adds noise to every row."""
    made = dict(view.deltas)
    table = torch.zeros(view.victims, *view.model["embedding.weight"].shape)
    client, place = (view.served_items >= 0).nonzero(as_tuple=True)
    table[client, view.served_items[client, place]] = view.deltas["embedding.weight"][client, place]
    return {**made, "embedding.weight": table}


def found_own(found: SpanEstimate) -> int:
    """Sentences found that a client has."""
    return sum(own in CLIENTS[victim] for victim, records in enumerate(sentences(found)) for own in records)


def noisy(view: RoundView, scale: float) -> RoundView:
    generator = generator_for(0, "noise")
    deltas = {n: v + scale * torch.randn(v.shape, generator=generator) for n, v in whole_tables(view).items()}
    release = Release(noise_scale=scale, parameters=tuple(deltas))
    return dataclasses.replace(view, deltas=deltas, row_parameters=frozenset(), served=None, releases=(release,))


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_of_one_step_are_exact(kind: str) -> None:
    """Unknown words, common beginnings, a sentence of two words and padding among them.

    The rank is the number of different prefixes that the model continues, in a decoder too, whose first layer sees no
    prefix.
    """
    found = attacked(seen(kind))
    prefixes = [{tuple(line[:end]) for line in own for end in range(1, len(line))} for own in CLIENTS]
    assert found.rank.tolist() == [len(own) for own in prefixes]
    assert sentences(found) == [sorted(own) for own in CLIENTS]
    valid = torch.arange(found.certified.shape[1]) < found.count[:, None]
    assert torch.equal(found.certified, valid)
    assert found.predicted.tolist() == [1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_found_as_often_as_they_occur(kind: str) -> None:
    clients = [[[5, 6, 7], [5, 6, 7], [5, 6, 7], [5, 6], [8, 9, 10]], [[11, 12, 13], [11, 12, 13]]]
    found = attacked(seen(kind, clients))
    assert sentences(found) == [sorted(own) for own in clients]
    assert found.certified.sum(1).tolist() == [5, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_to_single_precision_and_another_order_hide_nothing(kind: str) -> None:
    found = attacked(seen(kind, [own[::-1] for own in CLIENTS], local=LocalTraining(learning_rate=0.03)))
    assert sentences(found) == [sorted(own) for own in CLIENTS]


@pytest.mark.parametrize("kind", KINDS)
def test_with_more_prefixes_than_dimensions_nothing_is_certified(kind: str) -> None:
    generator = generator_for(0, "sentences")
    many = [torch.randint(2, WORDS, (24, 8), generator=generator).tolist()]
    found = attacked(seen(kind, many))
    assert found.predicted.tolist() == [0]
    assert float(found.spare) < ATTACK.margin
    assert not found.certified.any()
    assert found.count.tolist() == [0]


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_another_client_give_nothing_and_its_whole_update_its_sentences(kind: str) -> None:
    view = seen(kind)
    others = {n: v if n == "embedding.weight" else v.flip(0) for n, v in view.deltas.items()}
    found = attacked(dataclasses.replace(view, deltas=others))
    assert not found.certified.any()
    assert found_own(found) == 0
    assert sentences(attacked(view.select(torch.tensor([1, 0])))) == [sorted(own) for own in CLIENTS[::-1]]


@pytest.mark.parametrize("kind", KINDS)
def test_noise_and_a_foreign_model_give_nothing(kind: str) -> None:
    view = seen(kind)
    for other in (of_noise(view), dataclasses.replace(view, model=seen(kind, seed=1).model)):
        found = attacked(other)
        assert not found.certified.any()
        assert found_own(found) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_declared_noise_decides_what_is_found(kind: str) -> None:
    little, much = attacked(noisy(seen(kind), 1e-8)), attacked(noisy(seen(kind), 0.3))
    assert sentences(little) == [sorted(own) for own in CLIENTS]
    assert not much.certified.any()
    assert found_own(much) == 0
    assert much.predicted.tolist() == [0, 0]
    assert LocalDP(clip=1.0, epsilon=100, delta=1e-5).noise_scale < 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_several_small_steps_leave_the_sentences_visible(kind: str) -> None:
    found = attacked(seen(kind, local=LocalTraining(learning_rate=0.002, epochs=4)))
    assert found_own(found) >= 5
    assert not found.certified.any()


def test_rows_that_moved_are_those_of_all_words_but_the_last_ones() -> None:
    inputs = [{word for sentence in own for word in sentence[:-1]} for own in CLIENTS]
    view = seen("lstm")
    for moved in (moved_rows(view, "embedding.weight"), moved_rows(noisy(view, 0.0), "embedding.weight")):
        assert [set(row.nonzero().flatten().tolist()) for row in moved] == inputs


def test_a_recording_without_a_layer_is_refused() -> None:
    view = seen("lstm")
    deltas = {name: value for name, value in view.deltas.items() if name != "lstm.weight_hh_l0"}
    with pytest.raises(ViewError, match="weight_hh_l0"):
        attacked(dataclasses.replace(view, deltas=deltas))


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_that_do_not_explain_the_last_layer_give_no_prediction(kind: str) -> None:
    """The ranks still promise sentences: only the last layer's changes are those of the other client."""
    view = seen(kind)
    deltas = {name: value.roll(1, 0) if name.startswith("output") else value for name, value in view.deltas.items()}
    found = attacked(dataclasses.replace(view, deltas=deltas))
    assert not found.certified.any()
    assert bool(found.predicted.isnan().all())
