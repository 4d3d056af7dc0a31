"""Deanonymization's tables as experiments: what they leave, what hiding costs, and what is refused."""

import json
from pathlib import Path

import pytest

from fedleak.tables.table import Choice, read_table
from tests.places import CONFIGS
from tests.tables.tables import Result, paper_value, read, reproduce

TABLE = f"""
train: {CONFIGS / "train" / "deanon_synthetic.yaml"}
metrics: [times-chance, ap, utility, top5, top1]
set:
  data: {{class_path: SyntheticPosts, init_args: {{writers: 10, posts: 40, vocabulary: 40, length: 8}}}}
  data.clients_per_round: 0.5
  data.devices: {{share: [0.5, 0.5]}}
  model.network: {{vocabulary: 40, embedding: 6, hidden: 8}}
  model.local.batch_size: 8
  trainer.max_steps: 8
setting: {{prior: random}}
axes:
  data: {{synthetic-posts: {{}}}}
  mitigation:
    none: {{after: [{{quality: {{central: 1}}}}]}}
    noise:
      model.defenses: [{{class_path: DeviceNoise, init_args: {{variance: 1.0, clients: anonymous}}}}]
      after: [quality]
    mm-aug: {{data.mitigation: {{kind: mm-aug, amount: 2.0, modes: 5}}, after: [quality]}}
  amount:
    0: {{where: {{mitigation: [none]}}}}
    1: {{where: {{mitigation: [noise]}}}}
    2: {{where: {{mitigation: [mm-aug]}}}}
attacks:
  reid-svm: {{}}
  centred-svm: {{}}
  matching-fingerprint: {{rounds: 1, parts: 2}}
  re-identification/chance: {{}}
arguments: {{layers: [lstm]}}
record: {{parameters: ["lstm.*", "output.*"]}}
also:
  - axes: {{known_messages: {{1: {{messages: {{known_messages: 1}}, attacks: [reid-svm]}}}}}}
  - axes: {{layer: {{output: {{arguments: {{layers: [output]}}, attacks: [reid-svm]}}}}}}
"""
PLAIN = TABLE[: TABLE.index("  mitigation:")] + TABLE[TABLE.index("attacks:\n") : TABLE.index("also:")]


@pytest.mark.integration
def test_a_table_leaves_names_utilities_and_a_curve(tmp_path: Path) -> None:
    assert reproduce(tmp_path, TABLE, page=True) == 0
    results = read(tmp_path / "out")
    found = {(r.attack, r.metric, json.dumps(r.setting, sort_keys=True)): r for r in results}
    plain = {"data": "synthetic-posts", "prior": "random", "mitigation": "none", "amount": 0}
    noisy = {**plain, "mitigation": "noise", "amount": 1}

    def mean(name: str, metric: str, setting: dict[str, object]) -> float:
        result = found[name, metric, json.dumps(setting, sort_keys=True)]
        assert result.n == 10
        return result.mean

    assert mean("reid-svm", "times-chance", plain) > 5
    assert mean("reid-svm", "times-chance", noisy) < 0.5 * mean("reid-svm", "times-chance", plain)
    assert mean("global-model", "utility", plain) == pytest.approx(1)
    assert mean("global-model", "utility", noisy) < 0.9
    assert 0 < mean("central-model", "top5", plain) <= 1
    assert mean("matching-fingerprint", "ap", plain) > 0.8
    assert mean("reid-svm", "ap", {**plain, "known_messages": 1}) < mean("reid-svm", "ap", plain)
    assert mean("reid-svm", "ap", {**plain, "layer": "output"}) > 0.3
    page = (tmp_path / "out" / "report.html").read_text()
    assert (
        "no baseline ran to compare with, so it cannot be said whether the server can infer which of the known users"
        in page
    )
    assert "Privacy and utility against reid-svm" in page
    again = (tmp_path / "out" / "results.json").read_text()
    assert reproduce(tmp_path, TABLE) == 0  # cells are read back
    assert json.loads((tmp_path / "out" / "results.json").read_text())["results"] == json.loads(again)["results"]


@pytest.mark.integration
def test_the_open_world_has_strangers(tmp_path: Path) -> None:
    world = "data.devices: {world: {seen_fraction: 0.5, holdout_fraction: 0.3}}"
    text = PLAIN.replace("synthetic-posts: {}", f"synthetic-posts: {{{world}}}") + "messages: {pairs: anonymous}\n"
    assert reproduce(tmp_path, text) == 0
    results = read(tmp_path / "out")
    naming = next(r for r in results if r.attack == "reid-svm" and r.metric == "ap")
    # Seven users take part; the four of whom something is known, and one class of all strangers.
    assert naming.n == 5


