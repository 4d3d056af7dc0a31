"""Training from a configuration in memory."""

import json
import pydoc
from collections.abc import Mapping
from typing import Any, ClassVar

from jsonargparse import ArgumentError, Namespace
from lightning import LightningModule, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from fedleak.core.errors import InputError
from fedleak.core.moved import with_current_paths
from fedleak.tables.overrides import check_lengths_of_lists
from fedleak.tables.training import TRAINER_DEFAULTS, WHAT, FederatedCLI, TrainParser
from fedleak.training.data import FederatedDataModule
from fedleak.training.lightning.error_reports import refusal_in


class Training(FederatedCLI):
    """Training from a configuration as in configs/train, parsed and checked at once, built on demand, without output.

    Raises:
        InputError: ``fedleak train`` does not take a key or a value.
    """

    _shared: ClassVar[LightningArgumentParser | None] = None

    def __init__(self, config: Mapping[str, Any]) -> None:
        parser = {"prog": f"{TrainParser.program} fit", "exit_on_error": False}
        what = {**WHAT, "parser_kwargs": parser, "trainer_defaults": TRAINER_DEFAULTS}
        super().__init__(run=False, args=dict(config), save_config_callback=None, **what)

    def setup_parser(self, *args: Any, **options: Any) -> None:
        """Sets the parser, which all instances share because building it takes longer than parsing."""
        if Training._shared is None:
            super().setup_parser(*args, **options)
            Training._shared = self.parser
        self.parser = Training._shared

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parses the configuration, without the arguments of this process."""
        check_lengths_of_lists(args, "")
        try:
            self.config = parser.parse_object(with_current_paths(args))
        except (ArgumentError, TypeError, ValueError) as error:
            assert isinstance(parser, TrainParser)
            found, way_out = parser.explained(error)
            raise InputError(
                expected="keys and values that fedleak train takes", found=found, way_out=way_out
            ) from error

    def instantiate_classes(self) -> None:
        """Does nothing, see `build`, like the steps below: no code draws from global generators, no table resumes."""

    before_instantiate_classes = after_instantiate_classes = _set_seed = _parse_ckpt_path = instantiate_classes

    @property
    def plain(self) -> dict[str, Any]:
        """Configuration with all defaults, as JSON types."""
        whole: dict[str, Any] = json.loads(json.dumps(self.config.as_dict(), default=repr, sort_keys=True))
        return {name: _with_full_paths(whole[name]) for name in ("data", "model", "trainer")}

    def data(self) -> FederatedDataModule:
        """Data module alone."""
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
