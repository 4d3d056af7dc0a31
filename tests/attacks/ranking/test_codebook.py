"""The posterior under a codebook reads every client's own clicks, and no other's."""

import dataclasses
from pathlib import Path
from typing import Literal

import pytest

from attacks.interactions.estimates import InteractionEstimate
from attacks.ranking import CodebookAttack
from attacks.scoring import auc_per_victim
from defenses.local_dp import LocalDP
from protocol.errors import ViewError
from protocol.seeding import generator_for
from server.codebook import Codebook
from tests.ranking_toys import first_view, ranker, record, source

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("hidden", "epsilon", "knows", "least"),
    [(0, "inf", "lists", 0.99), (4, 500, "lists", 0.99), (4, "inf", "candidates", 0.99), (0, 500, "candidates", 0.9)],
)
def test_codebook_reads_the_clicks_and_shuffled_updates_give_chance(
    tmp_path: Path, hidden: int, epsilon: object, knows: Literal["lists", "candidates"], least: float
) -> None:
    data = source()
    defenses = [] if epsilon == "inf" else [LocalDP(clip=0.25, epsilon=float(str(epsilon)), delta=1e-8)]
    codes = Codebook(knows=knows)
    clients = ranker(data, hidden=hidden, manipulation=codes, defenses=defenses, ranker_per_client=True)
    recording = record(tmp_path, data, clients)
    view = first_view(recording)
    labels = recording.truth(view)["labels"]
    estimate = CodebookAttack()(view, generator=generator_for(0, "attack"))
    assert isinstance(estimate, InteractionEstimate)
    assert float(auc_per_victim(estimate.scores, labels, view.served_mask).nanmean()) > least
    turned = {name: value.roll(1, 0) for name, value in view.deltas.items()}
    wrong = CodebookAttack()(dataclasses.replace(view, deltas=turned), generator=generator_for(0, "attack"))
    assert isinstance(wrong, InteractionEstimate)
    assert abs(float(auc_per_victim(wrong.scores, labels, view.served_mask).nanmean()) - 0.5) < 0.12


def test_codebook_refuses_features_that_are_none(tmp_path: Path) -> None:
    data = source()
    view = first_view(record(tmp_path, data, ranker(data)))
    with pytest.raises(ViewError, match="overlap"):
        CodebookAttack()(view, generator=generator_for(0, "attack"))
