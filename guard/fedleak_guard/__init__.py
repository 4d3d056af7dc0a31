"""Guard of the site that sends an update: it checks each message before it leaves, and refuses what it cannot check.

`Guard` serves any system; `fedleak_guard.flower` and `fedleak_guard.nvflare` adapt it to these frameworks. Importing
the package imports nothing else; its names are imported when they are first asked for (PEP 562).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedleak_guard.guard import Guard as Guard
    from fedleak_guard.message import Message as Message
    from fedleak_guard.policy import Policy as Policy
    from fedleak_guard.policy import read_policy as read_policy
    from fedleak_guard.refusal import RefusedError as RefusedError

__version__ = "0.2.0"
__all__ = ["Guard", "Message", "Policy", "RefusedError", "__version__", "read_policy"]
_MODULES = {
    "Guard": "guard",
    "Message": "message",
    "Policy": "policy",
    "RefusedError": "refusal",
    "read_policy": "policy",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    exported = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = exported
    return exported
