"""Recorder of federated trees: messages are models of XGBoost as bytes, which become numbers before they are stored."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.described_model import DescribedModel
from fedleak_recorder.errors import require
from fedleak_recorder.recorder import Recorder
from fedleak_recorder.sent import Sent
from fedleak_recorder.shard_check import TREES
from fedleak_recorder.trees.forest import FIELDS, Forest
from fedleak_recorder.trees.xgboost import OBJECTIVES, read_forest

BASE_SCORE = "base_score"
"""Name of the score before the first tree."""
MODEL_DATA = "model_data"
"""Entry of NVFlare's messages that holds the model."""
_DEEPEST = 16
"""Largest depth: a tree then has up to 131,071 nodes, of which each message has room for all."""
_UNKNOWN_SCORE = 0.5
"""Base score of a global model without a tree, which says nothing."""
_PARAMETERS: Mapping[str, tuple[tuple[str, ...], Any]] = {
    "objective": (("objective",), "reg:squarederror"),
    "eta": (("eta", "learning_rate"), 0.3),
    "depth": (("max_depth",), 6),
    "reg_lambda": (("lambda", "reg_lambda"), 1.0),
    "min_child_weight": (("min_child_weight",), 1.0),
    "subsample": (("subsample",), 1.0),
    "seed": (("seed", "random_state"), 0),
}
"""Names of XGBoost's parameters and its default, by the field of the clients' algorithm."""
_UNKNOWN_TO_ATTACKS: Mapping[str, float] = {
    "alpha": 0.0,
    "reg_alpha": 0.0,
    "scale_pos_weight": 1.0,
    "max_delta_step": 0.0,
    "num_parallel_tree": 1.0,
}
"""Parameters that change the weights of nodes, with the values at which they do not: attacks compute without them, and
would be certain of what is wrong."""
_UNKNOWN_CHOICES: Mapping[str, tuple[str, ...]] = {
    "booster": ("gbtree",),
    "monotone_constraints": ("", "()", "[]", "{}"),
    "process_type": ("default",),
    "sampling_method": ("uniform",),
}
"""The same of parameters that are no numbers, with the texts at which they do not."""
_WAY_OUT = "Give what Booster.save_raw gives, in JSON or UBJ."


