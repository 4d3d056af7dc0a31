"""A recording made with `Recorder`: what fedleak reads is what the system's own loop computed."""

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedleak.recordings.recording import Recording
from fedleak_recorder import InputError, Recorder
from fedleak_recorder.journal import read_journal
from fedleak_recorder.pseudonyms import pseudonym
from fedleak_recorder.sent import Sent

CLIENTS = ["alice", "bob", "carol"]
KEY = b"k" * 32
SMALL = {"weight": (2, 3), "bias": (2,)}


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def state(net: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def locally_trained(before: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    net = network().to(next(iter(before.values())).dtype)
    net.load_state_dict(before)
    draws = torch.Generator().manual_seed(seed)
    inputs = torch.randn(8, 3, generator=draws, dtype=next(iter(before.values())).dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()
    return state(net)


def small(value: float, dtype: Any = np.float32) -> dict[str, Any]:
    return {name: np.full(shape, value, dtype) for name, shape in SMALL.items()}


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_deltas_are_exactly_those_of_the_loop(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = state(network().to(dtype))
    recorder = Recorder(tmp_path, parameters=model, data="toy")
    own: dict[int, dict[int, dict[str, Tensor]]] = {}
    for number in range(3):
        updates = {name: (locally_trained(model, 10 * number + place), 8) for place, name in enumerate(CLIENTS)}
        truth = {name: {"place": [place]} for place, name in enumerate(CLIENTS)}
        recorder.round(number, model, updates, truth=truth)
        own[number] = {
            place: {key: updates[name][0][key] - model[key] for key in model} for place, name in enumerate(CLIENTS)
        }
        model = {key: torch.stack([sent[key] for sent, _ in updates.values()]).to(dtype).mean(0) for key in model}
    recorder.close()
    recording = Recording(tmp_path)
    assert recording.closed
    assert recording.rounds == [0, 1, 2]
    floats = [name for name in model if "num_batches" not in name]
    for number in recording.rounds:
        (view,) = recording.views(rounds=[number])
        places = recording.truth(view)["place"].flatten().tolist()
        for row, place in enumerate(places):
            for name in floats:
                assert view.deltas[name].dtype == dtype
                assert torch.equal(view.deltas[name][row], own[number][int(place)][name])
    assert list(recording.manifest.parameters) == floats


def test_neither_names_nor_the_key_are_in_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = set()
    for attempt in range(8):
        recorder = Recorder(tmp_path / str(attempt), parameters=SMALL)
        recorder.round(
            0, small(0), {name: (small(1), place) for place, name in enumerate(CLIENTS)}, truth={CLIENTS[0]: {}}
        )
        content = b"".join(written(tmp_path / str(attempt)).values())
        for secret in (recorder.key, recorder.key.hex().encode(), *(name.encode() for name in CLIENTS)):
            assert secret not in content
        (view,) = Recording(tmp_path / str(attempt)).views()
        orders.add(tuple(view.example_counts.tolist()))
    # Without FEDLEAK_KEY each recorder draws a key; in the tests the variable fixes it.
    assert len(orders) == 1
    other = Recorder(tmp_path / "other", parameters=SMALL, key=KEY)
    other.round(0, small(0), {name: (small(1), 1) for name in CLIENTS})
    assert not set(Recording(tmp_path / "other").pseudonyms()) & set(Recording(tmp_path / "0").pseudonyms())
    monkeypatch.delenv("FEDLEAK_KEY", raising=False)
    first, second = (Recorder(tmp_path / name, parameters=SMALL).key for name in ("a", "b"))
    assert len(first) == len(second) == 32
    assert first != second


@pytest.mark.parametrize("made", [np.asarray, torch.as_tensor, np.ndarray.tolist], ids=["np", "torch", "list"])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("holds", ["models", "deltas"])
def test_every_kind_of_array_gives_the_same_files(tmp_path: Path, made: Any, listed: bool, holds: Any) -> None:
    def given(arrays: dict[str, Any]) -> Any:
        each = {name: made(value) for name, value in arrays.items()}
        return list(each.values()) if listed else each

    before, shift = small(0.5), 0.5 if holds == "models" else 0.0
    with Recorder(tmp_path / "one", parameters=SMALL, holds=holds, key=KEY) as recorder:
        updates = {name: (given(small(place + shift)), 3) for place, name in enumerate(CLIENTS)}
        recorder.round(4, given(before), updates, truth={name: {"class_counts": [1, 2]} for name in CLIENTS})
    with Recorder(tmp_path / "two", parameters=SMALL, holds="deltas", key=KEY) as recorder:
        updates = {name: (small(place), 3) for place, name in enumerate(CLIENTS)}
        recorder.round(4, before, updates, truth={name: {"class_counts": [1, 2]} for name in CLIENTS})
    assert written(tmp_path / "one") == written(tmp_path / "two")


def test_the_first_model_describes_the_parameters_if_none_are_given(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, system={"name": "mine"}, versions={"mine": "1"})
    recorder.round(1, {**small(0), "steps": np.int64(3)}, {7: ({**small(1), "steps": np.int64(4)}, 2)})
    manifest = Recording(tmp_path).manifest
    assert {name: tuple(one["shape"]) for name, one in manifest.parameters.items()} == SMALL
    assert manifest.config == {"name": "mine"}
    assert manifest.versions["mine"] == "1"
    assert manifest.versions["fedleak-recorder"]


def test_a_list_may_hold_the_counters_that_are_not_recorded(tmp_path: Path) -> None:
    model = state(network())
    values = [value.numpy() for value in model.values()]
    recorder = Recorder(tmp_path, parameters=model)
    recorder.round(1, values, {"a": ([value + 1 for value in values], 2)})
    (view,) = Recording(tmp_path).views()
    assert len(view.deltas) == len(model) - 1
    assert torch.equal(view.deltas["2.bias"], torch.ones(1, 2))


def test_served_items_are_recorded_by_row(tmp_path: Path) -> None:
    table = {"items": np.zeros((5, 2), np.float32)}
    moved = {"items": np.arange(10, dtype=np.float32).reshape(5, 2)}
    recorder = Recorder(tmp_path, parameters=table, row_parameters=["items"], key=KEY)
    labels = {"a": {"labels": [1, 0]}, "b": {"labels": [0]}}
    recorder.round(0, table, {"a": (moved, 2), "b": (moved, 1)}, served={"a": [4, 1], "b": [2]}, truth=labels)
    (view,) = Recording(tmp_path).views()
    found = {}
    for items, rows in zip(view.served_items, view.deltas["items"], strict=True):
        found[tuple(items[items >= 0].tolist())] = rows[items >= 0].tolist()
    assert found == {(4, 1): [[8, 9], [2, 3]], (2,): [[4, 5]]}


def test_a_failed_round_leaves_those_before(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, parameters=SMALL)
    recorder.round(0, small(0), {"a": (small(1), 1)})
    with pytest.raises(InputError, match=r"finite real numbers in 'weight'.*client a sent in round 1"):
        recorder.round(1, small(0), {"a": (small(np.nan), 1)})
    assert Recording(tmp_path).rounds == [0]
    recorder.round(1, small(0), {"a": (small(1), 1)})
    assert Recording(tmp_path).rounds == [0, 1]


def test_closing_is_an_act_of_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def interrupted() -> None:
        with Recorder(tmp_path, parameters=SMALL, key=KEY) as recorder:
            for number in range(6):
                recorder.round(number, small(0), {"a": (small(1), 1)})
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert not Recording(tmp_path).closed
    assert "not closed" in caplog.text
    with Recorder(tmp_path, parameters=SMALL, key=KEY, resume_at=6):
        pass
    caplog.clear()
    assert Recording(tmp_path).closed
    assert not caplog.text
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:6]))
    assert Recording(tmp_path).rounds == [0, 1, 2]
    assert "not closed" in caplog.text


def test_a_number_beyond_the_stored_type_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "one", parameters=SMALL, holds="deltas")
    huge = {"a": (small(0), 1), "b": (small(-1e39, np.float64), 1)}
    with pytest.raises(InputError, match=r"1e\+39 in 'weight' of what client b sent in round 0.*dtype='float64'"):
        recorder.round(0, None, huge)
    assert not (tmp_path / "one").exists()
    with Recorder(tmp_path / "two", parameters=SMALL, holds="deltas", dtype="float64") as recorder:
        recorder.round(0, None, huge)
    (view,) = Recording(tmp_path / "two").views()
    assert view.deltas["bias"].double().min() == -1e39


