"""What the site has itself is found where the policy says, and a mistake there keeps every message."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedleak_guard import RefusedError
from fedleak_guard.own_data import network_of, with_own_data
from fedleak_guard.policy import read_policy
from tests.guard_toys import message, site, write_policy


def made_network() -> torch.nn.Module:
    return torch.nn.Linear(3, 2)


class Algorithm:
    """What a client runs, as far as the guard looks at it."""

    template = torch.nn.Linear(3, 2)


def test_records_network_and_algorithm_of_the_policy_complete_a_message(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", records=np.ones((4, 3), "f"), labels=[0, 1, 1, 0])
    own = f"own: {{data: {tmp_path}/own.npz, network: {__name__}:made_network, algorithm: {__name__}:Algorithm}}\n"
    found = with_own_data(message(), read_policy(write_policy(tmp_path, own)))
    assert found.records.shape == (4, 3)
    assert found.labels.tolist() == [0, 1, 1, 0]
    assert isinstance(found.algorithm, Algorithm)
    network = network_of(found)
    assert network is not None
    assert isinstance(network(), torch.nn.Linear)


def test_what_a_message_has_itself_comes_first(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", records=np.ones((4, 3), "f"))
    policy = read_policy(write_policy(tmp_path, f"own: {{data: {tmp_path}/own.npz}}\n"))
    assert with_own_data(message(labels=[1, 2]), policy).records is None
    assert len(with_own_data(message(), policy).records) == 4


def test_the_network_of_an_algorithm_is_copied() -> None:
    network = network_of(message(algorithm=Algorithm()))
    assert network is not None
    assert network() is not Algorithm.template
    assert network_of(message()) is None


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda _: None, "the file own.npz"),
        (lambda path: path.write_text("text"), "a .npz file"),
        (lambda path: np.savez(path, other=np.ones(3)), "records and labels, or one of them.*found other"),
        (lambda path: np.savez(path, records=np.ones((3, 2)), labels=np.ones(2)), "as many labels as records"),
        (lambda path: np.savez(path, records=np.array([{}])), "a .npz file"),
    ],
)
def test_a_wrong_file_is_a_refusal(tmp_path: Path, damage: Callable[[Path], Any], said: str) -> None:
    damage(tmp_path / "own.npz")
    with pytest.raises(RefusedError, match=said):
        site(tmp_path, f"own: {{data: {tmp_path}/own.npz}}\n").release(message())


@pytest.mark.parametrize("path", ["no_module:name", f"{__name__}:nothing", f"{__name__}:__file__", "json", ""])
def test_a_wrong_function_is_a_refusal(tmp_path: Path, path: str) -> None:
    with pytest.raises(RefusedError, match="a function at"):
        site(tmp_path, f"own: {{network: '{path}'}}\n").release(message())
