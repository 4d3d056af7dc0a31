"""The classes' changes of the last layer: only a class's own row can grow where features are not negative."""

from pathlib import Path

import pytest

from tests.places import CONFIGS
from tests.tables import tables
from tests.tables.tables import read

TABLE = f"""
train: {CONFIGS / "train" / "decaf_digits.yaml"}
metrics: [own-growing, others-growing]
set: {{data.auxiliary_per_class: 8, model.network: {{hidden: 16, channels: 4}}}}
axes:
  data: {{digits: {{data.split.examples_per_client: 72}}}}
  variant:
    relu: {{}}
    tanh: {{model.network.activation: tanh}}
attacks: {{uniform-present: {{}}}}
after: [{{gradient-changes: {{layers: [body.6]}}}}]
"""


@pytest.mark.integration
def test_with_relu_only_a_class_s_own_row_grows(tmp_path: Path) -> None:
    assert tables.reproduce(tmp_path, TABLE, page=True) == 0
    found = {(r.metric, r.setting["variant"]): r for r in read(tmp_path / "out")}
    assert found["own-growing", "relu"].mean > 0.2
    assert found["own-growing", "relu"].n == 10
    assert found["others-growing", "relu"].mean == 0
    assert found["others-growing", "tanh"].mean > 0.2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Change of each layer on the images of one class" in page
