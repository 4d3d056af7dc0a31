"""The errors for user input that cannot be used."""

from fedleak_recorder.errors import InputError as InputError
from fedleak_recorder.errors import require as require


class ViewError(Exception):
    """A server view lacks what an attack needs, or holds something no attack can use.

    Example:
        >>> import torch
        >>> from fedleak import RoundView, ViewError
        >>> clients, counts = torch.tensor([7]), torch.tensor([10])
        >>> view = RoundView(round=0, pseudonyms=clients, example_counts=counts, deltas={}, model={})
        >>> try:
        ...     view.served_items
        ... except ViewError as error:
        ...     print(error)
        expected the served items, got a recording without them
    """


def input_error_in(error: BaseException | None) -> InputError | None:
    """The `InputError` among an error's causes and contexts, None if there is none."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error
