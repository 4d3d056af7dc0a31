"""What an installation does in a folder of a user, whose files have the names that files of such systems have."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.places import ROOT, tracked
from tests.wheel.environment import Environment, environment, uv
from tests.without_fedleak import without_fedleak

pytestmark = pytest.mark.integration

TABLE_OF_A_PAPER = "raifle_table5"
AUDIT = "from fedleak import audit"
OWN_FILES = ("attacks.py", "client.py", "protocol.py", "server.py", "task.py", "train.py", "utils.py")
"""Files of the user that none of our modules may find: Flower's tutorials have most of these names."""
OWN_FOLDERS = ("modules", "evaluation")
"""Packages of the user, likewise."""

NETWORK = """\
from torch import nn


def small_network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""
LEARNER = """\
from fedleak.modules import LocalTraining, NetworkLearner
from models.small import small_network

LOCAL = LocalTraining(learning_rate=0.1, batch_size=16)


class MyNet(NetworkLearner):
    def __init__(self, *, num_classes=10, local=LOCAL, **federation):
        super().__init__(local=local, **federation)
        self.train_network(small_network())
"""
RECORD = """\
import copy
import torch
from fedleak_recorder import Recorder
from models.small import small_network
from sklearn.datasets import load_digits

torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
server, clients = small_network(), 6
with Recorder("rec/deltas", parameters=server.state_dict(), data="my digits") as recorder:
    for number in range(2):
        before, sent, truth = copy.deepcopy(server.state_dict()), {}, {}
        for client in range(clients):
            order = torch.randperm(len(labels))
            mine = order[(labels[order] == client) | (labels[order] == client + 3)][:48]
            server.load_state_dict(before)
            for batch in mine.split(16):
                loss = torch.nn.functional.cross_entropy(server(images[batch]), labels[batch])
                gradients = torch.autograd.grad(loss, list(server.parameters()))
                with torch.no_grad():
                    for value, gradient in zip(server.parameters(), gradients):
                        value -= 0.1 * gradient
            sent[f"client-{client}"] = copy.deepcopy(server.state_dict()), len(mine)
            truth[f"client-{client}"] = {"class_counts": torch.bincount(labels[mine], minlength=10).tolist()}
        recorder.round(number, before, sent, truth=truth)
        mean = {key: torch.stack([state[key] for state, _ in sent.values()]).mean(0) for key in before}
        server.load_state_dict(mean)
"""
TRAINING = """\
model:
  class_path: my_learner.MyNet
data:
  class_path: Digits
  init_args:
    split: {scheme: composition, examples_per_client: 48}
    auxiliary_per_class: 10
trainer:
  max_steps: 1
  callbacks: [{class_path: DeltaRecorder}]
"""
TABLE = """\
# Class shares from the updates of a network of one's own.
train: training.yaml
metrics: [l1]
axes:
  data: [digits]
attacks: {closed-form: {}, equal-counts: {}}
"""
GUARD = """\
import json
from pathlib import Path
import numpy as np
from fedleak_guard import Guard, Message, RefusedError

Path("policy.yaml").write_text('''
format: 1
evidence: evidence
tensors: [{name: "*"}]
findings: {own-records: refuse}
''')
random = np.random.default_rng(0)
record = random.integers(0, 256, (1, 12)).astype(np.float32) / 255  # the client's only one
weight, bias = random.normal(size=(5, 12)).astype(np.float32), np.zeros(5, np.float32)
scores = np.exp(weight @ record[0])
gradient = scores / scores.sum()  # of the cross-entropy by the logits
gradient[2] -= 1
message = Message(
    job="job",
    round=1,
    sent={
        "fc.weight": (-0.1 * np.outer(gradient, record[0])).astype(np.float32),
        "fc.bias": (-0.1 * gradient).astype(np.float32),
    },
    received={"fc.weight": weight, "fc.bias": bias},
    examples=1,
    records=record,
    labels=np.array([2]),
)
try:
    Guard("policy.yaml").release(message)
    print("it left")
