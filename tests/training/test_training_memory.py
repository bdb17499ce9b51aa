"""What a training command does with the memory that its updates free."""

import platform
import subprocess
import sys

import pytest

# Stands in for training: another thread allocates, fills and frees a block, as TensorFlow's do.
TRAINING = """
import concurrent.futures, ctypes, pathlib, resource, sys
from types import SimpleNamespace
from training.run import command

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
SIZE = 256 << 20

def resident():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()

def update():
    block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(SIZE)))
    libc.memset(block, 1, ctypes.c_size_t(SIZE))
    libc.free(block)

def train(*_):
    before = resident()
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        threads.submit(update).result()
    print((resident() - before) / SIZE)
    return True

command.train = train
sys.exit(command.run("train_pt_en.py", SimpleNamespace(), 0.0, None))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_a_training_command_keeps_the_memory_that_it_frees():
    ended = subprocess.run(
        [sys.executable, "-c", TRAINING], capture_output=True, text=True, check=True
    )
    assert float(ended.stdout) > 0.9
