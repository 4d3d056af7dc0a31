"""Recorder of what the server of a federated-learning system sees, for audits with fedleak.

`Recorder` records any system; `fedleak_recorder.flower` and `fedleak_recorder.nvflare` adapt it to these frameworks.
Importing the package imports nothing else; its names are imported when they are first asked for (PEP 562).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedleak_recorder.errors import InputError as InputError
    from fedleak_recorder.format import FORMAT as FORMAT
    from fedleak_recorder.recorder import Recorder as Recorder
    from fedleak_recorder.sent import Sent as Sent
    from fedleak_recorder.tree_recorder import TreeRecorder as TreeRecorder

__version__ = "0.2.0"
__all__ = ["FORMAT", "InputError", "Recorder", "Sent", "TreeRecorder", "__version__"]
_MODULES = {
    "FORMAT": "format",
    "InputError": "errors",
    "Recorder": "recorder",
    "Sent": "sent",
    "TreeRecorder": "tree_recorder",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    exported = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = exported
    return exported
