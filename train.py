"""Federated training: ``python train.py fit --config configs/train/fncf_movielens.yaml --data.root DIR``."""

import functools
import inspect
import os
import pydoc
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, Timer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger

from callbacks.audit import Audit
from callbacks.delta_recorder import DeltaRecorder
from callbacks.privacy_budget import PrivacyBudget
from callbacks.requeue import Requeue
from callbacks.run_config import RunConfig
from callbacks.stop_report import StopReport
from command_line import OneLineParser, check_config_files
from datamodules.base import FederatedDataModule
from datamodules.blog import Blog
from datamodules.cifar10 import CIFAR10
from datamodules.digits import Digits
from datamodules.fer import FER
from datamodules.letor import LETOR
from datamodules.mnist import MNIST, FashionMNIST
from datamodules.movielens import MovieLens
from datamodules.mslr import MSLR
from datamodules.open_images import OpenImages
from datamodules.pipa import PIPA
from datamodules.sent140 import Sentiment140
from datamodules.skin_cancer import SkinCancer
from datamodules.steam import Steam
from datamodules.synthetic import SyntheticRecommender
from datamodules.synthetic_images import SyntheticImages
from datamodules.synthetic_posts import SyntheticPosts
from datamodules.synthetic_ranking import SyntheticRanking
from datamodules.yelp import Yelp
from defenses.base import Defense
from defenses.device_noise import DeviceNoise
from defenses.refusal import RefuseProbes
from defenses.row_noise import RowNoise
from evaluation.guardrail import Guardrail
from modules.central import CentralFNCF
from modules.checkpoint_io import NAMES, CheckedCheckpointIO, check_present
from modules.classifier import FederatedClassifier
from modules.fncf import FNCF
from modules.foltr_es import FOLtRES
from modules.fpdgd import FPDGD
from modules.mf import FederatedMF
from modules.processes import check_processes
from modules.refusals import refusal_in, refused
from modules.tagger import FederatedTagger
from modules.text_model import FederatedText
from protocol.errors import InputError
from signals import Stopped, Stopping, ends_on_signals, leave

SHORT_NAMES = (
    *(DeltaRecorder, PrivacyBudget, Audit),
    *(MovieLens, Steam, SyntheticRecommender, LETOR, MSLR, SyntheticRanking),
    *(MNIST, FashionMNIST, CIFAR10, FER, SkinCancer, Digits, SyntheticImages),
    *(Blog, Yelp, Sentiment140, PIPA, OpenImages, SyntheticPosts),
    *(FNCF, CentralFNCF, FOLtRES, FPDGD, FederatedMF, FederatedClassifier, FederatedText, FederatedTagger),
    *(RowNoise, RefuseProbes, Guardrail, DeviceNoise),
)
"""Classes that a config may name without their module: jsonargparse finds what was imported."""


_FROM_DATA = (
    *("num_items", "num_clients", "num_features", "num_grades", "grade_law"),
    *("num_classes", "image_shape"),
)
"""What a model takes from its data, where both have it."""


def run_folder(root: str | None, environment: Mapping[str, str]) -> str | None:
    """Where a run leaves what it leaves: a run of a W&B sweep in a folder of its own, named as the agent names it."""
    if not (environment.get("WANDB_SWEEP_ID") and environment.get("WANDB_RUN_ID")):
        return root
    return str(Path(root or "runs") / environment["WANDB_RUN_ID"])


class TrainParser(OneLineParser):
    """Knows the classes that a configuration may name."""

    program = "train.py"
    kinds = (LightningModule, FederatedDataModule, Callback, Logger, Defense)


