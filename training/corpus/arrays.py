"""Arrays in files: written from front to back, read through a memory map that stays small."""

import mmap

import numpy as np

CHUNK = 1 << 20  # entries handled at a time


class Writer:
    """Appends arrays to a file of one type.

    Args:
        path: the `pathlib.Path`.
        dtype: of the entries.
    """

    def __init__(self, path, dtype):
        self.path, self.dtype, self.length = path, np.dtype(dtype), 0
        self._file = path.open("wb", buffering=1 << 20)

    def append(self, values):
        """Writes the entries of an array after those before."""
        self._file.write(np.ascontiguousarray(values, self.dtype).data.cast("B"))
        self.length += len(values)

    def close(self):
        """Ends the file."""
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def read(path, dtype, mode="r"):
    """The entries of a file as a memory map; an empty array of an empty file."""
    if not path.stat().st_size:
        return np.zeros(0, dtype)  # which cannot be mapped
    return np.memmap(path, dtype, mode)


def create(path, dtype, length):
    """A new file of so many zeros, as a memory map to write to."""
    path.unlink(missing_ok=True)
    return np.memmap(path, dtype, "w+", shape=(length,)) if length else np.zeros(0, dtype)


def forget(*arrays):
    """Takes pages of memory maps that were touched out of this process; the files keep them."""
    for array in arrays:
        if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)


def chunks(length, size=CHUNK):
    """Slices that cover so many entries in turn."""
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))
