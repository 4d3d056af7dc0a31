"""The papers' tables as experiments, read from configs/paper."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from experiments.base import PaperExperiment
from experiments.composition import CompositionExperiment
from experiments.deanonymization import DeanonymizationExperiment
from experiments.drawn_features import DrawnFeatures
from experiments.guardrail import GuardrailExperiment
from experiments.identifiability import IdentifiabilityExperiment
from experiments.identifiability_passive import PassiveExperiment
from experiments.image_ranking import ImageRanking
from experiments.manipulation_checks import ChecksExperiment
from experiments.noise_search import NoiseSearch
from experiments.options import check_names, check_types, in_words
from experiments.ranking import RankingExperiment
from experiments.recommendation import RecommendationExperiment
from experiments.retrieval import RetrievalExperiment
from experiments.shared_metric import SharedMetricExperiment
from experiments.utility import UtilityExperiment
from protocol.errors import InputError

_KINDS: dict[str, Callable[[dict[str, Any]], PaperExperiment]] = {
    "composition": CompositionExperiment.parse,
    "recommendation": RecommendationExperiment.parse,
    "ranking": RankingExperiment.parse,
    "identifiability": IdentifiabilityExperiment.parse,
    "identifiability-passive": PassiveExperiment.parse,
    "ranking-utility": UtilityExperiment.parse,
    "noise-search": NoiseSearch.parse,
    "retrieval": RetrievalExperiment.parse,
    "shared-metric": SharedMetricExperiment.parse,
    "manipulation-checks": ChecksExperiment.parse,
    "guardrail": GuardrailExperiment.parse,
    "image-ranking": ImageRanking.parse,
    "drawn-features": DrawnFeatures.parse,
    "deanonymization": DeanonymizationExperiment.parse,
}


def read_experiment(path: Path) -> PaperExperiment:
    """Reads a configuration of configs/paper.

    Raises:
        InputError: it is missing, no YAML, or has an unknown key, attack or data set.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        kind = content.pop("kind")
        check_names("kind", [kind], list(_KINDS))
        made = _KINDS[kind](content)
        check_types(made)
        for name in made.attacks:
            made.attack_class(name)
    except OSError as error:
        raise InputError(
            expected="a table as in configs/paper", found=str(error), way_out="Give the path of such a file."
        ) from None
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            expected="a table as in configs/paper", found=f"{in_words(error)} in {path}", way_out="Fix that key."
        ) from None
    return made
