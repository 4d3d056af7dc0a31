"""What a stranger's recording or checkpoint says is read as plain values: nothing is imported, opened or run."""

import dataclasses
import io
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
from pydantic import ValidationError

from fedleak import client, defenses, modules, server
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core import ranges
from fedleak.core.checked_types import adapter
from fedleak.core.class_paths import classes_in
from fedleak.core.errors import InputError
from fedleak.core.named_by_strangers import arguments_from, from_plain
from fedleak.defenses.local_dp import LocalDP
from fedleak.modules.image_features.feature_extractors import Extractor
from fedleak.modules.learners.fncf import FNCF
from fedleak.modules.learners.fpdgd import FPDGD
from fedleak.modules.learners.image_ranker import ImageRanker
from fedleak.modules.learners.matrix_factorization import FederatedMF
from fedleak.modules.learners.photo_tagger import FederatedTagger
from fedleak.modules.learners.pretrained import Pretrained
from fedleak.recordings.named_algorithm import learner_from
from fedleak.training.network_learner import NetworkLearner

EVIL = "unasked.Evil"
FILE = "unasked.yaml"
DP = "fedleak.defenses.local_dp.LocalDP"


class Mine(NetworkLearner):
    """A learner of the user's own code."""

    def __init__(self, *, width: int = 4, local: LocalTraining = LocalTraining(), **federation: Any) -> None:  # noqa: B008
        super().__init__(local=local, **federation)
        self.train_network(torch.nn.Linear(width, 3))


class Asked(MetaPathFinder):
    """Notes which modules somebody tries to import, and finds none."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        self.names.append(fullname)


OPENED: list[str] = []
sys.addaudithook(lambda event, about: OPENED.append(str(about[0])) if event == "open" else None)


@pytest.fixture
def untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module and files that a stranger names; afterwards nobody has imported or opened one."""
    (tmp_path / "unasked.py").write_text("class Evil: pass\n")
    (tmp_path / FILE).write_text("learning_rate: 0.125\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = Asked()
    monkeypatch.setattr(sys, "meta_path", [asked, *sys.meta_path])
    OPENED.clear()
    yield tmp_path
    assert not [name for name in asked.names if name.startswith(("unasked", "this", "antigravity"))]
    assert not [name for name in OPENED if "unasked" in name]


WAYS: dict[str, tuple[type, dict[str, Any]]] = {
    "text in a list": (FNCF, {"defenses": [EVIL]}),
    "class path in a list": (FNCF, {"defenses": [{"class_path": EVIL}]}),
    "text in place of a list": (FNCF, {"defenses": EVIL}),
    "list in a list": (FNCF, {"defenses": [[EVIL]]}),
    "module of the standard library": (FNCF, {"defenses": ["this.X"]}),
    "text as a campaign": (FederatedMF, {"probing": EVIL}),
    "text as a manipulation": (FPDGD, {"manipulation": EVIL}),
    "class path as a manipulation": (FPDGD, {"manipulation": {"class_path": EVIL, "init_args": {}}}),
    "manipulation in a manipulation": (
        FPDGD,
        {"manipulation": {"class_path": "fedleak.server.targeted.Targeted", "init_args": {"inner": EVIL}}},
    ),
    "file of local training": (FNCF, {"local": FILE}),
    "class path of local training": (FNCF, {"local": {"class_path": EVIL}}),
    "class as a number": (FNCF, {"user_dim": {"class_path": EVIL}}),
    "class as a number of a class": (FNCF, {"defenses": [{"class_path": DP, "init_args": {"clip": EVIL}}]}),
    "class path as a mapping": (FNCF, {"defenses": [{"class_path": {"class_path": EVIL}}]}),
    "keys beside a class path": (FNCF, {"defenses": [{"class_path": DP, "dict_kwargs": {"clip": EVIL}}]}),
    "class that is no defence": (
        FNCF,
        {"defenses": [{"class_path": "subprocess.Popen", "init_args": {"args": "true"}}]},
    ),
    "learner as a defence": (FNCF, {"defenses": [{"class_path": "fedleak.modules.learners.fncf.FNCF"}]}),
    "text as a server": (FNCF, {"server": EVIL}),
    "file as a server": (FNCF, {"server": FILE}),
    "file in a mapping": (FNCF, {"local": {"optimizer": FILE}}),
    "configuration": (FNCF, {"config": FILE}),
    "penalty": (FNCF, {"update_l1": EVIL}),
    "file of weights": (FederatedTagger, {"num_classes": 3, "network": {"weights": FILE}}),
    "file of an extractor's weights": (ImageRanker, {"num_features": 3, "extractor": {"weights": FILE}}),
    "folder of a network": (Pretrained, {"path": FILE}),
    "folder of a network elsewhere": (Pretrained, {"path": "/etc"}),
    "folder of images": (ImageRanker, {"num_features": 3, "images": "unasked"}),
    "entries without end": (FNCF, {"hidden": [1] * 10**5}),
    "size of terabytes": (FNCF, {"num_items": 10**8, "num_clients": 10**8, "item_dim": 10**8}),
}
NAMES = {
    "module that nobody imported": EVIL,
    "class of the standard library": "subprocess.Popen",
    "part of this project by its path": "fedleak.modules.learners.fncf.FNCF",
    "package that imports on demand": "fedleak.attacks.Direction",
}


@pytest.mark.parametrize(("kind", "arguments"), WAYS.values(), ids=WAYS)
def test_checkpoint_runs_and_opens_nothing(kind: Any, arguments: dict[str, Any], untouched: Path) -> None:
    content = {"state_dict": {}, "hyper_parameters": arguments, "secret": "00", "private": {}}
    torch.save(content, untouched / "a.ckpt")
    with pytest.raises(InputError):
        kind.load_from_checkpoint(untouched / "a.ckpt")
    with pytest.raises(InputError):
        kind.load_from_checkpoint(io.BytesIO((untouched / "a.ckpt").read_bytes()))


@pytest.mark.parametrize("named", [{"_class_path": EVIL}, {"_class_path": "subprocess.Popen"}, {"_class_path": [EVIL]}])
def test_checkpoint_of_a_class_that_nobody_imported_is_refused(named: dict[str, Any], untouched: Path) -> None:
    content = {"state_dict": {}, "hyper_parameters": {**named, "_instantiator": EVIL}, "secret": "00", "private": {}}
    torch.save(content, untouched / "a.ckpt")
    with pytest.raises(InputError, match="imported"):
        FNCF.load_from_checkpoint(untouched / "a.ckpt")


@pytest.mark.parametrize(("kind", "arguments"), WAYS.values(), ids=WAYS)
@pytest.mark.usefixtures("untouched")
def test_manifest_runs_and_opens_nothing(kind: type, arguments: dict[str, Any]) -> None:
    names = (f"{kind.__module__}.{kind.__name__}", f"{__name__}.Mine", "fncf", "mf", "fpdgd", "tagger", "votes")
    for name in names:
        with pytest.raises(InputError):
            learner_from({"name": name, "arguments": arguments})


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.usefixtures("untouched")
def test_manifest_that_names_another_class_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="imported"):
        learner_from({"name": name, "arguments": {}})


