"""Federated training: ``python train.py fit --config configs/train/fncf_movielens.yaml --data.root DIR``."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jsonargparse import Namespace
from lightning import LightningModule, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI

from callbacks.audit import Audit
from callbacks.delta_recorder import DeltaRecorder
from callbacks.privacy_budget import PrivacyBudget
from callbacks.requeue import Requeue
from callbacks.run_config import RunConfig
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
from defenses.device_noise import DeviceNoise
from defenses.guardrail import Guardrail
from defenses.refusal import RefuseProbes
from defenses.row_noise import RowNoise
from errors import input_error_in
from modules.central import CentralFNCF
from modules.classifier import FederatedClassifier
from modules.fncf import FNCF
from modules.foltr_es import FOLtRES
from modules.fpdgd import FPDGD
from modules.mf import FederatedMF
from modules.processes import check_processes
from modules.tagger import FederatedTagger
from modules.text_model import FederatedText

SHORT_NAMES = (
    *(DeltaRecorder, PrivacyBudget, Audit),
    *(MovieLens, Steam, SyntheticRecommender, LETOR, MSLR, SyntheticRanking),
    *(MNIST, FashionMNIST, CIFAR10, FER, SkinCancer, Digits, SyntheticImages),
    *(Blog, Yelp, Sentiment140, PIPA, OpenImages, SyntheticPosts),
    *(FNCF, CentralFNCF, FOLtRES, FPDGD, FederatedMF, FederatedClassifier, FederatedText, FederatedTagger),
    *(RowNoise, RefuseProbes, Guardrail, DeviceNoise),
)
"""Classes that a config may name without their module: jsonargparse finds what was imported."""


def attrgetter_or_none(name: str) -> Callable[[object], object]:
    """What the data say of themselves under a name; None where they say nothing."""
    return lambda data: getattr(data, name, None)


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


class FederatedCLI(LightningCLI):
    """Joins model and data: who they are, how many items and clients there are, one seed for both.

    Refuses to begin with fewer processes than devices, and gives every run of a sweep a folder of its own.
    """

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Links what model and data must agree on."""
        parser.link_arguments("data.init_args.seed", "model.init_args.seed")
        parser.link_arguments("trainer.default_root_dir", "trainer.logger.init_args.save_dir")
        for name in _FROM_DATA:
            parser.link_arguments(
                "data", f"model.init_args.{name}", compute_fn=attrgetter_or_none(name), apply_on="instantiate"
            )

    def before_instantiate_classes(self) -> None:
        """Settles the folder of the run and, where the devices are a number, that there is a process for each."""
        trainer = self.config[str(self.subcommand)].trainer
        trainer.default_root_dir = run_folder(trainer.default_root_dir, os.environ)
        if isinstance(trainer.logger, Namespace) and "init_args" in trainer.logger:
            trainer.logger.init_args.save_dir = trainer.default_root_dir
        # Lightning's own message about some of this is no message but a traceback.
        if str(trainer.devices).isdigit():
            check_processes(int(trainer.devices) * trainer.num_nodes, os.environ)

    def after_instantiate_classes(self) -> None:
        """The same where the devices were a list, or left to be found."""
        check_processes(self.trainer.num_devices * self.trainer.num_nodes, os.environ)


def main(args: ArgsType = None) -> FederatedCLI:
    """Runs the command line; returns the CLI with its trainer, model and data."""
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
            "callbacks": [Requeue()],
        },
        args=args,
    )


def run(args: Sequence[str] | None = None) -> int:
    """The command: a clear message and exit status 2 for what a person can mend."""
    try:
        main(None if args is None else list(args))
    except Exception as error:
        # What a constructor refuses comes out of jsonargparse as a ValueError.
        mendable = input_error_in(error)
        if mendable is None:
            raise
        print(f"train.py: {mendable}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(run())
