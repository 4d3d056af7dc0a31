"""A recording that contradicts itself is refused with what is wrong, whoever made its hashes fit."""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import attack
from protocol.errors import InputError
from protocol.view import ITEM_EMBEDDING
from recordings.joined_view import joined_view
from recordings.named_algorithm import learner_from
from recordings.recording import Recording
from recordings.shards import ShardFiles
from tests.fuzz.recordings import (
    RECORDINGS,
    SEEN,
    TRUTH,
    recording,
    with_manifest,
    with_tensor,
    with_tensors,
    without,
    write_tree,
)

pytestmark = pytest.mark.integration

NAN = float("nan")


def read(folder: Path) -> None:
    """All that an audit reads, without its attacks."""
    opened = Recording(folder)
    opened.pseudonyms()
    for view in opened.views():
        opened.truth(view)


def refused(folder: Path, files: dict[str, bytes], match: str) -> None:
    with pytest.raises(InputError, match=match):
        read(write_tree(folder, files))


@pytest.mark.parametrize("name", RECORDINGS)
def test_whole_recordings_are_read(tmp_path: Path, name: str) -> None:
    read(write_tree(tmp_path, recording(name)))


SHARDS: list[tuple[str, str, str, Callable[[Tensor], Tensor], str]] = [
    ("clicks", SEEN, "clients", lambda t: t * 0 + 7, "twice"),
    ("clicks", SEEN, "clients", lambda t: t[0], r"not \(C,\)"),
    ("clicks", SEEN, "clients", lambda t: t.float(), "int64"),
    ("clicks", SEEN, "counts", lambda t: -t - 1, "negative"),
    ("clicks", SEEN, "counts", lambda t: t.float() * NAN, "whole numbers"),
    ("clicks", SEEN, "counts", lambda t: t[:3], "3 clients"),
    ("clicks", SEEN, "served", lambda t: t + 10**9, "item 1"),
    ("clicks", SEEN, "served", lambda t: -t - 5, "negative"),
    ("clicks", SEEN, "served", lambda t: t * 0, "twice"),
    ("clicks", SEEN, "offsets", lambda t: t.float(), "offsets"),
    ("clicks", SEEN, "offsets", lambda t: t + 1, "offsets"),
    ("clicks", SEEN, f"rows/{ITEM_EMBEDDING}", lambda t: t.index_fill(0, torch.tensor([3]), NAN), "NaN"),
    ("clicks", SEEN, f"rows/{ITEM_EMBEDDING}", lambda t: t[:, :-1], "shape"),
    ("clicks", SEEN, "model/mlp.0.weight", lambda t: t * NAN, "NaN"),
    ("clicks", SEEN, "model/mlp.0.weight", lambda t: t[:3], "shape"),
    ("texts", SEEN, "model/lstm.weight_ih_l0", lambda t: t[:0], "lstm.weight_ih_l0"),
    ("clicks", TRUTH, "labels", lambda t: t.float() * NAN, "NaN"),
    ("clicks", TRUTH, "labels", lambda t: t[:5], "rows"),
    ("clicks", TRUTH, "labels", lambda t: t * 5, "0 to 1"),
    ("clicks", TRUTH, "offsets", lambda t: -t, "offsets"),
    ("clicks", TRUTH, "offsets", lambda t: t * 10**9, "offsets"),
    ("clicks", TRUTH, "clients", lambda t: t[:3], "clients"),
    ("classes", TRUTH, "client/class_counts", lambda t: t[:3], "10 clients"),
    ("classes", TRUTH, "client/class_counts", lambda t: -t, "negative"),
    ("classes", TRUTH, "client/class_counts", lambda t: t * 0, "no example"),
    ("classes", TRUTH, "client/class_counts", lambda t: t.float() * NAN, "NaN"),
    ("classes", TRUTH, "client/class_counts", lambda t: torch.full_like(t, 2**62), "impossible"),
    ("classes", SEEN, "counts", lambda t: t * 0 + 2**60, "impossible"),
    ("sums", SEEN, "updates", lambda t: -t, "negative"),
    ("sums", SEEN, "updates", lambda t: t[:5], "rows"),
    ("sums", SEEN, "updates", lambda t: t.double(), "whole numbers"),
    ("sums", SEEN, "updates", lambda t: t * 2**60, "impossible"),
    ("calls", SEEN, "prior/leaning", lambda t: t[:3], "3|clients"),
    ("calls", SEEN, "prior/leaning", lambda t: t * NAN, "NaN"),
    ("calls", SEEN, "prior/leaning", lambda t: t[0], "clients"),
    ("sums", SEEN, "messages", lambda t: t - 1, "with none"),
    ("sums", SEEN, "messages", lambda t: t.float(), "whole numbers"),
    ("sums", SEEN, "messages", lambda t: t[:1], "clients"),
    ("texts", TRUTH, "offsets", lambda t: t[0], "offsets"),
    ("texts", TRUTH, "client/user", lambda t: t - 100, "negative"),
    ("votes", SEEN, "item_features", lambda t: t * NAN, "NaN"),
    ("votes", SEEN, "item_features", lambda t: t[0], r"not \(I, F\)"),
    ("votes", SEEN, "item_features", lambda t: t.long(), r"not \(I, F\)"),
    ("votes", SEEN, "item_features", lambda t: t[:-1], "item 11 of 11 in 'item_features'"),
    ("votes", SEEN, "served", lambda t: t + 10**6, "item 1000011 of 12 in 'item_features'"),
    ("votes", SEEN, "client_model/hidden.weight", lambda t: t * NAN, "NaN"),
    ("votes", SEEN, "client_model/hidden.weight", lambda t: t[:3], r"not \[4, 2, 6\]"),
    ("votes", SEEN, "client_model/hidden.weight", lambda t: t[:, :1], r"not \[4, 2, 6\]"),
    ("votes", SEEN, "client_model/output.weight", lambda t: t.long(), "floats"),
    ("classes", "auxiliary", "images", lambda t: t * NAN, "NaN"),
    ("classes", "auxiliary", "images", lambda t: t[0], "images"),
    ("classes", "auxiliary", "labels", lambda t: t - 50, "negative"),
    ("classes", "auxiliary", "labels", lambda t: t[:5], "length"),
    ("texts", "auxiliary", "known_users", lambda t: t[:1], "length"),
    ("texts", "auxiliary", "known_pseudonyms", lambda t: t * 0, "twice"),
]


