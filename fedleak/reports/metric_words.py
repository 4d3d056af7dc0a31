"""Values of metrics in everyday words, from `fedleak.core.metric.Metric.words`."""

from fedleak.core.metric_table import metric
from fedleak.reports.statement.numbers import Number, hundredths, shown


def value_in_words(name: str, value: Number) -> str:
    """A value of a metric as the predicate of "the best attack", with the metric's meaning where it has no words.

    >>> value_in_words("l1", 0.2)
    'assigns 10 of 100 examples of a client to a wrong class'
    """
    entry = metric(name)
    if entry.words:
        return entry.words.format(number_in_words(name, value))
    sentence = f"reaches {name} {shown(value)}"
    if entry.meaning:
        sentence += f", where {entry.meaning.rstrip('.')}"
    return sentence


def number_in_words(name: str, value: Number) -> str:
    """The number of a value in these words, e.g. to compare it with that of another attack.

    >>> number_in_words("l1", 0.8)
    '40'
    """
    entry = metric(name)
    if not entry.words or not isinstance(value, float):
        return shown(value)
    scaled = value * entry.words_scale
    # Other scales count of 100, where a value that rounds to an end is said to be near it ("more than 99").
    if entry.words_scale == 1:
        return shown(scaled)
    return hundredths(scaled)
