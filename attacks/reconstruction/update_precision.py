"""How exactly the numbers of an update are known, found from the numbers themselves.

The floating-point type of a recording is no answer: systems store in float32 what was sent in 16 bits or as multiples
of a step, and leave out small numbers. A quotient of two such numbers is known only as well as they are.
"""

import torch
from torch import Tensor

_DIGITS = 53
"""Binary digits of float64, in which all is computed here."""
_ARITHMETIC = 4.0
"""Roundings of a number while a client computes it: product, sum, mean and learning rate."""
_STORED = 16
"""Digits up to which numbers are only stored so, after one rounding, and not computed with."""
_SHARE = 0.99
"""Share of numbers that must be whole multiples of a step, or of the spacing of the parameters before."""
_SMALLER = 16.0
"""Changes are compared with the spacing of parameters that are so many times larger; others may have it by chance."""
_GAPS = 48
"""Smallest gaps between different numbers, of which the step is a common divisor."""
_NEAR, _DIFFERENCE = 1e-3, 2.0
"""Largest distance from a whole multiple, in steps, and in roundings of the largest number."""
_FITTED = 2
"""Numbers that are multiples of any step: the median, and the one to which the step is fitted."""
_CHANCE = 1e-6
"""Largest probability with which other numbers are so near to multiples."""
_CLEAR = 32.0
"""Times the rounding of the largest number that a step is at least; smaller ones cannot be seen, and do not matter."""
_LEVELS = 255
"""Steps of an 8-bit pixel. A row of one record has steps of its own: the change of the bias by 255."""
_FEWEST_ROWS = 4
"""Fewest rows that show a common step, or whether small numbers were left out."""
_ROWS = 32
"""Rows of which it is looked up whether each has a step."""
_CUT = 1.5
"""Numbers up to so many times the smallest are counted: after the small ones were left out, most rows have some."""
_CUT_ROWS = 0.25
"""Share of the rows with such numbers from which small ones were left out."""


def number_errors(rows: Tensor, before: Tensor) -> Tensor:
    """``(N, D + 1)`` bounds on the errors of a layer's changes.

    The largest of:

    1. the digits in use: numbers whose significands have at most p binary digits are known to ``2^-p`` of themselves
       (24 in float32, 11 in float16 and 8 in bfloat16, in whatever type they are stored);
    2. the spacing of the parameters, if the numbers are differences of parameters that were rounded;
    3. the step, if all numbers of a tensor, or of each row, are whole multiples of one (quantised updates);
    4. the smallest number, for numbers that are zero, if the small ones were left out (sparse updates).

    Args:
        rows: ``(N, D + 1)`` float64, changes of the weight, and of the bias in the last column.
        before: ``(N, D + 1)`` float64, the parameters before.
    """
    errors = []
    steps = []
    live = int((rows[:, :-1] != 0).any(1).sum())  # of one row alone, the step may be that of an image
    for place in (slice(0, -1), slice(-1, None)):
        values, parameters = rows[:, place], before[:, place]
        digits = _digits(values)
        roundings = _ARITHMETIC if digits > _STORED else 1.0
        error = roundings * 2.0**-digits * values.abs()
        if _are_differences(values, parameters):
            error = error + _spacing(parameters)
        step = common_step(values.flatten()) if live >= _FEWEST_ROWS else 0.0
        steps.append(step / float(values.abs().max().clamp(min=1e-300)))
        errors.append(error)
    # Whoever quantises the weight quantises the bias as coarsely, but a few numbers may not show their step.
    for error, place in zip(errors, (slice(0, -1), slice(-1, None)), strict=True):
        error += max(steps) * rows[:, place].abs().max()
    weight = errors[0]
    weight += _row_steps(rows)[:, None]
    weight += _left_out(rows) * (rows[:, :-1] == 0)
    return torch.cat(errors, dim=1)


def _digits(values: Tensor) -> int:
    """Largest number of binary digits of the significands."""
    significands = torch.frexp(values).mantissa.abs().mul(2.0**_DIGITS).long()
    lowest = significands & -significands  # the last digit that is 1
    used = _DIGITS - torch.log2(lowest[lowest > 0].double())
    return int(used.max()) if len(used) else _DIGITS


