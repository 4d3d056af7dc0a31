"""Gradients of vectors are those of words, lengths are read off places, and distances are those of the papers."""

import dataclasses

import pytest
import torch

from fedleak.attacks.reconstruction.text_matching import (
    Candidate,
    MatchedNetwork,
    Target,
    mean_cosine,
    squared_and_absolute,
)
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from tests.published_text_toys import short_texts
from tests.text_toys import CLIENTS, seen
from tests.transformer_toys import algorithm, texts, view_of

pytestmark = pytest.mark.integration
SURE = 1e3
"""Logit of a label that is certain."""


def candidate_of(network: MatchedNetwork, words: torch.Tensor) -> Candidate:
    """Texts of words ``(N, L)`` as vectors, with their own next words as labels."""
    labels = torch.nn.functional.one_hot(words[:, 1:], len(network.words)) * SURE
    return Candidate(vectors=network.words[words], labels=labels)


def target_of(view: RoundView, victim: int = 0, **options: bool) -> Target:
    return Target.of(view, victim, MatchedNetwork.of(view), longest=32, touched_rows=options.get("touched_rows", False))


def test_the_true_words_have_the_received_gradient() -> None:
    for view, words in ((short_texts()[0], short_texts()[1]["records"][0]), (seen("decoder", [[[5, 6, 7]]]), None)):
        own_words = torch.tensor([[5, 6, 7]]) if words is None else words
        target = target_of(view)
        assert target.length == own_words.shape[1]
        candidate = candidate_of(target.network, own_words)
        assert torch.equal(target.words(candidate), own_words)
        loss = target.loss(mean_cosine, candidate.vectors, candidate.labels)
        assert float(loss) < 1e-4
        other = candidate_of(target.network, own_words.flip(1))
        assert float(target.loss(mean_cosine, other.vectors, other.labels)) > 0.1


def test_distances_by_hand() -> None:
    gradients, received = [torch.tensor([1.0, 2.0]), torch.ones(2)], [torch.tensor([1.0, 0.0]), torch.zeros(2)]
    assert float(squared_and_absolute(0.5)(gradients, received)) == pytest.approx(4 + 0.5 * 2 + 2 + 0.5 * 2)
    # A parameter that does not change has no direction.
    assert float(mean_cosine(gradients, received)) == pytest.approx(1 - 5**-0.5)


def test_labels_move_with_their_words() -> None:
    labels = torch.arange(3.0)[None, :, None]
    candidate = Candidate(vectors=torch.arange(4.0)[None, :, None], labels=labels)
    moved = candidate.permuted(0, torch.tensor([1, 0, 3, 2]))
    assert moved.vectors.flatten().tolist() == [1, 0, 3, 2]
    # Words 1, 2, 3 have the labels 0, 1, 2; the first word has none.
    assert moved.labels.flatten().tolist() == [0, 2, 1]


def test_only_words_whose_vectors_changed_are_allowed() -> None:
    view = short_texts()[0]
    table = MatchedNetwork.of(view).table
    change = torch.zeros_like(view.deltas[table])
    change[1, [0, 3, 5]] = 1.0  # 0 is padding
    changed_rows = dataclasses.replace(view, deltas={**view.deltas, table: change})
    assert target_of(changed_rows, 1, touched_rows=True).allowed.nonzero().flatten().tolist() == [3, 5]
    # Clients of a decoder send the rows of their own words, without saying which.
    with pytest.raises(ViewError, match="whole"):
        target_of(seen("decoder", CLIENTS), 1, touched_rows=True)


def test_what_cannot_be_matched_is_refused() -> None:
    with pytest.raises(ViewError, match="trained whole"):
        MatchedNetwork.of(view_of(algorithm(), texts(1, 1)))
    with pytest.raises(ViewError, match="learned places"):
        target_of(seen("lstm", [[[5, 6, 7]]]))
    view = short_texts()[0]
    with pytest.raises(ViewError, match="deltas of all parameters"):
        target_of(dataclasses.replace(view, deltas={}))
