"""The learner that a recording names, where it is the one that was recorded and its work can be done."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from datamodules.recordings.recording import Recording
from datamodules.recordings.shape_check import Shapes, check_shapes
from modules.engine.local_hyperparameters import LocalTraining
from modules.learners.image_classifier_learner import ImageLearner
from modules.learners.photo_tagger_learner import TaggerLearner
from modules.learners.registry import learner_from, network_of
from modules.learners.text_learner import TextLearner
from protocol.errors import InputError
from protocol.simulators import AnySimulator

MOST_STEPS = 10**4
"""Local steps of a client in a round; the papers' clients take some hundred."""
MOST_EXAMPLES = 10**7
"""Examples that a client passes in a round, those of every epoch counted."""
MOST_WORK = 10**13
"""Examples times numbers of the model: more would take a client hours."""
_WAY_OUT = "Set learner to null in the manifest: attacks that simulate clients will be left out."


def recorded_learner(recording: Recording) -> AnySimulator | None:
    """The clients' algorithm, for the server to simulate.

    Args:
        recording: what the server saw; its manifest names the algorithm.

    Raises:
        InputError: the algorithm's network is another than the recorded one, auxiliary data do not fit it, or a
            simulated client would do more work than a client can have done.
    """
    learner = learner_from(recording.manifest.learner)
    if learner is None or not recording.rounds:
        return learner
    where = str(recording.directory)
    seen = recording.common_shapes()
    model = {name.removeprefix("model/"): shape for name, shape in seen.items() if name.startswith("model/")}
    check_shapes(network_of(learner, model), model, where=where, ordered=False)
    sent = {name: tuple(value["shape"]) for name, value in recording.manifest.parameters.items()}
    check_sent(learner, sent, where=where)
    features = seen.get("features", ())
    expected = next((shape[-1] for name, shape in model.items() if name in ("ranker.weight", "hidden.weight")), None)
    if features and expected is not None and features[-1] != expected:
        raise InputError(
            expected=f"documents of {expected} features", found=f"{features[-1]} in {where}", way_out=_WAY_OUT
        )
    numbers = sum(math.prod(shape) for shape in model.values())
    check_work(getattr(learner, "local", None), recording.most_examples(), numbers, where=where)
    _check_auxiliary(learner, recording.auxiliary(), where)
    return learner


def check_learner(description: Mapping[str, Any] | None, parameters: Shapes, *, where: str) -> None:
    """Refuses a learner whose network has other parameters than another system's training.

    Args:
        description: see `modules.learners.registry.learner_from`.
        parameters: the training's shapes by name, in any order.
        where: who describes them, for the message.

    Raises:
        InputError: they differ, or see `modules.learners.registry.learner_from`.
    """
    learner = learner_from(description)
    if learner is not None:
        held = {name: tuple(shape) for name, shape in parameters.items()}
        check_shapes(network_of(learner, held), held, where=where, ordered=False)
        check_work(getattr(learner, "local", None), 1, sum(map(math.prod, held.values())), where=where)


def check_sent(learner: AnySimulator, sent: Shapes, *, where: str) -> None:
    """Refuses deltas of another length than the learner says that its clients send."""
    numbers = getattr(learner, "numbers", None)
    wrong = [tuple(shape) for shape in sent.values() if numbers is not None and tuple(shape) != (numbers,)]
    if wrong:
        raise InputError(expected=f"{numbers} numbers of a client", found=f"{wrong[0]} in {where}", way_out=_WAY_OUT)


def check_work(local: LocalTraining | None, examples: int, numbers: int, *, where: str) -> None:
    """Refuses a local training that no client can have done.

    Args:
        local: how a client trains, None where it takes one step.
        examples: of the client that has most.
        numbers: of the model.
        where: whose, for the message.

    Raises:
        InputError: it has too many steps, examples, or both for a model of this size.
    """
    if local is None:
        return
    batch = min(local.batch_size or max(examples, 1), max(examples, 1))
    steps = local.updates or local.epochs * -(-max(examples, 1) // batch)
    passed = steps * batch
    if steps > MOST_STEPS or passed > MOST_EXAMPLES or passed * numbers > MOST_WORK:
        raise InputError(
            expected=f"a client's round of at most {MOST_STEPS} steps and {MOST_EXAMPLES} examples, as many as can be "
            "simulated",
            found=f"{steps} steps and {passed} examples on a model of {numbers} numbers in {where}",
            way_out=_WAY_OUT,
        )


def _check_auxiliary(learner: AnySimulator, held: Mapping[str, Tensor], where: str) -> None:
    if isinstance(learner, ImageLearner) and "images" in held:
        _check(tuple(held["images"].shape[1:]) == learner.image_shape, f"images of {learner.image_shape}", where)
        _check_below(held["labels"], learner.num_classes, where)
    elif isinstance(learner, TextLearner) and "prior_features" in held:
        texts = held["prior_features"]
        _check(texts.dim() == 2 and not texts.is_floating_point(), "texts as numbers of words, (M, L)", where)
        _check_below(texts, learner.network.vocabulary, where)
        _check(held["prior_labels"].dim() == 1, "one label of a text", where)
    elif isinstance(learner, TaggerLearner) and "prior_features" in held:
        images, labels = held["prior_features"], held["prior_labels"]
        _check(images.dim() == 4 and images.shape[1] == 3 and images.itemsize == 1, "images of 3 channels", where)
        _check(tuple(labels.shape[1:]) == (learner.num_classes,), f"labels of {learner.num_classes} classes", where)


def _check_below(values: Tensor, limit: int, where: str) -> None:
    _check(not values.numel() or 0 <= int(values.min()) <= int(values.max()) < limit, f"numbers below {limit}", where)


def _check(right: bool, expected: str, where: str) -> None:
    if not right:
        raise InputError(expected=f"{expected} as auxiliary data", found=f"others in {where}", way_out=_WAY_OUT)
