"""The function that is run. Both sides must be able to import its module, as for any process pool."""

import math


def digit_sum(number: int) -> int:
    """Return the digit sum of the factorial of a number."""
    return sum(map(int, str(math.factorial(number))))
