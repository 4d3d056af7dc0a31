"""Command line of ``fedleak train``: LightningCLI for federated training."""

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import Namespace, set_loader
from jsonargparse._loaders_dumpers import loaders
from lightning import LightningModule, Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import Callback, EarlyStopping, ProgressBar, Timer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI

from fedleak import defenses, server
from fedleak.core.additions import room
from fedleak.core.class_paths import classes_in, find_in_current_folder
from fedleak.core.errors import InputError, require
from fedleak.core.moved import with_current_paths
from fedleak.core.signals import Stopping
from fedleak.evaluation.guardrail import Guardrail
from fedleak.recordings.stop_report import StopReport, newest_checkpoint
from fedleak.reports.results_folder import print_outputs, results_in, shell_command
from fedleak.tables.command_words import Given, read_words
from fedleak.tables.configuration_check import ConfigurationCheck
from fedleak.tables.overrides import PARTS, check_lengths_of_lists
from fedleak.tables.quiet import quieten
from fedleak.training.data import FederatedDataModule
from fedleak.training.lightning.checkpoint_file import check_present
from fedleak.training.lightning.checkpoint_io import NAMES, CheckedCheckpointIO
from fedleak.training.lightning.error_reports import refused
from fedleak.training.lightning.launch_check import check_cores, check_processes, usable_cores
from fedleak.training.lightning.requeue import Requeue
from fedleak.training.lightning.round_progress import RoundProgress
from fedleak.training.lightning.run_config import RunConfig
from fedleak.training.lightning.train_parser import SUBCOMMANDS, one_line
from fedleak.training.round_recorder import RoundRecorder

SHORT_NAMES = (
    # Steps of tables are no part of a training, and import what trains.
    *classes_in(room("callbacks"), object, without="steps"),
    *classes_in(room("datamodules"), object),
    *classes_in(room("modules"), object),
    *classes_in(defenses, object),
    *classes_in(server, object),
    Guardrail,
)
"""Classes that a config may name without their module, because jsonargparse finds imported classes."""


def run_folder(root: str | None, environment: Mapping[str, str]) -> str | None:
    """Output folder of a run; each run of a W&B sweep has its own folder, named after its W&B run id."""
    if not (environment.get("WANDB_SWEEP_ID") and environment.get("WANDB_RUN_ID")):
        return root
    return str(Path(root or "runs") / environment["WANDB_RUN_ID"])


def name_run(logger: Namespace, environment: Mapping[str, str]) -> None:
    """Names the run of a logger after its folder, unless it has a name; a W&B sweep names its runs itself."""
    if "name" in logger and "project" in logger and logger.name is None and "WANDB_SWEEP_ID" not in environment:
        logger.name = Path(logger.save_dir).resolve().name


_LOAD_YAML = loaders["yaml"]
set_loader("yaml", lambda text: with_current_paths(_LOAD_YAML(text)))  # configurations of older versions


TRAINER_DEFAULTS: dict[str, Any] = {
    # The data module shards cohorts over ranks.
    "use_distributed_sampler": False,
    "max_epochs": 1,
    "logger": False,
    # Few people need the table of layers; `--trainer.enable_model_summary true` prints it.
    "enable_model_summary": False,
    # A round is expensive.
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 1,
    "accelerator": "auto",
    # `auto` would start a process for every GPU of a shared machine; the number of devices does not change the model.
    "devices": 1,
}
"""Default options of the Trainer; `FederatedCLI` sets the progress bar and the folder."""


class TrainParser(LightningArgumentParser):
    """Parser of a training's configuration, for the command line and for cells of tables."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # An abbreviation that is unique today is another option, or none, tomorrow.
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raises an error with the first line of what the library refuses.

        The arguments of a class have a parser of their own, whose error is the cause of that of the outermost one.

        Raises:
            InputError: this is the outermost parser.
        """
        if not self.exit_on_error:
            super().error(message, ex)
        raise InputError(
            expected="a configuration that fedleak train takes",
            found=message.partition("\n")[0] if ex is None else one_line(ex),
            way_out="`fedleak train fit --help` lists the options.",
        ) from ex


