"""Estimates of an audit that has not ended are read back as they were, and only where nothing changed."""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from fedleak.attacks.interactions.baselines import Popularity
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.linkability.similarity import Linkability
from fedleak.attacks.recommendation.item_deltas import Direction, RowNorm
from fedleak.core.errors import InputError
from fedleak.core.signals import Stopped
from fedleak.evaluation import runner
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.estimate_store import EstimateStore, _decoded, _encoded, kept_until_end
from fedleak.recordings.recording import Recording
from tests.toys import train

ATTACKS = [RowNorm(), Direction(), Popularity(), Linkability()]


@dataclass(frozen=True)
class Inner:
    numbers: Tensor
    name: str


@dataclass(frozen=True)
class Outer:
    values: Tensor
    inner: Inner
    rows: tuple[Any, ...]
    given: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class WithFunction(InteractionEstimate):
    function: Any = print


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("recorded")
    train(folder, rounds=2, users=8, items=40)
    return Recording(folder / "deltas")


def scores(recording: Recording, kept: EstimateStore | None) -> pd.DataFrame:
    return run_audit(plan_of(recording), store=kept, progress=False).scores.drop(columns="seconds")


def plan_of(recording: Recording, seed: int = 0) -> AuditPlan:
    return AuditPlan(recording=recording, attacks=ATTACKS, seed=seed, describe=False)