@pytest.mark.parametrize(("name", "kind", "key", "change", "match"), SHARDS)
def test_a_tensor_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, kind: str, key: str, change: Callable[[Tensor], Tensor], match: str
) -> None:
    refused(tmp_path, with_tensor(recording(name), kind, key, change), match)


@pytest.mark.parametrize(
    ("value", "match"), [([-1], "negative"), ([0.5], "whole numbers"), ([[1]], "dimensions|shape")]
)
def test_strangers_that_are_no_users_are_refused(tmp_path: Path, value: list[float], match: str) -> None:
    files = with_tensors(recording("texts"), "auxiliary", lambda t: t.update(holdout_users=torch.tensor(value)))
    refused(tmp_path, files, match)


NAMES, VALUES = torch.tensor([3, 5]), torch.tensor([0, -1])


@pytest.mark.parametrize(
    ("held", "match"),
    [
        ({"attribute/sex": VALUES}, "without 'attribute_pseudonyms'"),
        ({"attribute_pseudonyms": NAMES, "attribute/sex": VALUES[:1]}, "one length"),
        ({"attribute_pseudonyms": NAMES * 0, "attribute/sex": VALUES}, "twice"),
        ({"attribute_pseudonyms": NAMES, "attribute/sex": VALUES - 1}, "from -1"),
        ({"attribute_pseudonyms": NAMES, "attribute/sex": VALUES + 10**6}, "below 1000"),
        ({"attribute_pseudonyms": NAMES, "attribute/sex": VALUES / 2}, "whole numbers"),
        ({"attribute_pseudonyms": NAMES, "attribute/sex": VALUES[:, None]}, "attribute/sex"),
    ],
)
def test_attributes_of_known_people_that_do_not_fit_are_refused(
    tmp_path: Path, held: dict[str, Tensor], match: str
) -> None:
    refused(tmp_path, with_tensors(recording("classes"), "auxiliary", lambda t: t.update(held)), match)


