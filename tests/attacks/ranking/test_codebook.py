"""The posterior under a codebook reads every client's own clicks, and no other's."""

from pathlib import Path
from typing import Literal

import pytest

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.ranking import CodebookAttack
from fedleak.core.errors import ViewError
from fedleak.core.scoring import auc_per_victim
from fedleak.core.view import RoundView
from fedleak.defenses.local_dp import LocalDP
from fedleak.server.codebook import Codebook
from tests.attacks.runs import of_others, run
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

    def auc(received: RoundView) -> float:
        scores = run(CodebookAttack(), received, InteractionEstimate).scores
        return float(auc_per_victim(scores, labels, view.served_mask).nanmean())

    assert auc(view) > least
    assert abs(auc(of_others(view)) - 0.5) < 0.12


def test_codebook_refuses_features_that_are_none(tmp_path: Path) -> None:
    data = source()
    view = first_view(record(tmp_path, data, ranker(data)))
    with pytest.raises(ViewError, match="overlap"):
        run(CodebookAttack(), view, InteractionEstimate)
