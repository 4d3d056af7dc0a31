"""Learners: what clients train."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from modules.learners.decoder import FederatedDecoder as FederatedDecoder
    from modules.learners.fncf import FNCF as FNCF
    from modules.learners.foltr_es import FOLtRES as FOLtRES
    from modules.learners.fpdgd import FPDGD as FPDGD
    from modules.learners.image_classifier import FederatedClassifier as FederatedClassifier
    from modules.learners.image_ranker import ImageRanker as ImageRanker
    from modules.learners.matrix_factorization import FederatedMF as FederatedMF
    from modules.learners.network import NetworkLearner as NetworkLearner
    from modules.learners.photo_tagger import FederatedTagger as FederatedTagger
    from modules.learners.text import FederatedText as FederatedText

__all__ = exports(__name__)