@pytest.mark.integration
def test_estimates_are_read_back_without_a_run_of_their_attacks(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = scores(recording, None)
    first = EstimateStore(tmp_path / "kept", plan_of(recording))
    pd.testing.assert_frame_equal(scores(recording, first), plain, check_exact=True)
    assert (first.found, len(first) > 3) == (0, True)
    monkeypatch.setattr(runner, "infer", lambda *_: pytest.fail("an attack ran again"))
    again = EstimateStore(tmp_path / "kept", plan_of(recording))
    pd.testing.assert_frame_equal(scores(recording, again), plain, check_exact=True)
    assert again.found == len(first)


@pytest.mark.integration
def test_stopped_audit_says_what_is_kept_and_goes_on_from_there(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = Direction.run, tmp_path / "kept"

    def stop(*_: Any, **__: Any) -> None:
        raise Stopped(signal.SIGTERM)

    def start() -> None:
        with kept_until_end(folder, plan_of(recording)) as kept:
            scores(recording, kept)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(Direction, "run", stop)
        with pytest.raises(Stopped) as stopped:
            start()
    assert Direction.run is run
    assert "3 estimates" in stopped.value.kept  # linkability comes first, then what needs less time
    with kept_until_end(folder, plan_of(recording)) as kept:
        found = scores(recording, kept)
        assert kept.found == 3
    pd.testing.assert_frame_equal(found, scores(recording, None), check_exact=True)
    assert not folder.exists()


@pytest.mark.integration
def test_folder_without_an_estimate_is_removed_after_an_error(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="early"), kept_until_end(tmp_path / "kept", plan_of(recording)):
        raise ValueError("early")
    assert not (tmp_path / "kept").exists()


@pytest.mark.integration
def test_estimates_of_another_seed_recording_or_code_are_removed(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(which: Recording = recording, seed: int = 0) -> EstimateStore:
        kept = EstimateStore(tmp_path / "kept", plan_of(which, seed=seed))
        found = kept.stale, len(kept)
        scores(recording, kept)
        assert len(kept)
        stale.append(found)
        return kept

    stale: list[tuple[list[str], int]] = []
    opened()
    opened(seed=1)
    train(tmp_path / "other", rounds=1, users=8, items=40)
    opened(Recording(tmp_path / "other" / "deltas"), seed=1)
    monkeypatch.setattr("fedleak.evaluation.estimate_store.source_hash", lambda: "other code")
    opened(Recording(tmp_path / "other" / "deltas"), seed=1)
    (tmp_path / "kept" / "stamp.json").write_text("{")
    opened(Recording(tmp_path / "other" / "deltas"), seed=1)
    assert [(names, count) for names, count in stale] == [
        ([], 0),
        (["seed"], 0),
        (["recording"], 0),
        (["code"], 0),
        (["stamp.json"], 0),
    ]


@pytest.mark.integration
@pytest.mark.parametrize("damage", [slice(0, -1), slice(0, 40), slice(0, 0), slice(1, None)])
def test_damaged_files_are_not_used(recording: Recording, tmp_path: Path, damage: slice) -> None:
    kept = EstimateStore(tmp_path / "kept", plan_of(recording))
    plain = scores(recording, kept)
    for path in (tmp_path / "kept").glob("*.estimate"):
        path.write_bytes(path.read_bytes()[damage])
    again = EstimateStore(tmp_path / "kept", plan_of(recording))
    pd.testing.assert_frame_equal(scores(recording, again), plain, check_exact=True)
    assert again.found == 0


@pytest.mark.integration
def test_other_victims_and_arguments_are_other_estimates(recording: Recording, tmp_path: Path) -> None:
    kept = EstimateStore(tmp_path / "kept", plan_of(recording))
    view, other = (next(recording.views(victims_per_view=size)) for size in (4, 8))
    one = Direction()
    estimate = one(view, generator=torch.Generator())
    kept.write(one, "direction", view, estimate, 1.5)
    read = kept.read(one, "direction", view)
    assert read is not None
    assert read[1] == 1.5
    assert isinstance(read[0], InteractionEstimate)
    assert torch.equal(read[0].scores, estimate.scores)  # type: ignore[attr-defined]
    assert kept.read(one, "direction", other) is None
    assert kept.read(RowNorm(), "direction", view) is None
    assert kept.read(one, "another", view) is None


@pytest.mark.integration
def test_estimate_that_no_file_can_hold_is_not_kept(recording: Recording, tmp_path: Path) -> None:
    kept = EstimateStore(tmp_path / "kept", plan_of(recording))
    view = next(recording.views())
    found = Direction()(view, generator=torch.Generator())
    kept.write(Direction(), "direction", view, WithFunction(**vars(found)), 1.0)
    assert len(kept) == 0


def test_values_of_estimates_are_decoded_as_they_were() -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    value = Outer(
        values=shared.T,
        inner=Inner(torch.tensor([True, False]), "a"),
        rows=({"share": 0.5, "none": None, "exact": True}, [1, (2, shared)]),
    )
    tensors: dict[str, Tensor] = {}
    back = _decoded(_encoded(value, tensors), Outer, tensors)
    assert torch.equal(back.values, value.values)
    assert torch.equal(back.inner.numbers, value.inner.numbers)
    assert (back.inner.name, back.given, back.rows[0]) == ("a", None, value.rows[0])
    assert back.rows[1][0] == 1
    assert torch.equal(back.rows[1][1][1], shared)
    with pytest.raises(TypeError):
        _encoded({"function": print}, tensors)


@pytest.mark.integration
def test_parts_of_another_audit_are_refused_and_keep_what_is_there(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    first = EstimateStore(folder, plan_of(recording), part=True)
    scores(recording, first)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(files) > 3

    def refused(match: str, seed: int) -> None:
        for part in (True, False):  # a whole audit does not delete what machines have computed for hours
            with pytest.raises(InputError, match=match):
                EstimateStore(folder, plan_of(recording, seed), part=part)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == files

    refused(f"{len(files) - 1} estimates of an audit with another seed", seed=1)
    with monkeypatch.context() as changed:
        changed.setattr("fedleak.evaluation.estimate_store.source_hash", lambda: "other code")
        refused("another code", seed=0)
    again = EstimateStore(folder, plan_of(recording))
    assert len(again) == len(files) - 1


@pytest.mark.integration
def test_part_does_not_delete_what_a_whole_audit_has_kept(recording: Recording, tmp_path: Path) -> None:
    scores(recording, EstimateStore(tmp_path / "kept", plan_of(recording)))
    with pytest.raises(InputError, match="another seed"):
        EstimateStore(tmp_path / "kept", plan_of(recording, seed=1), part=True)
    part = EstimateStore(tmp_path / "kept", plan_of(recording), part=True)
    assert len(part) > 3
    with pytest.raises(InputError, match="another seed"):  # now they are of parts
        EstimateStore(tmp_path / "kept", plan_of(recording, seed=1))
    (tmp_path / "kept" / "stamp.json").unlink()
    with pytest.raises(InputError, match=r"stamp\.json"):
        EstimateStore(tmp_path / "kept", plan_of(recording, seed=1), part=True)


@pytest.mark.integration
def test_estimates_of_two_audits_in_one_folder_do_not_mix(recording: Recording, tmp_path: Path) -> None:
    view, one = next(recording.views(victims_per_view=4)), Direction()
    first = EstimateStore(tmp_path / "kept", plan_of(recording))
    second = EstimateStore(tmp_path / "kept", plan_of(recording, seed=1))
    first.write(one, "direction", view, one(view, generator=torch.Generator()), 1.5)  # it still runs
    assert second.read(one, "direction", view) is None
    assert (len(first), len(second)) == (1, 0)
    second.remove()
    assert len(first) == 1
