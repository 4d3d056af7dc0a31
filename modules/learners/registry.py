"""Public algorithms by name. A recording may come from a stranger: it names an algorithm, never a class to import."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from datamodules.recordings.shape_check import Shapes
from defenses.update_l1 import UpdateL1
from modules.engine.local_hyperparameters import LocalTraining
from modules.learners.fncf_learner import FNCFLearner
from modules.learners.foltr_es_learner import FOLtRESLearner
from modules.learners.fpdgd_learner import FPDGDLearner
from modules.learners.image_classifier_learner import ImageLearner
from modules.learners.image_ranker_learner import ImageRankerLearner
from modules.learners.learner_arguments import ARGUMENTS, check_arguments
from modules.learners.matrix_factorization_learner import MFLearner
from modules.learners.photo_tagger_learner import TaggerLearner
from modules.learners.text_learner import TextLearner
from modules.learners.text_options import TextOptions
from modules.nets.classifiers import ClassifierOptions
from modules.nets.tagger import TaggerOptions
from protocol.errors import InputError
from protocol.margin_losses import LossName
from protocol.simulators import AnySimulator, RecommenderSimulator


def learner_from(description: Mapping[str, Any] | None) -> AnySimulator | None:
    """Builds the clients' algorithm that a recording names, for the server to simulate.

    Args:
        description: ``{"name": ..., "arguments": {...}}`` from the manifest, None where the algorithm is unknown.

    Raises:
        InputError: the name or an argument is unknown, or an argument is of another kind or range.
    """
    if description is None:
        return None
    name = description.get("name")
    if not isinstance(name, str) or name not in LEARNERS:
        raise InputError(
            expected=f"a learner among {', '.join(LEARNERS)}",
            found=repr(name),
            way_out="Set learner to null in the manifest; attacks that simulate clients will be left out.",
        )
    check_arguments(description.get("arguments"), ARGUMENTS[name], where=f"the learner {name!r} of the manifest")
    try:
        return LEARNERS[name](**description["arguments"])
    except TypeError as error:
        raise InputError(
            expected=f"the arguments of learner {name!r}",
            found=str(error),
            way_out="Record again with this version, or set learner to null in the manifest.",
        ) from error


def network_of(learner: AnySimulator, held: Shapes) -> dict[str, tuple[int, ...]]:
    """The shapes of what a learner's clients train, without building it.

    Args:
        learner: from `learner_from`.
        held: shapes of the recorded model, from which sizes are taken that no argument gives.

    Raises:
        InputError: the network cannot be, or has no such layers.
    """
    if not isinstance(learner, _Described):
        return {name: tuple(shape) for name, shape in held.items()}
    try:
        return learner.network_shapes({name: tuple(shape) for name, shape in held.items()})
    except (RuntimeError, TypeError, ValueError, OverflowError, KeyError, IndexError) as error:
        raise InputError(
            expected=f"the network of {type(learner).__name__}",
            found=f"one that cannot be built ({str(error).splitlines()[0] if str(error) else 'no such layer'})",
            way_out="Set learner to null in the manifest; attacks that simulate clients will be left out.",
        ) from None


@runtime_checkable
class _Described(Protocol):
    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shapes of the network that the learner trains."""


def _fncf(*, user_dim: int, local: Mapping[str, Any], update_l1: Mapping[str, Any] | None) -> RecommenderSimulator:
    defenses = () if update_l1 is None else (UpdateL1(**update_l1),)
    return FNCFLearner(user_dim=user_dim, local=_local(local), defenses=defenses)


def _mf(*, dim: int, loss: LossName, clip: float | None, local: Mapping[str, Any]) -> RecommenderSimulator:
    return MFLearner(dim=dim, loss=loss, clip=clip, local=_local(local))


def _classifier(
    *, network: Mapping[str, Any], image_shape: list[int], num_classes: int, local: Mapping[str, Any]
) -> AnySimulator:
    channels, height, width = image_shape
    return ImageLearner(
        network=ClassifierOptions(**network),
        image_shape=(channels, height, width),
        num_classes=num_classes,
        local=_local(local),
    )


def _tagger(*, network: Mapping[str, Any], num_classes: int, local: Mapping[str, Any]) -> AnySimulator:
    return TaggerLearner(network=TaggerOptions(**network), num_classes=num_classes, local=_local(local))


def _text(*, network: Mapping[str, Any], local: Mapping[str, Any]) -> AnySimulator:
    return TextLearner(network=TextOptions(**network), local=_local(local))


def _local(options: Mapping[str, Any]) -> LocalTraining:
    made: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    return LocalTraining(**made)


LEARNERS: dict[str, Callable[..., AnySimulator]] = {
    "classifier": _classifier,
    "fncf": _fncf,
    "foltr-es": FOLtRESLearner,
    "fpdgd": FPDGDLearner,
    "image-ranker": ImageRankerLearner,
    "mf": _mf,
    "tagger": _tagger,
    "text": _text,
}
