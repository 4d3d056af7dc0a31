"""What a statement says would lower a leak: the fields of measured effects."""

from fedleak.reports.statement.numbers import Cell, Interval, Strict


class At(Strict):
    """Largest leak at one value of a defence, over all other settings."""

    value: Cell
    """value of the defence's setting"""
    table: str
    """table in docs/results that it stands in; `this recording` for a defence tried on it"""
    attack: str
    """best attack there"""
    result: Interval
    """its mean"""
    n: int
    """number of clients"""
    baseline: str | None
    """best baseline in the same setting, null if there is none"""
    baseline_reads: bool
    """whether it reads the update, so that noise makes it worse too"""
    baseline_result: Interval | None
    """its mean"""
    gain: float
    """share of the way from the best of the baseline and guessing to certainty"""
    signal: float | None = None
    """cosine of the round's mean update with and without the defence, null for a trained one"""


class Effect(Strict):
    """Measured effect of a defence, on this recording, or on other data from the published results of this project."""

    question: str
    """family of attacks"""
    infers: str
    """what the server infers, in words"""
    data: str
    """name of the data"""
    here: bool
    """whether the defence was tried on this recording"""
    defence: str
    """what varies, e.g. epsilon of local privacy"""
    note: str
    """what the defence covers, empty where the table does not say it"""
    metric: str
    """metric"""
    cells: list[At]
    """largest leak by value"""


class Lowering(Strict):
    """What would lower the leak."""

    sentence: str
    """whether an effect was measured, and where"""
    effects: list[Effect]
    """effects, those on this recording first"""