except RefusedError as refused:
    print("kept:", *refused.reasons)
"""

Ran = Callable[..., str]


@pytest.fixture(scope="module")
def installed() -> Environment:
    program = uv()
    if program is None:
        pytest.skip("uv is not installed; `make test-wheel` installs it into .uv and runs this test")
    return environment(program)


@pytest.fixture(scope="module")
def ran(installed: Environment) -> Ran:
    """Runs a command of the installation in a folder; gives what it printed."""

    def run(folder: Path, program: str, *arguments: str, status: int = 0) -> str:
        environment = {"PATH": f"{installed.programs}:/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        environment |= {"MPLBACKEND": "agg", "WANDB_MODE": "offline", "FEDLEAK_KEY": "5e" * 32}
        command = [str(installed.programs / program), *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, ran: Ran) -> Path:
    """The user's folder, with a recording of a system of his own."""
    folder = tmp_path_factory.mktemp("app")
    for name in OWN_FILES:
        (folder / name).write_text("raise ImportError('a file of the app')\n", encoding="utf-8")
    for name in OWN_FOLDERS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise ImportError('a package of the app')\n", encoding="utf-8")
    (folder / "models").mkdir()
    (folder / "models" / "__init__.py").touch()
    (folder / "models" / "small.py").write_text(NETWORK, encoding="utf-8")
    (folder / "my_learner.py").write_text(LEARNER, encoding="utf-8")
    (folder / "record.py").write_text(RECORD, encoding="utf-8")
    (folder / "training.yaml").write_text(TRAINING, encoding="utf-8")
    (folder / "table.yaml").write_text(TABLE, encoding="utf-8")
    ran(folder, "python", "record.py")
    return folder


