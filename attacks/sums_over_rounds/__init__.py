"""Attacks on sums over rounds: what do the sums of several rounds reveal about a single client?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.sums_over_rounds.baselines import MeanOfSums as MeanOfSums
    from attacks.sums_over_rounds.participation import Participation as Participation
    from attacks.sums_over_rounds.published import RidgeOnSums as RidgeOnSums
    from attacks.sums_over_rounds.published import SeparatedUpdates as SeparatedUpdates
    from attacks.sums_over_rounds.records_over_rounds import HoldersToReveal as HoldersToReveal
    from attacks.sums_over_rounds.rounds_to_reveal import RoundsToReveal as RoundsToReveal
    from attacks.sums_over_rounds.words_over_rounds import WordsToReveal as WordsToReveal

__all__ = exports(__name__)
