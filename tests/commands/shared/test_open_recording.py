"""A learner that the auditor names: it replaces that of the manifest, and one that does not fit is one line."""

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor, nn
from torch.nn import functional

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network import ClassifierAlgorithm
from fedleak.commands.convert import ConvertOptions, convert
from fedleak.commands.shared.open_recording import open_recording
from fedleak.core.batch_norm import is_statistic
from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.training.network_learner import NetworkLearner

LOCAL = LocalTraining(learning_rate=0.5, epochs=3)
SIZES = (7, 12)


def network(hidden: int = 5) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, 3))


class Twin(NetworkLearner):
    """The learner of the dump."""

    def __init__(self, *, hidden: int = 5, local: LocalTraining = LOCAL, **federation: Any) -> None:
        super().__init__(local=local, **federation)
        self.train_network(network(hidden))


class Broken(NetworkLearner):
    """A learner that cannot be built."""

    def __init__(self, *, local: LocalTraining = LOCAL) -> None:
        raise RuntimeError("no network")


def pool() -> tuple[Tensor, Tensor]:
    generator = generator_for(0, "pool")
    return torch.randn(sum(SIZES), 4, generator=generator), torch.randint(3, (sum(SIZES),), generator=generator)


@pytest.fixture(scope="module")
def deltas(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A recording of a plain PyTorch loop with torch's own batch norm, by full-batch steps."""
    folder = tmp_path_factory.mktemp("given")
    torch.manual_seed(0)
    trained, (inputs, labels) = network(), pool()
    before = copy.deepcopy(trained.state_dict())
    np.savez(folder / "global.npz", **{name: value.numpy() for name, value in before.items()})
    clients = []
    for number, part in enumerate(torch.split(torch.arange(sum(SIZES)), list(SIZES))):
        trained.load_state_dict(before)
        optimizer = torch.optim.SGD(trained.parameters(), lr=LOCAL.learning_rate)
        for _ in range(LOCAL.epochs):
            optimizer.zero_grad()
            functional.cross_entropy(trained(inputs[part]), labels[part]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        state: dict[str, Any] = {name: value.numpy() for name, value in trained.state_dict().items()}
        np.savez(folder / f"{number}.npz", **state)
        counts = torch.bincount(labels[part], minlength=3).tolist()
        clients.append({"client": f"c{number}", "examples": len(part), "file": f"{number}.npz"})
        clients[-1]["truth"] = {"class_counts": counts}
    content = {"format": 1, "data": {"name": "own"}, "holds": "models"}
    content |= {"parameters": {name: list(value.shape) for name, value in before.items()}}
    content |= {"rounds": [{"round": 0, "model": "global.npz", "clients": clients}]}
    (folder / "manifest.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    convert(ConvertOptions(source=str(folder / "manifest.yaml"), out=str(folder / "deltas")))
    return str(folder / "deltas")


@pytest.mark.integration
def test_clients_of_a_plain_loop_with_batch_norm_are_simulated_exactly(deltas: str) -> None:
    recording = open_recording(deltas, f"{__name__}.Twin")
    assert open_recording(deltas).manifest.learner is None
    simulator = recorded_learner(recording)
    assert isinstance(simulator, ClassifierAlgorithm)
    assert simulator.output_layer == "3"
    view = next(recording.views(learner=simulator))
    view = view.select(view.example_counts.argsort())
    examples = nn.utils.rnn.pad_sequence(
        list(torch.split(torch.arange(sum(SIZES)), list(SIZES))), batch_first=True, padding_value=-1
    )
    own = simulator.simulate_examples(view.model, *pool(), examples, generator=generator_for(0, "order"))
    assert own.keys() == {name for name in view.deltas if not is_statistic(name)}
    for name, value in own.items():
        torch.testing.assert_close(value, view.deltas[name], atol=1e-5, rtol=1e-4)
    assert float(view.deltas["1.running_mean"].abs().min()) > 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("learner", "arguments", "match"),
    [
        ("Twin", {"hidden": 6}, r"'0.bias' of shape \(6,\); found '0.bias' of shape \(5,\).*--learner.NAME VALUE"),
        ("Twin", {"hiden": 6}, "Did you mean hidden"),
        ("Twin", {"hidden": "x"}, "hidden"),
        ("Twin", {"local": {"learning_rate": -1}}, "learning_rate"),
        ("Broken", {}, "no network"),
        ("network", {}, "subclass of NetworkLearner"),
        ("Absent", {}, "Absent"),
    ],
)
def test_a_learner_that_does_not_fit_is_one_line(
    deltas: str, learner: str, arguments: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=match) as error:
        open_recording(deltas, f"{__name__}.{learner}", arguments)
    assert "\n" not in str(error.value)


@pytest.mark.integration
def test_a_module_is_imported_and_takes_no_arguments(
    deltas: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert open_recording(deltas, "own_module").manifest.learner is None
    assert "own_module" in sys.modules
    with pytest.raises(InputError, match=r"PACKAGE\.CLASS before"):
        open_recording(deltas, "own_module", {"hidden": 3})


@pytest.mark.integration
@pytest.mark.parametrize(
    ("learner", "arguments", "match"),
    [
        ("Pretrained", {}, r"expected the argument path of Pretrained.*Give --learner\.path DIR"),
        ("pretrained", {}, r"Did you mean Pretrained\?"),
        ("FNCF", {}, r"item_embedding\.weight, which FNCFAlgorithm has; found a model of 0\.bias.*or omit --learner"),
        ("FNCF", {"user_dim": -1}, r"user_dim: a whole number above 0, in --learner FNCF; found -1"),
        ("FNCF", {"user_dmi": 1}, r"argument of FNCF, in --learner FNCF; found 'user_dmi'\. Did you mean user_dim\?"),
    ],
)
def test_a_learner_of_the_project_that_does_not_fit_is_answered_for_the_command_line(
    deltas: str, learner: str, arguments: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=match) as error:
        open_recording(deltas, learner, arguments)
    assert "manifest" not in str(error.value)
    assert "Parser key" not in str(error.value)


@pytest.mark.integration
def test_a_part_of_a_default_leaves_the_rest_of_it(deltas: str) -> None:
    recording = open_recording(deltas, f"{__name__}.Twin", {"local": {"learning_rate": "0.25"}})
    simulator = recorded_learner(recording)
    assert isinstance(simulator, ClassifierAlgorithm)
    assert simulator.local == LocalTraining(learning_rate=0.25, epochs=LOCAL.epochs)
