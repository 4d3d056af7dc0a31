"""A class from outside that lacks a part, and a recording that names what it may not, are one line and status 2."""

import json
import re
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedleak.commands import program
from fedleak.commands import train as training
from tests.places import CONFIGS
from tests.tables.tables import RANKING
from tests.toys import train

pytestmark = pytest.mark.integration

ESTIMATE = "from fedleak.core.estimates import Estimate\n"
ATTACK = (
    "from fedleak.attacks.recommendation import Direction\nfrom fedleak.core.attack import Attack\n"
    "class Part(Attack):\n    "
)
PARTS = (
    "name = 'part'",
    "family = 'parts'",
    "estimates = Direction.estimates",
    "threat_model = Direction.threat_model",
)
CHECK = "from fedleak.defenses.manipulation_checks import Check\nclass Part(Check):\n    "
STATISTIC = "def statistic(self, received, reference): return received.features.flatten(1).sum(1)"
DEVIATION = "from fedleak.server import FeatureManipulation\nclass Part(FeatureManipulation):\n    "
FEATURES = "def features(self, model, features, mask, *, generator): return features"
RECORDING_STEP = "from fedleak.evaluation.steps import RecordingStep\nclass Part(RecordingStep):\n    "
STEP = "from fedleak.tables.after import AfterStep\nclass Part(AfterStep):\n    "
LEARNER = "from fedleak.training.federated import FederatedModule\nclass Part(FederatedModule):\n    "
DATA = "from fedleak.training.data import FederatedDataModule\nclass Part(FederatedDataModule):\n    "
OTHER = "class Part:\n    pass"


def attack_without(part: str) -> str:
    run = "def run(self, view, *, generator): return None"
    return ATTACK + "\n    ".join(line for line in (*PARTS, run) if part not in line)


def of_an_estimate(body: str) -> str:
    methods = "    def check(self, view): ...\n    def score(self, view, truth): ...\n"
    return f"{ESTIMATE}class Own(Estimate):\n    {body}\n{methods}{OTHER}"


@pytest.fixture(scope="module")
def deltas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    train(folder, rounds=1, users=12)
    return folder / "deltas"


def one_line(status: int, capsys: pytest.CaptureFixture[str], program: str = "fedleak") -> str:
    said = capsys.readouterr()
    lines = [line for line in said.err.splitlines() if line.startswith(f"{program}: ")]
    assert (status, len(lines)) == (2, 1), said
    assert "Traceback" not in said.err
    return lines[0]


@pytest.fixture
def part(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The class path of a part with the source of a case, in a module of its own outside the checkout."""
    module = "part_" + "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    (tmp_path / f"{module}.py").write_text(request.param)
    monkeypatch.syspath_prepend(str(tmp_path))
    return f"{module}.Part"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        *((attack_without(part), part) for part in ("name", "family", "estimates", "threat_model", "run")),
        (OTHER, "Attack"),
        (of_an_estimate("truth, metrics = (), ('auc',)"), "inferred"),
        (of_an_estimate("truth, inferred = (), 'nothing'"), "metrics"),
        (of_an_estimate("truth, inferred, metrics = (), 'nothing', ('acu',)"), "acu"),
        ("class Part(:", "syntax"),
        ("import no_such_package", "no_such_package"),
    ],
    indirect=["part"],
)
def test_an_attack(part: str, expected: str, deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("audit", str(deltas), "--out", str(tmp_path / "out"), "--also", part)
    assert expected in one_line(program.main(words), capsys)


@pytest.mark.parametrize(
    ("part", "after", "expected"),
    [
        (f"{RECORDING_STEP}name = 'part'", "PART", "abstract"),
        (f"{RECORDING_STEP}def rows(self, run): return []", "PART", "name"),
        (f"{STEP}pass", "PART", "name"),
        (OTHER, "PART", "Step"),
        (f"{STEP}name = 'part'", "PART: {of: 3}", "of"),
        (f"{CHECK}name = 'part'", "manipulation-checks: {checks: [PART]}", "abstract"),
        (CHECK + STATISTIC, "manipulation-checks: {checks: [PART]}", "name"),
    ],
    indirect=["part"],
)
def test_a_step_or_a_check(
    part: str, after: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.yaml").write_text(f"{RANKING}after: [{after.replace('PART', part)}]\n")
    words = ("reproduce", str(tmp_path / "table.yaml"), "--out", str(tmp_path / "out"))
    assert expected in one_line(program.main(words), capsys)


DESCRIBED = f"{DEVIATION}name, does, noticed = 'part', 'nothing', ()"


@pytest.mark.parametrize(
    ("part", "options", "expected"),
    [
        (f"{LEARNER}def __init__(self): super().__init__(local=None)", ("--model", "PART"), "algorithm"),
        (f"{DATA}pass", ("--data", "PART"), "abstract|num_clients|not a"),
        (OTHER, ("--model.defenses", '[{"class_path": "PART"}]'), "Part|Defense"),
        (DESCRIBED, ("--model.manipulation", "PART"), "abstract"),
        (f"{DEVIATION}name = 'part'\n    {FEATURES}", ("--model.manipulation", "PART"), "does, noticed"),
        (DEVIATION + FEATURES, ("--model.manipulation", "PART"), "name"),
    ],
    indirect=["part"],
)
def test_a_part_of_a_training(
    part: str, options: tuple[str, ...], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", "SyntheticRanking", "--data.queries", "20", "--data.clients_per_round", "1.0")
    words = ["fit", "--config", str(CONFIGS / "train" / "fpdgd_mq2008.yaml"), *data, "--trainer.max_steps", "1"]
    words += ["--trainer.default_root_dir", str(tmp_path / "out")]
    try:
        status = training.run([*words, *(word.replace("PART", part) for word in options)])
    except SystemExit as ended:
        status = int(str(ended.code))
    assert re.search(expected, one_line(status, capsys))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("os.system", {"command": "true"}, "os.system"),
        ("no_such_package.Learner", {}, "no_such_package"),
        ("fedleak.modules.learners.fncf.FNCF", {}, "fedleak.modules.learners.fncf.FNCF"),
        ("fncf", {"user_dim": 10**6, "item_dim": 10**6, "hidden": [10**6, 10**6]}, "fncf"),
        ("fncf", {"user_dim": "8"}, "user_dim"),
        ("fncf", {"hidden": {"class_path": "os.system"}}, "hidden"),
    ],
)
def test_a_recording_that_names_an_algorithm(
    name: str, arguments: Any, expected: str, deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(deltas, tmp_path / "deltas")
    manifest = json.loads((tmp_path / "deltas/manifest.json").read_text())
    manifest["learner"] = {"name": name, "arguments": {**manifest["learner"]["arguments"], **arguments}}
    (tmp_path / "deltas/manifest.json").write_text(json.dumps(manifest))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = program.main(("audit", str(tmp_path / "deltas"), "--out", str(tmp_path / "out")))
    assert expected in one_line(status, capsys)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**19, "KiB"