def check_configuration(parser: LightningArgumentParser, parts: Iterable[Given], *, complete: bool) -> None:
    """Checks the keys, classes and values of a configuration before the parser reads it.

    Args:
        parser: parser of the subcommand, whose options are known.
        parts: files and options, in order.
        complete: whether they are all that is needed.

    Raises:
        InputError: something is wrong or missing.
    """
    heads = {action.dest.partition(".")[0] for action in parser._actions}
    check = ConfigurationCheck(options=sorted(heads - {*PARTS, "help"}), trainer_defaults=TRAINER_DEFAULTS)
    for part in parts:
        check_lengths_of_lists(part.content, "")
        check.add(part)
    if complete:
        check.finish()


class FederatedCLI(LightningCLI):
    """LightningCLI with one seed for model and data, checks before training, and one folder per run of a sweep.

    Args:
        args: words of the command line, those of the process for None; or a configuration.
        callbacks: callbacks of every training, besides those of the configuration.
        run: whether a subcommand is run, and its configuration saved.
    """

    def __init__(self, args: ArgsType, *, callbacks: Sequence[Callback] = (), run: bool = True) -> None:
        trainer_defaults = dict(TRAINER_DEFAULTS)
        if callbacks:
            trainer_defaults["callbacks"] = list(callbacks)
        super().__init__(
            model_class=LightningModule,
            datamodule_class=FederatedDataModule,
            save_config_callback=RunConfig if run else None,
            save_config_kwargs={"save_to_log_dir": False, "overwrite": True},
            trainer_class=Trainer,
            trainer_defaults=trainer_defaults,
            seed_everything_default=0,
            parser_class=TrainParser,
            parser_kwargs={"prog": "fedleak train"},
            subclass_mode_model=True,
            subclass_mode_data=True,
            args=args,
            run=run,
            auto_configure_optimizers=False,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """``fit`` and ``validate``, which measures utility on the data's test examples."""
        offered = LightningCLI.subcommands()
        return {name: offered[name] for name in SUBCOMMANDS}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Links arguments that must be equal."""
        parser.link_arguments("data.init_args.seed", "model.init_args.seed")
        parser.link_arguments("trainer.default_root_dir", "trainer.logger.init_args.save_dir")

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Checks the configuration, and names the run's folder after its first file."""
        words = read_words(args if isinstance(args, list) else sys.argv[1:])
        if words.subcommand is not None:
            subcommand_parser = self._subcommand_parsers[words.subcommand]
            check_configuration(subcommand_parser, words.parts, complete=not words.asks)
        name = words.files[0].stem if words.files else "unnamed"
        for offered in self._subcommand_parsers.values():
            offered.set_defaults({"trainer.default_root_dir": f"runs/{name}"})
        with warnings.catch_warnings():
            # `fedleak train fit` gives what follows `train`, of the same command line.
            warnings.filterwarnings("ignore", "LightningCLI's args parameter")
            super().parse_arguments(parser, args)

    def _parse_ckpt_path(self) -> None:
        """Checks that the checkpoint exists; Lightning would let its hyper-parameters change the model."""
        path = self.config[self.config.subcommand].ckpt_path
        if path is not None and str(path) not in NAMES:
            check_present(path)

    @property
    def chosen(self) -> Namespace:
        """Configuration of the subcommand, if there is one."""
        config: Namespace = self.config
        if self.subcommand is not None:
            config = config[self.subcommand]
        return config

    def before_instantiate_classes(self) -> None:
        """Sets the folder of the run, and checks the number of processes if the number of devices is given."""
        trainer = self.chosen.trainer
        check_options(trainer)
        trainer.default_root_dir = run_folder(trainer.default_root_dir, os.environ)
        if isinstance(trainer.logger, Namespace) and "init_args" in trainer.logger:
            trainer.logger.init_args.save_dir = trainer.default_root_dir
            name_run(trainer.logger.init_args, os.environ)
        # Lightning would fail with a traceback in some of these cases.
        if str(trainer.devices).isdigit():
            check_processes(int(trainer.devices) * trainer.num_nodes, os.environ)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Trainer with a progress bar of rounds; an error for options that are invalid on this machine is readable."""
        options = self._get(self.config_init, "trainer")
        callbacks = options.callbacks if isinstance(options.callbacks, list) else [options.callbacks]
        has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
        if options.enable_progress_bar is not False and not has_bar:
            kwargs["callbacks"] = [*filter(None, callbacks), RoundProgress()]
        try:
            return super().instantiate_trainer(**kwargs)
        except Exception as error:
            raise refused(error) from error

    def after_instantiate_classes(self) -> None:
        """Checks the number of processes and that the training ends, and sets the checkpoint reader."""
        check_processes(self.trainer.num_devices * self.trainer.num_nodes, os.environ)
        if isinstance(self.trainer.accelerator, CPUAccelerator):
            check_cores(self.trainer.num_devices, usable_cores())
        self.trainer.strategy.checkpoint_io = CheckedCheckpointIO(self.model, resume=self.subcommand != "validate")
        # A data module with a loader of its own, or a model with a number of rounds, ends the training itself.
        draws_cohorts = type(self.datamodule).train_dataloader is FederatedDataModule.train_dataloader
        if draws_cohorts and self.subcommand != "validate" and getattr(self.model, "rounds", None) is None:
            check_end(self.trainer, self.datamodule)

    def after_fit(self) -> None:
        """Prints where the files of the run are, and the command that audits the recording."""
        if not self.trainer.is_global_zero:
            return
        root = Path(self.trainer.default_root_dir)
        recordings = []
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, RoundRecorder):
                recordings.append(callback.folder(self.trainer))
        outputs = {"recording": recordings, "config": [root / "config.yaml"], **results_in(root)}
        checkpoint = newest_checkpoint(self.trainer)
        if checkpoint is not None:
            outputs["checkpoint"] = [checkpoint]
        then = shell_command("train", "validate", "--config", root / "config.yaml")
        if recordings:
            then = shell_command("audit", recordings[0])
        print_outputs(outputs, then=then)


def check_options(trainer: Namespace) -> None:
    """Checks options of the Trainer that LightningCLI accepts but federated training cannot use."""
    for name in ("val_check_interval", "check_val_every_n_epoch"):
        value = trainer[name]
        way_out = "Omit it, or set limit_val_batches to 0."
        require(value is None or value != 0, f"trainer.{name} above 0", value, way_out)
    way_out = "A batch is a round here: set trainer.max_steps, and use fewer clients."
    require(not trainer.overfit_batches, "no trainer.overfit_batches", trainer.overfit_batches, way_out)
    strategy = str(trainer.strategy)
    starts_command_again = not any(name in strategy for name in ("spawn", "fork", "notebook"))
    expected = "a strategy that starts this command again for every device"
    require(starts_command_again, expected, strategy, "Set --trainer.strategy ddp.")


def check_end(trainer: Trainer, data: FederatedDataModule) -> None:
    """Checks that the training ends; an epoch has no end unless the data give a number of rounds."""
    # An epoch ends by a limit of batches, which are rounds, or by the data's rounds; a training also by steps or time.
    epoch_ends = isinstance(trainer.limit_train_batches, int) or data.rounds is not None
    stops = any(isinstance(callback, EarlyStopping | Timer) for callback in trainer.callbacks)  # type: ignore[attr-defined]
    ends = epoch_ends or trainer.max_steps != -1 or trainer.max_epochs == 0 or stops
    require(ends, "a number of rounds", "none", "Set --trainer.max_steps N, or --trainer.max_time.")
    epochs = trainer.max_epochs or 0
    require(
        epoch_ends or epochs <= 1,
        "no trainer.max_epochs, as an epoch of rounds has no end",
        epochs,
        "Set --trainer.max_steps, the number of rounds, and omit max_epochs.",
    )


def main(args: ArgsType = None, stopping: Stopping | None = None) -> FederatedCLI:
    """Runs the command line, of the process for None, and returns the CLI with its Trainer, model and data."""
    quieten()
    find_in_current_folder()  # for class paths of the configuration, which is the user's own
    stops = [Requeue(), StopReport(stopping or Stopping())]
    return FederatedCLI(args, callbacks=stops)