def test_a_round_number_is_given_once_and_none_to_a_closed_recorder(tmp_path: Path) -> None:
    with Recorder(tmp_path, parameters=SMALL, key=KEY) as recorder:
        recorder.round(3, small(0), {"a": (small(1), 1)})
        before = written(tmp_path)
        with pytest.raises(InputError, match=r"round 3.*resume_at=3"):
            recorder.round(3, small(0), {"a": (small(2), 1)})
        assert written(tmp_path) == before
    recorder.close()
    with pytest.raises(InputError, match="resume_at=4"):
        recorder.round(4, small(0), {"a": (small(2), 1)})
    with Recorder(tmp_path, parameters=SMALL, key=KEY, resume_at=4) as recorder:
        with pytest.raises(InputError, match="resume_at=3"):
            recorder.round(3, small(0), {"a": (small(2), 1)})
        recorder.round(4, small(0), {"a": (small(2), 1)})
    assert Recording(tmp_path).rounds == [3, 4]


@pytest.mark.parametrize(
    "examples", [0.5, 1.9, "7", True, float("nan"), float("inf"), [3], None, 2**60, np.float64(2.7), -1], ids=repr
)
def test_examples_that_are_no_whole_number_are_refused(tmp_path: Path, examples: Any) -> None:
    recorder = Recorder(tmp_path / "one", parameters=SMALL)
    with pytest.raises(InputError, match="examples"):
        recorder.round(0, small(0), {"a": (small(1), examples)})
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("examples", [3, 3.0, np.int64(3), torch.tensor(3), np.array(3)], ids=repr)
def test_examples_of_any_type_are_recorded_as_given(tmp_path: Path, examples: Any) -> None:
    Recorder(tmp_path, parameters=SMALL).round(0, small(0), {"a": (small(1), examples)})
    (view,) = Recording(tmp_path).views()
    assert view.example_counts.tolist() == [3]


