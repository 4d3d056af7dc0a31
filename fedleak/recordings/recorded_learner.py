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
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.network import NUMBER, ClassifierAlgorithm
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.tagger import TaggerAlgorithm
from fedleak.client.text import TextAlgorithm
from fedleak.core.batch_norm import is_statistic
from fedleak.core.errors import require
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
    elif isinstance(learner, FrozenBackboneAlgorithm):
        learner = dataclasses.replace(learner, folder=recording.base)
        require(
            recording.base is not None or not learner.needs_weights,
            f"the file of the weights of the backbone {learner.backbone} that the clients were sent",
            "none",
            f"Give it: --learner.path FILE; of the Python package {learner.package}, its file {learner.file}.",
        )
        require(
            learner.base or learner.has_weights,
            "the folder of the backbone that the clients were sent, with its weights as safetensors",
            f"{recording.base or 'none'}, of a recording that does not say that they are drawn from a seed",
            "Give it: --learner.path DIR; save_pretrained writes it.",
        )
    if learner is None or not recording.rounds:
        return learner
    where = str(recording.directory)
    # The network that the learner describes must be the model that was recorded.
    recorded_shapes = recording.common_shapes()
    model = {}
    for key, shape in recorded_shapes.items():
        name = key.removeprefix("model/")
        if key.startswith("model/") and not is_statistic(name):
            model[name] = shape
    learner = learner.named_as(model)
    check_shapes(network_of(learner, model), model, where=where, ordered=False)
    _check_sent(learner, recording, where)
    # Rankers read as many features of a document as their first layer has inputs.
    features = recorded_shapes.get("features", ())
    inputs = next((shape[-1] for name, shape in model.items() if name in ("ranker.weight", "hidden.weight")), None)
    if features and inputs is not None:
        require(
            features[-1] == inputs,
            f"documents of {inputs} features",
            f"{features[-1]} in {where}",
            OUT_OF_MANIFEST,
        )
    size = sum(math.prod(shape) for shape in model.values())
    check_work(getattr(learner, "local", None), recording.most_examples(), size, where=where)
    _check_auxiliary(learner, recording.auxiliary(), where)
    return learner


def _check_sent(learner: ClientAlgorithm, recording: Recording, where: str) -> None:
    # A learner may fix how many numbers its clients send: those that send values instead of deltas.
    numbers = getattr(learner, "numbers", None)
    if numbers is None:
        return
    sent_shapes = [tuple(parameter["shape"]) for parameter in recording.manifest.parameters.values()]
    other_shapes = [shape for shape in sent_shapes if shape != (numbers,)]
    require(not other_shapes, f"{numbers} numbers of a client", f"{other_shapes[:1]} in {where}", OUT_OF_MANIFEST)


def check_learner(description: Mapping[str, Any] | None, parameters: Shapes, *, where: str) -> None:
    """Checks that a learner's network has the parameters of another system's training."""
    learner = learner_from(description)
    if learner is None:
        return
    shapes = {name: tuple(shape) for name, shape in parameters.items() if not is_statistic(name)}
    check_shapes(network_of(learner.named_as(shapes), shapes), shapes, where=where, ordered=False)
    numbers = sum(map(math.prod, shapes.values()))
    # How many examples clients have is not known yet; one is the least.
    check_work(getattr(learner, "local", None), 1, numbers, where=where)


def check_work(local: LocalTraining | None, examples: int, numbers: int, *, where: str) -> None:
    """Checks that a client can have done the local training."""
    if local is None:
        return
    # A batch size of None stands for all examples at once.
    some_examples = max(examples, 1)
    batch = min(local.batch_size or some_examples, some_examples)
    batches_per_epoch = -(-some_examples // batch)
    steps = local.updates or local.epochs * batches_per_epoch
    processed = steps * batch
    require(
        steps <= MOST_STEPS and processed <= MOST_EXAMPLES and processed * numbers <= MOST_WORK,
        f"a client's round of at most {MOST_STEPS} steps and {MOST_EXAMPLES} examples, as many as can be simulated",
        f"{steps} steps and {processed} examples on a model of {numbers} numbers in {where}",
        OUT_OF_MANIFEST,
    )


def _check_auxiliary(learner: ClientAlgorithm, auxiliary: Mapping[str, Tensor], where: str) -> None:
    # Images of a labelled set for attacks on classifiers; texts or photographs of the adversary's devices.
    if isinstance(learner, ImageClassifierAlgorithm) and "images" in auxiliary:
        shape = tuple(auxiliary["images"].shape[1:])
        _check(shape == learner.image_shape, f"images of shape {learner.image_shape}", f"shape {shape}", where)
        _check_below(auxiliary["labels"], learner.num_classes, where)
    elif isinstance(learner, ClassifierAlgorithm) and "images" in auxiliary:
        _check_forward(learner, auxiliary["images"], auxiliary["labels"], where)
    elif isinstance(learner, TextAlgorithm) and "prior_features" in auxiliary:
        texts = auxiliary["prior_features"]
        labels = auxiliary["prior_labels"]
        are_words = texts.dim() == 2 and not texts.is_floating_point()
        _check(are_words, "texts as word numbers (M, L)", _described(texts), where)
        _check_below(texts, learner.network.vocabulary, where)
        _check(labels.dim() == 1, "one label per text", _described(labels), where)
    elif isinstance(learner, TaggerAlgorithm) and "prior_features" in auxiliary:
        images = auxiliary["prior_features"]
        labels = auxiliary["prior_labels"]
        are_images = images.dim() == 4 and images.shape[1] == 3 and images.itemsize == 1
        _check(are_images, "8-bit images of 3 channels", _described(images), where)
        are_labels = tuple(labels.shape[1:]) == (learner.num_classes,)
        _check(are_labels, f"labels of {learner.num_classes} classes", _described(labels), where)


def _check_forward(learner: ClassifierAlgorithm, images: Tensor, labels: Tensor, where: str) -> None:
    """Checks that a network takes the auxiliary examples, and has an output for every label."""
    # A batch of two examples shows whether the network takes them.
    few = torch.arange(min(len(images), 2))
    inputs, _ = learner.on(images[few], labels[few]).fields({NUMBER: few})
    try:
        with torch.no_grad():
            outputs = copy.deepcopy(learner.template)(inputs)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        _check(False, f"examples that {type(learner).__name__} takes", f"{_described(images)} ({reason})", where)
    _check_below(labels, outputs.shape[-1], where)


def _check_below(values: Tensor, limit: int, where: str) -> None:
    smallest = 0
    largest = 0
    if values.numel():
        smallest = int(values.min())
        largest = int(values.max())
    _check(
        0 <= smallest <= largest < limit,
        f"numbers from 0 to {limit - 1}",
        f"{smallest} to {largest}",
        where,
    )


def _check(fits: bool, expected: str, actual: str, where: str) -> None:
    require(fits, f"auxiliary data with {expected}", f"{actual} in {where}", OUT_OF_MANIFEST)


def _described(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape)}"