@pytest.mark.parametrize("change", [lambda t: t - 2, lambda t: t / 2, lambda t: t[:, 0], lambda t: t + 5000])
def test_true_attributes_that_do_not_fit_are_refused(tmp_path: Path, change: Callable[[Tensor], Tensor]) -> None:
    def add(tensors: dict[str, Tensor]) -> None:
        tensors["client/attributes"] = change(torch.ones(len(tensors["clients"]), 2, dtype=torch.int64) - 1)

    refused(tmp_path, with_tensors(recording("classes"), TRUTH, add), "client/attributes")


def test_models_of_some_parameters_only_are_refused(tmp_path: Path) -> None:
    files = with_tensors(recording("votes"), SEEN, lambda t: t.pop("client_model/output.weight"))
    refused(tmp_path, files, "'output.weight' in one of")


def test_items_with_features_twice_or_not_served_are_refused(tmp_path: Path) -> None:
    def twice(tensors: dict[str, Tensor]) -> None:
        tensors["features"] = tensors["item_features"][tensors["served"]]

    refused(tmp_path / "a", with_tensors(recording("votes"), SEEN, twice), "both 'features' and 'item_features'")
    refused(tmp_path / "b", with_tensors(recording("votes"), SEEN, lambda t: t.pop("served")), "no tensor 'served'")


def test_features_of_other_rounds_are_of_the_same_number(tmp_path: Path) -> None:
    change = with_tensor(recording("votes"), "rounds/000001", "item_features", lambda t: t[:, :4])
    refused(tmp_path, change, r"'features' of shape \(4,\), where another round has \(6,\)")


def test_items_of_each_client_have_their_own_features(tmp_path: Path) -> None:
    """Served in another order by one client, with the same features."""

    def other_order(tensors: dict[str, Tensor]) -> None:
        tensors["served"][:12] = tensors["served"][:12].flip(0)

    plain = next(Recording(write_tree(tmp_path / "a", recording("votes"))).views())
    view = next(Recording(write_tree(tmp_path / "b", with_tensors(recording("votes"), SEEN, other_order))).views())
    assert plain.features is not None
    assert view.features is not None
    assert (plain.features.stride(0), view.features.stride(0)) == (0, 72)
    assert torch.equal(view.features[0].flip(0), view.features[1])
    assert torch.equal(view.features[1], plain.features[1])


def test_tensors_that_nothing_describes_are_refused(tmp_path: Path) -> None:
    refused(
        tmp_path,
        with_tensors(recording("classes"), SEEN, lambda t: t.update({"deltas/x": torch.zeros(10, 2)})),
        "describe",
    )


