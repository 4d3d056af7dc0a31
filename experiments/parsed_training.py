"""Training from a configuration in memory."""

import copy
import json
import pydoc
from collections.abc import Mapping
from typing import Any, ClassVar

from jsonargparse import ArgumentError, Namespace
from lightning import LightningModule, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from datamodules.base import FederatedDataModule
from experiments.training import TRAINER_DEFAULTS, WHAT, FederatedCLI, TrainParser
from modules.lightning.error_reports import refusal_in
from protocol.errors import InputError


class Training(FederatedCLI):
    """Training from a configuration in memory, parsed and checked at once, built on demand, without output.

    Args:
        config: configuration as in configs/train.

    Raises:
        InputError: ``train.py`` does not take a key or a value.
    """

    _shared: ClassVar[LightningArgumentParser | None] = None

    def __init__(self, config: Mapping[str, Any]) -> None:
        parser = {"prog": f"{TrainParser.program} fit", "exit_on_error": False}
        super().__init__(
            run=False,
            args=dict(config),
            save_config_callback=None,
            trainer_defaults=TRAINER_DEFAULTS,
            **{**WHAT, "parser_kwargs": parser},
        )

    def setup_parser(
        self, add_subcommands: bool, main_kwargs: dict[str, Any], subparser_kwargs: dict[str, Any]
    ) -> None:
        """Sets the parser, which all instances share because building it takes longer than parsing."""
        made = type(self)._shared
        if made is None:
            super().setup_parser(add_subcommands, main_kwargs, subparser_kwargs)
            type(self)._shared = self.parser
        else:
            self.parser = made

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parses the configuration, without the arguments of this process."""
        try:
            self.config = parser.parse_object(copy.deepcopy(args))
        except (ArgumentError, TypeError, ValueError) as error:
            assert isinstance(parser, TrainParser)
            found, way_out = parser.explained(error)
            raise InputError(expected="keys and values that train.py takes", found=found, way_out=way_out) from error

    def _set_seed(self) -> None:
        """Does nothing: no code draws from the global generators."""

    def _parse_ckpt_path(self) -> None:
        """Does nothing: a table's training does not resume."""

    def before_instantiate_classes(self) -> None:
        """Does nothing, see `build`."""

    def instantiate_classes(self) -> None:
        """Does nothing, see `build`."""

    def after_instantiate_classes(self) -> None:
        """Does nothing, see `build`."""

    @property
    def plain(self) -> dict[str, Any]:
        """Configuration with all defaults, as JSON types."""
        whole: dict[str, Any] = json.loads(json.dumps(self.config.as_dict(), default=repr, sort_keys=True))
        return {name: _with_full_paths(whole[name]) for name in ("data", "model", "trainer")}

    def data(self) -> FederatedDataModule:
        """Data module alone.

        Raises:
            InputError: its arguments are wrong.
        """
        try:
            alone = Namespace(data=self.config.data)  # type: ignore[no-untyped-call]
            made: FederatedDataModule = self.parser.instantiate(alone).data
        except Exception as error:
            raise refusal_in(error) or error from error
        return made

    def build(self) -> tuple[LightningModule, FederatedDataModule, Trainer]:
        """New module, data module and Trainer.

        Raises:
            InputError: their arguments are wrong, or do not fit the machine.
        """
        try:
            FederatedCLI.before_instantiate_classes(self)
            FederatedCLI.instantiate_classes(self)
            FederatedCLI.after_instantiate_classes(self)
        except Exception as error:
            raise refusal_in(error) or error from error
        return self.model, self.datamodule, self.trainer


def _with_full_paths(value: Any) -> Any:
    """Value with every class path replaced by the path of the module that defines the class.

    The parser writes the path that it met first, but equal trainings must have equal descriptions.
    """
    if isinstance(value, list):
        return [_with_full_paths(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: _with_full_paths(one) for name, one in value.items()}
    if isinstance(made.get("class_path"), str):
        kind = pydoc.locate(made["class_path"])
        if isinstance(kind, type):
            made["class_path"] = f"{kind.__module__}.{kind.__qualname__}"
    return made
