"""Attacks on the own message find what the same attacks find at the server."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedleak.attacks.reconstruction.linear_inversion import LinearInversion
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.core.view import RoundView
from fedleak.guard_checks.own_label_counts import CountsByOutput
from fedleak.guard_checks.own_records import RecordsByInversion
from fedleak.guard_checks.own_words import WordsByTouchedRows
from fedleak_guard import RefusedError
from fedleak_guard.check import NotMadeError
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy, read_policy
from tests.guard_toys import message, site

RECORDS = 6


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    path = tmp_path / "policy.yaml"
    path.write_text("format: 1\nevidence: e\ntensors: [{name: '*'}]\n")
    return read_policy(path)


def client(seed: int = 0) -> Message:
    """A client of a linear network with records that are 8-bit images, after one step of SGD."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(36, 200), nn.ReLU(), nn.Linear(200, 4))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    records = torch.randint(256, (RECORDS, 36), generator=generator) / 255
    labels = torch.randint(4, (RECORDS,), generator=generator)
    functional.cross_entropy(network(records), labels).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for value in network.parameters():
            assert value.grad is not None
            value.sub_(0.1 * value.grad)
    after = dict(network.state_dict())
    known = {"received": before, "examples": RECORDS, "records": records, "labels": labels}
    return Message(job="job", round=0, sent=after, holds="models", **known)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_records_are_those_of_the_attack_at_the_server(policy: Policy, seed: int) -> None:
    own = client(seed)
    found = RecordsByInversion().measure(own, policy, first=False)
    assert found is not None
    assert own.sent is not None
    assert own.received is not None
    view = RoundView(
        round=0,
        pseudonyms=torch.tensor([7]),
        example_counts=torch.tensor([RECORDS]),
        deltas={name: (own.sent[name] - value)[None] for name, value in own.received.items()},
        model=own.received,
        auxiliary={"images": own.records},
    )
    estimate = LinearInversion()(view, generator=torch.Generator().manual_seed(0))
    assert isinstance(estimate, LinearEstimate)
    assert own.records is not None
    true = torch.as_tensor(own.records).double()
    solved = estimate.records[0, : int(estimate.count[0])].double().reshape(-1, true.shape[1])
    exact = int(((solved[None] - true[:, None]).abs().amax(2) < 1e-3).any(1).sum())
    assert found.value == exact >= RECORDS - 1
    assert int(estimate.certified.sum()) <= exact  # without the algorithm, few images are certain
    assert found.found


def test_a_message_that_gives_records_away_is_refused_or_gets_noise(tmp_path: Path) -> None:
    own, rule = client(), "tensors:\n  - {{name: '*'}}\n"
    guard = site(tmp_path)
    path = tmp_path / "policy.yaml"
    head = f"format: 1\nevidence: {tmp_path}/evidence\n{rule.format()}"
    path.write_text(head)
    with pytest.raises(RefusedError, match="own-records: the server can solve for"):
        guard.release(own)
    path.write_text(f"{head}noise: {{clip: 1, scale: 0.01}}\nfindings: {{own-records: noise}}\n")
    released = guard.release(client())
    assert released.noised
    assert released.tensors is not None
    noisy = Message(job="job", round=0, sent=released.tensors, holds="models", received=own.received, examples=RECORDS)
    with pytest.raises(NotMadeError, match="nothing found in the updates"):
        RecordsByInversion().measure(noisy, read_policy(path), first=False)


def test_class_counts_are_compared_with_the_labels(policy: Policy) -> None:
    found = CountsByOutput().measure(client(), policy, first=False)
    assert found is not None
    assert found.value == 1
    assert found.found


def test_words_of_an_embedding_table_are_counted(policy: Policy) -> None:
    table = np.random.default_rng(0).normal(size=(50, 8)).astype("f")
    change = np.zeros_like(table)
    change[[3, 7, 11]] = 0.1
    sent = {"embedding.weight": change}
    own = message(sent=sent, received={"embedding.weight": table}, examples=4)
    found = WordsByTouchedRows().measure(own, policy, first=False)
    assert found is not None
    assert (found.value, found.found) == (3, True)


def test_an_attack_that_does_not_fit_is_not_made(policy: Policy) -> None:
    convolution = {"c.weight": np.ones((4, 1, 3, 3), "f"), "c.bias": np.ones(4, "f")}
    with pytest.raises(NotMadeError, match="expected a linear first layer"):
        RecordsByInversion().measure(message(sent=convolution, received=convolution), policy, first=False)
    with pytest.raises(NotMadeError, match="received model is unknown"):
        RecordsByInversion().measure(message(received=None), policy, first=False)
