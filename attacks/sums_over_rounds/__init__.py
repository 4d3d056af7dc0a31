"""Attacks on sums over rounds: what do the sums of several rounds reveal about a single client?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.sums_over_rounds.baselines import EqualShares as EqualShares
    from fedleak.attacks.sums_over_rounds.baselines import MeanOfSums as MeanOfSums
    from fedleak.attacks.sums_over_rounds.participation import Participation as Participation
    from fedleak.attacks.sums_over_rounds.published import RidgeOnSums as RidgeOnSums
    from fedleak.attacks.sums_over_rounds.published import SeparatedUpdates as SeparatedUpdates
    from fedleak.attacks.sums_over_rounds.records_over_rounds import HoldersToReveal as HoldersToReveal
    from fedleak.attacks.sums_over_rounds.rounds_to_reveal import RoundsToReveal as RoundsToReveal
    from fedleak.attacks.sums_over_rounds.words_over_rounds import WordsToReveal as WordsToReveal
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "EqualShares": "fedleak.attacks.sums_over_rounds.baselines",
            "MeanOfSums": "fedleak.attacks.sums_over_rounds.baselines",
            "Participation": "fedleak.attacks.sums_over_rounds.participation",
            "RidgeOnSums": "fedleak.attacks.sums_over_rounds.published",
            "SeparatedUpdates": "fedleak.attacks.sums_over_rounds.published",
            "HoldersToReveal": "fedleak.attacks.sums_over_rounds.records_over_rounds",
            "RoundsToReveal": "fedleak.attacks.sums_over_rounds.rounds_to_reveal",
            "WordsToReveal": "fedleak.attacks.sums_over_rounds.words_over_rounds",
        },
    )
