"""Modules whose sizes may come from the data: built at once if the sizes are given, otherwise when training starts."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, ClassVar, Self, TypeVar

import torch
from lightning import LightningModule
from lightning.fabric.utilities.types import _MAP_LOCATION_TYPE, _PATH
from torch import Tensor

from fedleak.core.class_paths import subclasses
from fedleak.core.described import KEY, described
from fedleak.core.errors import InputError, require
from fedleak.core.named_by_strangers import arguments_from
from fedleak.core.parameters import class_path
from fedleak.training.lightning.checkpoint_file import check_fits, read_checkpoint
from fedleak.training.lightning.error_reports import in_one_line

_Module = TypeVar("_Module", bound="BuiltFromData")


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
        sizes = {}
        for name, value in self._missing.items():
            sizes[name] = self._size(name, data) if value is None else value
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
        data = None
        if self._trainer is not None:
            data = getattr(self._trainer, "datamodule", None)
        self.build_for(data)

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
        weights_only: bool | None = True,  # noqa: ARG003 - of the signature that is overridden
        **kwargs: Any,
    ) -> Self:
        """Module from a checkpoint, e.g. ``FNCF.load_from_checkpoint("last.ckpt")``.

        Its arguments are read as plain values, see `fedleak.core.named_by_strangers`, and its sizes are
        compared with those of its tensors before memory is taken. Nothing in the file runs, is imported or is opened,
        whatever `weights_only`.

        Args:
            checkpoint_path: file, or an open one.
            map_location: see `torch.load`.
            hparams_file: not supported, None.
            strict: whether the file must have exactly the module's tensors, None for yes.
            weights_only: has no effect.
            kwargs: arguments of the module in place of those in the file.

        Raises:
            InputError: the file is no whole checkpoint of this class, or gives arguments that are not accepted.
        """
        require(hparams_file is None, "no hparams_file", str(hparams_file), "Give the arguments themselves.")
        where = str(checkpoint_path) if isinstance(checkpoint_path, str | Path) else "the checkpoint"
        content = read_checkpoint(checkpoint_path, where, map_location)
        kind = _saved_class(cls, content, where)
        # Arguments that are given go before those of the file, and names of the parser are no arguments.
        saved = {name: value for name, value in content[KEY].items() if name not in (*_RESERVED, *kwargs)}
        arguments = arguments_from(kind, saved, where=where, way_out=_WAY_OUT) | kwargs
        # Shapes are compared on the meta device, which takes no memory, before a stranger's sizes take any.
        with torch.device("meta"):
            sizes = kind.configured(arguments, where).saved_tensors()
        if strict is not False:
            check_fits(content, sizes, kind)
        module: Self = kind.configured(arguments, where)
        try:
            module.on_load_checkpoint(content)
            module.load_state_dict(content["state_dict"], strict=strict is not False)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise _unfit(kind, where, error) from None
        first_tensor = next(iter(content["state_dict"].values()), None)
        device = torch.device("cpu") if first_tensor is None else first_tensor.device
        return module.to(device)

    @classmethod
    def configured(cls, arguments: Mapping[str, Any], where: str) -> Self:
        """Module with arguments from a file, built if its sizes are among them.

        Raises:
            InputError: the arguments do not go together.
        """
        try:
            module = cls(**arguments)
            module.configure_model()
        except (RuntimeError, TypeError, ValueError, ArithmeticError) as error:
            raise _unfit(cls, where, error) from None
        return module

    def saved_tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Tensors of a checkpoint by key and name."""
        return {"state_dict": dict(self.state_dict())}


_RESERVED = ("_class_path", "_instantiator")
_WAY_OUT = "Give the argument yourself, load_from_checkpoint(path, NAME=...), or train anew."


def _saved_class(cls: type[_Module], content: Mapping[str, Any], where: str) -> type[_Module]:
    saved_arguments = content.get(KEY)
    require(
        isinstance(saved_arguments, Mapping) and isinstance(content.get("state_dict"), Mapping),
        f"a checkpoint of a training of {cls.__name__} in {where}",
        "a file without its arguments or tensors",
        _WAY_OUT,
    )
    kinds = {class_path(kind): kind for kind in subclasses(cls)}
    # Only classes that are imported already are taken: the name in a file imports nothing.
    path = None
    if isinstance(saved_arguments, Mapping):
        path = saved_arguments.get("_class_path", class_path(cls))
    saved_kind = kinds.get(path) if isinstance(path, str) else None
    if saved_kind is None:
        raise InputError(
            expected=f"a checkpoint of {cls.__name__} or of an imported subclass in {where}",
            found=str(path)[:100],
            way_out="If you trust the file, import its module first.",
        )
    return saved_kind


def _unfit(kind: type, where: str, error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    return InputError(
        expected=f"a checkpoint that {kind.__name__} accepts in {where}",
        found=in_one_line(str(error))[:200],
        way_out=_WAY_OUT,
    )
