"""Attacks on sums over rounds: what do the sums of several rounds reveal about a single client?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.sums_over_rounds.baselines import MeanOfSums as MeanOfSums
    from fedleak.attacks.sums_over_rounds.participation import Participation as Participation
    from fedleak.attacks.sums_over_rounds.published import RidgeOnSums as RidgeOnSums
    from fedleak.attacks.sums_over_rounds.published import SeparatedUpdates as SeparatedUpdates
    from fedleak.attacks.sums_over_rounds.records_over_rounds import HoldersToReveal as HoldersToReveal
    from fedleak.attacks.sums_over_rounds.rounds_to_reveal import RoundsToReveal as RoundsToReveal
    from fedleak.attacks.sums_over_rounds.words_over_rounds import WordsToReveal as WordsToReveal

__all__ = exports(__name__)
