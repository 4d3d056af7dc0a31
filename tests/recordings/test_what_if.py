"""A defence on a recording shows the server what a training with it would have; nothing changes without one."""

import dataclasses
import json
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
import torch

from fedleak.attacks.sums_over_rounds.rounds_to_reveal import RoundsToReveal
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.core.view import RoundView
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.defenses.base import Defense
from fedleak.defenses.canaries import Canaries
from fedleak.defenses.compression import Clip, TopK
from fedleak.defenses.counts_withheld import CountsWithheld
from fedleak.defenses.device_noise import DeviceNoise
from fedleak.defenses.kept_back import KeptBack
from fedleak.defenses.local_dp import LocalDP
from fedleak.defenses.mixup import Mixup
from fedleak.defenses.rounded import HalfPrecision, Rounded
from fedleak.defenses.secure_aggregation import PerElementSum, SecureSum
from fedleak.defenses.soteria import Soteria
from fedleak.defenses.update_l1 import UpdateL1
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.engines.processes import Processes
from fedleak.evaluation.registry import chosen_attacks, make_attack
from fedleak.evaluation.time_budget import time_shares
from fedleak.evaluation.what_if import COSINE, ERROR, LOSS, audited_under, what_if
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.recordings.joined_view import messages_view
from fedleak.recordings.recording import Recording
from fedleak.recordings.what_if import DefendedRecording
from fedleak.server.codebook import Codebook
from tests.places import FILLED_SYSTEM
from tests.ranking_toys import ranker, source
from tests.ranking_toys import record as record_ranking
from tests.sum_toys import digits, record, scored, sums
from tests.toys import quiet_trainer

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    module = FederatedClassifier(local=LocalTraining(learning_rate=0.1, batch_size=None))
    recorder = DeltaRecorder(directory=str(place / "deltas"))
    quiet_trainer(2, place, recorder).fit(module, datamodule=SyntheticImages(clients_per_round=1.0))
    return place / "deltas"


def first(recording: Recording) -> RoundView:
    return next(iter(recording.views(victims_per_view=100)))


def test_without_a_defence_nothing_changes(folder: Path) -> None:
    plain, same = first(Recording(folder)), first(DefendedRecording(folder, []))
    assert torch.equal(plain.pseudonyms, same.pseudonyms)
    assert plain.releases == same.releases
    assert all(torch.equal(value, same.deltas[name]) for name, value in plain.deltas.items())
    before, after = DefendedRecording(folder, []).aggregates(0)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_defence_does_what_it_does_in_a_training_and_says_so(folder: Path) -> None:
    plain = first(Recording(folder))
    norms = torch.stack([value.flatten(1).square().sum(1) for value in plain.deltas.values()]).sum(0).sqrt()
    clip = float(norms.median())
    seen = first(DefendedRecording(folder, [LocalDP(clip=clip, epsilon=100, delta=1e-5)], seed=3))
    (release,) = seen.releases
    assert (release.clip, release.epsilon) == (clip, 100)
    name = max(plain.deltas, key=lambda one: plain.deltas[one].numel())
    factors = (clip / norms).clamp(max=1).reshape(-1, *[1] * (plain.deltas[name].dim() - 1))
    noise = seen.deltas[name] - factors * plain.deltas[name]
    assert float(noise.std()) == pytest.approx(release.noise_scale, rel=0.05)
    again = first(DefendedRecording(folder, [LocalDP(clip=clip, epsilon=100, delta=1e-5)], seed=3))
    assert torch.equal(seen.deltas[name], again.deltas[name])


def test_draws_do_not_depend_on_how_a_round_is_divided_into_views(folder: Path) -> None:
    defended = DefendedRecording(folder, [Rounded(bits=2)])
    whole = first(defended)
    parts = list(defended.views(victims_per_view=3, rounds=[0]))
    name = next(iter(whole.deltas))
    joined = {int(p): value for part in parts for p, value in zip(part.pseudonyms, part.deltas[name], strict=True)}
    assert all(torch.equal(joined[int(p)], own) for p, own in zip(whole.pseudonyms, whole.deltas[name], strict=True))


def test_sums_are_those_of_the_clients(folder: Path) -> None:
    plain = first(Recording(folder))
    clients = plain.victims // 2
    summed = list(DefendedRecording(folder, [SecureSum(participants=clients)]).views(rounds=[0]))
    assert sum(view.victims for view in summed) == plain.victims // clients
    name = next(iter(plain.deltas))
    assert torch.allclose(summed[0].deltas[name][0], plain.deltas[name][:clients].sum(0), atol=1e-6)
    alone = first(DefendedRecording(folder, [SecureSum(participants=1)]))
    assert torch.equal(alone.deltas[name], plain.deltas[name])
    with pytest.raises(InputError, match="rounds of 1000 clients"):
        first(DefendedRecording(folder, [SecureSum(participants=1000)]))


