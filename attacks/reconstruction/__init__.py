"""Attacks on training examples: which images, sentences or rows of a table were in the update?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.reconstruction.baselines import ColumnPrior as ColumnPrior
    from fedleak.attacks.reconstruction.baselines import MajorityRow as MajorityRow
    from fedleak.attacks.reconstruction.baselines import MeanRecord as MeanRecord
    from fedleak.attacks.reconstruction.baselines import RandomSentences as RandomSentences
    from fedleak.attacks.reconstruction.dager import Dager as Dager
    from fedleak.attacks.reconstruction.decepticons import Decepticons as Decepticons
    from fedleak.attacks.reconstruction.gradient_matching import DeepLeakage as DeepLeakage
    from fedleak.attacks.reconstruction.gradient_matching import FedAvgMatching as FedAvgMatching
    from fedleak.attacks.reconstruction.gradient_matching import InvertingGradients as InvertingGradients
    from fedleak.attacks.reconstruction.gradient_matching import UnrelatedUpdate as UnrelatedUpdate
    from fedleak.attacks.reconstruction.head_features import HeadFeatures as HeadFeatures
    from fedleak.attacks.reconstruction.head_features import HeadImages as HeadImages
    from fedleak.attacks.reconstruction.head_features import MeanFeatures as MeanFeatures
    from fedleak.attacks.reconstruction.head_features import UnrelatedHeadFeatures as UnrelatedHeadFeatures
    from fedleak.attacks.reconstruction.lamp import Lamp as Lamp
    from fedleak.attacks.reconstruction.linear_inversion import LinearInversion as LinearInversion
    from fedleak.attacks.reconstruction.linear_published import LinearDifferences as LinearDifferences
    from fedleak.attacks.reconstruction.linear_published import LinearPeeling as LinearPeeling
    from fedleak.attacks.reconstruction.linear_published import LinearRatio as LinearRatio
    from fedleak.attacks.reconstruction.memory_rows import MemoryRows as MemoryRows
    from fedleak.attacks.reconstruction.sentence_chains import SentenceChains as SentenceChains
    from fedleak.attacks.reconstruction.sentence_span import SentenceSpan as SentenceSpan
    from fedleak.attacks.reconstruction.separate_matching import SeparateMatching as SeparateMatching
    from fedleak.attacks.reconstruction.separate_matching import UnrelatedSeparate as UnrelatedSeparate
    from fedleak.attacks.reconstruction.tableak import TabLeak as TabLeak
    from fedleak.attacks.reconstruction.tag import Tag as Tag
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "ColumnPrior": "fedleak.attacks.reconstruction.baselines",
            "MajorityRow": "fedleak.attacks.reconstruction.baselines",
            "MeanRecord": "fedleak.attacks.reconstruction.baselines",
            "RandomSentences": "fedleak.attacks.reconstruction.baselines",
            "Dager": "fedleak.attacks.reconstruction.dager",
            "Decepticons": "fedleak.attacks.reconstruction.decepticons",
            "DeepLeakage": "fedleak.attacks.reconstruction.gradient_matching",
            "FedAvgMatching": "fedleak.attacks.reconstruction.gradient_matching",
            "InvertingGradients": "fedleak.attacks.reconstruction.gradient_matching",
            "UnrelatedUpdate": "fedleak.attacks.reconstruction.gradient_matching",
            "HeadFeatures": "fedleak.attacks.reconstruction.head_features",
            "HeadImages": "fedleak.attacks.reconstruction.head_features",
            "MeanFeatures": "fedleak.attacks.reconstruction.head_features",
            "UnrelatedHeadFeatures": "fedleak.attacks.reconstruction.head_features",
            "Lamp": "fedleak.attacks.reconstruction.lamp",
            "LinearInversion": "fedleak.attacks.reconstruction.linear_inversion",
            "LinearDifferences": "fedleak.attacks.reconstruction.linear_published",
            "LinearPeeling": "fedleak.attacks.reconstruction.linear_published",
            "LinearRatio": "fedleak.attacks.reconstruction.linear_published",
            "MemoryRows": "fedleak.attacks.reconstruction.memory_rows",
            "SentenceChains": "fedleak.attacks.reconstruction.sentence_chains",
            "SentenceSpan": "fedleak.attacks.reconstruction.sentence_span",
            "SeparateMatching": "fedleak.attacks.reconstruction.separate_matching",
            "UnrelatedSeparate": "fedleak.attacks.reconstruction.separate_matching",
            "TabLeak": "fedleak.attacks.reconstruction.tableak",
            "Tag": "fedleak.attacks.reconstruction.tag",
        },
    )
