"""The base class of callbacks that record the rounds of a training."""

import abc
from pathlib import Path

from lightning import Trainer
from lightning.pytorch.callbacks import Callback


class RoundRecorder(Callback, abc.ABC):
    """Callback that writes a recording of a training, so that what ends the training can say where it is."""

    @abc.abstractmethod
    def folder(self, trainer: Trainer) -> Path:
        """Folder of the recording."""
