"""Clients under a server's campaign: against the engine that trains them, and one law against the other."""

import pytest
import torch

from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.margin_losses import LOSSES, LossName
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.server.probe_answers import Answering, Probed, answer, answer_zeros, batch_memberships

SIZES = (6, 9, 12)


def clients(copies: int = 1) -> tuple[Probed, torch.Tensor]:
    """Clients of different sizes, several times the same ones, and their labels."""
    generator = generator_for(0, "probing-clients")
    items = torch.full((len(SIZES), max(SIZES)), -1)
    for client, size in enumerate(SIZES):
        items[client, :size] = torch.randperm(40, generator=generator)[:size]
    labels = (torch.rand(items.shape, generator=generator) < 0.4).float()
    users = torch.randn(len(SIZES), 4, generator=generator, dtype=torch.float64)
    return Probed.start(users.repeat(copies, 1), items.repeat(copies, 1), labels.repeat(copies, 1)), labels


@pytest.mark.parametrize("loss", ["margin", "hinge", "log"])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_one_answer_is_the_engines(loss: LossName, clip: float | None) -> None:
    probed, labels = clients()
    before = probed.users.clone()
    table = torch.randn(40, 4, generator=generator_for(0, "probing-table"), dtype=torch.float64)
    # A batch of all of the smallest client's labels, so that both must draw the same one of it.
    how = Answering(loss=loss, batch=6, clip=clip)
    answer(probed, table, how, interactions=1, generator=generator_for(0, "answer"))
    first = Cohort(
        0, torch.zeros(1, dtype=torch.int64), {"label": labels[:1, :6]}, torch.ones(1, 6, dtype=torch.bool),
        {ITEM_EMBEDDING: probed.items[:1, :6]},
    )  # fmt: skip
    local = LocalTraining(learning_rate=how.learning_rate, batch_size=6, updates=1)
    task = MFAlgorithm(dim=1, margin_loss=loss, clip=clip, local=LocalTraining())
    result = train_clients(
        task, {ITEM_EMBEDDING: table.float()}, {USER_EMBEDDING: before[:1].float()}, first, local, seed=0
    )
    torch.testing.assert_close(probed.sums[0, :6].float(), result.deltas[ITEM_EMBEDDING][0])
    torch.testing.assert_close(probed.users[:1].float(), result.private[USER_EMBEDDING])
    # Hinge loss is flat beyond a margin of 1: such an item does not change, and nothing is sent about it.
    assert torch.equal(probed.updates > 0, probed.sums.abs().sum(2) > 0)
    assert loss == "hinge" or probed.updates.sum(1).tolist() == [6.0, 6.0, 6.0]


def test_zeros_leave_the_private_vector_where_it_is() -> None:
    probed, _ = clients()
    before = probed.users.clone()
    answer(probed, torch.zeros(40, 4), Answering(batch=5), interactions=20, generator=generator_for(0, "zeros"))
    assert torch.equal(probed.users, before)


def test_zeros_have_the_law_of_the_answers_one_by_one() -> None:
    how = Answering(batch=5, noise=0.2)
    repetitions, calls, found = 1500, 3, []
    one_by_one, at_once = (clients(repetitions)[0] for _ in range(2))
    answer(one_by_one, torch.zeros(40, 4), how, interactions=calls, generator=generator_for(0, "one by one"))
    three = torch.full((3 * repetitions,), float(calls))
    answer_zeros(at_once, how, interactions=three, generator=generator_for(0, "at once"))
    for probed in (one_by_one, at_once):
        found.append(torch.cat([probed.sums.flatten(1), probed.updates], dim=1).reshape(repetitions, -1))
    slow, fast = found
    scale = slow.std(0).clamp(min=1e-9) / repetitions**0.5
    assert float(((slow.mean(0) - fast.mean(0)) / scale).abs().max()) < 5.5
    torch.testing.assert_close(fast.T.cov(), slow.T.cov(), atol=0.12, rtol=0)


def test_memberships_are_those_of_batches_drawn_without_replacement() -> None:
    sizes, draws = torch.tensor([7, 5]), torch.tensor([40_000.0, 30.0])
    taken = batch_memberships(sizes, 5, draws, 9, generator_for(0, "memberships"))
    assert taken.sum(1).tolist() == [200_000.0, 150.0]
    assert taken[0, 7:].tolist() == [0.0, 0.0]
    assert taken[1].tolist() == [30.0] * 5 + [0.0] * 4  # a batch of everything
    share = taken[0, :7] / 40_000
    # An item lies in a batch with probability 5/7: six standard deviations of 40,000 draws are .0136.
    assert float((share - 5 / 7).abs().max()) < 0.0136


def test_epochs_send_every_label_in_every_call() -> None:
    probed, _ = clients()
    how = Answering(protocol="epochs", loss="margin", learning_rate=0.5)
    answer_zeros(probed, how, interactions=torch.full((3,), 4.0), generator=generator_for(0, "epochs"))
    assert torch.equal(probed.updates, 4.0 * (probed.items >= 0))
    expected = 4 * 0.5 * probed.signs[..., None] * probed.users[:, None]
    torch.testing.assert_close(probed.sums, expected)


def test_slopes_are_derivatives() -> None:
    margins = torch.tensor([-2.0, -0.5, 0.3, 1.7], requires_grad=True, dtype=torch.float64)
    for loss in LOSSES.values():
        (expected,) = torch.autograd.grad(loss.value(margins).sum(), margins)
        torch.testing.assert_close(loss.slope(margins.detach()), expected)
    assert {name: loss.slope_at_zero for name, loss in LOSSES.items()} == {
        "margin": -1.0,
        "hinge": -1.0,
        "log": -0.5,
        "perceptron": 0.0,
    }


def test_bad_campaigns_are_refused() -> None:
    probed, _ = clients()
    calls = torch.ones(3)
    with pytest.raises(InputError, match="Assumption 2"):
        answer_zeros(probed, Answering(loss="perceptron"), interactions=calls, generator=torch.Generator())
    with pytest.raises(InputError, match="labels"):
        answer_zeros(probed, Answering(batch=7), interactions=calls, generator=torch.Generator())
    epochs = Answering(batch=5, protocol="epochs")
    with pytest.raises(InputError, match="protocol"):
        answer(probed, torch.ones(40, 4), epochs, interactions=1, generator=torch.Generator())
    probed.items[0] = -1
    with pytest.raises(InputError, match="labels"):
        answer_zeros(probed, epochs, interactions=calls, generator=torch.Generator())
