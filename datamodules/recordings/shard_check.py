"""Checks that the tensors of a shard fit the manifest and each other: names, shapes, types, ranges and values."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from datamodules.recordings.adversary_devices import HOLDOUT_USERS, POPULARITY_OF_OTHERS
from datamodules.recordings.format import CLIENT, CLIENT_MODEL, ITEM_FEATURES, MODEL, PRIOR, Manifest, dtype_of

SHOWN = {"served": -1, "lists": -1, "features": 0, "updates": 0}
"""What a server may have of each item that it has shown, with its padding value."""
MESSAGES = "messages"
CLASS_COUNTS = f"{CLIENT}class_counts"
_MOST = 2**48
"""Upper bound of every number of examples."""
_LONGEST_LIST = 10
"""Documents of a list; the number of cases that attacks enumerate doubles with each."""
_KNOWN = ("known_pseudonyms", "known_users")
_PRIOR = ("prior_features", "prior_labels", "prior_users")
_WHOLE_AUXILIARY = {"labels": 1, _KNOWN[0]: 1, _KNOWN[1]: 1, _PRIOR[2]: 1, POPULARITY_OF_OTHERS: 2, HOLDOUT_USERS: 1}
"""Auxiliary tensors of whole numbers, with their numbers of dimensions."""
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class MisfitError(Exception):
    """A tensor that does not fit; the message names it and the reason."""


class InMemory:
    """Tensors in memory with the interface of an opened safetensors file.

    Args:
        tensors: tensors by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def keys(self) -> list[str]:
        return list(self._tensors)

    def get_tensor(self, name: str) -> Tensor:
        return self._tensors[name]

    def get_slice(self, name: str) -> "_Part":
        return _Part(self._tensors[name])


class _Part:
    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def __getitem__(self, rows: slice) -> Tensor:
        return self._tensor[rows]


def check_seen(shard: Any, manifest: Manifest) -> None:
    """Checks that a server of the described system can have seen a shard of ``rounds/``.

    Args:
        shard: the opened file; deltas are checked by shape and type only, their values when they are read.
        manifest: manifest of the recording.

    Raises:
        MisfitError: something contradicts the manifest or another tensor.
    """
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
    """Checks that the shapes of model and features equal those of another round.

    Raises:
        MisfitError: with the first difference.
    """
    own = common_shapes(shard)
    for key in sorted(own.keys() | common.keys()):
        found, before = own.get(key), common.get(key)
        _need(found == before, f"{key!r} of shape {found}, where another round has {before}")


def check_truth(shard: Any, seen: Any) -> None:
    """Checks that a shard of ``truth/`` is about the clients and items of its round.

    Raises:
        MisfitError: a client or an item is missing, or a number is impossible.
    """
    held = {key: shard.get_tensor(key) for key in shard.keys()}  # noqa: SIM118
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
    if CLASS_COUNTS in own:
        counts = own[CLASS_COUNTS]
        _need(counts.dim() == 2 and counts.shape[1], f"{CLASS_COUNTS!r} of shape {tuple(counts.shape)}, not (C, K)")
        numbers = counts.double()
        right = bool(((numbers >= 0) & (numbers <= _MOST)).all()) and bool((numbers.sum(1) > 0).all())
        _need(right, f"{CLASS_COUNTS!r} with a negative or impossible number, or with a client that has no example")
    if of_items or "offsets" in held:
        _check_item_truth(held, of_items, seen)


def _check_item_truth(held: Mapping[str, Tensor], of_items: Mapping[str, Tensor], seen: Any) -> None:
    served = "served" in set(seen.keys())
    _need(served, f"{next(iter(of_items), 'offsets')!r} of items, where the round served none")
    same = "offsets" in held and torch.equal(held["offsets"], seen.get_tensor("offsets"))
    _need(same, "'offsets' that are not those of the round")
    rows = seen.get_slice("served").get_shape()[0]
    for key, value in of_items.items():
        _check_rows(key, value, rows)
        _check_numbers(key, value)
    if "labels" in of_items:
        labels = of_items["labels"]
        _need(((labels >= 0) & (labels <= 1)).all(), "'labels' outside of 0 to 1")


def check_auxiliary(held: Mapping[str, Tensor]) -> None:
    """Checks auxiliary data.

    Raises:
        MisfitError: a number is not finite, or tensors that belong together are not of one length.
    """
    for name, value in held.items():
        _check_numbers(name, value)
        _need(value.dim(), f"{name!r} without a dimension")
    if "images" in held:
        images = held["images"]
        right = images.dim() > 1 and images.numel()
        _need(right, f"'images' of shape {tuple(images.shape)}, not (M, channels, height, width) or (M, features)")
    for group in (("images", "labels"), _KNOWN, _PRIOR):
        lengths = [len(held[name]) for name in group if name in held]
        right = not lengths or (len(lengths) == len(group) and len(set(lengths)) == 1)
        _need(right, f"not one length, or not all, of {', '.join(group)}")
    for name in (name for name in _WHOLE_AUXILIARY if name in held and (name != "labels" or "images" in held)):
        _whole(name, held[name], _WHOLE_AUXILIARY[name])
    if _KNOWN[0] in held:
        _check_distinct(_KNOWN[0], held[_KNOWN[0]])
    if POPULARITY_OF_OTHERS in held:
        _need(held[POPULARITY_OF_OTHERS].numel(), f"{POPULARITY_OF_OTHERS!r} without numbers")


