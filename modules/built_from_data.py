"""Modules whose sizes come from the data: built at once where the sizes are given, otherwise when a training starts."""

from pathlib import Path
from typing import IO, Any, Self

import torch
from lightning import LightningModule
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.fabric.utilities.types import _MAP_LOCATION_TYPE, _PATH

from modules.hyper_parameters import KEY, check_classes, described
from protocol.errors import InputError


class BuiltFromData(LightningModule):
    """A module with layers, or tables of clients, as large as the data are.

    A subclass takes the sizes as optional arguments of its constructor, implements `build`, and ends its constructor
    with `build_with`. Checkpoints hold its arguments and the sizes, so ``load_from_checkpoint(path)`` needs neither.
    """

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self._missing: dict[str, Any] | None = None
        """The sizes, those that are not known as None; None once everything is built."""

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Makes everything whose shape depends on the sizes, which are its arguments."""
        raise NotImplementedError(f"{type(self).__name__} must implement build")

    def build_with(self, **sizes: Any) -> None:
        """Builds where all sizes are known, and otherwise leaves it to `build_for`.

        Args:
            sizes: by the names of the arguments of `build`; None for those that are taken from the data.
        """
        self._missing = sizes
        if None not in sizes.values():
            self._missing = None
            self.build(**sizes)

    def build_for(self, data: object) -> None:
        """Builds with the sizes of some data, unless that is done.

        Args:
            data: with a property for every size that was not given, e.g. a data module.

        Raises:
            InputError: they have no such size.
        """
        if self._missing is None:
            return
        sizes = {n: self._size(n, data) if value is None else value for n, value in self._missing.items()}
        # Lightning makes the accelerator the default device; what is drawn is drawn on the CPU.
        with torch.device("cpu"):
            self.build(**sizes)
        self._missing = None
        self.hparams.update(sizes)

    def configure_model(self) -> None:
        """Lightning's hook at the start of a training or validation: builds for the trainer's data."""
        self.build_for(None if self._trainer is None else getattr(self._trainer, "datamodule", None))

    def _size(self, name: str, data: object) -> Any:
        value = getattr(data, name, None)
        if value is None:
            kind = type(self).__name__
            raise InputError(
                expected=f"data with {name}, which {kind} needs",
                found="no data module" if data is None else f"none in {type(data).__name__}",
                way_out=f"Choose other data or another model, or give {kind} its {name}; your own data give it as a "
                f"property {name}.",
            )
        return value

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Writes the arguments as plain values, which are read without running code."""
        checkpoint[KEY] = described(type(self), self.hparams)

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: _PATH | IO[bytes],
        map_location: _MAP_LOCATION_TYPE = None,
        hparams_file: _PATH | None = None,
        strict: bool | None = None,
        weights_only: bool | None = True,
        **kwargs: Any,
    ) -> Self:
        """The module as it was saved, e.g. ``FNCF.load_from_checkpoint("last.ckpt")``; see Lightning's.

        Raises:
            InputError: the file names a class that is not imported.
        """
        if isinstance(checkpoint_path, str | Path):
            content = TorchCheckpointIO().load_checkpoint(checkpoint_path, weights_only=True)
            check_classes(content.get(KEY, {}))
        loaded: Self = super().load_from_checkpoint(
            checkpoint_path, map_location, hparams_file, strict, weights_only, **kwargs
        )
        return loaded
