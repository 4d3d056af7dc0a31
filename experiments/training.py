"""The command line of ``train.py``: Lightning's, with what federated training adds to it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ProgressBar, Timer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger

from attacks.manipulation import Manipulation
from callbacks.audit import Audit
from callbacks.delta_recorder import DeltaRecorder
from callbacks.noise_search import NoiseSearch
from callbacks.privacy_budget import PrivacyBudget
from callbacks.requeue import Requeue
from callbacks.round_progress import RoundProgress
from callbacks.run_config import RunConfig
from callbacks.stop_report import StopReport
from command_line import OneLineParser, check_config_files, config_files
from datamodules.base import FederatedDataModule
from datamodules.devices.blog import Blog
from datamodules.devices.open_images import OpenImages
from datamodules.devices.pipa import PIPA
from datamodules.devices.sent140 import Sentiment140
from datamodules.devices.synthetic_photos import SyntheticPhotos
from datamodules.devices.synthetic_posts import SyntheticPosts
from datamodules.devices.yelp import Yelp
from datamodules.images.cifar10 import CIFAR10
from datamodules.images.digits import Digits
from datamodules.images.fer import FER
from datamodules.images.imagenet import ImageNet
from datamodules.images.mnist import MNIST, FashionMNIST
from datamodules.images.skin_cancer import SkinCancer
from datamodules.images.synthetic_features import SyntheticFeatures
from datamodules.images.synthetic_images import SyntheticImages
from datamodules.ranking.letor import LETOR
from datamodules.ranking.mslr import MSLR
from datamodules.ranking.synthetic_ranking import SyntheticRanking
from datamodules.recommendation.movielens import MovieLens
from datamodules.recommendation.steam import Steam
from datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from defenses.base import Defense
from defenses.device_noise import DeviceNoise
from defenses.local_dp import LocalDP
from defenses.refusal import RefuseProbes
from defenses.row_noise import RowNoise
from defenses.secure_aggregation import SecureAggregation
from defenses.secure_sum import SecureSum
from defenses.update_l1 import UpdateL1
from evaluation.guardrail import Guardrail
from modules.checkpoint_io import NAMES, CheckedCheckpointIO, check_present
from modules.error_reports import refused
from modules.image_manipulation.base import ImageManipulation
from modules.image_manipulation.fast_gradient_sign import FastGradientSign
from modules.image_manipulation.indirect_manipulation import FeatureNoise
from modules.launch_check import check_processes
from modules.learners.central import CentralFNCF
from modules.learners.fncf import FNCF
from modules.learners.foltr_es import FOLtRES
from modules.learners.fpdgd import FPDGD
from modules.learners.image_classifier import FederatedClassifier
from modules.learners.image_ranker import ImageRanker
from modules.learners.matrix_factorization import FederatedMF
from modules.learners.photo_tagger import FederatedTagger
from modules.learners.text import FederatedText
from protocol.errors import InputError
from signals import Stopping

SHORT_NAMES = (
    *(DeltaRecorder, PrivacyBudget, Audit, NoiseSearch),
    *(MovieLens, Steam, SyntheticRecommender, LETOR, MSLR, SyntheticRanking),
    *(MNIST, FashionMNIST, CIFAR10, FER, SkinCancer, Digits, SyntheticImages),
    *(Blog, Yelp, Sentiment140, PIPA, OpenImages, SyntheticPosts),
    *(ImageNet, SyntheticPhotos, SyntheticFeatures),
    *(FNCF, CentralFNCF, FOLtRES, FPDGD, FederatedMF, FederatedClassifier, FederatedText, FederatedTagger),
    *(ImageRanker, FeatureNoise, FastGradientSign),
    *(LocalDP, RowNoise, RefuseProbes, Guardrail, DeviceNoise, SecureAggregation, SecureSum, UpdateL1),
)
"""Classes that a config may name without their module: jsonargparse finds what was imported."""


def run_folder(root: str | None, environment: Mapping[str, str]) -> str | None:
    """Where a run leaves what it leaves: a run of a W&B sweep in a folder of its own, named as the agent names it."""
    if not (environment.get("WANDB_SWEEP_ID") and environment.get("WANDB_RUN_ID")):
        return root
    return str(Path(root or "runs") / environment["WANDB_RUN_ID"])


class TrainParser(OneLineParser):
    """Knows the classes that a configuration may name."""

    program = "train.py"
    kinds = (LightningModule, FederatedDataModule, Callback, Logger, Defense, Manipulation, ImageManipulation)


class FederatedCLI(LightningCLI):
    """Joins model and data: who they are, one seed for both.

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

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Refuses configuration files that would be read otherwise than meant; the first one names the run's folder."""
        given = args if isinstance(args, list) else sys.argv[1:]
        check_config_files(given)
        names = [path.stem for path in config_files(given)]
        for offered in self._subcommand_parsers.values():
            offered.set_defaults({"trainer.default_root_dir": f"runs/{names[0] if names else 'unnamed'}"})
        super().parse_arguments(parser, args)

    def _parse_ckpt_path(self) -> None:
        """Leaves the configuration as it is: Lightning would open the file here, and let it change the model."""
        path = self.config[self.config.subcommand].ckpt_path
        if path is not None and str(path) not in NAMES:
            check_present(path)

    @property
    def chosen(self) -> Namespace:
        """The configuration, of the subcommand where there is one."""
        own: Namespace = self.config if self.subcommand is None else self.config[self.subcommand]
        return own

    def before_instantiate_classes(self) -> None:
        """Settles the folder of the run and, where the devices are a number, that there is a process for each."""
        trainer = self.chosen.trainer
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
        given = self._get(self.config_init, "trainer")
        own = given.callbacks if isinstance(given.callbacks, list) else [given.callbacks]
        if given.enable_progress_bar is not False and not any(isinstance(one, ProgressBar) for one in own):
            kwargs["callbacks"] = [*filter(None, own), RoundProgress()]
        try:
            return super().instantiate_trainer(**kwargs)
        except Exception as error:
            raise refused(error) from error

    def after_instantiate_classes(self) -> None:
        """The number of processes where the devices were a list, or left to be found; and that there is an end."""
        check_processes(self.trainer.num_devices * self.trainer.num_nodes, os.environ)
        self.trainer.strategy.checkpoint_io = CheckedCheckpointIO(self.model, resume=self.subcommand != "validate")
        federated = type(self.datamodule).train_dataloader is FederatedDataModule.train_dataloader
        if federated and self.subcommand != "validate" and getattr(self.model, "rounds", None) is None:
            check_end(self.trainer, self.datamodule)


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