class TreeRecorder(Recorder):
    """Recording of federated trees of XGBoost; each message is a model as bytes, in JSON or UBJ.

    `round`, `streamed` and `close` are those of `Recorder`, with bytes in the place of arrays: a client sends its new
    trees, or the whole model, of which those of the global one are left out. XGBoost is not needed, and nothing of a
    message is executed. The recorded numbers are described in docs/audit/trees.md.

    Args:
        folder: folder of the recording.
        parameters: XGBoost's parameters of the clients, as ``xgboost.train`` takes them; those that are left out have
            XGBoost's defaults. Those that change the weights of nodes otherwise must have them: ``alpha``,
            ``scale_pos_weight``, ``max_delta_step``, ``num_parallel_tree``, ``booster``, ``monotone_constraints``,
            ``process_type`` and ``sampling_method``.
        features: number of columns.
        rounds: number of rounds, with `clients_per_round` the room for the global model.
        clients_per_round: largest number of clients of a round.
        trees: new trees of a client in a round, at most.
        aggregation: ``bagging``: the server appends the trees of all clients. ``cyclic``: one client trains in a round.
        options: other arguments of `Recorder`, e.g. ``data``, ``key`` or ``auxiliary``.

    Raises:
        InputError: see `Recorder`; or a message is no model of XGBoost, has other columns or another loss, or more or
            deeper trees than were declared.

    Example:
        >>> import tempfile
        >>> parameters = {"objective": "binary:logistic", "max_depth": 3}
        >>> with TreeRecorder(tempfile.mkdtemp(), parameters, features=4, rounds=2, clients_per_round=3) as recorder:
        ...     recorder.parameters
        {'trees': (1, 15, 8), 'base_score': (1,)}
    """

    lints: ClassVar[bool] = False
    """A lint names trees, which is what it is for."""

    def __init__(
        self,
        folder: str | Path,
        parameters: Mapping[str, Any],
        *,
        features: int,
        rounds: int,
        clients_per_round: int,
        trees: int = 1,
        aggregation: Literal["bagging", "cyclic"] = "bagging",
        **options: Any,
    ) -> None:
        sizes = {"features": features, "rounds": rounds, "clients_per_round": clients_per_round, "trees": trees}
        for name, size in sizes.items():
            is_size = isinstance(size, int) and not isinstance(size, bool) and 0 < size < 10**6
            require(is_size, f"{name} as a whole number above 0", size, "Correct it.")
        arguments = _arguments(parameters)
        depth = arguments["depth"]
        is_depth = isinstance(depth, int) and 0 < depth <= _DEEPEST
        require(is_depth, f"max_depth of 1 to {_DEEPEST}", depth, "Deeper trees cannot be recorded.")
        arguments |= {"trees": trees, "aggregation": aggregation, "features": features}
        nodes = 2 ** (depth + 1) - 1
        super().__init__(
            folder,
            parameters={TREES: (trees, nodes, FIELDS), BASE_SCORE: (1,)},
            holds="deltas",
            dtype="float32",
            learner={"name": TREES, "arguments": arguments},
            **options,
        )
        self._arguments = arguments
        self._nodes = nodes
        self._capacity = rounds * trees * (1 if aggregation == "cyclic" else clients_per_round)
        self._global: Forest | None = None
        """The global model before the round; None before there is one."""

    @contextlib.contextmanager
    def streamed(self, number: int, model: Any, *, clients: int | None = None) -> Iterator[Callable[[Sent], None]]:
        """A round whose messages are added while they arrive, see `Recorder.streamed`.

        Args:
            number: number of the round, from 0 or 1.
            model: the global model before it as bytes; nothing before the first tree.
            clients: number of clients, if it is known.
        """
        before = self._global
        try:
            with super().streamed(number, b"" if model is None else model, clients=clients) as add:
                yield add
        except BaseException:
            # The round may be recorded again, on the model before it.
            self._global = before
            raise

    def _before(self, described: DescribedModel, model: Any, where: str) -> Mapping[str, Any]:
        """The global model: bytes, nothing before the first round, or a list of models whose trees were appended."""
        forest = self._global
        contents = _contents(model, where)
        if isinstance(contents, list):
            is_known = self._resume_at is None or forest is not None
            require(is_known, f"the whole model as {where}, after a restart", "the trees of one round", _WAY_OUT)
            for content in contents:
                more = self._read(content, where)
                forest = more if forest is None else _joined(forest, more)
        else:
            forest = None if contents is None else self._read(contents, where)
        self._global = forest
        padded = Forest(np.zeros((0, 1, FIELDS), np.float32), _UNKNOWN_SCORE, 1, "")
        if forest is not None:
            padded = forest
        trees = padded.padded(self._capacity, self._nodes, where=where)
        return {TREES: trees, BASE_SCORE: np.array([padded.base_score], np.float32)}

    def _named(self, described: DescribedModel, message: Sent, where: str) -> Sent:
        """A message with its new trees as arrays."""
        content = _contents(message.arrays, where)
        require(not isinstance(content, list | None), f"a model as {where}", type(content).__name__, _WAY_OUT)
        forest = self._read(content, where)
        limit = self._arguments["trees"]
        # More trees than a client grows in a round, or all of the global ones and others: it sent the whole model.
        if self._global is not None and (len(forest.trees) > limit or forest.continues(self._global, where=where)):
            forest = forest.after(self._global, where=where)
        arrays = {
            TREES: forest.padded(limit, self._nodes, where=where),
            BASE_SCORE: np.array([forest.base_score], np.float32),
        }
        return dataclasses.replace(message, arrays=arrays, holds="deltas")

    def _read(self, content: Any, where: str) -> Forest:
        forest = read_forest(content, where=where)
        for name, actual in (("features", forest.features), ("objective", forest.objective)):
            declared = self._arguments[name]
            require(actual == declared, f"{name} {declared} in {where}", actual, "Correct the recorder's arguments.")
        most = self._arguments["depth"]
        depth = forest.depth
        require(
            depth <= most,
            f"nodes at most {most} splits below the root in {where}",
            f"{depth}",
            "Record with a larger max_depth.",
        )
        return forest


