"""A training that a program describes."""

import copy
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from jsonargparse import ArgumentError, Namespace
from lightning import LightningModule, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from datamodules.base import FederatedDataModule
from experiments.training import TRAINER_DEFAULTS, WHAT, FederatedCLI, TrainParser
from modules.error_reports import refusal_in
from protocol.errors import InputError


class Training(FederatedCLI):
    """A training that a program describes: parsed and checked at once, built as often as asked for, without output.

    Args:
        config: as a file of configs/train holds it.

    Raises:
        InputError: a key or a value is none that ``train.py`` takes.
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
        """Made once: that takes longer than parsing, and a table has hundreds of cells."""
        made = type(self)._shared
        if made is None:
            super().setup_parser(add_subcommands, main_kwargs, subparser_kwargs)
            type(self)._shared = self.parser
        else:
            self.parser = made

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Whatever the arguments of this process are."""
        try:
            self.config = parser.parse_object(copy.deepcopy(args))
        except (ArgumentError, TypeError, ValueError) as error:
            assert isinstance(parser, TrainParser)
            found, way_out = parser.explained(str(error))
            raise InputError(expected="keys and values that train.py takes", found=found, way_out=way_out) from error

    def _set_seed(self) -> None:
        """Nothing draws from the global generators."""

    def _parse_ckpt_path(self) -> None:
        """A training of a table begins anew."""

    def before_instantiate_classes(self) -> None:
        """Nothing is built yet."""

    def instantiate_classes(self) -> None:
        """Left to `build`."""

    def after_instantiate_classes(self) -> None:
        """Left to `build`."""

    @property
    def plain(self) -> dict[str, Any]:
        """The configuration with every default, as JSON has it."""
        whole: dict[str, Any] = json.loads(json.dumps(self.config.as_dict(), default=repr, sort_keys=True))
        return {name: whole[name] for name in ("data", "model", "trainer")}

    def data(self) -> FederatedDataModule:
        """The data alone.

        Raises:
            InputError: their arguments make none.
        """
        try:
            alone = Namespace(data=self.config.data)  # type: ignore[no-untyped-call]
            made: FederatedDataModule = self.parser.instantiate(alone).data
        except Exception as error:
            raise refusal_in(error) or error from error
        return made

    def build(self) -> tuple[LightningModule, FederatedDataModule, Trainer]:
        """A new model, its data and a Trainer.

        Raises:
            InputError: their arguments, or the machine, make none of them.
        """
        try:
            FederatedCLI.before_instantiate_classes(self)
            FederatedCLI.instantiate_classes(self)
            FederatedCLI.after_instantiate_classes(self)
        except Exception as error:
            raise refusal_in(error) or error from error
        return self.model, self.datamodule, self.trainer