def check_end(trainer: Trainer, data: FederatedDataModule) -> None:
    """Refuses a training without end: an epoch of rounds has none, unless the data say how many there are.

    Raises:
        InputError: nothing stops it.
    """
    limited = isinstance(trainer.limit_train_batches, int) or trainer.max_epochs == 0
    stops = any(isinstance(callback, EarlyStopping | Timer) for callback in trainer.callbacks)  # type: ignore[attr-defined]
    if trainer.max_steps == -1 and not limited and not stops and data.rounds is None:
        raise InputError(
            expected="a number of rounds", found="none", way_out="Give --trainer.max_steps N, or --trainer.max_time."
        )


TRAINER_DEFAULTS = {
    # Each rank takes its share of a cohort itself.
    "use_distributed_sampler": False,
    "max_epochs": 1,
    "logger": False,
    # A round is expensive, and one is often all there is.
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 1,
    "accelerator": "auto",
    # `auto` would start a process for every GPU of a shared machine; more devices give the same model, only sooner.
    "devices": 1,
}
"""What a configuration need not say of the Trainer. The progress bar and the folder are in `FederatedCLI`."""


WHAT: dict[str, Any] = {
    "model_class": LightningModule,
    "datamodule_class": FederatedDataModule,
    "subclass_mode_model": True,
    "subclass_mode_data": True,
    "auto_configure_optimizers": False,
    "seed_everything_default": 0,
    "trainer_class": Trainer,
    "parser_class": TrainParser,
    "parser_kwargs": {"prog": TrainParser.program},
}


def main(args: ArgsType = None, stopping: Stopping | None = None) -> FederatedCLI:
    """Runs the command line; returns the CLI with its trainer, model and data.

    Args:
        args: of the command line, None for those of the process.
        stopping: what to do when a signal asks to end.
    """
    stops = [Requeue(), StopReport(stopping or Stopping())]
    return FederatedCLI(
        save_config_callback=RunConfig,
        save_config_kwargs={"save_to_log_dir": False, "overwrite": True},
        trainer_defaults={**TRAINER_DEFAULTS, "callbacks": stops},
        args=args,
        **WHAT,
    )
