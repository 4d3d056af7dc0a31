"""Tables on rankings: the steps next to their attacks, and the ways in which a server or its clients are configured."""

from pathlib import Path
from typing import Any

import pytest

from fedleak.tables.cell import Cell
from tests.datamodules.ranking_files import documents, text, write
from tests.places import CONFIGS
from tests.tables import tables
from tests.tables.tables import Result, check_by_hand

TABLE = f"""
train: {CONFIGS / "train" / "fpdgd_mq2008.yaml"}
set:
  data.clients_per_round: 1.0
  data.queries_per_client: 8
  data.users: 60
  model.ranker_per_client: true
  trainer.max_steps: -1
axes:
  data: {{synthetic-letor: {{data.queries: 600}}}}
  manipulation: {{none: {{attacks: [interactions/chance]}}, codebook: {{model.manipulation: Codebook}}}}
attacks: {{ranking/codebook: {{}}, interactions/chance: {{}}}}
"""


def reproduce(folder: Path, added: str) -> dict[tuple[str, str, str], Result]:
    assert tables.reproduce(folder, TABLE + added, page=True) == 0
    return {(r.attack, str(r.setting["manipulation"]), r.metric): r for r in tables.read(folder / "out")}


@pytest.mark.integration
def test_checks_next_to_attacks_and_a_map_of_the_updates(tmp_path: Path) -> None:
    added = "metrics: [flagged, accuracy, auc]\nafter: [manipulation-checks]\n"
    found = reproduce(tmp_path, added)
    assert found["equal-scores", "codebook", "flagged"].mean == 1
    assert found["codebook", "codebook", "auc"].mean == pytest.approx(1, abs=0.02)
    honest = found["equal-scores", "none", "flagged"]
    assert honest.n == 75
    assert honest.mean < 0.15
    assert 0 <= found["updates-forest", "codebook", "accuracy"].mean <= 1
    assert ("updates-forest", "none", "accuracy") not in found
    page = (tmp_path / "out/report.html").read_text()
    assert "RAIFLE&#39;s figure 7" in page
    curves = (tmp_path / "out/roc.csv").read_text()
    assert "codebook (synthetic-letor, manipulation codebook)" in curves, "each cell has its own curve"
    assert "codebook (synthetic-letor, manipulation none)" not in curves
    # The honest clients are those of the other cell: no third training.
    assert len(list((tmp_path / "out/trainings").iterdir())) == 2
    assert reproduce(tmp_path, added) == found
    assert (tmp_path / "out/report.html").read_text().count("<figcaption") == page.count("<figcaption")


@pytest.mark.integration
def test_the_guardrail_holds_back_what_the_server_would_read(tmp_path: Path) -> None:
    guarded = """
metrics: [held-back, auc]
also:
  - axes:
      manipulation: {codebook: {model.manipulation: Codebook}}
      guardrail:
        inf: {}
        0.6: {model.defenses+: [{class_path: Guardrail, init_args: {limit: $, attacks: [ranking/codebook]}}]}
    after: [held-back]
"""
    assert tables.reproduce(tmp_path, TABLE + guarded) == 0
    found = {(r.attack, r.setting.get("guardrail"), r.metric): r for r in tables.read(tmp_path / "out")}
    assert (found["guardrail", "inf", "held-back"].mean, found["guardrail", 0.6, "held-back"].mean) == (0, 1)
    assert found["guardrail", "inf", "held-back"].n == 75
    assert found["codebook", "inf", "auc"].mean == pytest.approx(1, abs=0.02)
    assert found["codebook", 0.6, "auc"].n == 0
    assert ("guardrail", None, "held-back") not in found


