"""Primes of numbers of leaves, which are at most 2^40.

Source: Miller, Rabin; Jaeschke 1993 (which witnesses suffice).
"""

from __future__ import annotations

import math

import numpy as np

# A strong test of primality below 3.4e14.
_WITNESSES = (2, 3, 5, 7, 11, 13, 17)


def factorised(number: int) -> list[tuple[int, int]]:
    """The primes of a number up to 2^40 and their exponents, in ascending order.

    >>> factorised(360)
    [(2, 3), (3, 2), (5, 1)]
    """
    candidates = np.arange(2, math.isqrt(number) + 1)
    primes = []
    for divisor in candidates[number % candidates == 0].tolist():
        exponent = 0
        while number % divisor == 0:
            number, exponent = number // divisor, exponent + 1
        if exponent:
            primes.append((divisor, exponent))
    return [*primes, (number, 1)] if number > 1 else primes


def is_prime(number: int) -> bool:
    """Whether a number below 3.4e14 is a prime, by the test of Miller and Rabin.

    >>> is_prime(2**31 - 1), is_prime(2**31 + 1)
    (True, False)
    """
    if number < 2 or any(number % witness == 0 for witness in _WITNESSES):
        return number in _WITNESSES
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    for witness in _WITNESSES:
        power = pow(witness, (number - 1) >> twos, number)
        squares = [pow(power, 2**step, number) for step in range(twos)]
        if power != 1 and number - 1 not in squares:
            return False
    return True
