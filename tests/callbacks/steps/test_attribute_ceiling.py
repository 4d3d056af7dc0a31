"""Attributes in a table: attacks next to the classifier on the raw data, and in an audit of the same recording."""

from pathlib import Path

import pytest

from fedleak.commands import program
from tests.places import CONFIGS
from tests.tables import tables

TABLE = f"""
train: {CONFIGS / "train" / "fncf_synthetic.yaml"}
metrics: [auc, balanced-accuracy, share-of-ceiling]
set:
  data.users: 100
  data.items: 60
  data.mean_interactions: 20
  data.fewest_interactions: 8
  data.clients_per_round: 1.0
  data.attributes: {{known: 0.5}}
  model.user_dim: 8
  model.item_dim: 8
  model.hidden: [8]
  trainer.max_steps: 1
axes: {{data: {{tests.attribute_toys.Tastes: {{}}}}}}
attacks: {{attribute-lda: {{}}, majority: {{}}}}
after: [attribute-ceiling: {{folds: 3}}]
"""


@pytest.mark.integration
def test_updates_are_compared_with_raw_data_and_an_audit_asks_the_same_question(tmp_path: Path) -> None:
    assert tables.reproduce(tmp_path, TABLE) == 0
    found = {(r.attack, r.metric): r for r in tables.read(tmp_path / "out")}
    assert {r.setting["attribute"] for r in found.values()} == {"half"}
    assert found["raw-data-classifier", "auc"].mean > 0.95
    assert found["attribute-lda", "auc"].mean > 0.8
    assert found["attribute-lda", "auc"].n == 50
    assert found["majority", "auc"].mean == pytest.approx(0.5)
    share = (found["attribute-lda", "auc"].mean - 0.5) / (found["raw-data-classifier", "auc"].mean - 0.5)
    assert found["attribute-lda", "share-of-ceiling"].mean == pytest.approx(share)
    (deltas,) = (tmp_path / "out" / "trainings").glob("*/deltas")
    assert program.main(["audit", str(deltas), "--out", str(tmp_path / "audit")]) == 0
    audited = {(r.attack, r.metric): r for r in tables.read(tmp_path / "audit")}
    assert audited["attribute-lda", "auc"].mean == pytest.approx(found["attribute-lda", "auc"].mean)
    assert "direction" in {label for label, _ in audited}  # next to what the recording says of interactions
    assert program.main(["audit", str(deltas), "--out", str(tmp_path / "gate"), "--gate", "auc=0.6"]) != 0


@pytest.mark.integration
def test_a_table_without_attributes_cannot_have_a_ceiling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = TABLE.replace("  data.attributes: {known: 0.5}\n", "").replace(
        "{attribute-lda: {}, majority: {}}", "{direction: {}}"
    )
    assert tables.reproduce(tmp_path, table) == 2
    assert "Set data.attributes in the table" in capsys.readouterr().err
