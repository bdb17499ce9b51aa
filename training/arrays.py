"""Arrays in files: written with a checksum, read as memory maps."""

import mmap
import os
import zlib

import numpy as np

CHUNK = 1 << 20  # entries of an array handled at a time


class Writer:
    """Appends arrays to a file of one type; `close` gives the record that `is_whole` checks."""

    def __init__(self, path, dtype):
        self.path, self.dtype, self.length, self._crc = path, np.dtype(dtype), 0, 0
        self._file = path.open("wb", buffering=1 << 20)

    def append(self, values):
        """Writes the entries of an array to the end of the file."""
        data = np.ascontiguousarray(values, self.dtype).tobytes()
        self._file.write(data)
        self._crc = zlib.crc32(data, self._crc)
        self.length += len(values)

    def close(self):
        """Writes the file to the disk; returns its type, length and checksum."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"dtype": self.dtype.str, "length": self.length, "crc32": self._crc}


def mapped(path, dtype):
    """The entries of a file as a memory map; an empty file cannot be mapped."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)


def is_whole(path, record):
    size = record["length"] * np.dtype(record["dtype"]).itemsize
    if not path.is_file() or path.stat().st_size != size:
        return False
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            found = zlib.crc32(chunk, found)
    return found == record["crc32"]


def drop_pages(*arrays):
    """Removes the pages of memory maps from this process's memory; the files keep them."""
    for array in arrays:
        if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)


def chunks(length, size=CHUNK):
    """Consecutive slices that cover `length` entries."""
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))