def test_disk_full_keeps_finished_rounds(tmp_path: Path) -> None:
    """The kernel refuses files of more bytes, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Recorder(tmp_path, parameters=SMALL) as recorder:
        recorder.round(0, small(0), {"a": (small(1), 1)})
        before = written(tmp_path)
        size = (tmp_path / "journal.jsonl").stat().st_size
        for limit in (100, size + 100):  # a shard does not fit; half a line of the journal does
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            try:
                with pytest.raises(InputError, match="round 1"):
                    recorder.round(1, small(0), {"a": (small(2), 1)})
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert written(tmp_path) == before
        recorder.round(2, small(0), {"a": (small(3), 1)})
    recording = Recording(tmp_path)
    assert recording.rounds == [0, 2]
    assert recording.closed


def test_a_round_costs_the_same_after_many_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counting(path: Path) -> Any:
        read.append(path)
        return read_journal(path)

    monkeypatch.setattr("fedleak_recorder.folder.read_journal", counting)
    with Recorder(tmp_path, parameters=SMALL) as recorder:
        for number in range(5):
            recorder.round(number, small(0), {"a": (small(1), 1)})
    assert not read
    assert Recording(tmp_path).closed


def test_a_recording_is_resumed_with_its_key_only(tmp_path: Path) -> None:
    with Recorder(tmp_path, parameters=SMALL, key=KEY) as recorder:
        for number in range(3):
            recorder.round(number, small(0), {"a": (small(number), 1)})
    with pytest.raises(InputError, match="recording"):
        Recorder(tmp_path, parameters=SMALL, key=KEY)
    with pytest.raises(InputError, match="key"):
        Recorder(tmp_path, parameters=SMALL, key=b"o" * 32, resume_at=2).round(2, small(0), {"a": (small(9), 1)})
    with Recorder(tmp_path, parameters=SMALL, key=KEY, resume_at=2) as recorder:
        recorder.round(2, small(0), {"a": (small(9), 1)})
    recording = Recording(tmp_path)
    assert [float(view.deltas["bias"][0, 0]) for view in recording.views()] == [0, 1, 9]
    assert len(recording.pseudonyms()) == 1
    assert recording.closed


@pytest.mark.parametrize(
    ("options", "call", "told"),
    [
        ({}, {"updates": {"a": ({"weight": np.ones((2, 3))}, 1)}}, ["'bias' of shape (2,)", "nothing"]),
        ({}, {"updates": {"a": ([np.ones(2), np.ones((2, 3))], 1)}}, ["'weight' of shape (2, 3)", "another model"]),
        ({}, {"updates": {"a": (small(1), -1)}}, ["a number of examples", "-1"]),
        ({}, {"truth": {"zoe": {"class_counts": [1]}}}, ["truth of 'zoe'", "Correct the names"]),
        ({}, {"truth": {"a": {"class_counts": [0, 0]}}}, ["no example"]),
        ({}, {"served": {"a": [0.5]}}, ["served items as whole numbers"]),
        ({}, {"model": None}, ["'weight' of shape (2, 3)", "nothing in the global model"]),
        ({"parameters": None}, {"model": [np.ones(2)]}, ["the argument parameters"]),
        ({"parameters": {"n": np.int64(1)}}, {}, ["parameters of a type among"]),
        ({"holds": "gradients"}, {}, ["'models' or 'deltas'"]),
        ({"dtype": "float8"}, {}, ["dtype among float64, float32", "'float8'"]),
        ({"key": b"short"}, {}, ["at least 16 bytes"]),
        ({"releases": [{"clip": -1.0}]}, {}, ["clip"]),
        ({"releases": {"clip": 1.0}}, {}, ["a list as releases", "dict"]),
        ({"row_parameters": "weight"}, {}, ["a list as row_parameters", "str"]),
        ({}, {"model": 5}, ["a list as the global model", "int"]),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    tmp_path: Path, options: dict[str, Any], call: dict[str, Any], told: list[str]
) -> None:
    def record() -> None:
        recorder = Recorder(tmp_path, **{"parameters": SMALL, **options})
        recorder.round(0, **{"model": small(0), "updates": {"a": (small(1), 1)}, **call})

    with pytest.raises(InputError) as refused:
        record()
    assert all(part in str(refused.value) for part in told), refused.value


def streamed(folder: Path, clients: int, *, most: int | None = None, fails_at: int | None = None) -> Recording:
    """A round of clients that arrive one after the other; client c sends the delta c, to items c and c + 1."""
    parameters = {"weight": (2, 3), "table": (40, 2)}
    options: dict[str, Any] = {"holds": "deltas", "row_parameters": ["table"], "key": KEY, "clients": most}
    with Recorder(folder, parameters=parameters, **options) as recorder:
        for number in range(2):
            with recorder.streamed(
                number, {name: np.zeros(shape, np.float32) for name, shape in parameters.items()}
            ) as add:
                for client in range(clients):
                    arrays = {
                        "weight": np.full((2, 3), client, np.float32),
                        "table": np.full((2, 2), client, np.float32),
                    }
                    truth = {"number": [client]} if client != fails_at else {}
                    sent = Sent(
                        client=str(client), examples=client, arrays=arrays, served=[client, client + 1], truth=truth
                    )
                    add(sent)
                    arrays["weight"][:] = np.nan  # the caller may use the memory again
    return Recording(folder)


def rows_of(recording: Recording) -> dict[int, list[Any]]:
    """By client's number: its update, rows, served items and examples in round 1."""
    found = {}
    for view in recording.views(rounds=[1]):
        for place, number in enumerate(recording.truth(view)["number"].flatten().tolist()):
            deltas = [value[place].flatten().tolist() for _, value in sorted(view.deltas.items())]
            assert view.served is not None
            found[number] = [*deltas, view.served[place].tolist(), int(view.example_counts[place])]
    return found


