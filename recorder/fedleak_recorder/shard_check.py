"""Checks that the tensors of a shard fit the manifest and each other: names, shapes, types, ranges and values.

A shard is what `safetensors.safe_open` gives, for any framework, or an `InMemoryShard`. What does not fit raises
`MisfitError`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedleak_recorder.arrays import FLOATS, Array, as_array, dtype_name, is_float
from fedleak_recorder.format import CLIENT, CLIENT_MODEL, ITEM_FEATURES, MODEL, PRIOR, Manifest
from fedleak_recorder.tensor_checks import (
    MisfitError,
    check_attribute,
    check_distinct,
    check_numbers,
    check_rows,
    need,
    whole_numbers,
)

SHOWN = {"served": -1, "lists": -1, "features": 0, "updates": 0}
"""What a server may have of each item that it has shown, with its padding value."""
MESSAGES = "messages"
PARTICIPANTS = "participants"
CLASS_COUNTS = f"{CLIENT}class_counts"
TREES = "trees"
"""Name of the learner whose clients send trees, and of the parameter that holds them."""
ATTRIBUTES = f"{CLIENT}attributes"
_MOST = 2**48
"""Upper bound of every number of examples."""
_LONGEST_LIST = 10
"""Documents of a list; the number of cases that attacks enumerate doubles with each."""


def _read(shard: Any, key: str) -> Array:
    return as_array(shard.get_tensor(key))


def check_seen(shard: Any, manifest: Manifest) -> None:
    """Checks that a server of that system can have seen a shard of ``rounds/``; of deltas, shapes and types only."""
    shapes = {key: shard.get_slice(key).get_shape() for key in shard.keys()}  # noqa: SIM118
    has_items = bool(manifest.row_parameters) or any(key in shapes for key in (*SHOWN, ITEM_FEATURES))
    required = ["clients", "counts"]
    if has_items:
        required += ["offsets", "served"]
    for key in required:
        need(key in shapes, f"no tensor {key!r}")
    clients = _check_clients(shard, shapes)
    rows = 0
    if has_items:
        rows = _check_items(shard, shapes, clients, manifest)
    _check_deltas(shard, shapes, manifest, clients, rows)
    _check_model(shard, shapes, manifest)
    _check_client_models(shard, shapes, clients)


def common_shapes(shard: Any) -> dict[str, tuple[int, ...]]:
    """Shapes that all rounds share: of the global model's parameters, and of the features of one served item."""
    shapes = {key: tuple(shard.get_slice(key).get_shape()) for key in shard.keys()}  # noqa: SIM118
    common = {key: shape for key, shape in shapes.items() if key.startswith(MODEL)}
    for key in ("features", ITEM_FEATURES):
        if key in shapes:
            # The first dimension counts items, of which each round serves others.
            common["features"] = shapes[key][1:]
            break
    return common


