"""All learners of the project, found by looking: sizes come from the data, and checkpoints hold every argument."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from fedleak import modules
from fedleak.client.cohort import Cohort
from fedleak.client.decoder import DecoderOptions
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.engine.task import Task
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.client.tagger import TaggerOptions
from fedleak.client.text import TextOptions
from fedleak.core.class_paths import classes_in
from fedleak.core.described import described
from fedleak.core.errors import InputError
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts
from fedleak.datamodules.images.digits import Digits
from fedleak.datamodules.images.synthetic_features import SyntheticFeatures
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.datamodules.tables.sklearn_tables import SklearnTable
from fedleak.defenses.base import Defense
from fedleak.defenses.device_noise import DeviceNoise
from fedleak.defenses.local_dp import LocalDP
from fedleak.defenses.trees import MaskedHessians, RoundedTrees
from fedleak.modules.learners.decoder import FederatedDecoder
from fedleak.modules.learners.fncf import FNCF
from fedleak.modules.learners.foltr_es import FOLtRES
from fedleak.modules.learners.fpdgd import FPDGD
from fedleak.modules.learners.frozen_backbone import FrozenBackbone
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.modules.learners.image_ranker import ImageRanker
from fedleak.modules.learners.matrix_factorization import FederatedMF
from fedleak.modules.learners.photo_tagger import FederatedTagger
from fedleak.modules.learners.pretrained import Pretrained
from fedleak.modules.learners.text import FederatedText
from fedleak.modules.learners.trees import FederatedTrees
from fedleak.modules.references.central import CentralFNCF
from fedleak.modules.references.feature_network import FeatureNetwork
from fedleak.server.feature_noise import FeatureNoise
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule
from fedleak.training.lightning.built_from_data import BuiltFromData
from tests import toys
from tests.places import CONFIGS
from tests.toys import quiet_trainer

LOCAL = LocalTraining(learning_rate=0.05, batch_size=4)
DEFENSES = (LocalDP(clip=1.0, epsilon=50, delta=1e-5), DeviceNoise(variance=1e-8, clients=[1, 2]))
OTHER_DEFENSES: dict[type[BuiltFromData], tuple[Defense, ...]] = {
    FederatedTrees: (MaskedHessians(), RoundedTrees(digits=3))
}
"""Of learners whose updates are no numbers that a server averages."""


class Tagged(FederatedDataModule):
    """Two devices of four random photographs with five labels."""

    num_classes = 5

    @property
    def num_clients(self) -> int:
        return 2

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"name": "tagged", "sha256": ""}

    def _examples(self, count: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(count, 3, 40, 40, generator=generator)
        return {"image": images, "label": torch.rand(count, 5, generator=generator) < 0.5}

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        whole = {name: value.reshape(2, 4, *value.shape[1:])[clients] for name, value in self._examples(8).items()}
        return Cohort(round_number, clients, whole, torch.ones(len(clients), 4, dtype=torch.bool))

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        return DataLoader([0, 1], collate_fn=lambda _: self._examples(4))  # type: ignore[arg-type]


SPLIT = ClientSplit(scheme="composition", composition="MNIST", examples_per_client=12)
SOURCES: tuple[Callable[[], FederatedDataModule], ...] = (
    toys.data,
    lambda: SyntheticRanking(shape="letor", queries=12, test_queries=4, fewest_documents=4, most_documents=12),
    lambda: SyntheticImages(split=SPLIT, train_per_class=30, test_per_class=2, auxiliary_per_class=2),
    lambda: SyntheticFeatures(users=4, item_sets=2),
    lambda: SyntheticPosts(writers=4, posts=12, vocabulary=30),
    lambda: Digits(split=SPLIT),
)
OPTIONS: dict[type[BuiltFromData], dict[str, Any]] = {
    CentralFNCF: {"user_dim": 4, "item_dim": 4, "hidden": (8,)},
    FeatureNetwork: {"name": "timm:resnet10t"},
    FNCF: {"user_dim": 4, "item_dim": 4, "hidden": (8,)},
    FederatedMF: {"dim": 4},
    FOLtRES: {"noise_scale": 0.1, "epsilon": 3.0},
    FPDGD: {"hidden": 3},
    FederatedClassifier: {"network": ClassifierOptions(hidden=8, channels=2)},
    FrozenBackbone: {"backbone": "drawn", "hidden": 8},
    FederatedTagger: {"network": TaggerOptions(name="mobilenetv3_small_050")},
    ImageRanker: {"hidden": 2, "manipulation": FeatureNoise(scale=2.0)},
    FederatedText: {"network": TextOptions(vocabulary=30, embedding=4, hidden=4)},
    FederatedDecoder: {"network": DecoderOptions(vocabulary=30, embedding=8, hidden=8, heads=2, places=10)},
    Pretrained: {"path": str(CONFIGS / "networks" / "llama_tiny.json")},
}
"""Options of learners that differ from their defaults; sizes are left to the data."""
KINDS = [kind for kind in classes_in(modules, BuiltFromData) if not kind.__subclasses__()]
FEDERATED = [kind for kind in KINDS if issubclass(kind, FederatedModule)]


DATA: dict[type[BuiltFromData], Callable[[], FederatedDataModule]] = {
    FederatedTagger: Tagged,
    FederatedTrees: lambda: SklearnTable(split=ClientSplit(clients=3)),
}
"""Data of learners that take no notice of the channels of an image; others refuse data that they cannot learn from."""


def made(kind: type[BuiltFromData]) -> BuiltFromData:
    """A learner that trains as `LOCAL` says, with `DEFENSES`, if it takes these."""
    taken = inspect.signature(kind).parameters
    defenses: tuple[Defense, ...] = OTHER_DEFENSES.get(kind, DEFENSES)
    given = {name: value for name, value in (("local", LOCAL), ("defenses", defenses)) if name in taken}
    return kind(**OPTIONS.get(kind, {}), **given)


@functools.cache
def data_of(kind: type[BuiltFromData]) -> Callable[[], FederatedDataModule]:
    """The first data here that a learner can learn from.

    It refuses others, or torch does, e.g. images of another size. A learner that is broken learns from none, and fails.
    """
    if kind in DATA:
        return DATA[kind]
    refusals = []
    for make in SOURCES:
        try:
            module, source = made(kind), make()
            module.build_for(source)
            if isinstance(module, FederatedModule):
                module.trainer = trainer = quiet_trainer(1, Path("unused"))
                trainer.datamodule = source  # type: ignore[attr-defined]
                public = module.public_parameters()
                one_client = source.cohort(0).select(torch.arange(1))
                module.client_updates(module.interact(one_client, public), public)
        except (InputError, RuntimeError) as refusal:
            refusals.append(str(refusal))
        else:
            return make
    pytest.fail(f"{kind.__name__} learns from no data here: mend it, or add data to SOURCES\n" + "\n".join(refusals))


def trained(module: LightningModule, data: FederatedDataModule, folder: Path, **options: object) -> Trainer:
    trainer = quiet_trainer(1, folder, **{"limit_val_batches": 1.0, **options})
    trainer.fit(module, datamodule=data)
    return trainer


OPTIMIZERS = {
    "sgd": {"learning_rate": 0.002},
    "momentum": {"learning_rate": 0.002, "momentum": 0.9, "weight_decay": 0.01},
    "adam": {"optimizer": "adam", "learning_rate": 0.002, "eps": 1e-3},
    "eps-root": {"optimizer": "adam", "learning_rate": 0.002, "eps_root": 1e-3},
    "adadelta": {"optimizer": "adadelta", "learning_rate": 0.05, "eps": 1e-2},
}


@pytest.mark.parametrize(
    ("optimizer", "batch_size"),
    [("sgd", None), ("eps-root", None), ("sgd", 2), ("momentum", 2), ("adam", 2), ("adadelta", 2)],
)
@pytest.mark.parametrize("kind", FEDERATED, ids=lambda kind: kind.__name__)
def test_fast_training_equals_autograd(kind: type[FederatedModule], optimizer: str, batch_size: int | None) -> None:
    module, source = made(kind), data_of(kind)()  # type: ignore[arg-type]
    assert isinstance(module, FederatedModule)
    module.build_for(source)
    if not isinstance(module.algorithm, Task):
        pytest.skip("the engine does not train its clients")
    if module.algorithm.fast() is None and (optimizer, batch_size) not in (("sgd", None), ("momentum", 2)):
        pytest.skip("its gradients are autograd's, and optimizers are compared with those of other learners")
    public = {name: value.clone() for name, value in module.public_parameters().items()}
    few = source.cohort(0).select(torch.arange(2))
    cohort, algorithm = module.interact(few, public), module.algorithm
    own = {name: table[cohort.clients] for name, table in module.private.items()}
    epochs = 2 if batch_size is None else 1  # several steps
    local = LocalTraining(epochs=epochs, batch_size=batch_size, threads=1, **OPTIMIZERS[optimizer])  # type: ignore[arg-type]
    for engine in ("vectorized", "sequential"):
        fast, slow = (
            train_clients(algorithm, public, own, cohort, dataclasses.replace(local, fast=on, engine=engine), seed=0)
            for on in (True, False)
        )
        results = [{**one.deltas, **one.private, "loss": one.losses} for one in (fast, slow)]
        torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)
        assert max(float(value.abs().max()) for value in slow.deltas.values()) > 1e-4


def test_the_engine_without_fast_code_uses_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module, source = FNCF(user_dim=4, item_dim=4, hidden=(8,), local=LocalTraining()), toys.data()
    module.build_for(source)

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("fast code was used")

    for name in (
        "fedleak.client.engine.local_training.keep_freed_memory",
        "fedleak.client.engine.client_optimizers.KernelOptimizer",
    ):
        monkeypatch.setattr(name, forbidden)
    monkeypatch.setattr(FNCFAlgorithm, "fast", forbidden)
    cohort, public = source.cohort(0), module.public_parameters()
    own = {name: table[cohort.clients] for name, table in module.private.items()}
    train_clients(module.algorithm, public, own, cohort, dataclasses.replace(module.local, fast=False), seed=0)
    with pytest.raises(AssertionError, match="fast code"):
        train_clients(module.algorithm, public, own, cohort, module.local, seed=0)


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_sizes_from_the_data_and_a_checkpoint_that_needs_no_arguments(
    kind: type[BuiltFromData], tmp_path: Path
) -> None:
    module = made(kind)
    trained(module, data_of(kind)(), tmp_path).save_checkpoint(tmp_path / "last.ckpt")  # type: ignore[arg-type]
    for loader in (kind, LightningModule):
        # A checkpoint gives no file, so that its reader names that of the network again.
        files = {"path": module.hparams["path"]} if kind is Pretrained else {}
        restored = loader.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True, **files)
        assert type(restored) is kind
        assert described(kind, restored.hparams) == described(kind, module.hparams)
        assert module.state_dict()
        torch.testing.assert_close(restored.state_dict(), module.state_dict(), equal_nan=True)
        torch.testing.assert_close(getattr(restored, "private", {}), getattr(module, "private", {}))
        for own, other in zip(getattr(module, "defenses", ()), getattr(restored, "defenses", ()), strict=True):
            assert type(own) is type(other)
            assert vars(own) == vars(other)


@pytest.mark.integration
def test_a_module_that_is_given_its_sizes_is_the_one_that_takes_them_from_the_data(tmp_path: Path) -> None:
    given, source = FNCF(num_items=80, num_clients=12, user_dim=4, item_dim=4, hidden=(8,), local=LOCAL), toys.data()
    taken = FNCF(user_dim=4, item_dim=4, hidden=(8,), local=LOCAL)
    assert not taken.state_dict()
    trained(given, source, tmp_path)
    trained(taken, source, tmp_path)
    torch.testing.assert_close(taken.state_dict(), given.state_dict(), rtol=0, atol=0)


@pytest.mark.integration
def test_data_without_the_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="num_classes"):
        trained(FederatedClassifier(), toys.data(), tmp_path)
    with pytest.raises(InputError, match="data module"):
        FNCF(num_items=5).configure_model()


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_learner_trains_in_mixed_precision_or_refuses_it(kind: type[BuiltFromData], tmp_path: Path) -> None:
    module, data = made(kind), data_of(kind)  # type: ignore[arg-type]
    if "bf16-mixed" in module.precisions:
        trained(module, data(), tmp_path, precision="bf16-mixed")
        assert all(value.dtype == torch.float32 and value.isfinite().all() for value in module.parameters())
        return
    known = f"expected precision 32-true( or 64-true)? for {kind.__name__}; found bf16-mixed"
    with pytest.raises(InputError, match=known):
        trained(module, data(), tmp_path, precision="bf16-mixed")