def test_groups_of_clients_are_read_as_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows_of(streamed(tmp_path / "whole", 9))
    assert len(whole) == 9
    for size in (1, 100):
        monkeypatch.setattr("fedleak_recorder.writer.GROUP_BYTES", size)
        recording = streamed(tmp_path / str(size), 9)
        assert len(list((tmp_path / str(size)).glob("rounds/000001-*"))) > 1
        assert rows_of(recording) == whole
        assert recording.closed
        assert sum(len(recording.pseudonyms(number)) for number in recording.rounds) == 18


def test_a_round_that_fails_in_a_later_group_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedleak_recorder.writer.GROUP_BYTES", 1)
    with pytest.raises(InputError, match="truth"):
        streamed(tmp_path, 5, fails_at=3)
    assert not list(tmp_path.glob("*/*.safetensors"))
    assert read_journal(tmp_path / "journal.jsonl").lines == [] if (tmp_path / "journal.jsonl").exists() else True


def test_drawn_clients_are_the_same_in_every_round_and_depend_on_the_key(tmp_path: Path) -> None:
    recording = streamed(tmp_path, 9, most=4)
    names = recording.pseudonyms(0)
    assert len(names) == 4 == len(rows_of(recording))
    assert names == recording.pseudonyms(1) == sorted(pseudonym(str(client), KEY) for client in range(9))[:4]
    assert recording.manifest.config["recorded_clients"] == 4