def results_in(folder: Path) -> dict[str, float]:
    """Means by attack and metric."""
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return {f"{result['attack']} {result['metric']}": result["mean"] for result in content["results"]}


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_an_installation_has_one_package_of_each_distribution(installed: Environment) -> None:
    tops = {name.split("/")[0] for wheel in installed.wheels for name in names_in(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fedleak", "fedleak_guard", "fedleak_recorder"}


def test_the_wheel_has_every_file_of_the_package(installed: Environment) -> None:
    """It was built from an archive of the sources, which has them too."""
    (wheel,) = [path for path in installed.wheels if path.name.startswith("fedleak-")]
    package = {str(path.relative_to(ROOT)) for path in tracked() if path.is_relative_to(ROOT / "fedleak")}
    for link in (path for path in (ROOT / "fedleak").rglob("*") if path.is_symlink()):
        target, place = link.resolve(), link.relative_to(ROOT)
        package |= {str(place / path.relative_to(target)) for path in tracked() if path.is_relative_to(target)}
    assert {name for name in names_in(wheel) if ".dist-info/" not in name} == package


@pytest.mark.parametrize("name", ["fedleak", "fedleak-guard", "fedleak-recorder"])
def test_what_a_distribution_requires_is_installed(installed: Environment, name: str) -> None:
    say = "import json, sys, importlib.metadata as m; found = m.distribution(sys.argv[1])\n"
    say += "versions = {}\n"  # the first on the path is the one that is imported
    say += "for one in m.distributions(): versions.setdefault(one.name.lower(), one.version)\n"
    say += "print(json.dumps([str(found.locate_file('')), found.requires, versions]))"
    command = [str(installed.programs / "python"), "-P", "-c", say, name]  # not what lies in this folder
    place, requires, versions = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert Path(place).is_relative_to(installed.folder)
    needed = [one for one in map(Requirement, requires) if one.marker is None or one.marker.evaluate({"extra": ""})]
    found = {one.name.replace("_", "-"): one for one in needed}
    assert name != "fedleak" or {"fedleak-recorder", "torch", "lightning"} <= found.keys()
    normal = {one.replace("_", "-"): version for one, version in versions.items()}
    assert [str(one) for key, one in found.items() if not one.specifier.contains(normal.get(key.lower(), "0"))] == []


def test_the_demo_runs(ran: Ran, app: Path) -> None:
    said = ran(app, "fedleak", "demo", "--out", "demo")
    assert "report: demo/report.html" in said
    assert (app / "demo" / "report.html").is_file()


def test_an_audit_finds_a_learner_in_the_current_folder(ran: Ran, app: Path) -> None:
    ran(app, "fedleak", "audit", "rec/deltas", "--learner", "my_learner.MyNet", "--out", "audit")
    results = results_in(app / "audit")
    assert results["last-layer-counts l1"] < results["equal-counts l1"]
    assert "ilrg l1" in results  # needs the learner
    assert "<svg" in (app / "audit" / "report.html").read_text(encoding="utf-8")


def test_python_audits(ran: Ran, app: Path) -> None:
    script = f"{AUDIT}\nprint(audit('rec/deltas', ['last-layer-counts', 'equal-counts'], progress=False).results)"
    (app / "my_audit.py").write_text(script, encoding="utf-8")
    assert "last-layer-counts" in ran(app, "python", "my_audit.py")


def test_a_table_of_ones_own_network(ran: Ran, app: Path) -> None:
    ran(app, "fedleak", "reproduce", "table.yaml", "--out", "table", "--jobs", "2")
    results = results_in(app / "table")
    assert results["closed-form l1"] < results["equal-counts l1"]


def test_a_table_of_a_paper_is_there(ran: Ran, app: Path) -> None:
    said = ran(app, "fedleak", "reproduce", TABLE_OF_A_PAPER, "--data.root", "nothing", status=2)
    assert "nothing" in said
    assert "ls " not in said  # the answer to a table that is not there


def test_a_training_finds_a_network_in_the_current_folder(ran: Ran, app: Path) -> None:
    ran(app, "fedleak-train", "fit", "--config", "training.yaml", "--trainer.default_root_dir", "trained")
    assert (app / "trained" / "deltas" / "manifest.json").is_file()


@pytest.mark.parametrize("beside", [True, False])
def test_the_guard_keeps_a_record_beside_files_of_an_app(ran: Ran, app: Path, tmp_path: Path, beside: bool) -> None:
    folder = app if beside else tmp_path
    (folder / "my_guard.py").write_text(GUARD, encoding="utf-8")
    said = ran(folder, "python", "my_guard.py")
    assert said.startswith("kept:")
    assert "the server can solve for 1 training records" in said


def test_a_site_without_fedleak_names_its_checks_and_says_that_they_are_not_made(
    installed: Environment, tmp_path: Path
) -> None:
    """It has the guard and the recorder from their wheels; the policy names a check of fedleak."""
    command, site = without_fedleak(tmp_path), tmp_path / "site"
    for wheel in installed.wheels:
        if not wheel.name.startswith("fedleak-"):
            zipfile.ZipFile(wheel).extractall(tmp_path / "packages")
    site.mkdir()
    (site / "my_guard.py").write_text(GUARD, encoding="utf-8")
    done = subprocess.run([*command, "my_guard.py"], cwd=site, capture_output=True, text=True, check=True)
    assert done.stdout == "it left\n"
    (entry,) = map(json.loads, (site / "evidence" / "log.jsonl").read_text(encoding="utf-8").splitlines())
    assert entry["not_made"]["own-records"] == "the main package fedleak is not installed"


def test_an_installation_registers_the_checks_of_the_guard(installed: Environment) -> None:
    say = "from importlib.metadata import entry_points as e; print([x.value for x in e(group='fedleak_guard.checks')])"
    command = [str(installed.programs / "python"), "-P", "-c", say]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "['fedleak.guard_checks']\n"


def test_the_environment_is_of_this_python(installed: Environment) -> None:
    say = "import sys; print(sys.version_info[:2])"
    done = subprocess.run([str(installed.programs / "python"), "-c", say], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(sys.version_info[:2])
