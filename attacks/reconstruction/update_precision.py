"""How exactly the numbers of an update are known, found from the numbers themselves.

The floating-point type of a recording is no answer: systems store in float32 what was sent in 16 bits or as multiples
of a step, and leave out small numbers. A quotient of two such numbers is known only as well as they are.
"""

import torch
from torch import Tensor

_WEIGHT_AND_BIAS = (slice(0, -1), slice(-1, None))
"""Columns of a layer's weight, and of its bias."""
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
_NEAR = 1e-3
"""Largest distance from a whole multiple, in steps."""
_DIFFERENCE = 2.0
"""The same in roundings of the largest number."""
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
    live = int((rows[:, :-1] != 0).any(1).sum())  # of one row alone, the step may be that of an image
    errors = []
    relative_steps = []
    for tensor in _WEIGHT_AND_BIAS:
        values = rows[:, tensor]
        parameters = before[:, tensor]
        digits = _digits(values)
        # Numbers of so many digits are computed with rounding at each operation; those of fewer are rounded once.
        roundings = _ARITHMETIC if digits > _STORED else 1.0
        error = roundings * 2.0**-digits * values.abs()
        if _are_differences(values, parameters):
            error = error + _spacing(parameters)
        step = common_step(values.flatten()) if live >= _FEWEST_ROWS else 0.0
        relative_steps.append(step / float(values.abs().max().clamp(min=1e-300)))
        errors.append(error)
    # Whoever quantises the weight quantises the bias as coarsely, but a few numbers may not show their step.
    for error, tensor in zip(errors, _WEIGHT_AND_BIAS, strict=True):
        error += max(relative_steps) * rows[:, tensor].abs().max()
    weight_errors = errors[0]
    weight_errors += _row_steps(rows)[:, None]
    weight_errors += _left_out(rows) * (rows[:, :-1] == 0)
    return torch.cat(errors, dim=1)


def _digits(values: Tensor) -> int:
    """Largest number of binary digits of the significands."""
    significands = torch.frexp(values).mantissa.abs().mul(2.0**_DIGITS).long()
    lowest = significands & -significands  # the last digit that is 1
    digits = _DIGITS - torch.log2(lowest[lowest > 0].double())
    return int(digits.max()) if len(digits) else _DIGITS


def _spacing(values: Tensor) -> Tensor:
    """Distance of each number from the next one of as many digits as all of them have."""
    exponents = torch.frexp(values).exponent
    return torch.ldexp(torch.ones_like(values), exponents - _digits(values)) * (values != 0)


def _are_differences(changes: Tensor, parameters: Tensor) -> bool:
    """Whether changes are differences of parameters, so that they are multiples of the parameters' spacing."""
    is_small = (changes != 0) & (changes.abs() * _SMALLER < parameters.abs())
    if not bool(is_small.any()):
        return False
    # The parameters afterwards may be below the next power of two, where the spacing is half.
    multiples = 2 * changes[is_small] / _spacing(parameters)[is_small]
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
    # The greatest common divisor of the smallest gaps.
    gaps = (distinct[1:] - distinct[:-1]).sort().values
    step = 0.0
    for gap in gaps[gaps > _CLEAR * rounding][:_GAPS].tolist():
        step = _divisor(step, gap, _CLEAR / 2 * rounding)
        if not step:
            return 0.0
    # Least squares of distances that are whole multiples m of the step: sum d m / sum m^2. The error of the step times
    # m must stay below half a step, so numbers twice as far away join with each pass.
    distances = (distinct - values.median()).abs().sort().values
    reach = 16.0
    while step and reach * step < 4 * float(distances[-1]):
        near = distances[distances <= reach * step]
        multiples = (near / step).round()
        if bool(multiples.any()):
            step = float((near * multiples).sum() / multiples.square().sum())
        reach *= 2
    apart = (distances - (distances / max(step, 1e-300)).round() * step).abs()
    allowed = max(_NEAR * step, _DIFFERENCE * rounding)
    fits = float((apart < allowed).double().mean()) >= _SHARE
    # A number is within d of a multiple of s by chance with probability 2 d / s.
    chance = min(1.0, 2 * allowed / max(step, allowed)) ** (len(distinct) - _FITTED)
    return step if fits and chance < _CHANCE else 0.0


def _divisor(first: float, second: float, least: float) -> float:
    """Common divisor of two numbers with errors; 0 if it is below `least`."""
    # Euclid's algorithm with the nearest quotient, so that remainders of errors stay small.
    while second > least:
        if first == 0.0:
            return second
        first, second = second, abs(first - round(first / second) * second)
    return first if first > least else 0.0


def _row_steps(rows: Tensor) -> Tensor:
    """``(N,)`` the step of each row of the weight if most rows have one, else 0; a row is as coarse as the coarsest.

    A row that one 8-bit image alone changes has a step too, which is a whole number of the change of its bias by 255.
    """
    weight = rows[:, :-1]
    bias = rows[:, -1]
    live = (weight != 0).any(1).nonzero().flatten()
    # Rows from all of the layer; most of them have a step, or none.
    count = min(len(live), _ROWS)
    chosen = live[torch.linspace(0, len(live) - 1, count).long()]
    steps = torch.tensor([common_step(row) for row in weight[chosen]], dtype=torch.float64)
    # A step that is a whole part of the bias' change over 255 is that of an image, and no quantisation.
    multiples = _LEVELS * steps / bias[chosen].abs().clamp(min=1e-300)
    distance = (multiples - multiples.round()).abs()
    is_quantised = (steps > 0) & (distance > 0.01 * multiples.clamp(max=1.0))
    if 2 * int(is_quantised.sum()) <= len(chosen):
        return torch.zeros(len(rows), dtype=torch.float64)
    largest = weight.abs().amax(1)
    coarsest = (steps[is_quantised] / largest[chosen[is_quantised]]).max()
    return coarsest * largest


def _left_out(rows: Tensor) -> float:
    """The smallest number of the weight if smaller ones were left out of the update, else 0.

    Then rows have about the same smallest number. Rows of single images have the same share of the bias' change.
    """
    sizes = rows[:, :-1].abs()
    is_live = (sizes.amax(1) > 0) & (rows[:, -1] != 0)
    bias = rows[is_live, -1].abs()
    sizes = sizes[is_live][:, sizes.amax(0) > 0]
    if len(sizes) < _FEWEST_ROWS or not bool((sizes == 0).any()):
        return 0.0
    smallest = sizes.masked_fill(sizes == 0, torch.inf).amin(1)
    threshold = float(smallest.min())
    near_threshold = float((smallest < _CUT * threshold).double().mean())
    # A threshold is the same in all rows; the least pixel of an image is the same share of each row's bias.
    is_of_images = float((smallest / bias).log().var()) < float(smallest.log().var())
    if near_threshold > _CUT_ROWS and not is_of_images:
        return threshold
    return 0.0