def test_a_client_that_comes_again_in_a_later_group_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedleak_recorder.writer.GROUP_BYTES", 1)
    messages = [Sent(client=name, examples=1, arrays=small(1.0)) for name in ("alice", "bob", "carol", "alice")]
    recorder = Recorder(tmp_path, parameters=SMALL)
    stream = recorder.streamed(0, small(0.0))
    add = stream.__enter__()
    for one in messages[:3]:
        add(one)
    with pytest.raises(InputError, match="alice again"):
        add(messages[3])
    recorder.close()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_deltas_of_two_bytes_stay_as_they_were_sent(tmp_path: Path, dtype: Any) -> None:
    draws = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    model = {name: torch.randn(shape, generator=draws) for name, shape in SMALL.items()}
    sent = {
        client: {name: (0.01 * torch.randn(shape, generator=draws)).to(kind) for name, shape in SMALL.items()}
        for client in CLIENTS
    }
    with Recorder(tmp_path, parameters=model, holds="deltas", dtype=dtype, key=KEY) as recorder:
        recorder.round(0, model, {client: (arrays, 5) for client, arrays in sent.items()})
    view = next(Recording(tmp_path).views())
    order = [pseudonym(client, KEY) for client in CLIENTS]
    for place, name in enumerate(order):
        own = int((view.pseudonyms == name).nonzero())
        for parameter in SMALL:
            assert torch.equal(view.deltas[parameter][own], sent[CLIENTS[place]][parameter].float())
    assert all(torch.equal(view.model[name], value) for name, value in model.items())
    assert view.rounded == SMALL.keys()
    numbers = sum(value.numel() for value in model.values())
    with (tmp_path / "rounds" / "000000-0000.safetensors").open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        assert len(file.read()) - size == 2 * len(CLIENTS) * numbers + 4 * numbers + 16 * len(CLIENTS)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_deltas_of_two_bytes_are_not_rounded(tmp_path: Path, dtype: Any) -> None:
    with (
        Recorder(tmp_path, parameters=SMALL, holds="deltas", dtype=dtype) as recorder,
        pytest.raises(InputError, match=f"numbers that {dtype} holds exactly"),
    ):
        recorder.round(0, None, {"alice": (small(0.1), 5)})
    with pytest.raises(InputError, match="holds='deltas'"):
        Recorder(tmp_path / "models", parameters=SMALL, dtype=dtype)


ODD_URLS: list[Any] = [3, True, "", b"x", {}, [1], torch.zeros(2), Path("x")]


@pytest.mark.parametrize(
    "options",
    [
        *({name: torch.zeros(2)} for name in ("key", "learner", "auxiliary", "system", "versions", "holds", "dtype")),
        *({name: np.zeros(0)} for name in ("learner", "auxiliary", "system", "versions", "copy_to", "parameters")),
        *({"copy_to": url} for url in ODD_URLS),
    ],
)
def test_an_odd_option_is_one_line(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        Recorder(tmp_path / "out", **{"parameters": SMALL, "key": KEY, **options})
    assert "\n" not in str(caught.value)


ODD_GRIDS: list[Any] = [5, (1,), (1, 2, 3), (0, 0), ("a", 0), (np.zeros(2), 0), (np.ones((2, 3)), 0), (np.nan, 0)]
ODD_RECORDS: list[Any] = [5, 0.5, np.zeros(()), torch.tensor(1.0), [1j]]


@pytest.mark.parametrize(
    "given",
    [
        *({name: torch.zeros(2)} for name in ("truth", "served", "participants", "records")),
        *({name: np.zeros(0)} for name in ("truth", "served", "participants", "records")),
        *({name: {None: [1]}} for name in ("truth", "served", "participants", "records")),
        {"truth": {"alice": {None: [1]}}},
        *({"records": {"alice": one}} for one in ODD_RECORDS),
        *(
            {"records": {"alice": np.zeros((2, 3))}, "record_grid": grid}
            for grid in (
                5,
                (1,),
                (1, 2, 3),
                (0, 0),
                ("a", 0),
                (np.zeros(2), 0),
                (np.ones((2, 3)), 0),
                (float("nan"), 0),
            )
        ),
    ],
)
def test_an_odd_argument_of_a_round_is_one_line(given: dict[str, Any], tmp_path: Path) -> None:
    with Recorder(tmp_path / "out", parameters=SMALL, key=KEY) as own, pytest.raises(InputError) as caught:
        own.round(0, small(0.0), {"alice": (small(1.0), 3)}, **given)
    assert "\n" not in str(caught.value)
