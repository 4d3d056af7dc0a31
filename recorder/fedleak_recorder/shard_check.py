"""Checks that the tensors of a shard fit the manifest and each other: names, shapes, types, ranges and values.

A shard is what `safetensors.safe_open` gives, for any framework, or `InMemory`. What does not fit raises `MisfitError`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedleak_recorder.arrays import FLOATS, Array, as_array, dtype_name, is_finite, is_float
from fedleak_recorder.format import (
    ATTRIBUTE,
    ATTRIBUTE_PSEUDONYMS,
    CANDIDATE_LABELS,
    CANDIDATES,
    CLIENT,
    CLIENT_MODEL,
    HOLDOUT_USERS,
    ITEM_FEATURES,
    MODEL,
    POPULARITY_OF_OTHERS,
    PRIOR,
    Manifest,
)

SHOWN = {"served": -1, "lists": -1, "features": 0, "updates": 0}
"""What a server may have of each item that it has shown, with its padding value."""
MESSAGES = "messages"
PARTICIPANTS = "participants"
CLASS_COUNTS = f"{CLIENT}class_counts"
ATTRIBUTES = f"{CLIENT}attributes"
MOST_VALUES = 1000
"""Upper bound of the number of values of an attribute."""
_MOST = 2**48
"""Upper bound of every number of examples."""
_LONGEST_LIST = 10
"""Documents of a list; the number of cases that attacks enumerate doubles with each."""
_KNOWN = ("known_pseudonyms", "known_users")
_PRIOR = ("prior_features", "prior_labels", "prior_users")
_WHOLE_AUXILIARY = {
    **dict.fromkeys(("labels", *_KNOWN, _PRIOR[2], HOLDOUT_USERS, CANDIDATE_LABELS), 1),
    POPULARITY_OF_OTHERS: 2,
    "public_interactions": 2,
}
"""Auxiliary tensors of whole numbers, with their numbers of dimensions."""
_WHOLE = ("int64", "int32", "int16", "int8", "uint8")


class MisfitError(Exception):
    """A tensor that does not fit; the message names it and the reason."""


class InMemory:
    """Arrays in memory with the interface of an opened safetensors file."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    def keys(self) -> list[str]:
        return list(self._arrays)

    def get_tensor(self, name: str) -> Array:
        return self._arrays[name]

    def get_slice(self, name: str) -> "_Part":
        return _Part(self._arrays[name])


class _Part:
    def __init__(self, array: Array) -> None:
        self._array = array

    def get_shape(self) -> list[int]:
        return list(self._array.shape)

    def __getitem__(self, rows: slice) -> Array:
        return self._array[rows]


def _read(shard: Any, key: str) -> Array:
    return as_array(shard.get_tensor(key))


def check_seen(shard: Any, manifest: Manifest) -> None:
    """Checks that a server of that system can have seen a shard of ``rounds/``; of deltas, shapes and types only."""
    shapes = {key: shard.get_slice(key).get_shape() for key in shard.keys()}  # noqa: SIM118
    items = bool(manifest.row_parameters) or any(key in shapes for key in (*SHOWN, ITEM_FEATURES))
    for key in ("clients", "counts", *(("offsets", "served") if items else ())):
        _need(key in shapes, f"no tensor {key!r}")
    clients = _check_clients(shard, shapes)
    rows = _check_items(shard, shapes, clients, manifest) if items else 0
    _check_deltas(shard, shapes, manifest, clients, rows)
    _check_model(shard, shapes, manifest)
    _check_client_models(shard, shapes, clients)


def common_shapes(shard: Any) -> dict[str, tuple[int, ...]]:
    """Shapes that all rounds share: of the global model's parameters, and of the features of one served item."""
    shapes = {key: tuple(shard.get_slice(key).get_shape()) for key in shard.keys()}  # noqa: SIM118
    common = {key: shape for key, shape in shapes.items() if key.startswith(MODEL)}
    features = next((shapes[key][1:] for key in ("features", ITEM_FEATURES) if key in shapes), None)
    return common if features is None else {**common, "features": features}