def _arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the clients' algorithm from XGBoost's parameters."""
    # XGBoost takes None for a parameter that is left out.
    given = {name: value for name, value in parameters.items() if value is not None}
    _check_known(given)
    arguments: dict[str, Any] = {}
    for field, (names, default) in _PARAMETERS.items():
        value = default
        # If both names of a parameter are given, XGBoost takes the second one.
        for name in names:
            value = given.get(name, value)
        arguments[field] = _argument(value, default, names[0])
    objective = arguments["objective"]
    known = ", ".join(OBJECTIVES)
    require(objective in OBJECTIVES, f"objective among {known}", objective[:60], "Others cannot be recorded.")
    return arguments


def _check_known(parameters: Mapping[str, Any]) -> None:
    """Refuses parameters that change the weights of nodes in a way that no attack knows of."""
    way_out = "It changes the weights of nodes, which no attack knows of: such trees cannot be recorded."
    for name, without in _UNKNOWN_TO_ATTACKS.items():
        value = parameters.get(name, without)
        require(_number(value) == without, f"{name} of {without:g}", repr(value)[:60], way_out)
    for name, choices in _UNKNOWN_CHOICES.items():
        value = parameters.get(name, choices[0])
        require(str(value) in choices, f"{name} of {choices[0]!r}", repr(value)[:60], way_out)


def _argument(value: Any, default: Any, name: str) -> Any:
    """The value of a parameter with the type of its default."""
    if isinstance(default, str):
        return str(value)
    number = _number(value)
    is_value = math.isfinite(number) and (isinstance(default, float) or number.is_integer())
    require(is_value, f"{name} as XGBoost takes it", repr(value)[:60], "Correct it.")
    return type(default)(number)


def _number(value: Any) -> float:
    """A number or its text, as XGBoost takes both; NaN for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _contents(message: Any, where: str) -> Any:
    """What a framework's message holds: bytes, a list of several models, or None for no model yet."""
    if isinstance(message, Mapping) and MODEL_DATA in message:
        message = message[MODEL_DATA]
    elif isinstance(message, Mapping) and "learner" not in message:
        # Arrays by name: Flower has one. Bytes by name could be one model or several.
        message = list(message.values())
        are_arrays = all(isinstance(part, np.ndarray) for part in message)
        require(are_arrays, f"a model, or arrays by name, as {where}", "others by name", _WAY_OUT)
    if message is None:
        return None
    if isinstance(message, bytes | bytearray | memoryview | str):
        return message if len(message) else None
    if isinstance(message, Mapping):
        return message
    require(isinstance(message, Sequence | np.ndarray), f"a model as {where}", type(message).__name__, _WAY_OUT)
    parts = [message] if isinstance(message, np.ndarray) else list(message)
    are_arrays = all(isinstance(part, np.ndarray) for part in parts)
    if parts and are_arrays:
        return _bytes_of(parts, where)
    return parts or None


def _bytes_of(arrays: list[Array], where: str) -> bytes | None:
    """The bytes in the only array of a message; None for an empty one."""
    is_bytes = len(arrays) == 1 and arrays[0].dtype in (np.dtype(np.uint8), np.dtype("S1")) and arrays[0].ndim <= 1
    found = ", ".join(f"{array.dtype} {array.shape}" for array in arrays[:3])
    require(is_bytes, f"a model as one array of bytes in {where}", found, _WAY_OUT)
    return arrays[0].tobytes() or None


def _joined(forest: Forest, more: Forest) -> Forest:
    """A forest with the trees of another one behind its own."""
    nodes = max(forest.trees.shape[1], more.trees.shape[1])
    parts = [part.padded(len(part.trees), nodes, where="the global model") for part in (forest, more)]
    return dataclasses.replace(forest, trees=np.concatenate(parts))
