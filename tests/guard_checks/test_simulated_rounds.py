"""Simulated honest trainings: what they give, and that a guard calibrated with them lets honest rounds pass."""

from pathlib import Path

import numpy as np
import pytest

from fedleak.guard_checks.simulated_rounds import NOT_SIMULATED, simulated_rounds
from fedleak_guard import Guard, Message, RefusedError
from fedleak_guard.command import main
from fedleak_guard.declared_checks import SimulatedTrainings
from fedleak_guard.thresholds import read_thresholds
from tests.guard_networks import initial, network, policy, records, stepped, suppressed, update

SMALL = SimulatedTrainings(trainings=2, rounds=3, clients=3, examples=5, learning_rate=0.1, epochs=1, batch_size=4)


def test_each_round_of_each_training_has_every_statistic() -> None:
    inputs, labels = records()
    found = list(simulated_rounds(network, inputs, labels, SMALL))
    assert len(found) == 6
    assert {"dead-units", "lone-units", "nested-units", "weight-law", "proportional-rows"} <= found[0].keys()
    assert not found[0].keys() & set(NOT_SIMULATED)
    assert all(one.keys() == found[0].keys() and np.isfinite(list(one.values())).all() for one in found)
    again = list(simulated_rounds(network, inputs, labels, SMALL))
    assert again == found


@pytest.mark.integration
def test_a_site_calibrates_by_simulation_and_refuses_a_manipulated_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = policy(tmp_path, f"{{thresholds: {tmp_path}/thresholds.json}}", "required: [received-model]\n")
    command = ["calibrate", str(path), "--simulate", "--clients", "2", "--examples", "12"]
    assert main([*command, "--rounds", "10"]) == 2
    assert "at least 99 honest rounds for 5 checks" in capsys.readouterr().err
    assert main([*command, "--rounds", "25"]) == 0
    said = capsys.readouterr().out
    assert "from 100 honest rounds (4 simulated trainings of 25 rounds)" in said
    assert read_thresholds(tmp_path / "thresholds.json").false_positives == pytest.approx(5 / 101)
    guard, model = Guard(path), initial(7)
    for number in range(5):
        guard.release(Message(job="job", round=number, sent=update(number), received=model))
        with pytest.raises(RefusedError, match="received-model"):
            guard.release(Message(job="job", round=number, sent=update(number), received=suppressed(model)))
        model = stepped(model, number)


def test_a_site_calibrates_by_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = policy(tmp_path, "{record: true}")
    guard, model = Guard(path), initial()
    for number in range(20):
        guard.release(Message(job="job", round=number, sent=update(number), received=model))
        model = stepped(model, number)
    command = ["calibrate", str(path), "--out", str(tmp_path / "thresholds.json")]
    assert main(command) == 2
    assert "at least 179 honest rounds for 9 checks at a joint rate of 0.05; found 20" in capsys.readouterr().err
    assert main([*command, "--false-positives", "0.45"]) == 0
    assert "from 20 honest rounds (the log's rounds of 1 trainings)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "a file for the thresholds"),
        (["--out", "x", "--false-positives", "2"], "between 0 and 1"),
        (["--out", "x", "--simulate", "--rounds", "0"], "numbers above 0"),
        (["--out", "x", "--margin", "0.5", "--simulate", "--rounds", "1"], "honest rounds"),
        (["--out", "x"], "a log"),
    ],
)
def test_wrong_options_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main(["calibrate", str(policy(tmp_path, "{record: true}")), *more]) == 2
    assert said in capsys.readouterr().err


def test_a_simulation_needs_the_sites_data_and_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f"format: 1\nevidence: {tmp_path}\ntensors: [{{name: '*'}}]\n")
    assert main(["calibrate", str(path), "--simulate", "--out", "x"]) == 2
    assert "own.network" in capsys.readouterr().err
