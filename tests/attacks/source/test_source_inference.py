"""Scores of sources, by hand."""

import pytest
import torch

from fedleak.attacks.source.source_inference import SourceEstimate
from fedleak.core.errors import ViewError
from tests.membership_toys import MEMBER, SCORES, TRUTH, of_two_clients

VIEW = of_two_clients()


def test_a_source_is_the_highest_score_or_its_chance() -> None:
    estimate = SourceEstimate(senders=VIEW.pseudonyms, scores=SCORES)
    scores = estimate.score(VIEW, TRUTH)
    assert scores.metrics["source"].tolist() == [0.5, 1]  # the first client's two records, the other's one
    even = SourceEstimate(senders=VIEW.pseudonyms, scores=torch.zeros(2, 4))
    assert even.score(VIEW, TRUTH).metrics["source"].tolist() == [0.5, 0.5]
    with pytest.raises(ViewError, match="holds"):
        estimate.score(VIEW, {**TRUTH, "member": torch.ones(2, 4)})


def test_units_of_sources_are_clients_and_records_have_a_column() -> None:
    scores = SourceEstimate(senders=VIEW.pseudonyms, scores=SCORES).score(VIEW, TRUTH)
    assert scores.units is not None
    assert scores.units.tolist() == [7, 5]
    assert scores.positives is not None
    assert scores.positives.tolist() == [2, 1]
    (row,) = scores.details
    assert (row["records"], row["clients"]) == (3, 2)
    without = SourceEstimate(senders=VIEW.pseudonyms, scores=SCORES).score(
        VIEW, {**TRUTH, "member": MEMBER & torch.tensor([[True], [False]])}
    )
    assert without.units is not None
    assert without.units.tolist() == [7]
