"""Learners: what clients train."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.modules.learners.decoder import FederatedDecoder as FederatedDecoder
    from fedleak.modules.learners.fncf import FNCF as FNCF
    from fedleak.modules.learners.foltr_es import FOLtRES as FOLtRES
    from fedleak.modules.learners.fpdgd import FPDGD as FPDGD
    from fedleak.modules.learners.frozen_backbone import FrozenBackbone as FrozenBackbone
    from fedleak.modules.learners.image_classifier import FederatedClassifier as FederatedClassifier
    from fedleak.modules.learners.image_ranker import ImageRanker as ImageRanker
    from fedleak.modules.learners.matrix_factorization import FederatedMF as FederatedMF
    from fedleak.modules.learners.photo_tagger import FederatedTagger as FederatedTagger
    from fedleak.modules.learners.text import FederatedText as FederatedText
    from fedleak.modules.learners.trees import FederatedTrees as FederatedTrees
    from fedleak.training.network_learner import NetworkLearner as NetworkLearner
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "FederatedDecoder": "fedleak.modules.learners.decoder",
            "FNCF": "fedleak.modules.learners.fncf",
            "FOLtRES": "fedleak.modules.learners.foltr_es",
            "FPDGD": "fedleak.modules.learners.fpdgd",
            "FrozenBackbone": "fedleak.modules.learners.frozen_backbone",
            "FederatedClassifier": "fedleak.modules.learners.image_classifier",
            "ImageRanker": "fedleak.modules.learners.image_ranker",
            "FederatedMF": "fedleak.modules.learners.matrix_factorization",
            "NetworkLearner": "fedleak.training.network_learner",
            "FederatedTagger": "fedleak.modules.learners.photo_tagger",
            "FederatedText": "fedleak.modules.learners.text",
            "FederatedTrees": "fedleak.modules.learners.trees",
        },
    )
