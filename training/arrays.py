"""Arrays in files, which are read as memory maps."""

import mmap
import zlib

import numpy as np

CHUNK = 1 << 20  # entries of an array handled at a time


def mapped(path, dtype):
    """The entries of a file as a memory map; an empty file cannot be mapped."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)


def record(path, dtype):
    """The type, length and checksum of the array in a file."""
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            found = zlib.crc32(chunk, found)
    dtype = np.dtype(dtype)
    return {"dtype": dtype.str, "length": path.stat().st_size // dtype.itemsize, "crc32": found}


def drop_pages(*arrays):
    """Removes the pages of memory maps from this process's memory; the files keep them."""
    for array in arrays:
        if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)


def chunks(length, size=CHUNK):
    """Consecutive slices that cover `length` entries."""
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))
