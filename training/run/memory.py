"""Memory that one update frees, kept for the next."""

import ctypes

# Options of `mallopt`, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_MOST = 2**31 - 1  # bytes; `mallopt` takes an int


def keep_freed():
    """Makes glibc keep the memory that the process frees.

    By default it returns large blocks to the system, which clears every page of the blocks of the
    next update: a quarter to a third of the time of an update on some virtual machines. Must be
    called before other threads allocate memory. Without glibc, nothing happens.
    """
    glibc = ctypes.CDLL(None)
    if hasattr(glibc, "mallopt"):
        glibc.mallopt(_MMAP_MAX, 0)  # all blocks come from heaps,
        glibc.mallopt(_ARENA_MAX, 1)  # from the one heap that can hold blocks of any size,
        glibc.mallopt(_TRIM_THRESHOLD, _MOST)  # and that heap does not shrink