@pytest.mark.integration
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("synthetic-posts:", "synthetic-words:", "synthetic-words"),
        ("reid-svm: {}", "reid-nothing: {}", "reid-nothing"),
        ("max_steps: 8", "max_steps: 0", "a recording with a manifest.json"),
        ("writers: 10", "readers: 10", "readers"),
        ("kind: mm-aug", "kind: hide", "hide"),
        ("known_messages: 1}, attacks", "known_messages: 0}, attacks", "known_messages"),
        ("known_messages: 1}, attacks", "known_rounds: [50, 60]}, attacks", "rounds in"),
        ("vocabulary: 40, length", "vocabulary: 3, length", "vocabulary of at least 6"),
        ("variance: 1.0", "variance: -1.0", "variance"),
        ("modes: 5", "modes: 100000", "modes"),
        ("attacks: [reid-svm]", "attacks: [raifle]", "raifle"),
        ("quality: {central: 1}", "quality: {centre: 1}", "centre"),
    ],
)
def test_a_wrong_table_is_refused(
    tmp_path: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in TABLE
    assert reproduce(tmp_path, TABLE.replace(old, new, 1).replace("max_steps: 8", "max_steps: 2")) == 2
    assert message in capsys.readouterr().err


@pytest.mark.integration
def test_a_layer_that_is_not_there_leaves_its_attacks_out_and_the_report_says_so(tmp_path: Path) -> None:
    layer = "{arguments: {layers: [input]}, attacks: [reid-svm]}"
    text = PLAIN.replace("max_steps: 8", "max_steps: 2") + f"also: [{{axes: {{layer: {{input: {layer}}}}}}}]\n"
    assert reproduce(tmp_path, text, page=True) == 0
    assert "'input'" in (tmp_path / "out" / "report.html").read_text().replace("&#39;", "'")
    assert "input" not in {result.setting.get("layer") for result in read(tmp_path / "out")}


def test_the_papers_numbers_stand_beside_its_own_settings_only() -> None:
    chrono = {"data": "blog", "prior": "chrono"}
    assert paper_value("reid-mlp", "times-chance", chrono) == (25, "Deanonymization Table 3")
    layer = {"data": "blog", "prior": "random", "layer": "output"}
    for name, metric, setting, value in (
        ("fingerprint", "ap", chrono, 0.448),
        ("matching-siamese", "ap", chrono, 0.919),
        ("reid-mlp", "ap", layer, 0.388),
        ("global-model", "top5", {"data": "blog", "prior": "random"}, 0.28),
    ):
        found = paper_value(name, metric, setting)
        assert found is not None
        assert found[0] == value
    assert paper_value("reid-mlp", "ap", {**chrono, "seen": 0.5}) is None
    assert paper_value("reid-mlp", "ap", {"data": "blog", "prior": "iid"}) is None
    assert paper_value("reid-mlp", "ap", {"data": "sent140", "prior": "random"}) is None


def test_every_seed_is_another_training_and_its_own_cell() -> None:
    table = read_table(CONFIGS / "paper" / "deanon" / "deanon_table3.yaml")
    cells = table.cells(Choice(seeds=3, data="blog"))
    # Two priors; the further layer and the shuffled names share their trainings.
    assert len({cell.key for cell in cells}) == len(cells) == 3 * len({cell.folder for cell in cells}) == 18


def test_looks_at_messages_share_a_training() -> None:
    cells = read_table(CONFIGS / "paper" / "deanon" / "deanon_figure8.yaml").cells(Choice())
    assert len({cell.key for cell in cells}) == len(cells) == 16
    assert len({cell.folder for cell in cells}) == 1


def analysed(
    folder: Path, metrics: str, after: str, devices: str = "", attacks: str | None = None, page: bool = False
) -> list[Result]:
    # Every device of a profile is to take part at least once.
    text = PLAIN.replace("clients_per_round: 0.5", "clients_per_round: 0.9") + f"after: [{after}]\n"
    text = text.replace("metrics: [times-chance, ap, utility, top5, top1]", f"metrics: [{metrics}]")
    text = text.replace("synthetic-posts: {}", f"synthetic-posts: {{{devices}}}")
    if attacks is not None:
        text = text[: text.index("attacks:\n")] + f"attacks: {attacks}\n" + text[text.index("arguments:") :]
    assert reproduce(folder, text, page=page) == 0
    return read(folder / "out")


@pytest.mark.integration
def test_raw_sets_biases_and_maps_stand_beside(tmp_path: Path) -> None:
    results = analysed(
        tmp_path, "ap, bias-correlation, bias-correlation-others", "raw-data, user-bias, maps", page=True
    )
    found = {(r.attack, r.metric, r.setting.get("examples_in_a_set")): r.mean for r in results}
    assert found["raw-examples", "ap", 1] < found["raw-examples", "ap", 16]
    assert found["raw-examples", "ap", 16] > 0.9
    own, others = (found["user-bias", f"bias-correlation{end}", None] for end in ("", "-others"))
    assert own > 0.5
    assert others < 0.2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "t-SNE maps of 8 users" in page
    assert "movement of the rows of the last layer" in page


@pytest.mark.integration
def test_devices_are_singled_out_by_a_profile(tmp_path: Path) -> None:
    profiles = ", ".join(f'{{name: word{n}, terms: ["{n}"]}}' for n in (5, 9, 12))
    devices = f"data.devices: {{prior: profile, profiles: [{profiles}]}}"
    after = "{profiles: {attacks: {centred-svm: {layers: [output]}}}}"
    results = analysed(tmp_path, "fit-rank", after, devices, "{}")
    ranks = [r.mean for r in results if r.attack == "centred-svm" and r.metric == "fit-rank"]
    assert len(ranks) == 3
    assert sum(ranks) / 3 > 0.6
