"""Checks that the learner named by a recording matches the recorded model and can be simulated."""

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.network import NUMBER, ClassifierAlgorithm
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.tagger import TaggerAlgorithm
from fedleak.client.text import TextAlgorithm
from fedleak.core.errors import require
from fedleak.core.view import is_statistic
from fedleak.recordings.named_algorithm import learner_from, network_of
from fedleak.recordings.recording import Recording
from fedleak_recorder.shape_check import Shapes, check_shapes

MOST_STEPS = 10**4
"""Largest number of local steps of a client in a round; the papers' clients take some hundred."""
MOST_EXAMPLES = 10**7
"""Largest number of examples that a client processes in a round, over all epochs."""
MOST_WORK = 10**13
"""Largest product of processed examples and model entries; more would take a client hours."""
OUT_OF_MANIFEST = "Set learner to null in the manifest: attacks that simulate clients will be left out."


def recorded_learner(recording: Recording) -> ClientAlgorithm | None:
    """Public algorithm of a recording's clients, None if the manifest names none.

    Raises:
        InputError: the algorithm's network differs from the recorded one, auxiliary data do not fit it, or a simulated
            client would need more work than a real client can have done.
    """
    learner = learner_from(recording.manifest.learner)
    if isinstance(learner, PretrainedAlgorithm):
        learner = dataclasses.replace(learner, folder=recording.base)
        require(
            learner.base or learner.has_weights,
            "the folder of the network that the clients were sent, with its weights as safetensors",
            f"{recording.base or 'none'}, of a recording that does not say that they are drawn from a seed",
            "Give it: --learner.path DIR; save_pretrained writes it.",
        )
    if learner is None or not recording.rounds:
        return learner
    where = str(recording.directory)
    seen = recording.common_shapes()
    held = {name.removeprefix("model/"): shape for name, shape in seen.items() if name.startswith("model/")}
    model = {name: shape for name, shape in held.items() if not is_statistic(name)}
    learner = learner.named_as(model)
    check_shapes(network_of(learner, model), model, where=where, ordered=False)
    sent = {name: tuple(value["shape"]) for name, value in recording.manifest.parameters.items()}
    numbers = getattr(learner, "numbers", None)  # of a client that sends values instead of deltas
    wrong = [shape for shape in sent.values() if numbers is not None and shape != (numbers,)]
    require(not wrong, f"{numbers} numbers of a client", f"{wrong[:1]} in {where}", OUT_OF_MANIFEST)
    features = seen.get("features", ())
    expected = next((shape[-1] for name, shape in model.items() if name in ("ranker.weight", "hidden.weight")), None)
    if features and expected is not None:
        found = f"{features[-1]} in {where}"
        require(features[-1] == expected, f"documents of {expected} features", found, OUT_OF_MANIFEST)
    size = sum(math.prod(shape) for shape in model.values())
    check_work(getattr(learner, "local", None), recording.most_examples(), size, where=where)
    _check_auxiliary(learner, recording.auxiliary(), where)
    return learner


def check_learner(description: Mapping[str, Any] | None, parameters: Shapes, *, where: str) -> None:
    """Checks that a learner's network has the parameters of another system's training."""
    learner = learner_from(description)
    if learner is not None:
        held = {name: tuple(shape) for name, shape in parameters.items() if not is_statistic(name)}
        check_shapes(network_of(learner.named_as(held), held), held, where=where, ordered=False)
        check_work(getattr(learner, "local", None), 1, sum(map(math.prod, held.values())), where=where)


def check_work(local: LocalTraining | None, examples: int, numbers: int, *, where: str) -> None:
    """Checks that a client can have done the local training."""
    if local is None:
        return
    batch = min(local.batch_size or max(examples, 1), max(examples, 1))
    steps = local.updates or local.epochs * -(-max(examples, 1) // batch)
    passed = steps * batch
    require(
        steps <= MOST_STEPS and passed <= MOST_EXAMPLES and passed * numbers <= MOST_WORK,
        f"a client's round of at most {MOST_STEPS} steps and {MOST_EXAMPLES} examples, as many as can be simulated",
        f"{steps} steps and {passed} examples on a model of {numbers} numbers in {where}",
        OUT_OF_MANIFEST,
    )


def _check_auxiliary(learner: ClientAlgorithm, held: Mapping[str, Tensor], where: str) -> None:
    if isinstance(learner, ImageClassifierAlgorithm) and "images" in held:
        shape = tuple(held["images"].shape[1:])
        _check(shape == learner.image_shape, f"images of shape {learner.image_shape}", f"shape {shape}", where)
        _check_below(held["labels"], learner.num_classes, where)
    elif isinstance(learner, ClassifierAlgorithm) and "images" in held:
        _check_forward(learner, held["images"], held["labels"], where)
    elif isinstance(learner, TextAlgorithm) and "prior_features" in held:
        texts = held["prior_features"]
        right = texts.dim() == 2 and not texts.is_floating_point()
        _check(right, "texts as word numbers (M, L)", _described(texts), where)
        _check_below(texts, learner.network.vocabulary, where)
        _check(held["prior_labels"].dim() == 1, "one label per text", _described(held["prior_labels"]), where)
    elif isinstance(learner, TaggerAlgorithm) and "prior_features" in held:
        images, labels = held["prior_features"], held["prior_labels"]
        right = images.dim() == 4 and images.shape[1] == 3 and images.itemsize == 1
        _check(right, "8-bit images of 3 channels", _described(images), where)
        right = tuple(labels.shape[1:]) == (learner.num_classes,)
        _check(right, f"labels of {learner.num_classes} classes", _described(labels), where)


def _check_forward(learner: ClassifierAlgorithm, images: Tensor, labels: Tensor, where: str) -> None:
    """Checks that a network takes the auxiliary examples, and has an output for every label."""
    inputs, _ = learner.on(images, labels).fields({NUMBER: torch.arange(min(len(images), 2))})
    try:
        with torch.no_grad():
            outputs = copy.deepcopy(learner.template)(inputs)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        _check(False, f"examples that {type(learner).__name__} takes", f"{_described(images)} ({reason})", where)
    _check_below(labels, outputs.shape[-1], where)


def _check_below(values: Tensor, limit: int, where: str) -> None:
    low, high = (int(values.min()), int(values.max())) if values.numel() else (0, 0)
    _check(0 <= low <= high < limit, f"numbers from 0 to {limit - 1}", f"{low} to {high}", where)


def _check(right: bool, expected: str, found: str, where: str) -> None:
    require(right, f"auxiliary data with {expected}", f"{found} in {where}", OUT_OF_MANIFEST)


def _described(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape)}"
