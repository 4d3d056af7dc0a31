"""Why an attack failed follows from what can be measured, and one that succeeded gets no excuse."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from fedleak.attacks.composition.baselines import EqualCounts
from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.interactions.baselines import Chance
from fedleak.attacks.ranking.list_posterior import ListPosterior
from fedleak.attacks.ranking.priors import PriorOnly
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.attack import Attack
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.defenses.local_dp import LocalDP
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.causes import label_effects, measured_causes
from fedleak.evaluation.noise_floor import declared_noise, proven_noise, spectral_noise
from fedleak.evaluation.registry import chosen_attacks
from fedleak.evaluation.stored_run import read_results
from fedleak.modules.learners.fpdgd import FPDGD
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recording import Recording
from fedleak.reports.write_run import write_run
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule
from fedleak_recorder.sent import Sent
from fedleak_recorder.system import System
from fedleak_recorder.writer import RecordingWriter
from tests.composition_toys import source, views
from tests.foreign_toys import described, view
from tests.toys import data, model, quiet_trainer

pytestmark = pytest.mark.usefixtures("without_figures")


def causes(folder: Path, deltas: Path, attacks: list[Attack]) -> dict[str, list[str]]:
    """What an audit with some attacks leaves in results.json, by attack."""
    plan = AuditPlan(recording=Recording(deltas), attacks=chosen_attacks(attacks), slow="all", describe=False)
    write_run(run_audit(plan), directory=folder)
    found: dict[str, list[str]] = {}
    for cause in read_results(folder).causes:
        found.setdefault(cause["attack"], []).append(cause["cause"])
    return found


def record(folder: Path, source: FederatedDataModule, module: FederatedModule) -> Path:
    quiet_trainer(1, folder, DeltaRecorder()).fit(module, datamodule=source)
    return folder / "deltas"


def noised(seen: RoundView, scale: float) -> RoundView:
    generator = generator_for(0, "noise")
    deltas = {n: v + scale * torch.randn(v.shape, generator=generator) for n, v in seen.deltas.items()}
    return dataclasses.replace(seen, deltas=deltas)


def write_foreign(folder: Path, seen: RoundView, learner: dict[str, object] | None = None) -> Path:
    """The round of the leaky classifiers as another system's server saw it."""
    system = System(
        parameters={name: tuple(value.shape) for name, value in seen.model.items()},
        data={"name": "synthetic-images"},
        holds="deltas",
        learner=learner or described()["learner"],
        auxiliary=seen.auxiliary,
    )
    counts = source().class_counts()
    sent = [
        Sent(
            client=str(place),
            examples=int(seen.example_counts[place]),
            arrays={name: value[place] for name, value in seen.deltas.items()},
            truth={"class_counts": counts[place]},
        )
        for place in range(seen.victims)
    ]
    writer = RecordingWriter(folder / "deltas", system, key=b"secret")
    writer.declare()
    writer.write(0, seen.model, sent, len(sent))
    return folder / "deltas"


def composition_attacks() -> list[Attack]:
    return [Decaf(), EqualCounts()]


@pytest.mark.integration
def test_a_leaky_recording_gets_no_excuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert causes(tmp_path, write_foreign(tmp_path, view()), composition_attacks()) == {}
    assert "why attacks failed" not in capsys.readouterr().out
    assert "Why attacks failed" not in (tmp_path / "report.html").read_text()
    assert measured_causes([view()], seed=0) == []


@pytest.mark.integration
def test_noise_that_small_layers_cannot_prove_is_only_possible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deltas = write_foreign(tmp_path, noised(view(), 0.05))
    assert "possible-noise" in causes(tmp_path, deltas, composition_attacks())["decaf"]
    sentence = "could be noise; none is declared"
    assert sentence in capsys.readouterr().out
    assert sentence in (tmp_path / "report.html").read_text()


def large_updates(*, scale: float = 0.0, unequal: bool = False) -> RoundView:
    """Five clients' updates of a layer 96 x 80 by mini-batches of features with a decaying spectrum, and noise."""
    generator = generator_for(0, "large")
    decay = torch.arange(1, 97) ** -0.8
    updates = torch.randn(5, 80, 500, generator=generator) @ (torch.randn(5, 500, 96, generator=generator) * decay)
    updates = updates / updates.std((1, 2), keepdim=True)
    scales = scale * (torch.tensor([1.0, 1, 1, 1, 2]) if unequal else torch.ones(5))
    deltas = {"hidden.weight": updates + scales[:, None, None] * torch.randn(updates.shape, generator=generator)}
    return RoundView(round=0, pseudonyms=torch.arange(5), example_counts=torch.full((5,), 500), deltas=deltas, model={})


def test_undeclared_noise_is_named_where_large_layers_prove_it() -> None:
    (found,) = measured_causes([large_updates(scale=3)], seed=0)
    assert found.cause == "noise"
    assert found.measured["noise_scale"] == pytest.approx(3, rel=0.1)
    assert "none is declared" in found.sentence


@pytest.mark.parametrize("made", [{}, {"scale": 3, "unequal": True}], ids=["no-noise", "unequal"])
def test_a_slowly_decaying_spectrum_or_scales_that_differ_are_no_proof_of_noise(made: dict[str, Any]) -> None:
    assert proven_noise(large_updates(**made)) is None
    assert "noise" not in [found.cause for found in measured_causes([large_updates(**made)], seed=0)]