def test_sum_per_element_hides_the_same_from_the_mean_update(folder: Path) -> None:
    plain = first(Recording(folder))
    clients = plain.victims
    sparse = TopK(share=0.3)
    before, after = DefendedRecording(folder, [sparse, PerElementSum(participants=clients, threshold=3)]).aggregates(0)
    seen = first(DefendedRecording(folder, [sparse, PerElementSum(participants=clients, threshold=3)]))
    sent = first(DefendedRecording(folder, [sparse]))
    hides = []
    for name, value in after.items():
        hidden = (sent.deltas[name] != 0).sum(0) < 3
        hides.append(bool(before[name][hidden].any()))
        assert not bool(value[hidden].any())
        assert torch.equal(seen.deltas[name][0] == 0, hidden | (sent.deltas[name].sum(0) == 0))
    assert any(hides)


def test_defences_come_in_order(folder: Path) -> None:
    """Clipped numbers that are then dropped leave less than dropped ones that are clipped."""
    sizes = []
    for defenses in ([Clip(norm=0.001), TopK(share=0.5)], [TopK(share=0.5), Clip(norm=0.001)]):
        view = first(DefendedRecording(folder, defenses))
        sizes.append(torch.stack([value.flatten(1).square().sum(1) for value in view.deltas.values()]).sum(0))
    assert bool((sizes[0] < sizes[1]).all())


def test_counts_that_are_withheld_are_one_public_number_in_a_what_if_and_in_a_training(
    folder: Path, tmp_path: Path
) -> None:
    withheld = CountsWithheld(examples=7)
    seen = first(DefendedRecording(folder, [withheld]))
    assert set(seen.example_counts.tolist()) == {7}
    plain = next(iter(DefendedRecording(folder, []).views(victims_per_view=100, rounds=[0])))
    name = next(iter(plain.deltas))
    _, after = DefendedRecording(folder, [withheld]).aggregates(0)
    assert torch.allclose(after[name], plain.deltas[name].mean(0), atol=1e-6)
    module = FederatedClassifier(local=LocalTraining(learning_rate=0.1, batch_size=None), defenses=[withheld])
    recorder = DeltaRecorder(directory=str(tmp_path / "deltas"))
    quiet_trainer(1, tmp_path, recorder).fit(module, datamodule=SyntheticImages(clients_per_round=1.0))
    trained = first(Recording(tmp_path / "deltas"))
    assert set(trained.example_counts.tolist()) == {7}


@pytest.mark.parametrize(("format", "digits"), [("float16", 11), ("bfloat16", 8)])
def test_half_precision_is_the_type_that_attacks_see_and_is_added_in_float32(
    folder: Path, format: Literal["float16", "bfloat16"], digits: int
) -> None:
    defended, plain = DefendedRecording(folder, [HalfPrecision(format=format)]), first(Recording(folder))
    for name, value in first(defended).deltas.items():
        assert value.dtype == getattr(torch, format)
        assert torch.allclose(value.float(), plain.deltas[name], rtol=2.0**-digits, atol=1e-7)
    before, after = defended.aggregates(0)
    for name, value in after.items():
        assert value.dtype == torch.float32
        assert float((value - before[name]).norm()) <= 2.0**-digits * float(before[name].norm()) + 1e-6


def test_what_is_kept_back_is_not_sent(folder: Path) -> None:
    name = next(iter(first(Recording(folder)).deltas))
    view = first(DefendedRecording(folder, [KeptBack(parameters=[name])]))
    assert not view.deltas[name].any()
    with pytest.raises(InputError, match="to match some of"):
        first(DefendedRecording(folder, [KeptBack(parameters=["nothing"])]))


@pytest.mark.parametrize(
    "defense",
    [UpdateL1(strength=0.1), Soteria(share=0.5), Mixup(alpha=1.0), Canaries(kind="data")],
    ids=lambda one: type(one).__name__,
)
def test_what_is_no_function_of_the_update_is_refused(folder: Path, defense: Defense) -> None:
    with pytest.raises(InputError, match="functions of the recorded update"):
        DefendedRecording(folder, [defense])


