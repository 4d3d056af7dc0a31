"""A server that probes its clients inside a federated training: what it leaves, what is recorded, what is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Callback

from fedleak.attacks.identifiability import PAC, PACSpectral, RandomVector
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.core.seeding import KEY_VARIABLE
from fedleak.core.view import ITEM_EMBEDDING, LEANING
from fedleak.defenses.local_dp import LocalDP
from fedleak.defenses.refusal import RefuseProbes
from fedleak.defenses.row_noise import RowNoise
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.execution import Execution
from fedleak.modules.learners.matrix_factorization import FederatedMF
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.server.probing import Probing
from fedleak.server.repeated_selection import RepeatedSelection
from fedleak.training.server_optimizer import ServerOptimizer
from tests.probing_toys import AFTER, clients, learner, train


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probed")
    data = clients()
    train(folder, learner(data), data)
    return folder / "deltas"


@pytest.mark.integration
def test_a_training_ends_with_its_campaigns_and_leaves_the_clients_and_the_model_alone(tmp_path: Path) -> None:
    data = clients()
    server = ServerOptimizer(name="fedadam", learning_rate=0.1)
    module = learner(data, server=server)
    trainer = train(tmp_path, module, data)
    assert trainer.global_step == AFTER + 3
    honest = learner(data, server=server, probing=None)
    train(tmp_path / "honest", honest, data, rounds=AFTER)
    assert torch.equal(honest.item_embedding.weight, module.item_embedding.weight)
    assert torch.equal(honest.private[USER_EMBEDDING], module.private[USER_EMBEDDING])


@pytest.mark.integration
def test_what_is_recorded_says_what_the_server_did(probed: Path) -> None:
    recording = Recording(probed)
    assert recording.rounds == [0, 3, 4, 5, 6]
    assert recording.manifest.config["manipulation"] == "probe"
    assert recording.round_settings[6] == {"of_bound": 1, "tolerance": 0}
    names = [recording.pseudonyms(number) for number in (4, 5, 6)]
    assert names[0] == names[1] == names[2]
    assert len(names[0]) == 15
    (one,), (twenty,) = (list(recording.views(rounds=[number])) for number in (4, 5))
    assert one.updates is not None
    assert twenty.updates is not None
    assert one.updates.sum(1).tolist() == [5] * 15
    assert twenty.updates.sum(1).tolist() == [100] * 15
    assert bool((one.updates[one.served_mask] > 0).all())
    truth = recording.truth(twenty)
    # Without noise each row is -alpha l'(0) n y u.
    steps = 0.05 * twenty.updates * (2 * truth["labels"] - 1) * twenty.served_mask
    torch.testing.assert_close(
        twenty.deltas[ITEM_EMBEDDING], (steps[..., None] * truth["user_vector"][:, None]).float()
    )
    rates = truth["labels"].sum(1) / twenty.served_mask.sum(1)
    assert torch.equal(twenty.priors[LEANING], torch.where(rates > 0.5, 1.0, -1.0))


@pytest.mark.integration
def test_theorem_1_holds_on_the_recording(probed: Path) -> None:
    recording = Recording(probed)
    attacks = [PAC(), PACSpectral(), RandomVector()]
    plan = AuditPlan(
        recording=recording, attacks=attacks, setting={"data": "toy"}, rounds=recording.rounds[2:], slow="all"
    )
    found = evaluate_recording(plan, Execution(progress=False))
    assert not found.missing
    bound = found.scores[found.scores["setting.of_bound"] == 1]
    twenty = found.scores[found.scores["setting.interactions"] == 20]
    means = bound.groupby(["attack", "metric"])["value"].mean(), twenty.groupby(["attack", "metric"])["value"].mean()
    assert means[0]["pac", "success"] >= 0.95
    assert means[1]["pac-spectral", "success"] == 1
    assert means[1]["chance", "success"] == 0
    assert means[1]["chance", "error"] > 0.3


@pytest.mark.integration
def test_messages_of_other_clients_tell_nothing(probed: Path) -> None:
    (view,) = Recording(probed).views(rounds=[5], learner=recorded_learner(Recording(probed)))
    truth = Recording(probed).truth(view)
    next_one = view.select(torch.arange(view.victims).roll(1))
    others = dataclasses.replace(view, deltas=next_one.deltas, served=next_one.served, updates=next_one.updates)
    own, other = (PACSpectral()(one, generator=torch.Generator()).score(one, truth).metrics for one in (view, others))
    assert float(own["error"].max()) == 0
    assert float(other["error"].mean()) > 0.2


@pytest.mark.integration
def test_the_command_line_attacks_such_a_recording(probed: Path, tmp_path: Path) -> None:
    assert program.main(["run", "--attack", "PACSpectral", str(probed), "--out", str(tmp_path)]) == 0
    table = (tmp_path / "scores.csv").read_text()
    assert "setting.interactions" in table
    assert "success" in table


class Crash(Callback):
    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == AFTER + 2:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "last.ckpt")
            raise KeyError("crash")


@pytest.mark.integration
@pytest.mark.parametrize("probe", ["zeros", "shuffled"])
def test_a_campaign_that_goes_on_after_a_crash_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe: Any
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "0" * 64)
    data = clients()

    def module() -> FederatedMF:
        probing = Probing(after=AFTER, probe=probe, interactions=[1, 5, 20], campaigns=2)
        return learner(data, noise=0.1, probing=probing)

    train(tmp_path / "whole", module(), data)
    with pytest.raises(KeyError, match="crash"):
        train(tmp_path / "crashed", module(), data, callbacks=[DeltaRecorder(every_n_rounds=3), Crash()])
    train(tmp_path / "crashed", module(), data, ckpt_path=tmp_path / "crashed/last.ckpt")
    whole, crashed = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.safetensors")}
        for folder in (tmp_path / "whole", tmp_path / "crashed")
    )
    assert len(whole) == 2 * 8 + 1
    assert whole == crashed


@pytest.mark.integration
def test_other_probes_than_zeros_move_the_clients_vectors_within_a_campaign(tmp_path: Path) -> None:
    data = clients()
    module = learner(data, probing=Probing(after=AFTER, probe="small", interactions=[1, 40], campaigns=2))
    train(tmp_path, module, data)
    recording = Recording(tmp_path / "deltas")
    users = {}
    for number in recording.rounds[-4:]:
        (view,) = recording.views(rounds=[number])
        truth = recording.truth(view)
        users[number] = truth["user_vector"][truth["clients"].argsort()]
    before = module.private[USER_EMBEDDING][truth["clients"].sort().values].double()
    moved = {number: float((now - before).norm()) for number, now in users.items()}
    assert 0 < moved[4] < moved[5] / 5
    assert 0 < moved[6] < moved[7] / 5  # the second campaign begins where the first did


@pytest.mark.integration
def test_clients_that_refuse_send_nothing(tmp_path: Path) -> None:
    data = clients()
    module = learner(data, defenses=[RowNoise(scale=0.0), RefuseProbes()])
    trainer = train(tmp_path, module, data)
    assert trainer.global_step == AFTER + 3
    assert Recording(tmp_path / "deltas").rounds == [0, 3]


@pytest.mark.integration
def test_clients_may_be_taken_apart_where_nobody_reads_their_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedleak.training.round_parts._NUMBERS_AT_ONCE", 1000)
    data = clients()
    assert train(tmp_path, learner(data), data, callbacks=[]).global_step == AFTER + 3


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"probing": Probing(after=AFTER, interactions=[1], theorem=3)}, "theorem 3, batches"),
        ({"defenses": [RowNoise(scale=0.1)]}, "theorem 1, batches, noise 0.1"),
        ({"loss": "perceptron"}, "Assumption 2"),
        ({"defenses": [LocalDP(clip=1.0, epsilon=1.0, delta=1e-5)]}, "LocalDP"),
        (
            {
                "probing": Probing(after=AFTER, probe="small", interactions=[1], theorem=3),
                "local": LocalTraining(learning_rate=0.1),
            },
            "the probe zeros",
        ),
    ],
)
def test_clients_of_whom_the_theorem_says_nothing_are_refused(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(InputError, match=found):
        learner(clients(), **changes)


@pytest.mark.parametrize(
    "options",
    [{}, {"interactions": [5, 1]}, {"of_bound": [0]}, {"interactions": [1], "of_bound": [1], "probe": "small"}],
)
def test_what_is_no_campaign_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="probing"):
        Probing(**options)
    with pytest.raises(ValueError, match="probe"):
        Probing(interactions=[1], probe="ones")  # type: ignore[arg-type]


def test_a_process_without_a_called_client_waits() -> None:
    data = clients()
    module = learner(data)
    nobody = data.cohort(AFTER).select(torch.zeros(0, dtype=torch.int64))
    assert len(module.interact(nobody, module.public_parameters())) == 0
    update, _ = module.client_updates(nobody, module.public_parameters())
    assert len(update.deltas[ITEM_EMBEDDING]) == 0


@pytest.mark.integration
def test_only_rounds_with_settings_are_recorded(tmp_path: Path) -> None:
    data = clients()
    train(tmp_path, learner(data), data, callbacks=[DeltaRecorder(every_n_rounds=0)])
    assert Recording(tmp_path / "deltas").rounds == [4, 5, 6]
    data = clients(repeated_selection=None)
    with pytest.raises(InputError, match="every_n_rounds"):
        train(tmp_path / "no", learner(data, probing=None), data, callbacks=[DeltaRecorder(every_n_rounds=0)], rounds=2)


@pytest.mark.integration
def test_the_data_must_say_whom_the_server_calls(tmp_path: Path) -> None:
    for selection in (None, RepeatedSelection(after=AFTER + 1)):
        data = clients(repeated_selection=selection)
        with pytest.raises(InputError, match="repeated_selection"):
            train(tmp_path, learner(data), data)