def test_learner_of_the_users_own_code_is_built_from_plain_values() -> None:
    defenses = [{"class_path": DP, "init_args": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}]
    arguments = {"width": 5, "local": {"learning_rate": 0.5}, "defenses": defenses, "seed": 2**32}
    assert learner_from({"name": f"{__name__}.Mine", "arguments": arguments}) is not None
    built = from_plain(Mine, arguments, where="a test", way_out="None.")
    assert (built.local.learning_rate, built.seed) == (0.5, 2**32)
    assert [type(defense) for defense in built.defenses] == [LocalDP]
    with pytest.raises(InputError, match="at most"):
        learner_from({"name": f"{__name__}.Mine", "arguments": {"width": 10**15}})


def test_kinds_of_weights_are_no_files() -> None:
    built = from_plain(Extractor, {"weights": "packaged"}, where="a test", way_out="None.")
    assert built.weights == "packaged"


def test_a_defence_named_by_a_checkpoint_from_before_the_package_is_found() -> None:
    privacy = {"class_path": "defenses.local_dp.LocalDP", "init_args": {"clip": 0.5, "epsilon": 1.0, "delta": 1e-6}}
    (found,) = arguments_from(FNCF, {"defenses": [privacy]}, where="a test", way_out="None.")["defenses"]
    assert type(found).__module__ == "fedleak.defenses.local_dp"
    assert found.clip == 0.5


@pytest.mark.parametrize(
    ("learner", "path"),
    [
        (FPDGD, "attacks.manipulation.codebook.Codebook"),
        (FPDGD, "attacks.manipulation.direct.Permutation"),
        (ImageRanker, "modules.image_manipulation.indirect_manipulation.FeatureNoise"),
    ],
)
def test_manipulation_named_by_an_older_checkpoint_is_found(learner: type, path: str) -> None:
    given = {"manipulation": {"class_path": path, "init_args": {}}}
    found = arguments_from(learner, given, where="a test", way_out="None.")["manipulation"]
    assert type(found).__name__ == path.rpartition(".")[2]
    assert type(found).__module__.startswith("fedleak.server.")


_PLACES = re.compile(r"path|folder|file|root|images|weights|directory|url|checkpoint|cache")
"""Words in the names of arguments that may be places."""


def test_each_argument_that_is_a_place_says_so() -> None:
    """A text that a constructor opens must be in `file_arguments`, by which a file of a stranger may not give it."""
    open_to_files = []
    for package in (client, defenses, modules, server):
        for kind in classes_in(package, object):
            hints = get_type_hints(kind.__init__) if "__init__" in vars(kind) else {}
            if dataclasses.is_dataclass(kind):
                hints |= get_type_hints(kind)
            texts = {name for name, hint in hints.items() if hint is str or str in get_args(hint)}
            known = getattr(kind, "file_arguments", {})
            open_to_files += [f"{kind.__name__}.{name}" for name in texts - {*known} if _PLACES.search(name)]
    assert open_to_files == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ranges.UnitInterval, (-0.5, 1.5)),
        (ranges.OpenUnitInterval, (0.0, 1.0)),
        (ranges.NonNegativeInt, (-1,)),
        (ranges.NonNegativeFloat, (-1.0,)),
        (ranges.PositiveInt, (0,)),
        (ranges.AtLeastTwo, (1,)),
        (ranges.PositiveFloat, (0.0, 1e31, float("inf"), float("nan"))),
    ],
)
def test_the_range_of_a_number_holds_for_strangers_too(kind: type, values: tuple[float, ...]) -> None:
    for value in values:
        with pytest.raises(ValidationError):
            adapter(kind, False).validate_python(value)