@pytest.mark.usefixtures("without_figures")
def test_a_verdict_is_on_the_recording_as_it_is_and_the_statement_advises(folder: Path, tmp_path: Path) -> None:
    defences = tmp_path / "defences.yaml"
    defences.write_text("sign: Sign\nclip: {1.0e-6: {class_path: Clip, init_args: {norm: $}}}\n")
    common = ["audit", str(folder), "--gate", "composition/l1=0.3", "--victims", "5"]
    status = program.main([*common, "--out", str(tmp_path / "plain")])
    system = ["--statement", str(FILLED_SYSTEM), "--what-if", str(defences)]
    assert program.main([*common, "--out", str(tmp_path / "tried"), *system]) == status
    messages = [
        json.loads((tmp_path / name / "results.json").read_text())["gate"][0]["message"] for name in ("plain", "tried")
    ]
    assert messages[0] == messages[1]
    said = json.loads((tmp_path / "tried" / "statement.json").read_text())
    assert said["lowering"]["sentence"].startswith("Of 2 defences that were tried on this recording")
    here = [one for one in said["lowering"]["effects"] if one["here"]]
    assert {cell["value"] for one in here for cell in one["cells"]} == {"none", "sign", "clip 1e-06"}
    assert all("defence" not in one["setting"] or one["setting"]["defence"] == "none" for one in said["measured"])
    assert "Of 2 defences" in (tmp_path / "tried" / "report.html").read_text()


def test_an_audit_has_a_row_for_each_defence_and_what_it_leaves(folder: Path) -> None:
    defences: dict[tuple[str, object], list[Defense]] = {
        ("bits", 2): [Rounded(bits=2)],
        ("clip", None): [Clip(norm=0.001)],
    }
    attacks = [attack for attack in chosen_attacks() if attack.family in ("composition", "reconstruction")]
    plan = AuditPlan(recording=Recording(folder), attacks=attacks)
    found = what_if(plan, defences, progress=False).results
    both = what_if(plan, defences, engine=Processes(jobs=2), progress=False).results
    pd.testing.assert_frame_equal(found.drop(columns="seconds_per_victim"), both.drop(columns="seconds_per_victim"))
    rows = found.set_index(["metric", "setting.defence"])["mean"]
    assert rows[COSINE, "none"] == pytest.approx(1)
    assert rows[ERROR, "none"] == 0
    assert 0 < rows[COSINE, "bits 2"] < 0.999
    assert rows[ERROR, "clip"] > 0.5
    assert 0 < rows[LOSS, "none"] < rows[LOSS, "clip"]  # which learns less
    tried = found[found["setting.defence"] == "clip"]
    assert {"ours", "baseline"} & set(tried["role"])
    assert len(tried) < len(found[found["setting.defence"] == "none"])


def test_a_training_that_a_defence_delays_stands_where_the_recorded_one_stood_earlier(tmp_path: Path) -> None:
    data, clip = digits(clients=10, clients_per_round=10), Clip(norm=0.02)
    plain = record(tmp_path / "plain", data, rounds=9)
    clipped = record(tmp_path / "clipped", data, rounds=9, defenses=[clip])

    def distance(number: int, other: int) -> float:
        ours, theirs = clipped.models(number), plain.models(other)
        return sum(float((value - theirs[name]).square().sum()) for name, value in ours.items())

    stands_at = DefendedRecording(plain.directory, [clip]).stands_at
    assert stands_at[0] == 0
    assert 0 < stands_at[8] < 7
    nearest = {number: min(plain.rounds, key=lambda other: distance(number, other)) for number in clipped.rounds}
    assert all(abs(stands_at[number] - nearest[number]) <= 1 for number in clipped.rounds)


@pytest.mark.parametrize("defense", [Rounded(bits=8), SecureSum(participants=2), TopK(share=0.9)])
def test_a_defence_that_leaves_the_mean_update_delays_nothing(folder: Path, defense: Defense) -> None:
    assert DefendedRecording(folder, [defense]).stands_at == {0: 0, 1: 1}


def test_noise_that_drowns_the_update_moves_a_training_by_two_rounds_at_most(tmp_path: Path) -> None:
    plain = record(tmp_path, digits(clients=4, clients_per_round=4), rounds=3)
    noisy = DefendedRecording(plain.directory, [DeviceNoise(variance=1e9)])
    assert {*noisy.stands_at.values()} <= {0, 1, 2}
    assert all(0 <= noisy._advance(number) <= 2 for number in plain.rounds)


def test_rounds_that_are_not_recorded_count_and_the_nearest_recorded_one_is_taken(tmp_path: Path) -> None:
    data = digits(clients=6, clients_per_round=6)
    sparse = record(tmp_path, data, rounds=9, every_n_rounds=4)
    assert sparse.rounds == [0, 4, 8]
    assert DefendedRecording(sparse.directory, [Clip(norm=1e-6)]).stands_at == {0: 0, 4: 0, 8: 0}
    assert DefendedRecording(sparse.directory, []).stands_at == {0: 0, 4: 4, 8: 8}


