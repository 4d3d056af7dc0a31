"""Reads tasks and results of NVFlare: who sends one, for which round it is, and what it holds."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.errors import require
from fedleak_recorder.system import Holds

KINDS_OF_MODELS = (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF)
"""Kinds of data whose arrays are a model, or its change."""
ROUND_HEADERS = (AppConstants.START_ROUND, AppConstants.CURRENT_ROUND, AppConstants.NUM_ROUNDS)
"""Headers with numbers of rounds."""
_WAY_OUT = "Use a controller that numbers its rounds, such as FedAvg or ScatterAndGather."


def sender_of(fl_ctx: FLContext) -> str:
    """Name of the client whose result the server handles."""
    return str(fl_ctx.get_peer_context().get_identity_name())


def job_of(fl_ctx: FLContext) -> str:
    """Name of the job."""
    return str(fl_ctx.get_job_id())


def round_of(fl_ctx: FLContext, content: Shareable | None = None) -> int:
    """Number of the round of a task or of a result; without either, that which the controller announces.

    Raises:
        InputError: the controller numbers no rounds.
    """
    number = fl_ctx.get_prop(AppConstants.CURRENT_ROUND)
    if content is not None:
        number = content.get_header(AppConstants.CURRENT_ROUND, number)
    require(number is not None, f"the number of a round as {AppConstants.CURRENT_ROUND}", "none", _WAY_OUT)
    return int(number)


def round_headers(task: Shareable) -> dict[str, int]:
    """Numbers of rounds in a task's headers, those that are counts."""
    headers = {}
    for key in ROUND_HEADERS:
        value = task.get_header(key)
        if is_count(value):
            headers[key] = int(value)
    return headers


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at most 31 bits, and not below 0."""
    # True is an int to isinstance, and no count.
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(0 <= value < 2**31)


def has_failed(result: Shareable) -> bool:
    """Whether a result says that its client failed."""
    return bool(result.get_return_code(ReturnCode.OK) != ReturnCode.OK)


def holds_of(content: DXO) -> Holds | None:
    """Whether the arrays are models or their changes; None for another kind of data."""
    if content.data_kind == DataKind.WEIGHTS:
        return "models"
    if content.data_kind == DataKind.WEIGHT_DIFF:
        return "deltas"
    return None


def arrays_in(content: DXO) -> dict[str, Array]:
    """Copies of the arrays by name.

    Raises:
        InputError: something among them is no array of numbers.
    """
    return {name: np.array(as_array(value)) for name, value in content.data.items()}


def reported_in(content: DXO) -> Mapping[str, Any]:
    """Meta data of a result, and the metrics in them, by name."""
    return {**content.meta, **metrics_in(content)}


def metrics_in(content: DXO) -> Mapping[str, Any]:
    """Metrics of a result by name."""
    metrics = content.meta.get(MetaKey.INITIAL_METRICS)
    return metrics if isinstance(metrics, Mapping) else {}


def origin_of(fl_ctx: FLContext) -> tuple[dict[str, Any], dict[str, str]]:
    """Description of a training by its job, and the versions of its packages."""
    return {"system": "nvflare", "job": job_of(fl_ctx)}, {"nvflare": version("nvflare")}
