"""A learner that a recording names is refused where it is another than the recorded one, or its work has no end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.evaluation.learner_match import learner_match
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from tests.fuzz.recordings import SEEN, TRUTH, recording, with_manifest, with_tensor, with_tensors, write_tree

pytestmark = pytest.mark.integration


def learn(folder: Path, files: dict[str, bytes]) -> None:
    opened = Recording(write_tree(folder, files))
    for view in opened.views(learner=recorded_learner(opened)):
        opened.truth(view)


@pytest.mark.parametrize("name", ["clicks", "classes", "texts", "votes"])
def test_the_learner_of_a_whole_recording_is_built(tmp_path: Path, name: str) -> None:
    learn(tmp_path, recording(name))


def test_examples_of_which_there_are_none_are_absent(tmp_path: Path) -> None:
    """A data set whose adversary has no device records texts of no rows; clients cannot be simulated on them."""

    def change(tensors: dict[str, Tensor]) -> None:
        tensors.update({name: value[:0].clone() for name, value in tensors.items()})

    opened = Recording(write_tree(tmp_path, with_tensors(recording("texts"), "auxiliary", change)))
    assert set(opened.auxiliary()) == {"known_pseudonyms", "known_users"}
    view = next(opened.views(learner=recorded_learner(opened)))
    found = learner_match(view, generator=generator_for(0, "learner match"))
    assert isinstance(found, str)
    assert "no examples" in found


def local(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda arguments: arguments["local"].update(change)


def network(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda arguments: arguments["network"].update(change)


def argument(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda arguments: arguments.update(change)


CASES: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("clicks", local(epochs=10**9), "epochs"),
    ("clicks", local(epochs=20000), "steps"),
    ("clicks", local(epochs="5"), "epochs"),
    ("clicks", local(epochs=True), "epochs"),
    ("clicks", local(learning_rate=-1), "learning_rate"),
    ("clicks", local(learning_rate=1e308), "learning_rate"),
    ("clicks", local(optimizer="nope"), "optimizer"),
    ("clicks", local(threads=10**9), "threads"),
    ("clicks", local(nope=1), "nope"),
    ("clicks", local(betas=[1]), "betas"),
    ("clicks", argument(user_dim=-1), "user_dim"),
    ("clicks", argument(user_dim=10**10), "user_dim"),
    ("clicks", argument(user_dim=9), "another model"),
    ("clicks", argument(update_l1={"strength": -1}), "update_l1"),
    ("classes", network(hidden=10**9), "hidden"),
    ("classes", network(hidden=10**6, channels=10**6), "found"),
    ("classes", network(hidden=10**5, channels=1000), "another model"),
    ("classes", network(name="vgg16"), "another model"),
    ("classes", network(name=["x"]), "name"),
    ("classes", network(activation=["relu"]), "activation"),
    ("classes", local(updates=10**7, batch_size=1), "steps"),
    ("classes", local(batch_size=1.5), "batch_size"),
    ("classes", local(momentum="x"), "momentum"),
    ("classes", argument(image_shape=["a", "b", "c"]), "image_shape"),
    ("classes", argument(image_shape=[1, 2]), "image_shape"),
    ("classes", argument(image_shape=[0, 0, 0]), "image_shape"),
    ("classes", argument(image_shape=[1, 10**6, 10**6]), "another model"),
    ("classes", argument(num_classes=0), "num_classes"),
    ("classes", argument(num_classes=10**9), "num_classes"),
    ("classes", argument(num_classes=11), "another model"),
    ("texts", network(vocabulary=41), "another model"),
    ("texts", network(hidden=5), "another model"),
]


@pytest.mark.parametrize(("name", "change", "match"), CASES)
def test_arguments_that_cannot_be_are_refused(
    tmp_path: Path, name: str, change: Callable[[dict[str, Any]], None], match: str
) -> None:
    files = with_manifest(recording(name), lambda manifest: change(manifest["learner"]["arguments"]))
    with pytest.raises(InputError, match=match):
        learn(tmp_path, files)


@pytest.mark.parametrize(
    "description",
    [
        {"name": None, "arguments": {}},
        {"name": ["fncf"], "arguments": {}},
        {"name": "os.system", "arguments": {"command": "true"}},
        {"name": "fncf"},
        {"name": "fncf", "arguments": [1]},
        {"name": "fncf", "arguments": {}},
        {"name": "mf", "arguments": {"dim": 4, "loss": "nope", "clip": None, "local": {}}},
        {"name": "tagger", "arguments": {"network": {"weights": "/etc/passwd"}, "num_classes": 3, "local": {}}},
        {"name": "fpdgd", "arguments": {"learning_rate": 0.1, "click_model": "perfect", "grade_law": [1.0]}},
        {"name": "fpdgd", "arguments": {"learning_rate": 0.1, "click_model": "perfect", "grade_law": [3.0, -1, -1]}},
    ],
)
def test_a_learner_that_is_none_is_refused(description: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="learner"):
        learner_from(description)


TENSORS: list[tuple[str, str, str, Callable[[Tensor], Tensor], str]] = [
    ("classes", SEEN, "counts", lambda t: t * 0 + 10**12, "steps"),
    ("classes", "auxiliary", "images", lambda t: t[:, :, :5], "images of"),
    ("classes", "auxiliary", "labels", lambda t: t + 1000, "from 0 to 9"),
    ("classes", TRUTH, "client/class_counts", lambda t: torch.cat([t, t], 1), "20 classes"),
    ("texts", "auxiliary", "prior_features", lambda t: t + 1000, "from 0 to 39"),
    ("texts", "auxiliary", "prior_features", lambda t: t.float(), "texts"),
    ("clicks", SEEN, "model/mlp.0.weight", lambda t: torch.cat([t, t]), "shape"),
]


@pytest.mark.parametrize(("name", "kind", "key", "change", "match"), TENSORS)
def test_tensors_that_do_not_fit_the_learner_are_refused(
    tmp_path: Path, name: str, kind: str, key: str, change: Callable[[Tensor], Tensor], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        learn(tmp_path, with_tensor(recording(name), kind, key, change))


def test_items_of_other_features_than_the_ranker_has_are_refused(tmp_path: Path) -> None:
    files = recording("votes")
    for name in ("rounds/000000", "rounds/000001"):
        files = with_tensor(files, name, "item_features", lambda t: t[:, :4])
    with pytest.raises(InputError, match="6 features; found 4"):
        learn(tmp_path, files)


def test_a_step_too_many_is_refused(tmp_path: Path) -> None:
    files = with_manifest(recording("votes"), lambda m: m["learner"]["arguments"].update(full_batch_steps=10**5))
    with pytest.raises(InputError, match="steps"):
        learn(tmp_path, files)


def test_a_parameter_that_is_not_recorded_is_compared_with_the_learner(tmp_path: Path) -> None:
    """An LSTM of empty weights ends the process in torch."""
    files = with_manifest(recording("texts"), lambda manifest: manifest["parameters"].pop("lstm.weight_ih_l0"))
    for number in (0, 1):
        files = _of_one_row(files, f"rounds/{number:06d}")
    with pytest.raises(InputError, match=r"lstm\.weight_ih_l0"):
        learn(tmp_path, files)


def _of_one_row(files: dict[str, bytes], kind: str) -> dict[str, bytes]:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors["deltas/lstm.weight_ih_l0"]
        tensors["model/lstm.weight_ih_l0"] = tensors["model/lstm.weight_ih_l0"][:1].clone()

    return with_tensors(files, kind, change)
