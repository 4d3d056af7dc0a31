"""Clients that refuse a made-up item table: nothing is sent, their private vectors do not change, and the reasons."""

from pathlib import Path

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.defenses.refusal import ProbeCheck, RefuseProbes
from fedleak.modules.learners.matrix_factorization import FederatedMF
from tests.toys import LastRecord, quiet_trainer


def table(purpose: str = "honest-table") -> torch.Tensor:
    return torch.randn(200, 8, generator=generator_for(0, purpose))


def test_a_client_compares_with_the_last_table_that_it_accepted() -> None:
    refusal = RefuseProbes()
    clients = torch.tensor([3, 5])
    honest = {ITEM_EMBEDDING: table()}
    assert refusal.willing(honest, clients).tolist() == [True, True]
    assert refusal.willing({ITEM_EMBEDDING: table("another-model")}, clients[:1]).tolist() == [False]
    assert refusal.willing({ITEM_EMBEDDING: table() + 0.01}, clients).tolist() == [True, True]
    # Who has seen nothing yet has nothing to compare with.
    newcomer = torch.tensor([5, 9])
    assert refusal.willing({ITEM_EMBEDDING: table("another-model")}, newcomer).tolist() == [False, True]


def test_tables_that_no_client_remembers_are_deleted() -> None:
    refusal = RefuseProbes()
    for step in range(5):
        refusal.willing({ITEM_EMBEDDING: table() + 0.01 * step}, torch.arange(4))
    assert len(refusal._tables) == 1


class Probe(Callback):
    """A server that sends zeros from the second round on."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if trainer.global_step == 1:
            assert isinstance(pl_module, FederatedMF)
            self.before = pl_module.private[USER_EMBEDDING].clone()
            with torch.no_grad():
                pl_module.item_embedding.weight.zero_()


@pytest.mark.integration
def test_a_probe_gets_nothing_and_changes_nothing(tmp_path: Path) -> None:
    source = SyntheticRecommender(
        users=20, items=60, mean_interactions=15, fewest_interactions=10, clients_per_round=1.0, fewest_labels=10
    )
    module = FederatedMF(num_items=source.num_items, num_clients=source.num_clients, dim=4, defenses=[RefuseProbes()])
    probe = Probe()
    quiet_trainer(2, tmp_path, probe, last := LastRecord()).fit(module, datamodule=source)
    assert not last.record.update.deltas[ITEM_EMBEDDING].any()
    assert last.record.update.sent is not None
    assert not last.record.update.sent.any()
    assert torch.equal(module.private[USER_EMBEDDING], probe.before)
    assert not module.item_embedding.weight.any()


def test_each_probe_gives_its_reasons() -> None:
    honest = table()
    assert ProbeCheck().reasons(honest) == []
    assert ProbeCheck().reasons(honest + 0.05, honest) == []
    assert ProbeCheck().reasons(torch.zeros(200, 8), honest) == ["zero rows", "low rank", "shrunk", "another model"]
    assert ProbeCheck().reasons(honest[:1].expand(200, -1)) == ["low rank"]
    assert ProbeCheck().reasons(0.01 * honest, honest) == ["shrunk"]
    assert ProbeCheck().reasons(honest.roll(1, dims=0), honest) == ["another model"]
    one_zero = honest.clone()
    one_zero[3] = 0
    assert ProbeCheck().reasons(one_zero, honest) == ["zero rows"]


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="least_size"):
        ProbeCheck(least_size=1.5)
