"""What a client runs on the model that it receives: the server wrote it, it is public, and it holds no data."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.client.algorithm import ClientAlgorithm as ClientAlgorithm
    from fedleak.client.algorithm import DescentAlgorithm as DescentAlgorithm
    from fedleak.client.algorithm import ExampleAlgorithm as ExampleAlgorithm
    from fedleak.client.cohort import Cohort as Cohort
    from fedleak.client.decoder import DecoderAlgorithm as DecoderAlgorithm
    from fedleak.client.engine import *  # noqa: F403
    from fedleak.client.fncf import FNCFAlgorithm as FNCFAlgorithm
    from fedleak.client.foltr_es import FOLtRESAlgorithm as FOLtRESAlgorithm
    from fedleak.client.fpdgd import FPDGDAlgorithm as FPDGDAlgorithm
    from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm as FrozenBackboneAlgorithm
    from fedleak.client.image_classifier import ImageClassifierAlgorithm as ImageClassifierAlgorithm
    from fedleak.client.matrix_factorization import MFAlgorithm as MFAlgorithm
    from fedleak.client.network import ClassifierAlgorithm as ClassifierAlgorithm
    from fedleak.client.network import ModuleAlgorithm as ModuleAlgorithm
    from fedleak.client.network import ModuleClassifier as ModuleClassifier
    from fedleak.client.network import NetworkAlgorithm as NetworkAlgorithm
    from fedleak.client.pointwise_descent import VoteAlgorithm as VoteAlgorithm
    from fedleak.client.ranking import RankingAlgorithm as RankingAlgorithm
    from fedleak.client.recommendation import RecommenderAlgorithm as RecommenderAlgorithm
    from fedleak.client.tagger import TaggerAlgorithm as TaggerAlgorithm
    from fedleak.client.text import TextAlgorithm as TextAlgorithm
    from fedleak.client.trees import TreesAlgorithm as TreesAlgorithm
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "ClientAlgorithm": "fedleak.client.algorithm",
            "DescentAlgorithm": "fedleak.client.algorithm",
            "ExampleAlgorithm": "fedleak.client.algorithm",
            "Cohort": "fedleak.client.cohort",
            "DecoderAlgorithm": "fedleak.client.decoder",
            "FNCFAlgorithm": "fedleak.client.fncf",
            "FOLtRESAlgorithm": "fedleak.client.foltr_es",
            "FPDGDAlgorithm": "fedleak.client.fpdgd",
            "FrozenBackboneAlgorithm": "fedleak.client.frozen_backbone",
            "ImageClassifierAlgorithm": "fedleak.client.image_classifier",
            "MFAlgorithm": "fedleak.client.matrix_factorization",
            "ClassifierAlgorithm": "fedleak.client.network",
            "ModuleAlgorithm": "fedleak.client.network",
            "ModuleClassifier": "fedleak.client.network",
            "NetworkAlgorithm": "fedleak.client.network",
            "VoteAlgorithm": "fedleak.client.pointwise_descent",
            "RankingAlgorithm": "fedleak.client.ranking",
            "RecommenderAlgorithm": "fedleak.client.recommendation",
            "TaggerAlgorithm": "fedleak.client.tagger",
            "TextAlgorithm": "fedleak.client.text",
            "TreesAlgorithm": "fedleak.client.trees",
        },
        packages=("fedleak.client.engine",),
    )
