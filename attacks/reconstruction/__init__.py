"""Attacks on training examples: which images, sentences or rows of a table were in the update?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.reconstruction.baselines import ColumnPrior as ColumnPrior
    from attacks.reconstruction.baselines import MajorityRow as MajorityRow
    from attacks.reconstruction.baselines import MeanRecord as MeanRecord
    from attacks.reconstruction.baselines import RandomSentences as RandomSentences
    from attacks.reconstruction.dager import Dager as Dager
    from attacks.reconstruction.gradient_matching import DeepLeakage as DeepLeakage
    from attacks.reconstruction.gradient_matching import FedAvgMatching as FedAvgMatching
    from attacks.reconstruction.gradient_matching import InvertingGradients as InvertingGradients
    from attacks.reconstruction.gradient_matching import UnrelatedUpdate as UnrelatedUpdate
    from attacks.reconstruction.linear_inversion import LinearInversion as LinearInversion
    from attacks.reconstruction.linear_published import LinearDifferences as LinearDifferences
    from attacks.reconstruction.linear_published import LinearPeeling as LinearPeeling
    from attacks.reconstruction.linear_published import LinearRatio as LinearRatio
    from attacks.reconstruction.memory_rows import MemoryRows as MemoryRows
    from attacks.reconstruction.sentence_chains import SentenceChains as SentenceChains
    from attacks.reconstruction.sentence_span import SentenceSpan as SentenceSpan
    from attacks.reconstruction.separate_matching import SeparateMatching as SeparateMatching
    from attacks.reconstruction.separate_matching import UnrelatedSeparate as UnrelatedSeparate
    from attacks.reconstruction.tableak import TabLeak as TabLeak

__all__ = exports(__name__)
