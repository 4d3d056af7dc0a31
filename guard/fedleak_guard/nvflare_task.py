"""What an NVFlare site knows of the task that a job works on."""

import threading
from dataclasses import dataclass, field
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fedleak_recorder.arrays import Array
from fedleak_recorder.frameworks.nvflare import job_of


@dataclass
class SiteTask:
    """What the site knows of the task that a job works on."""

    watched: bool = False
    round: int = 0
    received: dict[str, Array] = field(default_factory=dict)
    headers: dict[str, int] = field(default_factory=dict)
    """Numbers of rounds in the task's headers, with which the result leaves, whatever the client says."""
    data: Shareable | None = None
    jar: Any = None
    """The task, and a copy of its cookies, which NVFlare copies from the task into the result."""
    released: tuple[Any, str] | None = None
    """Plain part and hash of the tensors of what was released and has not left yet."""
    left: Shareable | None = None
    """The result that passed the last filter, until NVFlare sends it."""
    sealed: tuple[Any, str] | None = None
    """What it held."""


_tasks: dict[tuple[str, str], SiteTask] = {}
_lock = threading.Lock()


def task_of(fl_ctx: FLContext) -> SiteTask:
    """The task that a site works on in a job; NVFlare's simulator runs several sites in one process."""
    key = str(fl_ctx.get_identity_name()), job_of(fl_ctx)
    with _lock:
        return _tasks.setdefault(key, SiteTask())
