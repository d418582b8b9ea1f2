"""One thread for the linear algebra of fits: their matrices are small, and threads that wait for one another are slow.

Floor: calibration. It also makes a fit the same on machines with other numbers of cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS use one thread inside the block."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield
