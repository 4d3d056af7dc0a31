"""Dumps of other systems become recordings that attacks run on, and what is wrong with a dump is named."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedleak.commands import program
from fedleak.commands.convert import convert_dump
from fedleak.core.errors import InputError
from fedleak.core.seeding import KEY_VARIABLE
from fedleak.recordings.recording import Recording
from tests.foreign_toys import CLIENTS, changed_manifest, content_of, items, one_client, rewrite, view, write_dump
from tests.tables.tables import read

pytestmark = pytest.mark.usefixtures("without_figures")


def told_apart(folder: Path) -> dict[str, Tensor]:
    """The deltas in the order of the truth's first class counts, which no two clients of the toy share."""
    recording = Recording(folder)
    seen = next(recording.views())
    key = (recording.truth(seen)["class_counts"] * torch.arange(1, 11)).sum(1)
    return {name: value[key.argsort()] for name, value in seen.deltas.items()}


@pytest.mark.parametrize("holds", ["deltas", "models"])
@pytest.mark.parametrize("per_client", [True, False])
@pytest.mark.parametrize("safetensors", [True, False])
def test_every_kind_of_dump_gives_the_same_recording(
    tmp_path: Path, holds: str, per_client: bool, safetensors: bool
) -> None:
    convert_dump(write_dump(tmp_path / "dump"), tmp_path / "plain", progress=False)
    manifest = write_dump(tmp_path / "other", holds=holds, per_client=per_client, safetensors=safetensors)
    assert convert_dump(manifest, tmp_path / "out", progress=False) == 1
    expected, found = told_apart(tmp_path / "plain"), told_apart(tmp_path / "out")
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=2e-7, rtol=0)
    recording = Recording(tmp_path / "out")
    assert recording.rounds == [3]
    for name, value in recording.model(3).items():
        assert torch.equal(value, view().model[name])


