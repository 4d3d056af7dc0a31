"""Whether the tensors of a shard fit the manifest and each other: by name, shape, type, range, and as numbers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from datamodules.recordings.adversary_devices import HOLDOUT_USERS, POPULARITY_OF_OTHERS
from datamodules.recordings.format import CLIENT, CLIENT_MODEL, ITEM_FEATURES, MODEL, PRIOR, Manifest, dtype_of

SHOWN = {"served": -1, "lists": -1, "features": 0, "updates": 0}
"""What a server may have of each item that it has shown, and how it is padded."""
MESSAGES = "messages"
_MOST = 2**48
"""Above every number of examples."""
_LONGEST_LIST = 10
"""Documents; what attacks enumerate doubles with each."""
CLASS_COUNTS = f"{CLIENT}class_counts"
_KNOWN = ("known_pseudonyms", "known_users")
_PRIOR = ("prior_features", "prior_labels", "prior_users")
_WHOLE_AUXILIARY = {"labels": 1, _KNOWN[0]: 1, _KNOWN[1]: 1, _PRIOR[2]: 1, POPULARITY_OF_OTHERS: 2, HOLDOUT_USERS: 1}
"""Auxiliary tensors of whole numbers, and how many dimensions each has."""
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class MisfitError(Exception):
    """A tensor that does not fit; the message says which and why."""


class InMemory:
    """Tensors that are not written yet, read as an opened shard is.

    Args:
        tensors: by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def keys(self) -> list[str]:
        """Names of the tensors."""
        return list(self._tensors)

    def get_tensor(self, name: str) -> Tensor:
        """A tensor."""
        return self._tensors[name]

    def get_slice(self, name: str) -> "_Part":
        """A tensor of which a part is asked for."""
        return _Part(self._tensors[name])


class _Part:
    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def __getitem__(self, rows: slice) -> Tensor:
        return self._tensor[rows]


def check_seen(shard: Any, manifest: Manifest) -> None:
    """Refuses a shard of ``rounds/`` that no server of the described system can have seen.

    Args:
        shard: the opened file; deltas are compared by shape and type only, their values where they are read.
        manifest: what holds for the whole recording.

    Raises:
        MisfitError: something contradicts the manifest or another tensor.
    """
    shapes = {key: shard.get_slice(key).get_shape() for key in shard.keys()}  # noqa: SIM118
    items = bool(manifest.row_parameters) or any(key in shapes for key in (*SHOWN, ITEM_FEATURES))
    for key in ("clients", "counts", *(("offsets", "served") if items else ())):
        if key not in shapes:
            raise MisfitError(f"no tensor {key!r}")
    clients = _client_names(shard, shapes)
    _check_counts(shard, clients)
    _check_of_clients(shard, shapes, clients)
    rows = _check_items(shard, shapes, clients, manifest) if items else 0
    _check_deltas(shard, shapes, manifest, clients, rows)
    _check_model(shard, shapes, manifest)
    _check_client_models(shard, shapes, clients)


def common_shapes(shard: Any) -> dict[str, tuple[int, ...]]:
    """What is of one shape in every round: the global model's parameters, and the features of one served item."""
    shapes = {key: tuple(shard.get_slice(key).get_shape()) for key in shard.keys()}  # noqa: SIM118
    common = {key: shape for key, shape in shapes.items() if key.startswith(MODEL)}
    features = next((shapes[key][1:] for key in ("features", ITEM_FEATURES) if key in shapes), None)
    return common if features is None else {**common, "features": features}


