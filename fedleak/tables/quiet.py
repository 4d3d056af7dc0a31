"""Removal of messages of other packages that a person who trains cannot act on, each by its text."""

import logging
import re
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning import Trainer

_LOGGED = re.compile(
    r"💡 Tip:"  # advertisements of litlogger and litmodels
    r"|(\[rank: \d+\] )?Seed set to \d+$"
    r"|(GPU available: False|TPU available: False), (used: False|using: 0 TPU cores)$"
    r"|`Trainer\(val_check_interval=1\)` was configured"
    r"|`Trainer\.fit` stopped: `max_steps=\d+` reached"
)
"""Beginnings of log messages that are hidden."""
_WARNED = (r"`isinstance\(treespec, LeafSpec\)` is deprecated",)
"""Warnings that are hidden."""
_LOGGERS = (
    "lightning.pytorch.utilities.rank_zero",
    "lightning.fabric.utilities.rank_zero",
    "lightning.fabric.utilities.seed",
)


def quieten() -> None:
    """Hides the known messages that tell a person nothing; every other message is shown, new ones too."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_for_people)
    for message in _WARNED:
        warnings.filterwarnings("ignore", message=message)


def quiet_trainer(**options: Any) -> "Trainer":
    """Trainer with the defaults of ``fedleak train``, a bar of rounds, and without the messages that `quieten` hides.

    It is for Python and notebooks; the options are those of `lightning.Trainer`, and replace the defaults.

    Example:
        >>> from fedleak import quiet_trainer
        >>> from fedleak.datamodules import SyntheticRecommender
        >>> from fedleak.modules import FNCF
        >>> trainer = quiet_trainer(max_steps=2, logger=False, enable_progress_bar=False)
        >>> trainer.fit(FNCF(), SyntheticRecommender(users=12))
        >>> trainer.global_step  # one step of the trainer is one round
        2
    """
    from lightning import Trainer

    from fedleak.tables.training import TRAINER_DEFAULTS
    from fedleak.training.lightning.round_progress import RoundProgress

    quieten()
    callbacks = [*options.get("callbacks", ())]
    if options.get("enable_progress_bar", True):
        callbacks.append(RoundProgress())
    return Trainer(**{**TRAINER_DEFAULTS, "enable_checkpointing": False, **options, "callbacks": callbacks})


def _is_for_people(record: logging.LogRecord) -> bool:
    return _LOGGED.match(record.getMessage()) is None
