"""Tests of the maps of updates as a step of a table."""

import re
from pathlib import Path

import pytest

from tests.places import CONFIGS
from tests.tables.tables import read, reproduce

TABLE = f"""
train: {CONFIGS}/train/image_ranker_drawn.yaml
metrics: [accuracy]
set: {{data.users: 24, data.item_sets: 1}}
setting: {{features: 8, ranker: neural-2, ratio: 4}}
axes:
  data: [synthetic-features]
  manipulation:
    wide-noise: {{model.manipulation: {{class_path: FeatureNoise, init_args: {{scale: 20.0}}}}}}
    none: {{model.manipulation: null}}
attacks: {{}}
after: [update-maps]
"""


@pytest.mark.integration
def test_classifiers_distinguish_manipulated_updates_and_not_a_training_from_itself(tmp_path: Path) -> None:
    assert reproduce(tmp_path, TABLE, page=True) == 0
    found = {(r.attack, r.setting["manipulation"]): r for r in read(tmp_path / "out")}
    assert {attack for attack, _ in found} == {"updates-knn", "updates-logistic", "updates-forest"}
    assert {r.n for r in found.values()} == {24}
    assert found["updates-forest", "wide-noise"].mean > 0.9
    for attack in ("updates-knn", "updates-logistic", "updates-forest"):
        assert found[attack, "none"].mean == pytest.approx(0.5, abs=0.01)  # equal updates: one of the two is recognised
    page = (tmp_path / "out/report.html").read_text()
    assert len(re.findall("t-SNE of the updates", page)) >= 2