def check_common(shard: Any, common: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a shard whose model or features are of other shapes than those of another round.

    Raises:
        MisfitError: names the first difference.
    """
    own = common_shapes(shard)
    other = sorted(key for key in own.keys() | common.keys() if own.get(key) != common.get(key))
    if other:
        found, before = own.get(other[0]), common.get(other[0])
        raise MisfitError(f"{other[0]!r} of shape {found}, where another round has {before}")


def check_truth(shard: Any, seen: Any) -> None:
    """Refuses a shard of ``truth/`` that does not speak of the clients and items of its round.

    Args:
        shard: the opened file.
        seen: the same clients' shard of ``rounds/``, already checked.

    Raises:
        MisfitError: a client, an item or a number is missing or impossible.
    """
    held = {key: shard.get_tensor(key) for key in shard.keys()}  # noqa: SIM118
    clients = seen.get_slice("clients").get_shape()[0]
    own = {key: value for key, value in held.items() if key == "clients" or key.startswith(CLIENT)}
    of_items = {key: value for key, value in held.items() if key not in own and key != "offsets"}
    if "clients" not in own:
        raise MisfitError("no tensor 'clients'")
    for key, value in own.items():
        if not value.dim() or len(value) != clients:
            raise MisfitError(f"{key!r} of shape {tuple(value.shape)}, not of {clients} clients")
        _check_numbers(key, value)
    _check_distinct("clients", _whole("clients", own["clients"], None))
    if f"{CLIENT}user" in own:
        _whole(f"{CLIENT}user", own[f"{CLIENT}user"], 1)
    if CLASS_COUNTS in own:
        _check_class_counts(own[CLASS_COUNTS])
    if of_items or "offsets" in held:
        _check_item_truth(held, of_items, seen)


def check_auxiliary(held: Mapping[str, Tensor]) -> None:
    """Refuses auxiliary data that contradict themselves.

    Raises:
        MisfitError: a number is not finite, or what belongs together is not of one length.
    """
    for name, value in held.items():
        _check_numbers(name, value)
        if not value.dim():
            raise MisfitError(f"{name!r} without a dimension")
    if "images" in held and (held["images"].dim() != 4 or not held["images"].numel()):
        raise MisfitError(f"'images' of shape {tuple(held['images'].shape)}, not (M, channels, height, width)")
    for group in (("images", "labels"), _KNOWN, _PRIOR):
        there = [name for name in group if name in held]
        if len({len(held[name]) for name in there}) > 1 or 0 < len(there) < len(group):
            raise MisfitError(f"not one length, or not all, of {', '.join(group)}")
    for name in (name for name in _WHOLE_AUXILIARY if name in held and (name != "labels" or "images" in held)):
        _whole(name, held[name], _WHOLE_AUXILIARY[name])
    if _KNOWN[0] in held:
        _check_distinct(_KNOWN[0], held[_KNOWN[0]])
    if POPULARITY_OF_OTHERS in held and not held[POPULARITY_OF_OTHERS].numel():
        raise MisfitError(f"{POPULARITY_OF_OTHERS!r} without numbers")


def _client_names(shard: Any, shapes: Mapping[str, list[int]]) -> int:
    if len(shapes["clients"]) != 1 or not shapes["clients"][0]:
        raise MisfitError(f"'clients' of shape {tuple(shapes['clients'])}, not (C,)")
    names: Tensor = shard.get_tensor("clients")
    if names.dtype != torch.int64:
        raise MisfitError(f"'clients' of {names.dtype}, not int64")
    _check_distinct("clients", names)
    return len(names)


def _check_counts(shard: Any, clients: int) -> None:
    counts = _whole("counts", shard.get_tensor("counts"), 1)
    if len(counts) != clients:
        raise MisfitError(f"'counts' of {len(counts)} clients, not {clients}")
    if int(counts.max()) > _MOST:
        raise MisfitError("'counts' with an impossible number")


def _check_of_clients(shard: Any, shapes: Mapping[str, list[int]], clients: int) -> None:
    """What the server has of each client next to its update."""
    for key in (key for key in shapes if key == MESSAGES or key.startswith(PRIOR)):
        value = shard.get_tensor(key)
        if not value.dim() or len(value) != clients:
            raise MisfitError(f"{key!r} of shape {tuple(value.shape)}, not of {clients} clients")
        _check_numbers(key, value)
    if MESSAGES in shapes and int(_whole(MESSAGES, shard.get_tensor(MESSAGES), 1).min()) < 1:
        raise MisfitError(f"{MESSAGES!r} with none")


def _check_items(shard: Any, shapes: Mapping[str, list[int]], clients: int, manifest: Manifest) -> int:
    """What was shown; returns the number of rows."""
    served, offsets = _whole("served", shard.get_tensor("served"), 1), shard.get_tensor("offsets")
    _check_offsets(offsets, clients, len(served))
    owner = torch.repeat_interleave(torch.arange(clients), offsets.diff())
    places = [owner]
    if "lists" in shapes:
        lists = _whole("lists", shard.get_tensor("lists"), 1)
        _check_rows("lists", lists, len(served))
        if bool(((lists.diff() < 0) & (owner.diff() == 0)).any()):
            raise MisfitError("'lists' that are not one after the other")
        lengths = torch.unique(torch.stack([owner, lists]), dim=1, return_counts=True)[1]
        if len(lengths) and int(lengths.max()) > _LONGEST_LIST:
            raise MisfitError(f"'lists' of more than {_LONGEST_LIST} documents")
        places.append(lists)
    if "features" in shapes:
        features = shard.get_tensor("features")
        _check_rows("features", features, len(served))
        _check_numbers("features", features)
        if features.dim() != 2 or not features.is_floating_point():
            raise MisfitError(f"'features' of shape {tuple(features.shape)} and {features.dtype}, not (R, F) of floats")
    if "updates" in shapes:
        _check_updates(shard, len(served))
    if ITEM_FEATURES in shapes:
        _check_item_features(shard, shapes, served)
    tables = [int(manifest.parameters[name]["shape"][0]) for name in manifest.row_parameters]
    if tables and len(served) and int(served.max()) >= min(tables):
        raise MisfitError(f"'served' with item {int(served.max())} of {min(tables)}")
    if len(torch.unique(torch.stack([*places, served]), dim=1)[0]) < len(served):
        raise MisfitError("'served' with an item twice for one client")
    return len(served)


def _check_updates(shard: Any, rows: int) -> None:
    updates = _whole("updates", shard.get_tensor("updates"), 1)
    _check_rows("updates", updates, rows)
    if len(updates) and int(updates.max()) > _MOST:
        raise MisfitError("'updates' with an impossible number")


def _check_item_features(shard: Any, shapes: Mapping[str, list[int]], served: Tensor) -> None:
    features = shard.get_tensor(ITEM_FEATURES)
    _check_numbers(ITEM_FEATURES, features)
    if features.dim() != 2 or not features.is_floating_point():
        raise MisfitError(
            f"{ITEM_FEATURES!r} of shape {tuple(features.shape)} and {features.dtype}, not (I, F) of floats"
        )
    if "features" in shapes:
        raise MisfitError(f"both 'features' and {ITEM_FEATURES!r}")
    if len(served) and int(served.max()) >= len(features):
        raise MisfitError(f"'served' with item {int(served.max())} of {len(features)} in {ITEM_FEATURES!r}")


def _check_offsets(offsets: Tensor, clients: int, rows: int) -> None:
    right = offsets.dtype == torch.int64 and offsets.shape == (clients + 1,)
    if not right or [int(offsets[0]), int(offsets[-1])] != [0, rows] or bool((offsets.diff() < 0).any()):
        raise MisfitError("offsets that do not fit the clients and rows")


def _check_deltas(shard: Any, shapes: Mapping[str, list[int]], manifest: Manifest, clients: int, rows: int) -> None:
    wanted = {}
    for name, described in manifest.parameters.items():
        if name in manifest.row_parameters:
            wanted[f"rows/{name}"] = ([rows, *described["shape"][1:]], described["dtype"])
        else:
            wanted[f"deltas/{name}"] = ([clients, *described["shape"]], described["dtype"])
    for key, (shape, dtype) in wanted.items():
        if key not in shapes:
            raise MisfitError(f"no tensor {key!r}")
        if shapes[key] != shape:
            raise MisfitError(f"{key!r} of shape {shapes[key]}, not {shape}")
        if shard.get_slice(key)[:0].dtype != dtype_of(dtype):
            raise MisfitError(f"{key!r} of another type than {dtype}")
    unknown = [key for key in shapes if key.startswith(("deltas/", "rows/")) and key not in wanted]
    if unknown:
        raise MisfitError(f"{unknown[0]!r}, which the manifest does not describe")


def _check_model(shard: Any, shapes: Mapping[str, list[int]], manifest: Manifest) -> None:
    model = {key.removeprefix(MODEL): key for key in shapes if key.startswith(MODEL)}
    if manifest.learner is not None and not model:
        raise MisfitError("no global model, without which the learner means nothing")
    for name, key in model.items():
        value = shard.get_tensor(key)
        expected = manifest.parameters.get(name, {}).get("shape", shapes[key])
        if shapes[key] != list(expected):
            raise MisfitError(f"{key!r} of shape {shapes[key]}, not {list(expected)}")
        if not value.is_floating_point() or value.itemsize < 2 or not value.numel():
            raise MisfitError(f"{key!r} of {value.dtype} and {value.numel()} numbers")
        _check_numbers(key, value)
    named = {name for release in manifest.releases for name in release["parameters"]}
    unknown = sorted(named - set(manifest.parameters) - set(model))
    if unknown:
        raise MisfitError(f"no parameter {unknown[0]!r}, of which the manifest has a release")


def _check_client_models(shard: Any, shapes: Mapping[str, list[int]], clients: int) -> None:
    """Either no client has a model of its own, or all have whole ones."""
    own = {key.removeprefix(CLIENT_MODEL): key for key in shapes if key.startswith(CLIENT_MODEL)}
    model = {key.removeprefix(MODEL): shapes[key] for key in shapes if key.startswith(MODEL)}
    if own and own.keys() != model.keys():
        name = min(own.keys() ^ model.keys())
        raise MisfitError(f"{name!r} in one of {MODEL!r} and {CLIENT_MODEL!r} only")
    for name, key in own.items():
        value = shard.get_tensor(key)
        if shapes[key] != [clients, *model[name]]:
            raise MisfitError(f"{key!r} of shape {shapes[key]}, not {[clients, *model[name]]}")
        if not value.is_floating_point():
            raise MisfitError(f"{key!r} of {value.dtype}, not of floats")
        _check_numbers(key, value)


def _check_class_counts(counts: Tensor) -> None:
    if counts.dim() != 2 or not counts.shape[1]:
        raise MisfitError(f"{CLASS_COUNTS!r} of shape {tuple(counts.shape)}, not (C, K)")
    numbers = counts.double()
    if bool((numbers < 0).any()) or bool((numbers > _MOST).any()) or not bool((numbers.sum(1) > 0).all()):
        raise MisfitError(
            f"{CLASS_COUNTS!r} with a negative or impossible number, or with a client that has no example"
        )


def _check_item_truth(held: Mapping[str, Tensor], of_items: Mapping[str, Tensor], seen: Any) -> None:
    if "served" not in set(seen.keys()):
        raise MisfitError(f"{next(iter(of_items), 'offsets')!r} of items, where the round served none")
    if "offsets" not in held or not torch.equal(held["offsets"], seen.get_tensor("offsets")):
        raise MisfitError("'offsets' that are not those of the round")
    rows = seen.get_slice("served").get_shape()[0]
    for key, value in of_items.items():
        _check_rows(key, value, rows)
        _check_numbers(key, value)
    if "labels" in of_items and not bool(((of_items["labels"] >= 0) & (of_items["labels"] <= 1)).all()):
        raise MisfitError("'labels' outside of 0 to 1")


def _check_rows(key: str, value: Tensor, rows: int) -> None:
    if not value.dim() or len(value) != rows:
        raise MisfitError(f"{key!r} of shape {tuple(value.shape)}, not of {rows} rows")


def _check_numbers(key: str, value: Tensor) -> None:
    if value.is_complex() or (value.is_floating_point() and not bool(torch.isfinite(value.float()).all())):
        raise MisfitError(f"NaN, infinity or complex numbers in {key!r}")


def _check_distinct(key: str, names: Tensor) -> None:
    if len(torch.unique(names)) < len(names):
        raise MisfitError(f"{key!r} with the same name twice")


def _whole(key: str, value: Tensor, dim: int | None) -> Tensor:
    """The numbers, which must be whole and at least 0."""
    if dim is not None and value.dim() != dim:
        raise MisfitError(f"{key!r} of shape {tuple(value.shape)}")
    if value.dtype not in _WHOLE:
        raise MisfitError(f"{key!r} of {value.dtype}, not of whole numbers")
    if value.numel() and int(value.min()) < 0:
        raise MisfitError(f"{key!r} with a negative number")
    return value
