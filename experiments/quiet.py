"""Removal of messages of other packages that a person who trains cannot act on, each by its text."""

import logging
import re
import warnings

_LOGGED = re.compile(
    r"💡 Tip:"  # advertisements of litlogger and litmodels
    r"|(\[rank: \d+\] )?Seed set to \d+$"
    r"|(GPU available: False|TPU available: False), (used: False|using: 0 TPU cores)$"
    r"|`Trainer\(val_check_interval=1\)` was configured"
    r"|`Trainer\.fit` stopped: `max_steps=\d+` reached"
)
_WARNED = (r"`isinstance\(treespec, LeafSpec\)` is deprecated",)
_LOGGERS = tuple(
    f"lightning.{name}"
    for name in ("pytorch.utilities.rank_zero", "fabric.utilities.rank_zero", "fabric.utilities.seed")
)


def quieten() -> None:
    """Hides the known messages that tell a person nothing; every other message is shown, new ones too."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_for_people)
    for message in _WARNED:
        warnings.filterwarnings("ignore", message=message)


def _is_for_people(record: logging.LogRecord) -> bool:
    return _LOGGED.match(record.getMessage()) is None
