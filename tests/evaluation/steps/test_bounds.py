"""Bounds of a table next to its attacks."""

from pathlib import Path

import pytest

from tests.places import CONFIGS
from tests.tables import tables

RANKED = f"""
over: {CONFIGS / "paper" / "raifle" / "raifle_bounds.yaml"}
set: {{data.users: 30, data.queries: 120}}
axes:
  data: [synthetic-letor]
  epsilon:
    20: {{model.defenses+: [{{class_path: LocalDP, init_args: {{clip: 0.25, epsilon: $, delta: 1.0e-8}}}}]}}
    inf: {{}}
  manipulation: {{codebook: {{model.manipulation: Codebook, attacks: [ranking/codebook, prior-only]}}}}
"""
RECOMMENDED = f"""
over: {CONFIGS / "paper" / "raifle" / "raifle_bounds_fncf.yaml"}
train: {CONFIGS / "train" / "fncf_synthetic.yaml"}
set: {{data.users: 20, data.clients_per_round: 1.0, model.local.epochs: 5, trainer.max_steps: 1}}
scales: {{}}
axes:
  data: null
  epsilon:
    100:
      model.defenses:
        - class_path: LocalDP
          init_args: {{clip: 0.05, epsilon: $, delta: 1.0e-8, parameters: [item_embedding.weight]}}
after: [bounds: {{priors: [uniform]}}, genie: {{pairs: 4, victims: 5}}]
"""


def reproduce(folder: Path, table: str) -> dict[tuple[str, object, str], tables.Result]:
    assert tables.reproduce(folder, table, page=True) == 0
    return {(r.attack, r.setting["epsilon"], r.metric): r for r in tables.read(folder / "out")}


@pytest.mark.integration
def test_ranked_lists(tmp_path: Path) -> None:
    found = reproduce(tmp_path, RANKED)
    attack, genie, bound, knowing, prior = (
        found[name, 20, "auc"].mean for name in ("codebook", "genie", "bound", "bound-cascade", "prior-only")
    )
    assert 0.55 < attack < bound + 0.03
    assert attack < genie + 0.03
    assert prior < knowing
    assert bound < knowing < 1
    assert {found[name, "inf", "auc"].mean for name in ("genie", "bound", "bound-cascade")} == {1}
    assert ("capacity-bound", "inf", "bits") not in found
    assert (tmp_path / "out/report.html").read_text().count("No attack can be") == 1


@pytest.mark.integration
def test_recommender(tmp_path: Path) -> None:
    found = reproduce(tmp_path, RECOMMENDED)
    assert found["genie", 100, "auc"].n == 5
    assert 0.5 < found["matched-filter", 100, "auc"].mean < found["bound", 100, "auc"].mean < 1
    assert 0.5 < found["genie", 100, "auc"].mean < 1
