"""Arrays in files, which are written sequentially and read through memory maps."""

import mmap
import os
import tempfile
import zlib

import numpy as np

CHUNK = 1 << 20  # entries handled at a time


class Writer:
    """Appends arrays to a file of one type.

    Args:
        path: The `pathlib.Path`.
        dtype: Dtype of the entries.
    """

    def __init__(self, path, dtype):
        self.path, self.dtype, self.length = path, np.dtype(dtype), 0
        self._checksum = 0
        self._file = path.open("wb", buffering=1 << 20)

    def append(self, values):
        """Writes the entries of an array to the end of the file."""
        data = np.ascontiguousarray(values, self.dtype).tobytes()
        self._file.write(data)
        self._checksum = zlib.crc32(data, self._checksum)
        self.length += len(values)

    def close(self):
        """Writes the file to the disk and closes it."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def record(self):
        """The type, length and checksum of the file, for `is_whole`."""
        return {"dtype": self.dtype.str, "length": self.length, "crc32": self._checksum}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def read(path, dtype, mode="r"):
    """The entries of a file as a memory map; an empty array for an empty file."""
    if not path.stat().st_size:
        return np.zeros(0, dtype)  # an empty file cannot be mapped
    return np.memmap(path, dtype, mode)


def is_whole(path, record):
    """Whether a file has the content that its `Writer` wrote."""
    size = record["length"] * np.dtype(record["dtype"]).itemsize
    if not path.is_file() or path.stat().st_size != size:
        return False
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            found = zlib.crc32(chunk, found)
    return found == record["crc32"]


def scratch(folder, dtype, length):
    """A writable memory map of zeros, in an unnamed file that is deleted with the process."""
    if not length:
        return np.zeros(0, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype, "w+", shape=(length,))


class Buffer:
    """An array that grows, in memory or in an unnamed file.

    Args:
        folder: Where the file is to be; None for memory.
        dtype: of the entries.
    """

    def __init__(self, folder, dtype):
        self._dtype, self._length = np.dtype(dtype), 0
        self._file = tempfile.TemporaryFile(dir=folder) if folder else None  # noqa: SIM115
        self._arrays = [np.zeros(0, self._dtype)]

    def __len__(self):
        return self._length

    def append(self, values):
        """Adds entries at the end."""
        values = np.ascontiguousarray(values, self._dtype)
        self._length += len(values)
        if self._file:
            self._file.write(values.tobytes())
        else:
            self._arrays.append(values)

    def array(self):
        """All entries; afterwards, nothing can be added."""
        if not self._file:
            return np.concatenate(self._arrays)
        with self._file as file:
            file.flush()
            return np.memmap(file, self._dtype, "r") if self._length else self._arrays[0]


def forget(*arrays):
    """Removes the pages of memory maps from this process's memory; the files keep them."""
    for array in arrays:
        if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)


def chunks(length, size=CHUNK):
    """Consecutive slices that cover `length` entries."""
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))