MANIFESTS: list[tuple[str, Any, str]] = [
    ("parameters", [], "parameters"),
    ("parameters", {}, "parameters"),
    ("parameters", {"a": 5}, "shape"),
    ("parameters", {"a": {"shape": [1]}}, "shape"),
    ("parameters", {"a": {"shape": [-1], "dtype": "float32"}}, "shape"),
    ("parameters", {"a": {"shape": [True], "dtype": "float32"}}, "shape"),
    ("parameters", {"a": {"shape": [2**39, 2**39], "dtype": "float32"}}, "shape"),
    ("parameters", {"a": {"shape": [1], "dtype": "int4"}}, "shape"),
    ("row_parameters", "item_embedding.weight", "row_parameters"),
    ("row_parameters", ["nope"], "tables"),
    ("releases", "abc", "releases"),
    ("releases", [{}], "clip"),
    ("releases", [{"clip": None, "noise_scale": -1.0, "parameters": []}], "clip"),
    ("releases", [{"clip": 0, "noise_scale": 1.0, "parameters": []}], "clip"),
    ("releases", [{"clip": None, "noise_scale": True, "parameters": []}], "clip"),
    ("releases", [{"clip": 1, "noise_scale": 1, "parameters": ["nope"]}], "nope"),
    ("releases", [{"noise": 1, "clip": None, "noise_scale": 0.0, "parameters": []}], "clip"),
    ("learner", ["fncf"], "learner"),
    ("learner", {"name": "fncf"}, "learner"),
    ("learner", {"name": ["fncf"], "arguments": {}}, "learner"),
    ("seed", 1.5, "seed"),
    ("data", None, "data"),
    ("data", {}, "data"),
    ("data", {"name": ["a"]}, "data"),
    ("config", [], "config"),
    ("config", {"round_settings": [1]}, "round_settings"),
    ("config", {"round_settings": {"first": {"interactions": 1}}}, "round_settings"),
    ("config", {"round_settings": {"0": 1}}, "round_settings"),
    ("config", {"round_settings": {"0": {"interactions": [1]}}}, "round_settings"),
    ("versions", {"torch": 2}, "versions"),
    ("commit", 5, "commit"),
    ("auxiliary", "abc", "auxiliary"),
    ("format", True, "format True"),
    ("format", 2, "format 2"),
    ("format", 1.0, "format 1.0"),
    ("unheard", 1, "unheard"),
]


@pytest.mark.parametrize(("key", "value", "match"), MANIFESTS)
def test_a_field_of_another_kind_is_refused(tmp_path: Path, key: str, value: Any, match: str) -> None:
    refused(tmp_path, with_manifest(recording("clicks"), lambda manifest: manifest.update({key: value})), match)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (b'"seed": 0', b'"seed": 0, "seed": 1', "twice"),
        (b'"seed": 0', b'"seed": NaN', "NaN"),
        (b"{", b"", "JSON"),
        (b'"seed": 0', b'"seed": ' + b"9" * 5000, "JSON"),
        (b'"config": {', b'"config": {"x": ' + b"[" * 900 + b"]" * 900 + b", ", "nested"),
        (b'"config": {', b'"config": {"x": ' + b"[" * 100000 + b"]" * 100000 + b", ", "nested"),
        (b'"config": {', b'"config": {"x": "\\ud800", ', "text"),
    ],
)
def test_a_manifest_that_is_no_plain_json_is_refused(tmp_path: Path, old: bytes, new: bytes, match: str) -> None:
    files = recording("clicks")
    changed = files["manifest.json"].replace(old, new, 1)
    assert changed != files["manifest.json"]
    refused(tmp_path, {**files, "manifest.json": changed}, match)


def test_a_recording_without_truth_can_be_read(tmp_path: Path) -> None:
    opened = Recording(write_tree(tmp_path, without(recording("clicks"), "truth/")))
    view = next(opened.views())
    assert view.victims
    assert opened.truth(view) == {}


def test_auxiliary_data_without_a_hash_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, with_manifest(recording("classes"), lambda m: m.update(auxiliary=None)), "no hash")


def test_a_client_of_two_ranks_in_one_round_is_refused(tmp_path: Path) -> None:
    files = recording("clicks")
    for kind in ("rounds", "truth"):
        files[f"{kind}/000000-0001.safetensors"] = files[f"{kind}/000000-0000.safetensors"]
    files["journal-0001.jsonl"] = b"".join(
        line.replace(b"-0000.", b"-0001.") for line in files["journal.jsonl"].splitlines(True) if b"/000000" in line
    )
    refused(tmp_path, files, "another rank")


