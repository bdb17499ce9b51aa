"""Arrays in files: written from front to back, read through a memory map that stays small."""

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
        dtype: of the entries.
    """

    def __init__(self, path, dtype):
        self.path, self.dtype, self.length = path, np.dtype(dtype), 0
        self._checksum = 0
        self._file = path.open("wb", buffering=1 << 20)

    def append(self, values):
        """Writes the entries of an array after those before."""
        data = np.ascontiguousarray(values, self.dtype).tobytes()
        self._file.write(data)
        self._checksum = zlib.crc32(data, self._checksum)
        self.length += len(values)

    def close(self):
        """Ends the file, which is then on the disk."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def record(self):
        """What `is_whole` compares a file with: its type, length and checksum."""
        return {"dtype": self.dtype.str, "length": self.length, "crc32": self._checksum}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def read(path, dtype, mode="r"):
    """The entries of a file as a memory map; an empty array of an empty file."""
    if not path.stat().st_size:
        return np.zeros(0, dtype)  # which cannot be mapped
    return np.memmap(path, dtype, mode)


def is_whole(path, record):
    """Whether a file is what its `Writer` wrote."""
    size = record["length"] * np.dtype(record["dtype"]).itemsize
    if not path.is_file() or path.stat().st_size != size:
        return False
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            found = zlib.crc32(chunk, found)
    return found == record["crc32"]


def scratch(folder, dtype, length):
    """A memory map of zeros to write to, in a file without a name that ends with its process."""
    if not length:
        return np.zeros(0, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype, "w+", shape=(length,))


class Buffer:
    """An array that grows, in memory or in a file without a name.

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
        """Adds entries behind those before."""
        values = np.ascontiguousarray(values, self._dtype)
        self._length += len(values)
        if self._file:
            self._file.write(values.tobytes())
        else:
            self._arrays.append(values)

    def array(self):
        """All entries; nothing can be added then."""
        if not self._file:
            return np.concatenate(self._arrays)
        with self._file as file:
            file.flush()
            return np.memmap(file, self._dtype, "r") if self._length else self._arrays[0]


def forget(*arrays):
    """Takes pages of memory maps that were touched out of this process; the files keep them."""
    for array in arrays:
        if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)


def chunks(length, size=CHUNK):
    """Slices that cover so many entries in turn."""
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))
