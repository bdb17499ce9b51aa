"""How much of what is freed glibc keeps for the process."""

import ctypes

_glibc = ctypes.CDLL(None)
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def share_arenas():
    """Lets all threads allocate from two arenas.

    By default each of the first eight threads a core has its own, and each keeps what its largest
    request has freed. Without glibc, nothing happens.
    """
    if hasattr(_glibc, "mallopt"):
        _glibc.mallopt(_ARENA_MAX, 2)


def give_back():
    """Returns freed memory to the system: a hundred MiB of a version that is gone."""
    if hasattr(_glibc, "malloc_trim"):
        _glibc.malloc_trim(0)