def test_scores_of_the_round_where_a_training_stands_count_for_each_of_its_rounds(folder: Path) -> None:
    attacks = [make_attack("output-counts"), make_attack("equal-counts")]
    delayed = DefendedRecording(folder, [Clip(norm=1e-5)])
    assert delayed.stands_at == {0: 0, 1: 0}
    plan = AuditPlan(recording=delayed, attacks=attacks, describe=False, check_learner=False)
    scores = audited_under(plan).scores
    assert {*scores["round"]} == {0, 1}
    first_round, second_round = (
        scores[scores["round"] == number].drop(columns="round").reset_index(drop=True) for number in (0, 1)
    )
    pd.testing.assert_frame_equal(first_round, second_round)
    only = audited_under(dataclasses.replace(plan, rounds=[1], by_round=True)).scores
    assert ({*only["round"]}, {*only["setting.round"]}) == ({1}, {2})
    pd.testing.assert_series_equal(only["value"], first_round["value"])


def test_attacks_on_all_messages_get_every_round_under_a_defence_that_delays(tmp_path: Path) -> None:
    plain = record(tmp_path, digits(clients=10, clients_per_round=5), rounds=8)
    delayed = DefendedRecording(plain.directory, [Clip(norm=1e-5), sums(5)])
    assert {*delayed.stands_at.values()} == {0}
    attacks = [RoundsToReveal(after=(3, 8)), make_attack("output-counts")]
    plan = AuditPlan(recording=delayed, attacks=attacks, describe=False, check_learner=False)
    result = audited_under(plan)
    assert result.attacks == attacks
    assert {*result.scores["setting.rounds"].dropna()} >= {3, 8}


def test_an_attack_whose_own_name_ends_in_prior_is_repeated_under_defences(tmp_path: Path) -> None:
    data = source()
    codebook = ranker(data, manipulation=Codebook(knows="lists"), ranker_per_client=True)
    attacks = [make_attack(name) for name in ("codebook+prior", "list-posterior+prior", "ranking/prior-only")]
    plan = AuditPlan(recording=record_ranking(tmp_path, data, codebook), attacks=attacks)
    found = what_if(plan, {("bits", 8): [Rounded(bits=8)]}, progress=False)
    info = found.evaluation.lines["codebook+prior"]
    assert (info.name, info.variant, info.with_prior) == ("codebook+prior", "prior", False)
    tried = found.results[found.results["setting.defence"] == "bits 8"]
    assert {"codebook+prior", "list-posterior+prior"} <= {*tried["attack"]}
    said = time_shares(found.scores, found.evaluation.lines, 1e-3)
    assert "codebook+prior" in said
    assert "list-posterior+prior" in said


def test_an_attack_that_is_left_out_under_defences_is_named_by_a_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any time, the fastest of the best attacks on a question is repeated alone; a name may end in +prior."""
    monkeypatch.setattr("fedleak.evaluation.what_if._SECONDS", 0)
    data = source()
    codebook = ranker(data, manipulation=Codebook(knows="lists"), ranker_per_client=True)
    attacks = [make_attack(name) for name in ("codebook+prior", "list-posterior+prior", "ranking/prior-only")]
    plan = AuditPlan(recording=record_ranking(tmp_path, data, codebook), attacks=attacks)
    found = what_if(plan, {("bits", 8): [Rounded(bits=8)]}, progress=False)
    ((name, reason),) = found.evaluation.not_under_defences.items()
    assert name in ("codebook+prior", "list-posterior+prior")
    assert (reason.kind, reason.way_out) == ("under-defences", "give --slow")
    assert name not in found.missing
    assert found.evaluation.not_run[f"{name} under defences"] == reason


def test_sums_of_recorded_updates_are_those_of_a_training_with_secure_sums(tmp_path: Path) -> None:
    """Participants, sums and what an attack finds are the same; without the targets, nobody's truth is left."""
    data, defense = digits(clients=10, clients_per_round=5), sums(5)
    trained = record(tmp_path / "sums", data, rounds=14, defenses=[defense])
    plain = record(tmp_path / "plain", data, rounds=14)
    tried = DefendedRecording(plain.directory, [sums(5)])
    for number in trained.rounds:
        assert tried.participants(number).keys() == trained.participants(number).keys()
        for own, other in zip(tried.participants(number).values(), trained.participants(number).values(), strict=True):
            assert sorted(own) == sorted(other)
    for seen, view in zip(messages_view(tried).each_round(), messages_view(trained).each_round(), strict=True):
        assert torch.equal(seen.pseudonyms, view.pseudonyms)
        assert seen.releases == view.releases
        for name, value in view.deltas.items():
            torch.testing.assert_close(seen.deltas[name], value, atol=1e-6, rtol=1e-4)
    attack = RoundsToReveal(after=(3, 8))
    (after, expected), (same, found) = scored(attack, trained), scored(attack, tried)
    assert after == same == [3, 8, 14]
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-3, rtol=0, equal_nan=True)
    assert plain.participants(0) == {}