def _spacing(values: Tensor) -> Tensor:
    """Distance of each number from the next one of as many digits as all of them have."""
    exponents = torch.frexp(values).exponent
    return torch.ldexp(torch.ones_like(values), exponents - _digits(values)) * (values != 0)


def _are_differences(changes: Tensor, parameters: Tensor) -> bool:
    """Whether changes are differences of parameters, so that they are multiples of the parameters' spacing."""
    small = (changes != 0) & (changes.abs() * _SMALLER < parameters.abs())
    if not bool(small.any()):
        return False
    # The parameters afterwards may be below the next power of two, where the spacing is half.
    multiples = 2 * changes[small] / _spacing(parameters)[small]
    return float((multiples == multiples.round()).double().mean()) >= _SHARE


def common_step(values: Tensor) -> float:
    """The step of which all differences of numbers are whole multiples; 0 if none can be seen.

    The smallest gaps between different numbers are few steps wide, so Euclid's algorithm finds the step from them with
    little error. It is then fitted to numbers that are more and more steps away from their median.
    """
    distinct = torch.unique(values)
    if len(distinct) <= _FITTED:
        return 0.0
    rounding = 2.0 ** -_digits(values) * float(values.abs().max())
    gaps = (distinct[1:] - distinct[:-1]).sort().values
    step = 0.0
    for gap in gaps[gaps > _CLEAR * rounding][:_GAPS].tolist():
        step = _divisor(step, gap, _CLEAR / 2 * rounding)
        if not step:
            return 0.0
    distances = (distinct - values.median()).abs().sort().values
    reach = 16.0
    while step and reach * step < 4 * float(distances[-1]):
        near = distances[distances <= reach * step]
        multiples = (near / step).round()
        if bool(multiples.any()):
            step = float((near * multiples).sum() / multiples.square().sum())
        reach *= 2
    apart = (distances - (distances / max(step, 1e-300)).round() * step).abs()
    near = max(_NEAR * step, _DIFFERENCE * rounding)
    fits = float((apart < near).double().mean()) >= _SHARE
    chance = min(1.0, 2 * near / max(step, near)) ** (len(distinct) - _FITTED)
    return step if fits and chance < _CHANCE else 0.0


def _divisor(first: float, second: float, least: float) -> float:
    """Common divisor of two numbers with errors; 0 if it is below `least`."""
    while second > least:
        if first == 0.0:
            return second
        first, second = second, abs(first - round(first / second) * second)
    return first if first > least else 0.0


def _row_steps(rows: Tensor) -> Tensor:
    """``(N,)`` the step of each row of the weight if most rows have one, else 0; a row is as coarse as the coarsest.

    A row that one 8-bit image alone changes has a step too, which is a whole number of the change of its bias by 255.
    """
    live = (rows[:, :-1] != 0).any(1).nonzero().flatten()
    # Rows from all of the layer; most of them have a step, or none.
    chosen = live[torch.linspace(0, len(live) - 1, min(len(live), _ROWS)).long()]
    steps = torch.tensor([common_step(row) for row in rows[chosen, :-1]], dtype=torch.float64)
    of_image = _LEVELS * steps / rows[chosen, -1].abs().clamp(min=1e-300)
    foreign = (steps > 0) & ((of_image - of_image.round()).abs() > 0.01 * of_image.clamp(max=1.0))
    if 2 * int(foreign.sum()) <= len(chosen):
        return torch.zeros(len(rows), dtype=torch.float64)
    largest = rows[:, :-1].abs().amax(1)
    return (steps[foreign] / largest[chosen[foreign]]).max() * largest


def _left_out(rows: Tensor) -> float:
    """The smallest number of the weight if smaller ones were left out of the update, else 0.

    Then rows have about the same smallest number. Rows of single images have the same share of the bias' change.
    """
    sizes = rows[:, :-1].abs()
    live = (sizes.amax(1) > 0) & (rows[:, -1] != 0)
    bias = rows[live, -1].abs()
    sizes = sizes[live][:, sizes.amax(0) > 0]
    if len(sizes) < _FEWEST_ROWS or not bool((sizes == 0).any()):
        return 0.0
    smallest = sizes.masked_fill(sizes == 0, torch.inf).amin(1)
    least = float(smallest.min())
    near = float((smallest < _CUT * least).double().mean())
    is_of_images = float((smallest / bias).log().var()) < float(smallest.log().var())
    return least if near > _CUT_ROWS and not is_of_images else 0.0
