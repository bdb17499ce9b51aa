"""`python serving/client.py` as a process of its own, against a server in this one; TLS."""

import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from stub_translator import LONGEST, serving, unused_port

COMMAND = [sys.executable, str(Path(__file__).resolve().parents[2] / "serving" / "client.py")]
PIPES = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}


def run(*arguments, input=b""):
    """The finished process."""
    return subprocess.run([*COMMAND, *arguments], input=input, capture_output=True, timeout=60)


@pytest.fixture
def server(address):
    return f"--server={address}"


def test_thousands_of_lines_in_order_and_none_lost(server, stub):
    running, largest = set(), []

    def behave(request, context):
        running.add(id(request))
        largest.append(len(running))
        time.sleep(len(stub.requests) % 3 * 0.004)
        running.remove(id(request))

    stub.behave = behave
    lines = [f"linha {n}" * (n % 7 and 1) for n in range(2000)]
    done = run(server, input="\n".join(lines).encode())
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split("\n") == [line.upper() for line in lines] + [""]
    sizes = [request.inputs["text"].tensor_shape.dim[0].size for request in stub.requests]
    assert max(sizes) == 32 and sum(sizes) == 2000
    assert 1 < max(largest) <= 4


def test_a_line_is_answered_before_the_next_is_written(server):
    with subprocess.Popen([*COMMAND, server], **PIPES) as process:
        for text in (b"um", b"dois"):
            process.stdin.write(text + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == text.upper() + b"\n"


def test_headers(server, stub):
    seen = []
    stub.behave = lambda request, context: seen.append(dict(context.invocation_metadata()))
    headers = ["--header", "authorization: Bearer a:b", "x-tenant:c"]
    assert run("um", *headers, server).stdout == b"UM\n"
    assert seen[0]["authorization"] == "Bearer a:b" and seen[0]["x-tenant"] == "c"
    for wrong in ("Authorization: a", "authorization", "bom dia"):
        done = run(server, "--header", wrong)
        assert done.returncode == 2 and b"header" in done.stderr and done.stdout == b""


def test_terms(server, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("gato\tthe cat\n")
    assert run(server, "--terms", str(terms), "um gato", "x").stdout == b"UM the cat\nX\n"
    done = run(server, "--terms", str(tmp_path / "none.tsv"), "x")
    assert done.returncode == 2 and b"none.tsv" in done.stderr


def test_nbest(server):
    long = "x" * (LONGEST + 1)
    done = run(server, "--nbest", "um", "dois\nlinhas", long)
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert rows[0] == ["1", "0.0000", "UM"] and rows[5] == ["2", "-0.5000", "DOIS LINHAS 2"]
    assert len(rows) == 9 and b"line 3 is too long" in done.stderr


def test_explain_draws_a_picture(server, tmp_path):
    picture = tmp_path / "attention.png"
    done = run(server, f"--explain={picture}", "o preço é 5$ e 3$ hoje")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == "O PREÇO É 5$ E 3$ HOJE\n"
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000


def test_exit_codes_say_what_went_wrong(server, stub):
    with (
        unused_port() as port,
        subprocess.Popen(
            [*COMMAND, f"--server=127.0.0.1:{port}", "--timeout=0.5"], **PIPES
        ) as process,
    ):
        process.stdin.write(b"um\n")  # and the input stays open
        process.stdin.flush()
        assert process.wait(timeout=20) == 3
        assert b"does not answer" in process.stderr.read().splitlines()[-1]

    def check(status, words, *arguments, **options):
        done = run(*arguments, **options)
        assert done.returncode == status and words in done.stderr and done.stdout == b""

    check(4, b"nobody", server, "--model=nobody", "um")
    with serving(stub, options=[("grpc.max_receive_message_length", 1000)]) as small:
        check(5, b"too large", f"--server={small}", input=b"a" * 5000)
    stub.behave = lambda request, context: time.sleep(0.5)
    check(6, b"in time", server, "--timeout=0.2", "um")
    for wrong in ("--batch_size=0", "--ca=nowhere.pem", "--timeout=-1", "--explain=a.png"):
        check(2, b"", server, wrong, input=b"um")


def test_a_failing_batch_ends_the_output_where_it_stands(server, stub):
    def fail_at(request, context):
        if b"linha 50" in request.inputs["text"].string_val:
            context.abort(grpc.StatusCode.INTERNAL, "no luck")

    stub.behave = fail_at
    done = run(server, "--batch_size=10", input=b"".join(b"linha %d\n" % n for n in range(100)))
    assert done.returncode == 1 and b"no luck" in done.stderr
    assert done.stdout.decode().splitlines() == [f"LINHA {n}" for n in range(50)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_signal_ends_it_while_it_waits(server, stub, number, status):
    """130 and, in a shell, 143; the standard input stays open, and requests are under way."""
    stub.behave = lambda request, context: time.sleep(3)
    with subprocess.Popen([*COMMAND, server], **PIPES) as process:
        process.stdin.write(b"um\n" * 500)
        process.stdin.flush()
        end = time.monotonic() + 20
        while len(stub.requests) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(2.5) == status
        assert process.stdout.read() == process.stderr.read() == b""


def test_a_reader_that_has_enough_ends_it_quietly(server, tmp_path):
    many = tmp_path / "lines"
    many.write_bytes(b"linha\n" * 20_000)
    pipes = {**PIPES, "stdin": many.open("rb")}
    with pipes["stdin"], subprocess.Popen([*COMMAND, server], **pipes) as process:
        assert process.stdout.readline() == b"LINHA\n"
        process.stdout.close()
        assert process.wait(timeout=20) == 0 and process.stderr.read() == b""


def test_starts_in_under_a_second_without_tensorflow_keras_or_numpy(server):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], server, "um"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout == b"UM\n" and b" keras_tfmr.client" in done.stderr
    assert not re.search(rb" (tensorflow|tensorflow_serving|keras|numpy|jax)\n", done.stderr)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 1, f"{seconds:.2f} s of processor time"


def test_an_encrypted_server_is_asked_by_its_name(certificates, stub):
    pem = {name: Path(path).read_bytes() for name, path in certificates.items()}
    credentials = grpc.ssl_server_credentials([(pem["server.key"], pem["server.pem"])])
    with serving(stub, credentials=credentials) as server:
        flags = [f"--server={server}", f"--ca={certificates['ca.pem']}"]
        done = run(*flags, "--server_name=translator.test", "bom dia")
        assert done.returncode == 0 and done.stdout == b"BOM DIA\n"
        assert b"UNAUTHENTICATED" in run(*flags, "bom dia").stderr
