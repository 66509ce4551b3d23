"""The moments at which httperf sends, known beforehand.

``--period=e<mean>`` draws exponential gaps with ``erand48``, whose state httperf 0.9 sets from the
client's number alone (``rate_generator_start`` in its ``gen/rate.c``). The arrivals are therefore
the same for every reading of the same client number, and the *achieved* mean rate of n arrivals
strays from the nominal one by 1/√n (1.8 % for 3000). Knowing the sequence, the mean gap is scaled so
that exactly n requests go out in the time they should: a Poisson process given its count. That takes
the stray out of every reading, and tells when the last request is due.
"""

from __future__ import annotations

from math import log

CLIENTS = 1 << 16  # client numbers with different arrivals: the state takes 16 bits of them

_MULTIPLIER, _INCREMENT, _MODULUS = 0x5DEECE66D, 0xB, 1 << 48  # POSIX drand48


def unit_span(client: int, gaps: int) -> float:
    """The sum of the first ``gaps`` exponential gaps of mean one that this client number draws."""
    state = (
        ((0x9ABC ^ (~client & 0xFFFF)) << 32)
        | ((0x5678 ^ ((client << 8) & 0xFFFF)) << 16)
        | (0x1234 ^ (client & 0xFFFF))
    )
    span = 0.0
    for _ in range(gaps):
        state = (_MULTIPLIER * state + _INCREMENT) % _MODULUS
        span -= log(1.0 - state / _MODULUS)
    return span


def mean_gap(client: int, requests: int, rate: float) -> float:
    """The ``--period`` in seconds with which ``requests`` go out at exactly ``rate`` per second.

    The first one goes out at once, so there is one gap less than there are requests.
    """
    if requests < 2:
        return 1.0 / rate
    return (requests - 1) / rate / unit_span(client, requests - 1)