def test_many_local_steps_are_told() -> None:
    local = LocalTraining(optimizer="adadelta", learning_rate=1.0, eps=1e-6, batch_size=16)
    (found,) = measured_causes(views(local)[0], seed=0)
    assert (found.cause, found.measured["steps"]) == ("steps", 8)
    assert found.measured["high"] < 0.6


def test_where_the_last_layer_is_not_recorded_no_cause_is_looked_for_in_it() -> None:
    (view,) = views(LocalTraining(optimizer="adadelta", learning_rate=1.0, eps=1e-6, batch_size=16))[0]
    rest = {name: delta for name, delta in view.deltas.items() if not name.startswith("output.")}
    assert measured_causes([dataclasses.replace(view, deltas=rest)], seed=0) == []


@pytest.mark.integration
@pytest.mark.parametrize("epsilon", ["inf", 1])
def test_declared_noise_is_told_and_without_it_there_is_no_cause(tmp_path: Path, epsilon: float | str) -> None:
    clients = data(users=24, items=120)
    module = model(clients, defenses=(LocalDP(clip=0.05, epsilon=float(epsilon), delta=1e-8),))
    found = causes(tmp_path, record(tmp_path, clients, module), [Direction(), Chance()])
    assert found == ({} if epsilon == "inf" else {"direction": ["noise"]})
    if found:
        (cause,) = read_results(tmp_path).causes
        assert cause["measured"]["clip"] == 0.05
        assert "as the clients declare it" in cause["sentence"]


def rankers(queries: int) -> tuple[SyntheticRanking, FPDGD]:
    """Clients of so many lists of ten documents, whose linear ranker has 46 parameters."""
    sizes = {"queries": 12 * queries, "test_queries": 2, "fewest_documents": 10, "most_documents": 10}
    clients = SyntheticRanking(shape="letor", queries_per_client=queries, **sizes)
    options = {name: getattr(clients, name) for name in ("num_features", "num_grades", "grade_law")}
    return clients, FPDGD(**options, local=LocalTraining(learning_rate=0.1, batch_size=1))


@pytest.mark.integration
@pytest.mark.parametrize("queries", [1, 24])
def test_more_labels_than_parameters_is_told(tmp_path: Path, queries: int) -> None:
    deltas = record(tmp_path, *rankers(queries))
    found = causes(tmp_path, deltas, [ListPosterior(chains=1, sweeps=4, simulated=8), PriorOnly(), Chance()])
    if queries == 1:
        assert found == {}
    else:
        assert found == {"list-posterior": ["rank"]}
        (cause,) = read_results(tmp_path).causes
        assert cause["measured"] == {"unknowns": 10 * queries, "rank": 46, "n": 3}


@pytest.mark.integration
def test_the_rank_is_that_of_what_each_label_changes(tmp_path: Path) -> None:
    recording = Recording(record(tmp_path, *rankers(6)))
    seen = next(recording.views(learner=learner_from(recording.manifest.learner)))
    effects = label_effects(seen, 0, generator=generator_for(0, "effects"))
    assert effects is not None
    assert effects.shape == (60, 46)
    (found,) = measured_causes([seen], seed=0)
    assert (found.cause, found.measured["rank"], found.measured["unknowns"]) == ("rank", 46, 60)


def test_silent_clients_are_told() -> None:
    quiet = dataclasses.replace(view(), deltas={name: torch.zeros_like(value) for name, value in view().deltas.items()})
    assert [s.cause for s in measured_causes([quiet], seed=0)] == ["silence"]


def test_the_share_of_declared_noise_is_counted_by_hand() -> None:
    delta = torch.full((1, 2, 3), 2.0)
    release = Release(clip=1.0, noise_scale=1.0, parameters=("w",))
    seen = RoundView(
        round=0,
        pseudonyms=torch.zeros(1, dtype=torch.int64),
        example_counts=torch.ones(1),
        deltas={"w": delta, "other": delta},
        model={},
        releases=(release,),
    )
    share = declared_noise(seen)
    assert share is not None
    assert share.share.tolist() == [6 / 24]
    assert (share.scale.tolist(), share.clip) == ([1.0], 1.0)


@pytest.mark.parametrize("shape", [(40, 30), (12, 90)])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_the_spectrum_shows_the_noise_on_a_signal_of_low_rank(shape: tuple[int, int], scale: float) -> None:
    generator = generator_for(1, "spectrum")
    signal = torch.randn(5, shape[0], 2, generator=generator) @ torch.randn(5, 2, shape[1], generator=generator)
    seen = dataclasses.replace(view(), deltas={"w": signal + scale * torch.randn(signal.shape, generator=generator)})
    share = spectral_noise(dataclasses.replace(seen, pseudonyms=torch.arange(5)))
    assert share is not None
    torch.testing.assert_close(share.scale, torch.full((5,), scale, dtype=torch.float64), rtol=0.15, atol=0)
    expected = scale**2 * shape[0] * shape[1] / seen.deltas["w"].double().square().sum((1, 2))
    torch.testing.assert_close(share.share, expected, rtol=0.3, atol=0)
