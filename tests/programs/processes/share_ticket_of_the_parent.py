"""Asks a ticket of its parent, in a forked child, for its leases, and withdraws it in vain."""

from __future__ import annotations

import numpy as np
from support.forks import fork, wait

import tensorferry as ferry

ticket = ferry.publish(np.ones(3))


def body() -> None:
    """What the child does."""
    assert ticket.leases is None, ticket.leases
    try:
        ticket.withdraw()
    except ferry.InvalidArgumentError:
        return
    raise AssertionError("a ticket of the parent was withdrawn")


wait(fork(body))
