"""`python serving/client.py` as a process of its own, against a server in this one."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from stub_translator import LONGEST, StubTranslator, english, serving, unused_port

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(ROOT / "serving" / "client.py")]


def run(*arguments, input=b"", **settings):
    """The finished process."""
    return subprocess.run(
        [*COMMAND, *arguments], input=input, capture_output=True, timeout=60, **settings
    )


@pytest.fixture
def stub():
    return StubTranslator()


@pytest.fixture
def server(stub):
    with serving(stub) as address:
        yield f"--server={address}"


def test_texts_as_arguments(server):
    done = run(server, "bom dia", "duas\nlinhas", "", "olá")
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout.decode() == "BOM DIA\nDUAS LINHAS\n\nOLÁ\n"


def test_five_thousand_lines_in_order_and_none_lost(server, stub):
    stub.behave = lambda request, context: time.sleep(len(stub.requests) % 3 * 0.004)
    lines = [f"linha {n}" * (n % 7 and 1) for n in range(5000)]
    done = run(server, input="\n".join(lines).encode())
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split("\n") == [english(line) for line in lines] + [""]
    sizes = [request.inputs["text"].tensor_shape.dim[0].size for request in stub.requests]
    assert max(sizes) == 32 and sum(sizes) == 5000
    assert 1 < stub.largest <= 4


def test_a_line_is_answered_before_the_next_is_written(server):
    with subprocess.Popen(
        [*COMMAND, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        for text in (b"um", b"dois"):
            process.stdin.write(text + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == text.upper() + b"\n"


def test_nbest(server):
    done = run(server, "--nbest", "um", "dois")
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert rows[0] == ["1", "0.0000", "UM"] and rows[-1] == ["2", "-0.5000", "DOIS 2"]
    assert len(rows) == 6
    long = run(server, "--nbest", "x" * (LONGEST + 1))
    assert b"line 1 is too long" in long.stderr and len(long.stdout.splitlines()) == 3


def test_explain_draws_a_picture(server, tmp_path):
    picture = tmp_path / "attention.png"
    done = run(server, f"--explain={picture}", "o preço é 5$ e 3$ hoje")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == "O PREÇO É 5$ E 3$ HOJE\n"
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
    assert run(server, f"--explain={picture}").returncode == 2


def test_exit_codes_say_what_went_wrong(server, stub):
    with unused_port() as port:
        down = run(f"--server=127.0.0.1:{port}", "--timeout=1", "um")
    assert down.returncode == 3 and f"127.0.0.1:{port} does not answer" in down.stderr.decode()
    unknown = run(server, "--model=nobody", "um")
    assert unknown.returncode == 4 and b"nobody" in unknown.stderr
    with serving(stub, options=[("grpc.max_receive_message_length", 1000)]) as small:
        large = run(f"--server={small}", input=b"a" * 5000)
    assert large.returncode == 5 and b"too large" in large.stderr
    stub.behave = lambda request, context: time.sleep(1)
    late = run(server, "--timeout=0.2", "um")
    assert late.returncode == 6 and b"in time" in late.stderr
    stub.behave = lambda request, context: context.abort(grpc.StatusCode.INTERNAL, "no luck")
    assert run(server, "um").returncode == 1
    for done in (down, unknown, large, late):
        lines = 2 if done is down else 1  # it says that it tries again
        assert done.stdout == b"" and len(done.stderr.splitlines()) == lines
    for wrong in (["--batch_size=0"], ["--ca=nowhere.pem"], ["--cert=a"], ["--timeout=-1"]):
        assert run(server, *wrong, "um").returncode == 2


def test_a_failing_batch_ends_the_output_where_it_stands(server, stub):
    def fail_at(request, context):
        if b"linha 50" in request.inputs["text"].string_val:
            context.abort(grpc.StatusCode.INTERNAL, "no luck")

    stub.behave = fail_at
    done = run(server, "--batch_size=10", input=b"".join(b"linha %d\n" % n for n in range(100)))
    assert done.returncode == 1 and b"no luck" in done.stderr
    assert done.stdout.decode().splitlines() == [english(f"linha {n}") for n in range(50)]


def test_a_server_that_goes_down_ends_it_even_while_input_stays_open():
    with unused_port() as port:
        command = [*COMMAND, f"--server=127.0.0.1:{port}", "--timeout=1"]
        pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        with subprocess.Popen(command, **pipes) as process:
            process.stdin.write(b"um\n")
            process.stdin.flush()
            assert process.wait(timeout=20) == 3
            assert b"does not answer" in process.stderr.read().splitlines()[-1]


def test_a_reader_that_has_enough_ends_it_quietly(server, tmp_path):
    many = tmp_path / "lines"
    many.write_bytes(b"".join(b"linha %d\n" % n for n in range(20_000)))
    with (
        many.open("rb") as lines,
        subprocess.Popen(
            [*COMMAND, server], stdin=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout.readline() == b"LINHA 0\n"
        process.stdout.close()
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == b""


def test_starts_in_under_a_second_without_tensorflow_keras_or_numpy(server):
    program = f"""
import runpy, sys
sys.argv = ["client.py", *sys.argv[1:]]
try:
    runpy.run_path({COMMAND[1]!r}, run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
heavy = {{"tensorflow", "tensorflow_serving", "keras", "numpy", "jax"}} & set(sys.modules)
assert not heavy, heavy
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program, server, "um"],
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        timeout=60,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout == b"UM\n", done.stderr
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 1, f"{seconds:.2f} s of processor time"