@pytest.mark.integration
def test_a_converted_dump_is_audited_as_our_own_recording_is(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump", holds="models")
    assert program.main(["convert", str(manifest), "--out", str(tmp_path / "run/deltas")]) == 0
    assert program.main(["audit", str(tmp_path / "run/deltas")]) == 0
    results = {(r.attack, r.metric): r for r in read(tmp_path / "run")}
    assert results["decaf", "l1"].n == 10
    assert results["decaf", "l1"].mean < results["equal-counts", "l1"].mean
    manifest_content = json.loads((tmp_path / "run/deltas/manifest.json").read_text())
    assert manifest_content["config"]["converted_from"] == {"name": "another system", "version": "7"}


def test_names_of_another_system_are_translated(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump")
    content = content_of(manifest)
    theirs = {name: name.replace("output", "head.linear") for name in content["parameters"]}
    for place in range(10):
        rewrite(one_client(manifest, place), lambda arrays: {theirs[name]: value for name, value in arrays.items()})
    rewrite(manifest.parent / "global.npz", lambda arrays: {theirs[name]: value for name, value in arrays.items()})
    parameters = {theirs[name]: shape for name, shape in content["parameters"].items()}
    rename = {their: name for name, their in theirs.items() if name != their}
    convert_dump(changed_manifest(manifest, parameters=parameters, rename=rename), tmp_path / "out", progress=False)
    assert list(Recording(tmp_path / "out").manifest.parameters) == list(content["parameters"])


@pytest.mark.integration
@pytest.mark.parametrize("whole", [True, False])
def test_rows_of_served_items_are_kept(tmp_path: Path, whole: bool) -> None:
    convert_dump(items(tmp_path, whole=whole), tmp_path / "out", progress=False)
    recording = Recording(tmp_path / "out")
    seen = next(recording.views())
    assert seen.served is not None
    assert seen.served.tolist() == [[1, 4, -1], [0, 2, 5]]
    assert seen.deltas["item_embedding.weight"].tolist() == [
        [[2.0, 3.0], [8.0, 9.0], [0.0, 0.0]],
        [[0.0, 1.0], [4.0, 5.0], [10.0, 11.0]],
    ]
    assert recording.truth(seen)["labels"].tolist() == [[1, 0, 0], [1, 0, 0]]
    assert program.main(["audit", str(tmp_path / "out"), "--out", str(tmp_path / "audit")]) == 0
    assert "row-norm" in {r.attack for r in read(tmp_path / "audit")}


BIAS = "output.bias"
Arrays = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda arrays: dict(reversed(arrays.items())),
            ["parameter 1 of", "'body.0.weight' of shape (4, 1, 3, 3)", "'output.bias'", "another order"],
        ),
        (
            lambda arrays: {**arrays, BIAS: arrays[BIAS][:9]},
            ["'output.bias' of shape (10,)", "'output.bias' of shape (9,)", "another model"],
        ),
        (
            lambda arrays: {name.replace(BIAS, "fc.bias"): value for name, value in arrays.items()},
            ["'output.bias' of shape (10,)", "'fc.bias' of shape (10,)"],
        ),
        (
            lambda arrays: {name: value for name, value in arrays.items() if name != BIAS},
            ["'output.bias' of shape (10,)", "nothing"],
        ),
        (lambda arrays: {**arrays, BIAS: arrays[BIAS] * np.nan}, ["finite", "'output.bias'"]),
    ],
)
def test_a_client_with_other_parameters_is_refused(
    tmp_path: Path, change: Callable[[Arrays], Arrays], told: list[str]
) -> None:
    manifest = write_dump(tmp_path / "dump")
    rewrite(one_client(manifest, 4), change)
    with pytest.raises(InputError) as refused:
        convert_dump(manifest, tmp_path / "out", progress=False)
    assert all(part in str(refused.value) for part in [*told, "phone-4.npz"])
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_mended_dump_is_converted_into_the_same_folder_once(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump")
    one_client(manifest).rename(tmp_path / "away.npz")
    with pytest.raises(InputError, match=r"nothing at .*phone-0"):
        convert_dump(manifest, tmp_path / "out", progress=False)
    (tmp_path / "away.npz").rename(one_client(manifest))
    convert_dump(manifest, tmp_path / "out", progress=False)
    with pytest.raises(InputError, match="recording"):
        convert_dump(manifest, tmp_path / "out", progress=False)


def test_pseudonyms_and_order_of_converted_clients_need_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, found = write_dump(tmp_path / "dump"), {}
    for name, key in (("drawn", None), ("other", None), ("given", "ab" * 16), ("again", "ab" * 16)):
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        if key is not None:
            monkeypatch.setenv(KEY_VARIABLE, key)
        convert_dump(manifest, tmp_path / name, progress=False)
        found[name] = Recording(tmp_path / name).pseudonyms(3)
        assert found[name] == sorted(found[name])
    plain = {int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2 for name in CLIENTS}
    assert not plain & {*found["drawn"], *found["other"], *found["given"]}
    assert not {*found["drawn"]} & {*found["other"]}
    files = [path.relative_to(tmp_path / "given") for path in (tmp_path / "given").rglob("*") if path.is_file()]
    assert all((tmp_path / "given" / path).read_bytes() == (tmp_path / "again" / path).read_bytes() for path in files)


def test_a_copy_without_truth_holds_what_the_server_saw_alone(tmp_path: Path) -> None:
    convert_dump(write_dump(tmp_path / "dump"), tmp_path / "whole", progress=False)
    assert program.main(["convert", str(tmp_path / "whole"), "--out", str(tmp_path / "copy")]) == 0
    whole, copy = Recording(tmp_path / "whole"), Recording(tmp_path / "copy")
    assert not (tmp_path / "copy" / "truth").exists()
    assert "truth/" not in (tmp_path / "copy" / "journal.jsonl").read_text()
    assert (copy.rounds, copy.closed) == (whole.rounds, True)
    seen, kept = next(whole.views()), next(copy.views())
    assert all(torch.equal(kept.deltas[name], value) for name, value in seen.deltas.items())
    assert kept.auxiliary.keys() == seen.auxiliary.keys()
    assert program.main(["convert", str(tmp_path / "whole"), "--out", str(tmp_path / "copy")]) == 2


def test_a_learner_of_another_network_is_refused(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump")
    learner = content_of(manifest)["learner"]
    learner["arguments"]["network"]["hidden"] = 33
    with pytest.raises(InputError, match=r"'body.6.bias' of shape \(33,\).*'body.6.bias' of shape \(32,\)"):
        convert_dump(changed_manifest(manifest, learner=learner), tmp_path / "out", progress=False)


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_a_file_that_is_no_plain_array_is_refused(tmp_path: Path, content: bytes | None) -> None:
    manifest = write_dump(tmp_path / "dump")
    path = one_client(manifest)
    if content is None:
        rewrite(path, lambda _: {BIAS: np.array([{"an": "object"}])})
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"phone-0\.npz"):
        convert_dump(manifest, tmp_path / "out", progress=False)


def test_without_truth_nothing_is_scored_and_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = write_dump(tmp_path / "dump")
    rounds = content_of(manifest)["rounds"]
    for client in rounds[0]["clients"]:
        client["truth"] = {}
    convert_dump(changed_manifest(manifest, rounds=rounds), tmp_path / "out", progress=False)
    assert program.main(["audit", str(tmp_path / "out"), "--out", str(tmp_path / "audit")]) == 0
    said = capsys.readouterr().out
    assert "without class_counts in truth/ of the recording it cannot be scored" in said
    assert "add class_counts to the truth of each client" in said
    assert (tmp_path / "audit" / "report.html").exists()