@pytest.mark.parametrize("link", ["journal.jsonl", "manifest.json", "auxiliary.safetensors", "journal-0001.jsonl"])
def test_only_regular_files_are_opened(tmp_path: Path, link: str) -> None:
    write_tree(tmp_path, recording("classes"))
    (tmp_path / link).unlink(missing_ok=True)
    os.mkfifo(tmp_path / link)
    with pytest.raises(InputError, match="regular file"):
        Recording(tmp_path)
    (tmp_path / link).unlink()
    (tmp_path / link).symlink_to("/dev/zero")
    with pytest.raises(InputError, match="regular file"):
        Recording(tmp_path)


def test_nothing_that_an_attack_is_given_leads_to_the_recording(tmp_path: Path) -> None:
    opened = Recording(write_tree(tmp_path, recording("texts")))
    view = joined_view(opened, learner=learner_from(opened.manifest.learner))
    assert len(view.round_models[0])
    reached: dict[int, Any] = {}
    waiting: list[Any] = [view]
    while waiting:
        one = waiting.pop()
        if id(one) in reached or isinstance(one, str | int | float | Tensor | ModuleType | type):
            continue
        reached[id(one)] = one
        waiting += [getattr(one, name) for name in dir(one) if not name.startswith("__")]
        waiting += [*one.keys(), *one.values()] if isinstance(one, dict) else []
        waiting += list(one) if isinstance(one, list | tuple | set | frozenset) else []
    assert len(reached) > 20
    assert not [one for one in reached.values() if isinstance(one, Recording)]


def test_the_files_that_a_round_opens_do_not_grow_with_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = list[str]()
    whole = ShardFiles.open

    def counted(files: ShardFiles, name: str) -> Any:
        opens.append(name)
        return whole(files, name)

    monkeypatch.setattr(ShardFiles, "open", counted)
    files = recording("clicks")
    for number in range(2, 30):
        for kind in ("rounds", "truth"):
            name, other = f"{kind}/000001-0000.safetensors", f"{kind}/{number:06d}-0000.safetensors"
            line = next(line for line in files["journal.jsonl"].splitlines(True) if name.encode() in line)
            files[other] = files[name]
            files["journal.jsonl"] += line.replace(name.encode(), other.encode())
    opened = Recording(write_tree(tmp_path, files))
    opened.pseudonyms(29)
    opened.model(29)
    next(opened.views(rounds=[29]))
    assert {name for name in opens if not name.endswith("000029-0000.safetensors")} == set()


@pytest.mark.parametrize(
    ("key", "dtype"),
    [("served", torch.int8), ("clients", torch.int64), ("counts", torch.int16), ("model/mlp.4.weight", torch.float64)],
)
def test_a_view_has_the_types_that_attacks_compute_with(tmp_path: Path, key: str, dtype: torch.dtype) -> None:
    files = recording("clicks")
    (right,) = Recording(write_tree(tmp_path / "right", files)).views(rounds=[0])
    other = with_tensor(files, "rounds/000000", key, lambda value: value.to(dtype))
    (found,) = Recording(write_tree(tmp_path / "found", other)).views(rounds=[0])
    for one, two in (
        *((right.served_items, found.served_items), (right.pseudonyms, found.pseudonyms)),
        *((right.example_counts, found.example_counts), *((right.model[n], found.model[n]) for n in right.model)),
    ):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)


def test_numbers_that_no_attack_can_compute_with_are_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.write_run.write_page", lambda *_, **__: [])
    files = with_tensor(recording("clicks"), "rounds/000001", "model/mlp.2.bias", lambda value: value + 1e30)
    folder = write_tree(tmp_path / "run/deltas", files)
    assert attack.main(["audit", "--deltas", str(folder), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "could not run: an invalid estimate in round 1" in said.out
    assert "Traceback" not in said.out + said.err
