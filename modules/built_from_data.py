"""Modules whose sizes may come from the data: built at once if the sizes are given, otherwise when training starts."""

from pathlib import Path
from typing import IO, Any, ClassVar, Self

import torch
from lightning import LightningModule
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.fabric.utilities.types import _MAP_LOCATION_TYPE, _PATH

from modules.hyper_parameters import KEY, check_classes, described
from protocol.errors import InputError, require


class BuiltFromData(LightningModule):
    """Module whose layers or client tables depend on sizes of the data.

    A subclass takes the sizes as optional constructor arguments, implements `build`, and ends its constructor with
    `build_with`. Checkpoints contain the arguments and the sizes, so ``load_from_checkpoint(path)`` needs neither.
    """

    precisions: ClassVar[tuple[str, ...]] = ("32-true", "bf16-mixed")
    """Supported values of ``--trainer.precision``."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self._missing: dict[str, Any] | None = None
        """Sizes, with None for unknown ones; None once the module is built."""

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Creates all layers and tables whose shapes depend on the sizes."""
        raise NotImplementedError(f"{type(self).__name__} must implement build")

    def build_with(self, **sizes: Any) -> None:
        """Builds the module if all sizes are known; otherwise `build_for` does.

        Args:
            sizes: arguments of `build`, None for those that are taken from the data.
        """
        self._missing = sizes
        if None not in sizes.values():
            self._missing = None
            self.build(**sizes)

    def build_for(self, data: object) -> None:
        """Builds the module with the sizes of the data, unless it is built.

        Args:
            data: object with a property for every missing size, e.g. a data module.

        Raises:
            InputError: a size is missing in the data.
        """
        if self._missing is None:
            return
        sizes = {n: self._size(n, data) if value is None else value for n, value in self._missing.items()}
        # Lightning sets the accelerator as the default device, but initial weights are drawn on the CPU.
        with torch.device("cpu"):
            self.build(**sizes)
        self._missing = None
        self.hparams.update(sizes)

    def setup(self, stage: str) -> None:
        """Checks that the module supports the Trainer's precision.

        Raises:
            InputError: it is not one of `precisions`.
        """
        require(
            self.trainer.precision in self.precisions,
            f"precision {' or '.join(self.precisions)} for {type(self).__name__}",
            self.trainer.precision,
            "Leave --trainer.precision out.",
        )

    def configure_model(self) -> None:
        """Builds the module for the Trainer's data when training or validation starts."""
        self.build_for(None if self._trainer is None else getattr(self._trainer, "datamodule", None))

    def _size(self, name: str, data: object) -> Any:
        value = getattr(data, name, None)
        if value is None:
            kind = type(self).__name__
            raise InputError(
                expected=f"data with {name}, which {kind} needs",
                found="no data module" if data is None else f"none in {type(data).__name__}",
                way_out=f"Choose other data or another model, or set {name} of {kind}; your own data module needs a "
                f"property {name}.",
            )
        return value

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the arguments as plain values, which load without running code."""
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
        """Module from a checkpoint, e.g. ``FNCF.load_from_checkpoint("last.ckpt")``.

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