def check_common(shard: Any, common: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that the shapes of model and features equal those of another round."""
    shapes = common_shapes(shard)
    for key in sorted(shapes.keys() | common.keys()):
        shape = shapes.get(key)
        before = common.get(key)
        need(shape == before, f"{key!r} of shape {shape}, where another round has {before}")


def check_truth(shard: Any, round_shard: Any) -> None:
    """Checks that a shard of ``truth/`` is about the clients and items of its round."""
    of_clients = {}
    of_items = {}
    offsets = None
    for key in shard.keys():  # noqa: SIM118
        value = _read(shard, key)
        if key == "clients" or key.startswith(CLIENT):
            of_clients[key] = value
        elif key == "offsets":
            offsets = value
        else:
            of_items[key] = value
    need("clients" in of_clients, "no tensor 'clients'")
    clients = round_shard.get_slice("clients").get_shape()[0]
    for key, value in of_clients.items():
        check_rows(key, value, clients, "clients")
        check_numbers(key, value)
    check_distinct("clients", whole_numbers("clients", of_clients["clients"], None))
    if f"{CLIENT}user" in of_clients:
        whole_numbers(f"{CLIENT}user", of_clients[f"{CLIENT}user"], 1)
    if ATTRIBUTES in of_clients:
        check_attribute(ATTRIBUTES, of_clients[ATTRIBUTES], 2)
    if CLASS_COUNTS in of_clients:
        _check_class_counts(of_clients[CLASS_COUNTS])
    if of_items or offsets is not None:
        _check_item_truth(offsets, of_items, round_shard)


def _check_class_counts(counts: Array) -> None:
    """Checks ``(C, K)`` examples of each class: none negative, and at least one example of each client."""
    need(counts.ndim == 2 and counts.shape[1], f"{CLASS_COUNTS!r} of shape {tuple(counts.shape)}, not (C, K)")
    numbers = counts.astype(np.float64)
    are_in_range = bool(((numbers >= 0) & (numbers <= _MOST)).all())
    are_possible = are_in_range and bool((numbers.sum(1) > 0).all())
    need(are_possible, f"{CLASS_COUNTS!r} with a negative or impossible number, or with a client that has no example")


def _check_item_truth(offsets: Array | None, of_items: Mapping[str, Array], round_shard: Any) -> None:
    """Checks truth of the served items: one row for each, divided among clients as the server saw them."""
    is_served = "served" in set(round_shard.keys())
    need(is_served, f"{next(iter(of_items), 'offsets')!r} of items, where the round served none")
    is_same = (
        offsets is not None and offsets.dtype == np.int64 and np.array_equal(offsets, _read(round_shard, "offsets"))
    )
    need(is_same, "'offsets' that are not those of the round")
    rows = round_shard.get_slice("served").get_shape()[0]
    for key, value in of_items.items():
        check_rows(key, value, rows)
        check_numbers(key, value)
    if "labels" in of_items:
        labels = of_items["labels"]
        need(((labels >= 0) & (labels <= 1)).all(), "'labels' outside of 0 to 1")


def _check_clients(shard: Any, shapes: Mapping[str, list[int]]) -> int:
    """Checks what the server has of each client next to its update, and returns the number of clients."""
    shape = shapes["clients"]
    need(len(shape) == 1 and shape[0], f"'clients' of shape {tuple(shape)}, not (C,)")
    names = _read(shard, "clients")
    need(names.dtype == np.int64, f"'clients' of {names.dtype}, not int64")
    check_distinct("clients", names)
    counts = whole_numbers("counts", _read(shard, "counts"), 1)
    need(len(counts) == len(names), f"'counts' of {len(counts)} clients, not {len(names)}")
    need(int(counts.max()) <= _MOST, "'counts' with an impossible number")
    # What the server is assumed to know, and how many messages each sum has, are by client too.
    for key in shapes:
        if key == MESSAGES or key.startswith(PRIOR):
            value = _read(shard, key)
            check_rows(key, value, len(names), "clients")
            check_numbers(key, value)
    if PARTICIPANTS in shapes:
        _check_participants(_read(shard, PARTICIPANTS), len(names))
    if MESSAGES in shapes:
        messages = whole_numbers(MESSAGES, _read(shard, MESSAGES), 1)
        need(int(messages.min()) >= 1, f"{MESSAGES!r} with none")
    return len(names)


def _check_participants(names: Array, clients: int) -> None:
    """Checks the clients whose updates each message sums up: ``(C, P)`` pseudonyms, padded with -1."""
    check_rows(PARTICIPANTS, names, clients, "clients")
    are_pseudonyms = names.ndim == 2 and names.dtype == np.int64 and bool((names >= -1).all())
    description = f"shape {tuple(names.shape)} and {names.dtype}"
    need(are_pseudonyms, f"{PARTICIPANTS!r} of {description}, not (C, P) pseudonyms of int64")
    # Equal neighbours in the sorted row are one client twice, unless both are padding.
    ordered = np.sort(names, axis=1)
    has_repetition = bool(((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0)).any())
    has_somebody = bool((names >= 0).any(1).all())
    need(not has_repetition and has_somebody, f"{PARTICIPANTS!r} with none, or with a client twice in a sum")


def _check_items(shard: Any, shapes: Mapping[str, list[int]], clients: int, manifest: Manifest) -> int:
    """Checks what was shown, and returns the number of rows."""
    served = whole_numbers("served", _read(shard, "served"), 1)
    rows = len(served)
    owner = _owners(_read(shard, "offsets"), clients, rows)
    # An item stands once for each client, or once in each of a client's lists.
    columns = [owner]
    if "lists" in shapes:
        lists = whole_numbers("lists", _read(shard, "lists"), 1)
        _check_lists(lists, owner)
        columns.append(lists)
    if "updates" in shapes:
        updates = whole_numbers("updates", _read(shard, "updates"), 1)
        check_rows("updates", updates, rows)
        need((updates <= _MOST).all(), "'updates' with an impossible number")
    largest = int(served.max()) if rows else -1
    if "features" in shapes:
        check_rows("features", _features("features", shard), rows)
        need(ITEM_FEATURES not in shapes, f"both 'features' and {ITEM_FEATURES!r}")
    if ITEM_FEATURES in shapes:
        items = len(_features(ITEM_FEATURES, shard))
        need(largest < items, f"'served' with item {largest} of {items} in {ITEM_FEATURES!r}")
    for name in manifest.row_parameters:
        items = int(manifest.parameters[name]["shape"][0])
        need(largest < items, f"'served' with item {largest} of {items}")
    need(len(_repetitions(*columns, served)) == rows, "'served' with an item twice for one client")
    return rows


def _owners(offsets: Array, clients: int, rows: int) -> Array:
    """``(R,)`` place of the client of each row; rows ``offsets[c]`` to ``offsets[c + 1]`` are those of client c."""
    are_offsets = offsets.dtype == np.int64 and offsets.shape == (clients + 1,)
    if are_offsets:
        covers_all_rows = [int(offsets[0]), int(offsets[-1])] == [0, rows]
        are_offsets = covers_all_rows and bool((np.diff(offsets) >= 0).all())
    need(are_offsets, "offsets that do not fit the clients and rows")
    return np.repeat(np.arange(clients), np.diff(offsets))


def _check_lists(lists: Array, owner: Array) -> None:
    """Checks the number of the list of each row: a client's lists follow each other, and none is too long."""
    check_rows("lists", lists, len(owner))
    goes_back = (np.diff(lists) < 0) & (np.diff(owner) == 0)
    need(not goes_back.any(), "'lists' that are not one after the other")
    longest = max(_repetitions(owner, lists), default=0)
    need(longest <= _LONGEST_LIST, f"'lists' of more than {_LONGEST_LIST} documents")


def _repetitions(*columns: Array) -> Array:
    """How often each distinct row of a table occurs; faster than `numpy.unique` with an axis."""
    order = np.lexsort(columns)
    ordered = [column[order] for column in columns]
    # In order, a row that differs from the one before begins a run of equal rows; the first row does. The cut is for
    # a table without rows.
    differs = np.any([np.diff(column) != 0 for column in ordered], axis=0)
    is_new = np.concatenate([[True], differs])[: len(order)]
    starts = np.flatnonzero(is_new)
    return np.diff(np.append(starts, len(order)))


def _features(key: str, shard: Any) -> Array:
    """``(I, F)`` features of items, checked to be finite floating-point numbers."""
    features = _read(shard, key)
    check_numbers(key, features)
    is_table = features.ndim == 2 and is_float(features)
    need(is_table, f"{key!r} of shape {tuple(features.shape)} and {features.dtype}, not (I, F) of floats")
    return features


def _check_deltas(shard: Any, shapes: Mapping[str, list[int]], manifest: Manifest, clients: int, rows: int) -> None:
    """Checks that exactly the deltas that the manifest describes are there: of tables, the rows of served items."""
    expected = {}
    for name, described in manifest.parameters.items():
        if name in manifest.row_parameters:
            expected[f"rows/{name}"] = ([rows, *described["shape"][1:]], described["dtype"])
        else:
            expected[f"deltas/{name}"] = ([clients, *described["shape"]], described["dtype"])
    for key, (shape, dtype) in expected.items():
        need(key in shapes, f"no tensor {key!r}")
        need(shapes[key] == shape, f"{key!r} of shape {shapes[key]}, not {shape}")
        # A slice without rows has the type, and reads no numbers.
        need(dtype_name(shard.get_slice(key)[:0]) == dtype, f"{key!r} of another type than {dtype}")
    for key in shapes:
        is_described = not key.startswith(("deltas/", "rows/")) or key in expected
        need(is_described, f"{key!r}, which the manifest does not describe")


def _check_model(shard: Any, shapes: Mapping[str, list[int]], manifest: Manifest) -> None:
    """Checks the global model, which may have more parameters than those of which deltas are recorded."""
    model = {key.removeprefix(MODEL): key for key in shapes if key.startswith(MODEL)}
    need(manifest.learner is None or model, "no global model, without which the learner means nothing")
    for name, key in model.items():
        tensor = shard.get_tensor(key)
        value = as_array(tensor)
        expected = shapes[key]
        # Of parameters without recorded deltas, the manifest has no shape.
        if name in manifest.parameters:
            expected = list(manifest.parameters[name]["shape"])
        # A forest has room for more trees than a client sends in a round.
        if is_forest(manifest, name) and len(shapes[key]) == len(expected):
            expected[0] = shapes[key][0]
        need(shapes[key] == expected, f"{key!r} of shape {shapes[key]}, not {expected}")
        is_filled = dtype_name(tensor) in FLOATS and value.size
        need(is_filled, f"{key!r} of {dtype_name(tensor)} and {value.size} numbers")
        check_numbers(key, value)
    for release in manifest.releases:
        for name in release["parameters"]:
            is_recorded = name in manifest.parameters or name in model
            need(is_recorded, f"no parameter {name!r}, of which the manifest has a release")


def is_forest(manifest: Manifest, name: str) -> bool:
    """Whether a parameter holds trees, of which the model has those of all rounds, and a message new ones."""
    return manifest.learner is not None and manifest.learner.get("name") == TREES == name


def _check_client_models(shard: Any, shapes: Mapping[str, list[int]], clients: int) -> None:
    """Either no client has a model of its own, or all have complete ones."""
    client_keys = {key.removeprefix(CLIENT_MODEL): key for key in shapes if key.startswith(CLIENT_MODEL)}
    if not client_keys:
        return
    model = {key.removeprefix(MODEL): shapes[key] for key in shapes if key.startswith(MODEL)}
    for name in sorted(client_keys.keys() ^ model.keys()):
        raise MisfitError(f"{name!r} in one of {MODEL!r} and {CLIENT_MODEL!r} only")
    for name, key in client_keys.items():
        value = _read(shard, key)
        expected = [clients, *model[name]]
        need(shapes[key] == expected, f"{key!r} of shape {shapes[key]}, not {expected}")
        need(is_float(value), f"{key!r} of {value.dtype}, not of floats")
        check_numbers(key, value)
