"""Training from a configuration in memory."""

import json
import pydoc
from collections.abc import Mapping
from typing import Any, ClassVar

from jsonargparse import Namespace
from lightning import LightningModule, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from fedleak.core.moved import with_current_paths
from fedleak.tables.command_words import Given
from fedleak.tables.training import FederatedCLI, check_configuration
from fedleak.training.data import FederatedDataModule
from fedleak.training.lightning.error_reports import refusal_in


class Training(FederatedCLI):
    """Training from a configuration as in configs/train, parsed and checked at once, built on demand, without output.

    Raises:
        InputError: ``fedleak train`` does not take a key or a value.
    """

    _shared: ClassVar[LightningArgumentParser | None] = None

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(dict(config), run=False)

    def setup_parser(self, *args: Any, **options: Any) -> None:
        """Sets the parser of ``fedleak train fit``, shared because building it takes longer than parsing."""
        if Training._shared is None:
            self._subcommand_method_arguments: dict[str, list[str]] = {}
            Training._shared = self._prepare_subcommand_parser(Trainer, "fit")
        self.parser = Training._shared

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Checks and parses the configuration, without the arguments of this process."""
        content = with_current_paths(args)
        check_configuration(parser, [Given(content)], complete=True)
        self.config = parser.parse_object(content)

    def instantiate_classes(self) -> None:
        """Does nothing, see `build`, like the steps below: no code draws from global generators, no table resumes."""

    before_instantiate_classes = after_instantiate_classes = _set_seed = _parse_ckpt_path = instantiate_classes

    @property
    def plain(self) -> dict[str, Any]:
        """Configuration with all defaults, as JSON types."""
        config: dict[str, Any] = json.loads(json.dumps(self.config.as_dict(), default=repr, sort_keys=True))
        return {name: _with_full_paths(config[name]) for name in ("data", "model", "trainer")}

    def data(self) -> FederatedDataModule:
        """Data module alone."""
        try:
            data_config = Namespace(data=self.config.data)  # type: ignore[no-untyped-call]
            data: FederatedDataModule = self.parser.instantiate(data_config).data
        except Exception as error:
            raise refusal_in(error) or error from error
        return data

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
        return [_with_full_paths(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    with_paths = {name: _with_full_paths(value_below) for name, value_below in value.items()}
    if isinstance(with_paths.get("class_path"), str):
        located = pydoc.locate(with_paths["class_path"])
        if isinstance(located, type):
            with_paths["class_path"] = f"{located.__module__}.{located.__qualname__}"
    return with_paths
