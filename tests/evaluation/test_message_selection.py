"""Selections of messages: other users' names for the chance level, and pairs that do not reveal owners."""

import dataclasses

import pytest
import torch

from fedleak.core.view import HOLDOUT, USERS
from fedleak.evaluation.message_selection import MessageSelection, selected
from tests.deanonymization_toys import WRITERS, joined


def test_shuffled_names_permute_users_alike_in_messages_and_texts() -> None:
    view, truth = joined(rounds=4)
    assert view.known is not None
    held = view.known.priors[USERS] >= 15
    view = dataclasses.replace(view, known=dataclasses.replace(view.known, priors={**view.known.priors, HOLDOUT: held}))
    parts = {"user": truth[: view.victims], "known_user": truth[view.victims :]}
    found, own = selected(view, parts, MessageSelection(names="shuffled"), seed=0)
    assert view.known is not None
    assert found.known is not None
    before, after = view.known.priors[USERS], found.known.priors[USERS]
    names = dict(zip(before.tolist(), after.tolist(), strict=True))
    texts = dict(zip(view.auxiliary["prior_users"].tolist(), found.auxiliary["prior_users"].tolist(), strict=True))
    assert sorted(texts) == sorted(texts.values()) == list(range(WRITERS))
    assert names.items() <= texts.items()
    assert sum(old == new for old, new in texts.items()) < WRITERS / 4
    assert all((old >= 15) == (new >= 15) for old, new in names.items())
    assert torch.equal(own["known_user"], parts["known_user"])


def test_partners_of_a_message_are_equally_often_of_two_users() -> None:
    view, truth = joined(rounds=6)
    parts = {"user": truth[: view.victims], "known_user": truth[view.victims :]}
    found, _ = selected(view, parts, MessageSelection(), seed=0)
    assert found.pairs is not None
    for message in torch.unique(found.pairs[:, 0]):
        users, counts = torch.unique(truth[found.pairs[found.pairs[:, 0] == message, 1]], return_counts=True)
        assert len(users) == 2
        assert int(counts.min()) == int(counts.max())


def test_an_unknown_kind_of_names_is_refused() -> None:
    with pytest.raises(ValueError, match="shuffled"):
        MessageSelection(names="none")  # type: ignore[arg-type]
