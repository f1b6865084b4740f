"""The work: a function in a module that both sides can import, as for any process pool."""

import math


def digit_sum(number: int) -> int:
    """Of the factorial of a number."""
    return sum(map(int, str(math.factorial(number))))
