"""Attacks on training examples: which images, sentences or rows of a table were in the update?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.reconstruction.baselines import MeanRecord as MeanRecord
    from attacks.reconstruction.random_sentences import RandomSentences as RandomSentences
    from attacks.reconstruction.sentence_span import SentenceSpan as SentenceSpan

__all__ = exports(__name__)
