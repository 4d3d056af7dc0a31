"""What a statement says of sums over rounds: the fields of how long they hide a client."""

from fedleak.reports.statement.numbers import Strict


class Revealed(Strict):
    """After how many rounds an attack reveals clients from sums."""

    attack: str
    """its name"""
    clients: int
    """clients with a result"""
    revealed: int
    """clients of whom its 95 % interval became narrower than what is declared as sensitive"""
    earliest: int
    """number of rounds after which the first of them was revealed"""
    mean: float
    """mean over those"""


class Sums(Strict):
    """What sums over rounds reveal of single clients."""

    sentence: str
    """for how many rounds clients are hidden, in a sentence"""
    clients: int
    """clients that took part in sums"""
    rounds: int
    """recorded rounds"""
    rank: int
    """rank of the participation; with as many as clients, all are determined"""
    determined: int
    """clients of whom every additive statistic follows from exact sums"""
    earliest: int | None
    """number of rounds after which the first of them is determined, null for none"""
    measured: list[Revealed]
    """attacks that revealed clients"""
    batched: str
    """what it would change if the same clients always took part together"""
    assumptions: list[str]
    """what the numbers assume"""
