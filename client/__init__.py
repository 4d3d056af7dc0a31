"""What a client runs on the model that it receives: the server wrote it, it is public, and it holds no data."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from client.algorithm import ClientAlgorithm as ClientAlgorithm
    from client.algorithm import DescentAlgorithm as DescentAlgorithm
    from client.algorithm import ExampleAlgorithm as ExampleAlgorithm
    from client.cohort import Cohort as Cohort
    from client.decoder import DecoderAlgorithm as DecoderAlgorithm
    from client.engine import *  # noqa: F403
    from client.fncf import FNCFAlgorithm as FNCFAlgorithm
    from client.foltr_es import FOLtRESAlgorithm as FOLtRESAlgorithm
    from client.fpdgd import FPDGDAlgorithm as FPDGDAlgorithm
    from client.image_classifier import ImageClassifierAlgorithm as ImageClassifierAlgorithm
    from client.matrix_factorization import MFAlgorithm as MFAlgorithm
    from client.network import ClassifierAlgorithm as ClassifierAlgorithm
    from client.network import ModuleAlgorithm as ModuleAlgorithm
    from client.network import ModuleClassifier as ModuleClassifier
    from client.network import NetworkAlgorithm as NetworkAlgorithm
    from client.pointwise_descent import VoteAlgorithm as VoteAlgorithm
    from client.ranking import RankingAlgorithm as RankingAlgorithm
    from client.recommendation import RecommenderAlgorithm as RecommenderAlgorithm
    from client.tagger import TaggerAlgorithm as TaggerAlgorithm
    from client.text import TextAlgorithm as TextAlgorithm

__all__ = exports(__name__)