def check_common(shard: Any, common: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that the shapes of model and features equal those of another round."""
    own = common_shapes(shard)
    for key in sorted(own.keys() | common.keys()):
        found, before = own.get(key), common.get(key)
        _need(found == before, f"{key!r} of shape {found}, where another round has {before}")


def check_truth(shard: Any, seen: Any) -> None:
    """Checks that a shard of ``truth/`` is about the clients and items of its round."""
    held = {key: _read(shard, key) for key in shard.keys()}  # noqa: SIM118
    clients = seen.get_slice("clients").get_shape()[0]
    own = {key: value for key, value in held.items() if key == "clients" or key.startswith(CLIENT)}
    of_items = {key: value for key, value in held.items() if key not in own and key != "offsets"}
    _need("clients" in own, "no tensor 'clients'")
    for key, value in own.items():
        _check_rows(key, value, clients, "clients")
        _check_numbers(key, value)
    _check_distinct("clients", _whole("clients", own["clients"], None))
    if f"{CLIENT}user" in own:
        _whole(f"{CLIENT}user", own[f"{CLIENT}user"], 1)
    if ATTRIBUTES in own:
        _check_attribute(ATTRIBUTES, own[ATTRIBUTES], 2)
    if CLASS_COUNTS in own:
        counts = own[CLASS_COUNTS]
        _need(counts.ndim == 2 and counts.shape[1], f"{CLASS_COUNTS!r} of shape {tuple(counts.shape)}, not (C, K)")
        numbers = counts.astype(np.float64)
        right = bool(((numbers >= 0) & (numbers <= _MOST)).all()) and bool((numbers.sum(1) > 0).all())
        _need(right, f"{CLASS_COUNTS!r} with a negative or impossible number, or with a client that has no example")
    if of_items or "offsets" in held:
        _check_item_truth(held, of_items, seen)


def _check_item_truth(held: Mapping[str, Array], of_items: Mapping[str, Array], seen: Any) -> None:
    served = "served" in set(seen.keys())
    _need(served, f"{next(iter(of_items), 'offsets')!r} of items, where the round served none")
    offsets = held.get("offsets")
    same = offsets is not None and offsets.dtype == np.int64 and np.array_equal(offsets, _read(seen, "offsets"))
    _need(same, "'offsets' that are not those of the round")
    rows = seen.get_slice("served").get_shape()[0]
    for key, value in of_items.items():
        _check_rows(key, value, rows)
        _check_numbers(key, value)
    if "labels" in of_items:
        labels = of_items["labels"]
        _need(((labels >= 0) & (labels <= 1)).all(), "'labels' outside of 0 to 1")


def check_auxiliary(tensors: Mapping[str, Any]) -> None:
    """Checks auxiliary data."""
    held = {name: as_array(value) for name, value in tensors.items()}
    for name, value in held.items():
        _check_numbers(name, value)
        _need(value.ndim, f"{name!r} without a dimension")
    if "images" in held:
        images = held["images"]
        right = images.ndim > 1 and images.size
        _need(right, f"'images' of shape {tuple(images.shape)}, not (M, channels, height, width) or (M, features)")
    for group in (("images", "labels"), _KNOWN, _PRIOR, (CANDIDATES, CANDIDATE_LABELS)):
        lengths = [len(held[name]) for name in group if name in held]
        right = not lengths or (len(lengths) == len(group) and len(set(lengths)) == 1)
        _need(right, f"not one length, or not all, of {', '.join(group)}")
    for name in (name for name in _WHOLE_AUXILIARY if name in held and (name != "labels" or "images" in held)):
        _whole(name, held[name], _WHOLE_AUXILIARY[name])
    if _KNOWN[0] in held:
        _check_distinct(_KNOWN[0], held[_KNOWN[0]])
    of_people = [name for name in held if name == ATTRIBUTE_PSEUDONYMS or name.startswith(ATTRIBUTE)]
    if of_people:
        right = ATTRIBUTE_PSEUDONYMS in of_people and len({len(held[name]) for name in of_people}) == 1
        _need(right, f"attributes of people without {ATTRIBUTE_PSEUDONYMS!r}, or not of one length")
        _check_distinct(ATTRIBUTE_PSEUDONYMS, _whole(ATTRIBUTE_PSEUDONYMS, held[ATTRIBUTE_PSEUDONYMS], 1))
        for name in of_people:
            _check_attribute(name, held[name], 1)
    if POPULARITY_OF_OTHERS in held:
        _need(held[POPULARITY_OF_OTHERS].size, f"{POPULARITY_OF_OTHERS!r} without numbers")


def _check_attribute(name: str, value: Array, dimensions: int) -> None:
    right = value.ndim == dimensions and dtype_name(value) in _WHOLE and bool((value >= -1).all())
    right = right and (name == ATTRIBUTE_PSEUDONYMS or bool((value < MOST_VALUES).all()))
    _need(right, f"{name!r} with other values than whole numbers from -1 (unknown) to below {MOST_VALUES}")


def _check_clients(shard: Any, shapes: Mapping[str, list[int]]) -> int:
    """Checks what the server has of each client next to its update, and returns the number of clients."""
    shape = shapes["clients"]
    _need(len(shape) == 1 and shape[0], f"'clients' of shape {tuple(shape)}, not (C,)")
    names = _read(shard, "clients")
    _need(names.dtype == np.int64, f"'clients' of {names.dtype}, not int64")
    _check_distinct("clients", names)
    counts = _whole("counts", _read(shard, "counts"), 1)
    _need(len(counts) == len(names), f"'counts' of {len(counts)} clients, not {len(names)}")
    _need(int(counts.max()) <= _MOST, "'counts' with an impossible number")
    for key in (key for key in shapes if key == MESSAGES or key.startswith(PRIOR)):
        value = _read(shard, key)
        _check_rows(key, value, len(names), "clients")
        _check_numbers(key, value)
    if PARTICIPANTS in shapes:
        _check_participants(_read(shard, PARTICIPANTS), len(names))
    if MESSAGES in shapes:
        _need(int(_whole(MESSAGES, _read(shard, MESSAGES), 1).min()) >= 1, f"{MESSAGES!r} with none")
    return len(names)


def _check_participants(names: Array, clients: int) -> None:
    """Checks the clients whose updates each message sums up: ``(C, P)`` pseudonyms, padded with -1."""
    _check_rows(PARTICIPANTS, names, clients, "clients")
    right = names.ndim == 2 and names.dtype == np.int64 and bool((names >= -1).all())
    _need(right, f"{PARTICIPANTS!r} of shape {tuple(names.shape)} and {names.dtype}, not (C, P) pseudonyms of int64")
    ordered = np.sort(names, axis=1)
    twice = bool(((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0)).any())
    _need(not twice and bool((names >= 0).any(1).all()), f"{PARTICIPANTS!r} with none, or with a client twice in a sum")


def _check_items(shard: Any, shapes: Mapping[str, list[int]], clients: int, manifest: Manifest) -> int:
    """Checks what was shown, and returns the number of rows."""
    served, offsets = _whole("served", _read(shard, "served"), 1), _read(shard, "offsets")
    rows, largest = len(served), int(served.max()) if len(served) else -1
    right = offsets.dtype == np.int64 and offsets.shape == (clients + 1,)
    right = right and [int(offsets[0]), int(offsets[-1])] == [0, rows] and bool((np.diff(offsets) >= 0).all())
    _need(right, "offsets that do not fit the clients and rows")
    owner = np.repeat(np.arange(clients), np.diff(offsets))
    places = [owner]
    if "lists" in shapes:
        lists = _whole("lists", _read(shard, "lists"), 1)
        _check_rows("lists", lists, rows)
        _need(not ((np.diff(lists) < 0) & (np.diff(owner) == 0)).any(), "'lists' that are not one after the other")
        _need(
            max(_repetitions(owner, lists), default=0) <= _LONGEST_LIST,
            f"'lists' of more than {_LONGEST_LIST} documents",
        )
        places.append(lists)
    if "updates" in shapes:
        updates = _whole("updates", _read(shard, "updates"), 1)
        _check_rows("updates", updates, rows)
        _need((updates <= _MOST).all(), "'updates' with an impossible number")
    if "features" in shapes:
        _check_rows("features", _features("features", shard), rows)
        _need(ITEM_FEATURES not in shapes, f"both 'features' and {ITEM_FEATURES!r}")
    if ITEM_FEATURES in shapes:
        items = len(_features(ITEM_FEATURES, shard))
        _need(largest < items, f"'served' with item {largest} of {items} in {ITEM_FEATURES!r}")
    for items in (int(manifest.parameters[name]["shape"][0]) for name in manifest.row_parameters):
        _need(largest < items, f"'served' with item {largest} of {items}")
    _need(len(_repetitions(*places, served)) == rows, "'served' with an item twice for one client")
    return rows


def _repetitions(*columns: Array) -> Array:
    """How often each distinct row of a table occurs; faster than `numpy.unique` with an axis."""
    order = np.lexsort(columns)
    ordered = [column[order] for column in columns]
    new = np.concatenate([[True], np.any([np.diff(column) != 0 for column in ordered], axis=0)])[: len(order)]
    return np.diff(np.append(np.flatnonzero(new), len(order)))


def _features(key: str, shard: Any) -> Array:
    features = _read(shard, key)
    _check_numbers(key, features)
    right = features.ndim == 2 and is_float(features)
    _need(right, f"{key!r} of shape {tuple(features.shape)} and {features.dtype}, not (I, F) of floats")
    return features


def _check_deltas(shard: Any, shapes: Mapping[str, list[int]], manifest: Manifest, clients: int, rows: int) -> None:
    wanted = {}
    for name, described in manifest.parameters.items():
        if name in manifest.row_parameters:
            wanted[f"rows/{name}"] = ([rows, *described["shape"][1:]], described["dtype"])
        else:
            wanted[f"deltas/{name}"] = ([clients, *described["shape"]], described["dtype"])
    for key, (shape, dtype) in wanted.items():
        _need(key in shapes, f"no tensor {key!r}")
        _need(shapes[key] == shape, f"{key!r} of shape {shapes[key]}, not {shape}")
        _need(dtype_name(shard.get_slice(key)[:0]) == dtype, f"{key!r} of another type than {dtype}")
    for key in shapes:
        known = not key.startswith(("deltas/", "rows/")) or key in wanted
        _need(known, f"{key!r}, which the manifest does not describe")


def _check_model(shard: Any, shapes: Mapping[str, list[int]], manifest: Manifest) -> None:
    model = {key.removeprefix(MODEL): key for key in shapes if key.startswith(MODEL)}
    _need(manifest.learner is None or model, "no global model, without which the learner means nothing")
    for name, key in model.items():
        tensor = shard.get_tensor(key)
        value = as_array(tensor)
        expected = list(manifest.parameters.get(name, {}).get("shape", shapes[key]))
        _need(shapes[key] == expected, f"{key!r} of shape {shapes[key]}, not {expected}")
        right = dtype_name(tensor) in FLOATS and value.size
        _need(right, f"{key!r} of {dtype_name(tensor)} and {value.size} numbers")
        _check_numbers(key, value)
    for name in (name for release in manifest.releases for name in release["parameters"]):
        known = name in manifest.parameters or name in model
        _need(known, f"no parameter {name!r}, of which the manifest has a release")


def _check_client_models(shard: Any, shapes: Mapping[str, list[int]], clients: int) -> None:
    """Either no client has a model of its own, or all have complete ones."""
    own = {key.removeprefix(CLIENT_MODEL): key for key in shapes if key.startswith(CLIENT_MODEL)}
    model = {key.removeprefix(MODEL): shapes[key] for key in shapes if key.startswith(MODEL)}
    for name in sorted(own.keys() ^ model.keys()) if own else ():
        raise MisfitError(f"{name!r} in one of {MODEL!r} and {CLIENT_MODEL!r} only")
    for name, key in own.items():
        value, expected = _read(shard, key), [clients, *model[name]]
        _need(shapes[key] == expected, f"{key!r} of shape {shapes[key]}, not {expected}")
        _need(is_float(value), f"{key!r} of {value.dtype}, not of floats")
        _check_numbers(key, value)


def _check_rows(key: str, value: Array, rows: int, of: str = "rows") -> None:
    _need(value.ndim and len(value) == rows, f"{key!r} of shape {tuple(value.shape)}, not of {rows} {of}")


def _check_numbers(key: str, value: Array) -> None:
    _need(value.dtype == np.bool_ or is_finite(value), f"NaN, infinity or complex numbers in {key!r}")


def _check_distinct(key: str, names: Array) -> None:
    _need(len(np.unique(names)) == names.size, f"{key!r} with the same name twice")


def _whole(key: str, value: Array, dim: int | None) -> Array:
    """The array, checked to hold whole numbers from 0."""
    _need(dim is None or value.ndim == dim, f"{key!r} of shape {tuple(value.shape)}")
    _need(value.dtype.name in _WHOLE, f"{key!r} of {value.dtype}, not of whole numbers")
    _need(not value.size or int(value.min()) >= 0, f"{key!r} with a negative number")
    return value.astype(np.int64, copy=False)


def _need(right: object, problem: str) -> None:
    if not right:
        raise MisfitError(problem)
