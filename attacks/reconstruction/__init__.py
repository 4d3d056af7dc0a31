"""Attacks on training examples: which images, sentences or rows of a table were in the update?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.reconstruction.baselines import ColumnPrior as ColumnPrior
    from fedleak.attacks.reconstruction.baselines import MajorityRow as MajorityRow
    from fedleak.attacks.reconstruction.baselines import MeanRecord as MeanRecord
    from fedleak.attacks.reconstruction.baselines import RandomSentences as RandomSentences
    from fedleak.attacks.reconstruction.dager import Dager as Dager
    from fedleak.attacks.reconstruction.gradient_matching import DeepLeakage as DeepLeakage
    from fedleak.attacks.reconstruction.gradient_matching import FedAvgMatching as FedAvgMatching
    from fedleak.attacks.reconstruction.gradient_matching import InvertingGradients as InvertingGradients
    from fedleak.attacks.reconstruction.gradient_matching import UnrelatedUpdate as UnrelatedUpdate
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

__all__ = exports(__name__)