class FederatedCLI(LightningCLI):
    """Joins model and data: who they are, how many items and clients there are, one seed for both.

    Refuses what no training can be, before one begins, and gives every run of a sweep a folder of its own.
    """

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """``fit`` and ``validate``, which measures on the data's test examples; there is no other split."""
        offered = LightningCLI.subcommands()
        return {name: offered[name] for name in ("fit", "validate")}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Links what model and data must agree on."""
        parser.link_arguments("data.init_args.seed", "model.init_args.seed")
        parser.link_arguments("trainer.default_root_dir", "trainer.logger.init_args.save_dir")
        for name in _FROM_DATA:
            given = functools.partial(self._from_data, name)
            parser.link_arguments("data", f"model.init_args.{name}", compute_fn=given, apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Refuses configuration files that would be read otherwise than they were meant."""
        check_config_files(args if isinstance(args, list) else sys.argv[1:])
        super().parse_arguments(parser, args)

    def _parse_ckpt_path(self) -> None:
        """Leaves the configuration as it is: Lightning would open the file here, and let it change the model."""
        path = self.config[self.config.subcommand].ckpt_path
        if path is not None and str(path) not in NAMES:
            check_present(path)

    def before_instantiate_classes(self) -> None:
        """Settles the folder of the run and, where the devices are a number, that there is a process for each."""
        trainer = self.config[str(self.subcommand)].trainer
        check_options(trainer)
        trainer.default_root_dir = run_folder(trainer.default_root_dir, os.environ)
        if isinstance(trainer.logger, Namespace) and "init_args" in trainer.logger:
            trainer.logger.init_args.save_dir = trainer.default_root_dir
        # Lightning's own message about some of this is no message but a traceback.
        if str(trainer.devices).isdigit():
            check_processes(int(trainer.devices) * trainer.num_nodes, os.environ)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Lightning's; every error in it is about an option.

        Raises:
            InputError: the options, or the machine, make no Trainer.
        """
        try:
            return super().instantiate_trainer(**kwargs)
        except Exception as error:
            raise refused(error) from error

    def after_instantiate_classes(self) -> None:
        """The number of processes where the devices were a list, or left to be found; and that there is an end."""
        check_processes(self.trainer.num_devices * self.trainer.num_nodes, os.environ)
        self.trainer.strategy.checkpoint_io = CheckedCheckpointIO(self.model, resume=self.subcommand == "fit")
        if self.subcommand == "fit" and type(self.datamodule).train_dataloader is FederatedDataModule.train_dataloader:
            check_end(self.trainer)

    def _from_data(self, name: str, data: object) -> object:
        """What the data say of themselves under a name; None where they say nothing and the model can do without."""
        value = getattr(data, name, None)
        model = self.config[str(self.subcommand)].model.class_path
        wanted = inspect.signature(pydoc.locate(model)).parameters.get(name)  # type: ignore[arg-type]
        if value is None and wanted is not None and wanted.default is inspect.Parameter.empty:
            raise InputError(
                expected=f"data with {name}, which {model.rpartition('.')[2]} needs",
                found=f"none in {type(data).__name__}",
                way_out=f"Choose other data or another model; your own data give it as a property {name}.",
            )
        return value


def check_options(trainer: Namespace) -> None:
    """Refuses options of the trainer that Lightning takes and cannot use.

    Raises:
        InputError: names the option.
    """
    for name in ("val_check_interval", "check_val_every_n_epoch"):
        value = trainer[name]
        if value is not None and value == 0:
            raise InputError(
                expected=f"trainer.{name} above 0", found="0", way_out="Leave it out, or set limit_val_batches to 0."
            )
    if trainer.overfit_batches:
        raise InputError(
            expected="no trainer.overfit_batches",
            found=str(trainer.overfit_batches),
            way_out="A batch is a round here: give trainer.max_steps, and fewer clients.",
        )
    strategy = str(trainer.strategy)
    if "spawn" in strategy or "fork" in strategy or "notebook" in strategy:
        raise InputError(
            expected="a strategy that starts this command again for every device",
            found=strategy,
            way_out="Give --trainer.strategy ddp.",
        )


def check_end(trainer: Trainer) -> None:
    """Refuses a training without end: an epoch of rounds has none.

    Raises:
        InputError: nothing stops it.
    """
    limited = isinstance(trainer.limit_train_batches, int) or trainer.max_epochs == 0
    stops = any(isinstance(callback, EarlyStopping | Timer) for callback in trainer.callbacks)  # type: ignore[attr-defined]
    if trainer.max_steps == -1 and not limited and not stops:
        raise InputError(
            expected="a number of rounds", found="none", way_out="Give --trainer.max_steps N, or --trainer.max_time."
        )


def main(args: ArgsType = None, stopping: Stopping | None = None) -> FederatedCLI:
    """Runs the command line; returns the CLI with its trainer, model and data.

    Args:
        args: of the command line, None for those of the process.
        stopping: what to do when a signal asks to end.
    """
    return FederatedCLI(
        LightningModule,
        FederatedDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        save_config_callback=RunConfig,
        save_config_kwargs={"save_to_log_dir": False, "overwrite": True},
        trainer_class=Trainer,
        trainer_defaults={
            **{"use_distributed_sampler": False, "max_epochs": 1, "logger": False},
            "callbacks": [Requeue(), StopReport(stopping or Stopping())],
        },
        parser_class=TrainParser,
        parser_kwargs={"prog": TrainParser.program},
        args=args,
    )


def run(args: Sequence[str] | None = None) -> int:
    """The command: a clear message and exit status 2 for what a person can fix, 128 + n after signal n."""
    with ends_on_signals(program="train.py") as stopping:
        try:
            main(None if args is None else list(args), stopping)
        except (Exception, Stopped) as error:
            if stopping.asked is not None:
                # What a library makes of the end, e.g. of a worker's or of another process's, says nothing more.
                stopping.say(stopping.asked)
                return 128 + stopping.asked
            refusal = refusal_in(error)
            if refusal is None:
                raise
            stopping.forward(signal.SIGTERM)
            print(f"train.py: {refusal}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    leave(run())
