"""A recording that contradicts itself is refused with what is wrong, whoever made its hashes fit."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.recordings.joined_view import joined_view
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recording import Recording
from fedleak.recordings.shards import ShardFiles
from tests.fuzz.damages import FIELDS, TENSORS
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

KNOWN = "auxiliary"


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


CHANGED: dict[tuple[str, str, str], dict[str, str]] = {
    ("clicks", SEEN, "clients"): {"all alike": "twice", "scalar": r"\(C,\)", "double": "int64"},
    ("clicks", SEEN, "counts"): {"negative": "negative", "NaN": "whole", "shorter": "clients"},
    ("clicks", SEEN, "served"): {"far": "item 1", "negative": "negative", "zero": "twice"},
    ("clicks", SEEN, "offsets"): {"double": "offsets", "far": "offsets"},
    ("clicks", SEEN, f"rows/{ITEM_EMBEDDING}"): {"NaN": "NaN", "transposed": "shape"},
    ("clicks", SEEN, "model/mlp.0.weight"): {"NaN": "NaN", "shorter": "shape"},
    ("clicks", TRUTH, "labels"): {"NaN": "NaN", "shorter": "rows", "large": "0 to 1"},
    ("clicks", TRUTH, "offsets"): {"negative": "offsets", "large": "offsets", "double": "offsets"},
    ("clicks", TRUTH, "clients"): {"shorter": "clients"},
    ("classes", SEEN, "counts"): {"largest": "impossible"},
    ("classes", TRUTH, "client/class_counts"): {
        **{"shorter": "10 clients", "negative": "negative", "zero": "no example"},
        **{"NaN": "NaN", "largest": "impossible"},
    },
    ("classes", KNOWN, "images"): {"NaN": "NaN", "scalar": "dimension", "flat": r"\(M,"},
    ("classes", KNOWN, "labels"): {"negative": "negative", "shorter": "length"},
    ("sums", SEEN, "updates"): {
        **{"negative": "negative", "shorter": "rows", "double": "whole", "largest": "impossible"}
    },
    ("sums", SEEN, "messages"): {"zero": "none", "double": "whole", "shorter": "clients"},
    ("calls", SEEN, "prior/leaning"): {"shorter": "clients", "NaN": "NaN", "scalar": "clients"},
    ("texts", SEEN, "model/lstm.weight_ih_l0"): {"empty": "lstm.weight_ih_l0"},
    ("texts", TRUTH, "offsets"): {"scalar": "offsets"},
    ("texts", TRUTH, "client/user"): {"negative": "negative"},
    ("texts", KNOWN, "known_users"): {"shorter": "length"},
    ("texts", KNOWN, "known_pseudonyms"): {"zero": "twice"},
    ("votes", SEEN, "item_features"): {
        **{"NaN": "NaN", "flat": r"\(I, F\)", "int64": r"\(I, F\)", "shorter": "item 11 of 11"}
    },
    ("votes", SEEN, "served"): {"far": "of 12"},
    ("votes", SEEN, "client_model/hidden.weight"): {"NaN": "NaN", "shorter": r"\[4, 2, 6\]", "int64": "floats"},
}
"""By recording, kind of file and tensor: changes by name, and the word of the refusal."""


@pytest.mark.parametrize(
    ("place", "change", "match"), [(place, *case) for place, changes in CHANGED.items() for case in changes.items()]
)
def test_a_tensor_that_does_not_fit_is_refused(
    tmp_path: Path, place: tuple[str, str, str], change: str, match: str
) -> None:
    name, kind, key = place
    refused(tmp_path, with_tensor(recording(name), kind, key, TENSORS[change]), match)


NAMES, VALUES = torch.tensor([3, 5]), torch.tensor([0, -1])
ADDED: list[tuple[str, str, dict[str, Tensor | None], str]] = [
    ("texts", KNOWN, {"holdout_users": torch.tensor([-1])}, "negative"),
    ("texts", KNOWN, {"holdout_users": torch.tensor([0.5])}, "whole"),
    ("texts", KNOWN, {"holdout_users": torch.tensor([[1]])}, "shape"),
    ("classes", KNOWN, {"attribute/sex": VALUES}, "without 'attribute_pseudonyms'"),
    ("classes", KNOWN, {"attribute_pseudonyms": NAMES, "attribute/sex": VALUES[:1]}, "one length"),
    ("classes", KNOWN, {"attribute_pseudonyms": NAMES * 0, "attribute/sex": VALUES}, "twice"),
    ("classes", KNOWN, {"attribute_pseudonyms": NAMES, "attribute/sex": VALUES - 1}, "from -1"),
    ("classes", KNOWN, {"attribute_pseudonyms": NAMES, "attribute/sex": VALUES + 10**6}, "below 1000"),
    ("classes", KNOWN, {"attribute_pseudonyms": NAMES, "attribute/sex": VALUES / 2}, "whole"),
    ("classes", KNOWN, {"attribute_pseudonyms": NAMES, "attribute/sex": VALUES[:, None]}, "attribute/sex"),
    ("classes", TRUTH, {"client/attributes": torch.full((10, 2), -2)}, "client/attributes"),
    ("classes", TRUTH, {"client/attributes": torch.full((10, 2), 0.5)}, "client/attributes"),
    ("classes", TRUTH, {"client/attributes": torch.zeros(10, dtype=torch.int64)}, "client/attributes"),
    ("classes", TRUTH, {"client/attributes": torch.full((10, 2), 1000)}, "client/attributes"),
    ("classes", TRUTH, {"clients": None}, "no tensor 'clients'"),
    ("classes", TRUTH, {"client/class_counts": torch.ones(10, dtype=torch.int64)}, r"\(C, K\)"),
    ("classes", TRUTH, {"labels": torch.zeros(3)}, "served none"),
    ("classes", SEEN, {"deltas/x": torch.zeros(10, 2)}, "describe"),
    ("classes", SEEN, {"deltas/output.bias": None}, "no tensor 'deltas/output.bias'"),
    ("classes", SEEN, {"deltas/output.bias": torch.zeros(10, 9)}, "shape"),
    ("classes", SEEN, {"deltas/output.bias": torch.zeros(10, 10, dtype=torch.float64)}, "type"),
    ("votes", SEEN, {"features": torch.zeros(48, 6)}, "both 'features'"),
    ("votes", SEEN, {"served": None}, "no tensor 'served'"),
    ("votes", SEEN, {"client_model/output.weight": None}, "output.weight"),
]
"""By recording and kind of file: further tensors, or None for one that goes, and the word of the refusal."""


@pytest.mark.parametrize(("name", "kind", "added", "match"), ADDED)
def test_tensors_too_many_or_too_few_are_refused(
    tmp_path: Path, name: str, kind: str, added: Mapping[str, Tensor | None], match: str
) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        for key, value in added.items():
            tensors.pop(key, None)
            tensors.update({} if value is None else {key: value})

    refused(tmp_path, with_tensors(recording(name), kind, change), match)


def test_features_of_other_rounds_are_of_the_same_number(tmp_path: Path) -> None:
    change = with_tensor(recording("votes"), "rounds/000001", "item_features", lambda t: t[:, :4])
    refused(tmp_path, change, "another round")


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


OF_A_RECORDING: dict[str, list[Any]] = {
    **{"seed": [1.5], "versions": [{"torch": 2}], "commit": [5], "auxiliary": ["abc"], "unheard": [1]},
    "learner": [{"name": "fncf"}, {"name": ["fncf"], "arguments": {}}],
    "row_parameters": [["nope"]],
    "parameters": [
        *({"a": {"shape": [1]}}, {"a": {"shape": [-1], "dtype": "float32"}}, {"a": {"shape": [1], "dtype": "int4"}}),
        {"a": {"shape": [2**39, 2**39], "dtype": "float32"}},
    ],
    "config": [
        *([], {"round_settings": [1]}, {"round_settings": {"first": {"interactions": 1}}}),
        *({"round_settings": {"0": 1}}, {"round_settings": {"0": {"interactions": [1]}}}),
    ],
}


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for fields in (FIELDS, OF_A_RECORDING) for key, values in fields.items() for value in values],
)
def test_a_field_of_another_kind_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    refused(tmp_path, with_manifest(recording("clicks"), lambda manifest: manifest.update({key: value})), key)


def test_a_release_of_a_parameter_that_there_is_not_is_refused(tmp_path: Path) -> None:
    release = {"clip": 1, "noise_scale": 1, "parameters": ["nope"]}
    refused(tmp_path, with_manifest(recording("clicks"), lambda manifest: manifest.update(releases=[release])), "nope")


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


def test_a_recording_whose_folder_truth_is_gone_is_one_without_ground_truth(tmp_path: Path) -> None:
    """Whoever passes a recording on may leave out the folder; a part of it may not be missing."""
    files = recording("clicks")
    seen_alone = {name: content for name, content in files.items() if not name.startswith("truth/")}
    opened = Recording(write_tree(tmp_path / "alone", seen_alone))
    view = next(opened.views())
    assert view.victims
    assert opened.truth(view) == {}
    assert not opened.has_truth
    assert Recording(write_tree(tmp_path / "all", files)).has_truth
    copied = Recording(write_tree(tmp_path / "copied", without(files, "truth/")))
    assert opened.sha256() == copied.sha256()
    (first, *others) = [name for name in files if name.startswith("truth/")]
    assert others
    partly = {name: content for name, content in files.items() if name != first}
    refused(tmp_path / "partly", partly, "missing or cut short.*Without the whole folder truth/")


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
    path = write_tree(tmp_path, recording("classes")) / link
    makes: tuple[Callable[[], None], ...] = (lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero"))
    for make in makes:
        path.unlink(missing_ok=True)
        make()
        with pytest.raises(InputError, match="regular file"):
            Recording(tmp_path)


@pytest.mark.parametrize(
    "link",
    ["journal.jsonl", "manifest.json", "auxiliary.safetensors", "rounds/*-0000.safetensors", "rounds", "truth"],
)
def test_a_link_leads_to_no_other_folder(tmp_path: Path, link: str) -> None:
    """Even if what it leads to is what the journal says; a link to the same folder is a file of it."""
    folder = tmp_path / "recording"
    path = min(write_tree(folder, recording("classes")).glob(link))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"a link to .*elsewhere"):
        Recording(folder)
    path.unlink()
    (tmp_path / "elsewhere").rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")
    assert Recording(folder).rounds
    (tmp_path / "other").symlink_to(folder)
    assert Recording(tmp_path / "other").rounds


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
    for number in range(2, 6):
        for kind in ("rounds", "truth"):
            name, other = f"{kind}/000001-0000.safetensors", f"{kind}/{number:06d}-0000.safetensors"
            line = next(line for line in files["journal.jsonl"].splitlines(True) if name.encode() in line)
            files[other] = files[name]
            files["journal.jsonl"] += line.replace(name.encode(), other.encode())
    opened = Recording(write_tree(tmp_path, files))
    opened.pseudonyms(5)
    opened.model(5)
    next(opened.views(rounds=[5]))
    assert {name for name in opens if not name.endswith("000005-0000.safetensors")} == set()


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


@pytest.mark.usefixtures("without_figures")
def test_numbers_that_no_attack_can_compute_with_are_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = with_tensor(recording("clicks"), "rounds/000001", "model/mlp.2.bias", lambda value: value + 1e30)
    folder = write_tree(tmp_path / "run/deltas", files)
    assert program.main(["audit", str(folder), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "invalid estimate in round 1" in said.out
    assert "Traceback" not in said.out + said.err
