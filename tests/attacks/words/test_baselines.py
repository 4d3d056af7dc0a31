"""Popular words, by hand; without texts of the server's own, they are those of the other clients."""

import dataclasses

import pytest
import torch

from fedleak.attacks.words.baselines import PopularWords, words_of_others
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.attacks.words.frequencies import TEXTS, word_frequencies
from fedleak.core.errors import ViewError
from fedleak.core.scoring import best_decisions
from fedleak.core.view import RoundView
from tests.attacks.runs import plain_view, run
from tests.transformer_toys import algorithm, moved_model, view_of
from tests.word_toys import STEP, words_seen


def test_the_frequency_of_a_word_is_its_share_of_texts() -> None:
    view = plain_view(1, auxiliary={"prior_features": torch.tensor([[2, 2, 0], [2, 3, 0], [1, 0, 0]])})
    found = word_frequencies(view, 5)
    assert found is not None
    assert found[1:].tolist() == pytest.approx([1.5 / 4, 2.5 / 4, 1.5 / 4, 0.5 / 4])


def test_as_many_words_as_give_the_largest_expected_f1() -> None:
    decisions, expected = best_decisions(torch.tensor([[0.1, 0.9, 0.8, 0.05]], dtype=torch.float64))
    assert decisions.tolist() == [[False, True, True, False]]
    assert expected.tolist() == pytest.approx([2 * 1.7 / (2 + 1.85)])


def words(*clients: set[int], vocabulary: int = 8) -> torch.Tensor:
    held = torch.zeros(len(clients), vocabulary, dtype=torch.bool)
    for client, own in enumerate(clients):
        held[client, list(own)] = True
    return held


def test_words_of_others_by_hand() -> None:
    """Of three others, one word is of all, one of two, one of one: Q_1 = 1 and Q_2 = 1, so the discount is 1 / 3."""
    held = words({5}, {1, 2, 3}, {1, 2}, {1})
    likely = words_of_others(plain_view(4), held)
    new = 1 / 3 * 3 / 3 / 7  # of three words, spread evenly over 7 numbers: they are fewer than a bin has
    assert likely[0, 1:4].tolist() == pytest.approx([(c - 1 / 3) / 3 + new for c in (3, 2, 1)])
    assert likely[0, 4:].tolist() == pytest.approx([new] * 4)
    assert likely[0, 0] == 0


def test_new_words_are_likely_where_the_numbers_of_others_are_dense() -> None:
    """Tokenizers number frequent words together."""
    clients = [set(range(100 + client, 200, 3)) | {500 + 7 * client} for client in range(4)]
    likely = words_of_others(plain_view(4), words(*clients, vocabulary=1000))
    seen = torch.stack([words(own, vocabulary=1000)[0] for own in clients[1:]]).any(0)
    near, far = likely[0, 100:200][~seen[100:200]], likely[0, 600:]
    assert float(near.min()) > 3 * float(far.max())
    assert float(far.min()) > 0


def test_a_client_with_more_texts_has_more_words() -> None:
    view = plain_view(3)
    counts = torch.tensor([4.0, 1.0, 1.0])
    often, once = (
        words_of_others(dataclasses.replace(view, example_counts=values), words({1}, {1, 2}, {1, 3}))[0]
        for values in (counts, torch.ones(3))
    )
    assert bool((often[1:] > once[1:]).all())
    assert float(often[2]) == pytest.approx(1 - (1 - float(once[2])) ** 4)


def test_clients_of_one_sum_are_no_others() -> None:
    """Their message is that of the client itself."""
    sums = torch.tensor([[0, 1], [0, 1], [2, 3], [2, 3]])
    view = plain_view(4, participants=sums)
    likely = words_of_others(view, words({1}, {1}, {2}, {2}))
    assert likely[0].argmax() == likely[1].argmax() == 2
    assert likely[2].argmax() == 1


def test_without_others_there_are_no_frequencies() -> None:
    with pytest.raises(ViewError, match="other clients"):
        words_of_others(plain_view(1), words({1, 2}))


def without_texts(view: RoundView) -> RoundView:
    return dataclasses.replace(view, auxiliary={})


def adapters() -> RoundView:
    """Six clients whose texts share some words: a common half of few words, and a half of many."""
    draw = torch.Generator().manual_seed(1)
    common = torch.randint(1, 12, (6, 2, 4), generator=draw)
    own = torch.randint(12, 400, (6, 2, 4), generator=draw)
    return view_of(algorithm(), torch.cat([common, own], 2), moved_model())


def tables() -> RoundView:
    return without_texts(words_seen(STEP)[0])


@pytest.mark.parametrize("view", [tables(), adapters()], ids=["embedding table", "adapters"])
def test_the_update_of_the_client_has_no_part_in_its_popular_words(view: RoundView) -> None:
    assert TEXTS not in view.auxiliary
    before = run(PopularWords(), view, WordSetEstimate)
    changed = {name: value.clone() for name, value in view.deltas.items()}
    for value in changed.values():
        value[0] = value[1:].sum(0) + torch.randn(value[0].shape, generator=torch.Generator().manual_seed(0))
    after = run(PopularWords(), dataclasses.replace(view, deltas=changed), WordSetEstimate)
    assert torch.equal(before.scores[0], after.scores[0])
    assert torch.equal(before.decisions[0], after.decisions[0])
    assert not torch.equal(before.scores[1:], after.scores[1:])  # of whom the first client is one of the others


def test_words_that_clients_share_are_found_without_a_text() -> None:
    found = run(PopularWords(), adapters(), WordSetEstimate)
    assert bool((found.decisions[:, :12].sum(1) > found.decisions[:, 12:].sum(1)).all())


def test_it_does_not_count_as_a_baseline_that_reads_the_update() -> None:
    assert PopularWords.comparison() == "prior"