@pytest.mark.integration
def test_bounds_of_noisy_updates_and_the_quality_of_the_ranker(tmp_path: Path) -> None:
    added = """
metrics: [bits, ndcg@10, held-back]
set:
  data.queries_per_client: 2
  data.users: 3000
  model.click_model: perfect
  model.ranker_per_client: false
axes:
  data: {synthetic-letor: {data.queries: 600}}
  epsilon:
    inf: {}
    20: {model.defenses: [{class_path: LocalDP, init_args: {epsilon: $, clip: 0.25, delta: 1.0e-8}}]}
attacks: {}
after: [bounds, {utility: {before: true}}, {held-back: {of: trainings}}]
"""
    lines = TABLE.splitlines()
    head = "\n".join(lines[: lines.index("set:")])
    assert tables.reproduce(tmp_path, head + added) == 0
    found = {(r.attack, r.setting["epsilon"], r.metric): r for r in tables.read(tmp_path / "out")}
    assert ("capacity-bound", "inf", "bits") not in found
    assert 0 < found["capacity-bound", 20, "bits"].mean < found["click-entropy", 20, "bits"].mean
    assert found["click-entropy", 20, "bits"].mean == pytest.approx(
        found["click-entropy", "inf", "bits"].mean, rel=0.05
    )
    trained, before = found["none", "inf", "ndcg@10"], found["untrained", "inf", "ndcg@10"]
    assert (trained.n, before.n) == (1, 1)
    assert trained.mean > before.mean + 0.05
    assert found["untrained", 20, "ndcg@10"].mean == before.mean
    silent = found["guardrail", "inf", "held-back"]
    assert 0 < silent.mean < 0.02  # nobody clicked in their lists
    assert silent.n == 1


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (
            "{held-back: {of: rounds}}",
            "of: one of clients, trainings, in the step of `after` held-back; found 'rounds'",
        ),
        ("{utility: {after: true}}", "an argument of Utility, in the step of `after` utility; found 'after'"),
    ],
)
def test_an_option_that_a_step_has_not_is_refused(
    tmp_path: Path, option: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables.reproduce(tmp_path, TABLE + f"metrics: [auc]\nafter: [{option}]\n") == 2
    assert says in capsys.readouterr().err


def test_defences_of_two_axes_add_up_in_the_order_of_the_axes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cell, "check", lambda _: None)
    path = CONFIGS / "paper" / "raifle" / "raifle_table11.yaml"
    cells = tables.cells_of(tmp_path, f"over: {path}\naxes: {{ranker: [linear]}}\n")
    settings = {(c.setting["epsilon"], c.setting["participants"], c.setting.get("aggregate")): c for c in cells}

    def kinds(epsilon: Any, participants: int, aggregate: str | None) -> list[str]:
        defences = settings[epsilon, participants, aggregate].training["model"]["init_args"]["defenses"]
        return [defence["class_path"].rpartition(".")[2] for defence in defences]

    assert kinds("inf", 10, None) == ["SecureAggregation"]
    assert kinds(700, 1000, None) == ["LocalDP", "SecureAggregation"]
    assert kinds(100, 100, "two-targets") == ["LocalDP", "SecureSum"]
    two = settings["inf", 10, "two-targets"].training
    model, data = two["model"]["init_args"], two["data"]["init_args"]
    targeted, (summed,) = model["manipulation"]["init_args"], model["defenses"]
    assert (targeted["targets"], targeted["participants"]) == (2, 10)
    assert (summed["init_args"]["targets"], summed["init_args"]["participants"]) == (2, 10)
    assert (data["targets"], data["aggregate"], data["users"]) == (2, 10, 60)


@pytest.mark.integration
@pytest.mark.parametrize(("name", "features", "grades"), [("MQ2007", 46, 3), ("MSLR-WEB10K", 136, 5)])
def test_table_xiv_runs_on_any_file_in_the_layout_of_its_data(
    tmp_path: Path, name: str, features: int, grades: int
) -> None:
    folder = tmp_path / "data" / name / "Fold1"
    write(folder / "train.txt", text(documents([12] * 40, features=features, grades=grades)))
    write(folder / "test.txt", text(documents([4, 5], features=features, grades=grades, seed=1)))
    table = f"""
over: {CONFIGS / "paper" / "raifle" / "raifle_table14.yaml"}
metrics: [auc]
set: {{data.users: 12}}
axes:
  code: null
  ranker: {{linear: {{model.hidden: 0}}}}
  click_model: {{informational: {{model.click_model: $}}}}
  queries: {{4: {{data.queries_per_client: $}}}}
  epsilon: [inf]
  manipulation:
    codebook: {{model.manipulation: Codebook, attacks: [ranking/codebook]}}
    candidates:
      model.manipulation: {{class_path: Codebook, init_args: {{knows: candidates}}}}
      attacks: [ranking/codebook]
"""
    assert tables.reproduce(tmp_path, table, "--data", name, "--data.root", str(tmp_path / "data")) == 0
    rows = tables.read(tmp_path / "out")
    assert [(row.setting["data"], row.n) for row in rows] == [(name, 10)] * 2
    assert min(row.mean for row in rows) > 0.9


@pytest.mark.integration
def test_the_printed_commands_of_retrieval_give_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = """
over: table14.yaml
metrics: [auc, tpr, fpr]
set: {data.users: 60, data.queries: 60, data.private_retrieval: true, model.manipulation: MarkedDocument}
axes:
  code: null
  data: [synthetic-letor]
  ranker: {neural-4: {model.hidden: 4}}
  click_model: {informational: {model.click_model: $}}
  queries: {4: {data.queries_per_client: $}}
  epsilon: {100: {model.defenses+: [{class_path: LocalDP, init_args: {clip: 0.25, epsilon: $, delta: 1.0e-8}}]}}
  manipulation: [mark]
attacks: {pir-fingerprint: {}}
"""
    text = more.replace("table14.yaml", str(CONFIGS / "paper/raifle/raifle_table14.yaml"))
    assert tables.reproduce(tmp_path, text) == 0
    check_by_hand(tables.command(tmp_path, text), capsys)
    (rate,) = (row for row in tables.read(tmp_path / "out") if row.metric == "tpr")
    assert 7 < rate.n <= 15  # of 15 clients, those who hold it in at least one of four rounds