def _check_clients(shard: Any, shapes: Mapping[str, list[int]]) -> int:
    """Checks what the server has of each client next to its update, and returns the number of clients."""
    shape = shapes["clients"]
    _need(len(shape) == 1 and shape[0], f"'clients' of shape {tuple(shape)}, not (C,)")
    names: Tensor = shard.get_tensor("clients")
    _need(names.dtype == torch.int64, f"'clients' of {names.dtype}, not int64")
    _check_distinct("clients", names)
    counts = _whole("counts", shard.get_tensor("counts"), 1)
    _need(len(counts) == len(names), f"'counts' of {len(counts)} clients, not {len(names)}")
    _need(int(counts.max()) <= _MOST, "'counts' with an impossible number")
    for key in (key for key in shapes if key == MESSAGES or key.startswith(PRIOR)):
        value = shard.get_tensor(key)
        _check_rows(key, value, len(names), "clients")
        _check_numbers(key, value)
    if MESSAGES in shapes:
        _need(int(_whole(MESSAGES, shard.get_tensor(MESSAGES), 1).min()) >= 1, f"{MESSAGES!r} with none")
    return len(names)


def _check_items(shard: Any, shapes: Mapping[str, list[int]], clients: int, manifest: Manifest) -> int:
    """Checks what was shown, and returns the number of rows."""
    served, offsets = _whole("served", shard.get_tensor("served"), 1), shard.get_tensor("offsets")
    rows, largest = len(served), int(served.max()) if len(served) else -1
    right = offsets.dtype == torch.int64 and offsets.shape == (clients + 1,)
    right = right and [int(offsets[0]), int(offsets[-1])] == [0, rows] and bool((offsets.diff() >= 0).all())
    _need(right, "offsets that do not fit the clients and rows")
    owner = torch.repeat_interleave(torch.arange(clients), offsets.diff())
    places = [owner]
    if "lists" in shapes:
        lists = _whole("lists", shard.get_tensor("lists"), 1)
        _check_rows("lists", lists, rows)
        _need(not ((lists.diff() < 0) & (owner.diff() == 0)).any(), "'lists' that are not one after the other")
        lengths = torch.unique(torch.stack([owner, lists]), dim=1, return_counts=True)[1]
        _need((lengths <= _LONGEST_LIST).all(), f"'lists' of more than {_LONGEST_LIST} documents")
        places.append(lists)
    if "updates" in shapes:
        updates = _whole("updates", shard.get_tensor("updates"), 1)
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
    distinct = torch.unique(torch.stack([*places, served]), dim=1).shape[1]
    _need(distinct == rows, "'served' with an item twice for one client")
    return rows


def _features(key: str, shard: Any) -> Tensor:
    features: Tensor = shard.get_tensor(key)
    _check_numbers(key, features)
    right = features.dim() == 2 and features.is_floating_point()
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
        _need(shard.get_slice(key)[:0].dtype == dtype_of(dtype), f"{key!r} of another type than {dtype}")
    for key in shapes:
        known = not key.startswith(("deltas/", "rows/")) or key in wanted
        _need(known, f"{key!r}, which the manifest does not describe")


def _check_model(shard: Any, shapes: Mapping[str, list[int]], manifest: Manifest) -> None:
    model = {key.removeprefix(MODEL): key for key in shapes if key.startswith(MODEL)}
    _need(manifest.learner is None or model, "no global model, without which the learner means nothing")
    for name, key in model.items():
        value = shard.get_tensor(key)
        expected = list(manifest.parameters.get(name, {}).get("shape", shapes[key]))
        _need(shapes[key] == expected, f"{key!r} of shape {shapes[key]}, not {expected}")
        right = value.is_floating_point() and value.itemsize >= 2 and value.numel()
        _need(right, f"{key!r} of {value.dtype} and {value.numel()} numbers")
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
        value, expected = shard.get_tensor(key), [clients, *model[name]]
        _need(shapes[key] == expected, f"{key!r} of shape {shapes[key]}, not {expected}")
        _need(value.is_floating_point(), f"{key!r} of {value.dtype}, not of floats")
        _check_numbers(key, value)


def _check_rows(key: str, value: Tensor, rows: int, of: str = "rows") -> None:
    _need(value.dim() and len(value) == rows, f"{key!r} of shape {tuple(value.shape)}, not of {rows} {of}")


def _check_numbers(key: str, value: Tensor) -> None:
    finite = not value.is_complex() and (not value.is_floating_point() or torch.isfinite(value.float()).all())
    _need(finite, f"NaN, infinity or complex numbers in {key!r}")


def _check_distinct(key: str, names: Tensor) -> None:
    _need(len(torch.unique(names)) == len(names), f"{key!r} with the same name twice")


def _whole(key: str, value: Tensor, dim: int | None) -> Tensor:
    """The tensor, checked to hold whole numbers from 0."""
    _need(dim is None or value.dim() == dim, f"{key!r} of shape {tuple(value.shape)}")
    _need(value.dtype in _WHOLE, f"{key!r} of {value.dtype}, not of whole numbers")
    _need(not value.numel() or int(value.min()) >= 0, f"{key!r} with a negative number")
    return value


def _need(right: object, problem: str) -> None:
    if not right:
        raise MisfitError(problem)
