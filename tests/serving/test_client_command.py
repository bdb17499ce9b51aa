"""`serving/client.py` in this process, and as a process of its own where that matters."""

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

from keras_tfmr.client import TLS
from serving import client as script

COMMAND = [sys.executable, str(Path(script.__file__))]
PIPES = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}


@pytest.fixture
def server(address):
    return f"--server={address}"


@pytest.fixture
def run(server, monkeypatch, capsys):
    """`run(*arguments, input=b"")`: exit status, output and errors of the command."""

    def run(*arguments, at=server, input=b""):
        monkeypatch.setattr(script, "standard_input", lambda: iter([input]))
        try:
            status = script.main([at, *arguments])
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return run


def test_thousands_of_lines_in_order_and_none_lost(run, stub):
    running, largest = set(), []

    def behave(request, context):
        running.add(id(request))
        largest.append(len(running))
        time.sleep(len(stub.requests) % 3 * 0.004)
        running.remove(id(request))

    stub.behave = behave
    lines = [f"linha {n}" * (n % 7 and 1) for n in range(2000)]
    status, output, _ = run(input="\n".join(lines).encode())
    assert status == 0 and output.split("\n") == [line.upper() for line in lines] + [""]
    sizes = [request.inputs["text"].tensor_shape.dim[0].size for request in stub.requests]
    assert max(sizes) == 32 and sum(sizes) == 2000
    assert 1 < max(largest) <= 4


def test_options_are_those_of_the_client(run, monkeypatch):
    headers = ["--header", "authorization: Bearer a:b", "x-tenant:c"]
    limits = ["--model=m", "--model_version=7", "--timeout=2"]
    files = ["--ca=ca.pem", "--cert=c.pem", "--key=c.key", "--server_name=translator.test"]
    asked = ["--server=host:1", "--rest", *limits, *headers, *files]
    with monkeypatch.context() as patch:
        patch.setattr(script, "ServingClient", lambda *server, **options: (*server, options))
        server, options = script.connect(script.parse_arguments(asked))
    assert server == "host:1" and options == {
        "rest": True,
        "model": "m",
        "version": 7,
        "label": None,
        "headers": {"authorization": "Bearer a:b", "x-tenant": "c"},
        "timeout": 2.0,
        "tls": TLS("ca.pem", "c.pem", "c.key", "translator.test"),
    }
    for wrong in ("Authorization: a", "authorization", "bom dia"):
        status, output, errors = run("--header", wrong)
        assert (status, output) == (2, "") and "header" in errors


def test_terms_and_hypotheses(run, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("gato\tthe cat\n")
    assert run("--terms", str(terms), "um gato", "x")[:2] == (0, "UM the cat\nX\n")
    status, _, errors = run("--terms", str(tmp_path / "none.tsv"), "x")
    assert status == 2 and "none.tsv" in errors
    _, output, errors = run("--nbest", "um", "dois\nlinhas", "x" * (LONGEST + 1))
    rows = [line.split("\t") for line in output.splitlines()]
    assert rows[0] == ["1", "0.0000", "UM"] and rows[5] == ["2", "-0.5000", "DOIS LINHAS 2"]
    assert len(rows) == 9 and "line 3 is too long" in errors


def test_explain_draws_a_picture(run, tmp_path):
    picture = tmp_path / "attention.png"
    status, output, _ = run(f"--explain={picture}", "o preço é 5$ e 3$ hoje")
    assert (status, output) == (0, "O PREÇO É 5$ E 3$ HOJE\n")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000


def test_exit_codes_say_what_went_wrong(run, stub):
    def check(expected, words, *arguments, **options):
        status, output, errors = run(*arguments, **options)
        assert (status, output) == (expected, "") and words in errors

    check(4, "nobody", "--model=nobody", "um")
    with serving(stub, options=[("grpc.max_receive_message_length", 1000)]) as small:
        check(5, "too large", at=f"--server={small}", input=b"a" * 5000)
    stub.behave = lambda request, context: time.sleep(0.5)
    check(6, "in time", "--timeout=0.2", "um")
    for wrong in ("--batch_size=0", "--ca=nowhere.pem", "--timeout=-1", "--explain=a.png"):
        check(2, "", wrong, input=b"um")


def test_a_failing_batch_ends_the_output_where_it_stands(run, stub):
    def fail_at(request, context):
        if b"linha 50" in request.inputs["text"].string_val:
            context.abort(grpc.StatusCode.INTERNAL, "no luck")

    stub.behave = fail_at
    lines = b"".join(b"linha %d\n" % n for n in range(100))
    status, output, errors = run("--batch_size=10", input=lines)
    assert status == 1 and "no luck" in errors
    assert output.splitlines() == [f"LINHA {n}" for n in range(50)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_lines_are_answered_as_they_come_until_a_signal(server, stub, number, status):
    """130 and, in a shell, 143; the standard input stays open, and requests are under way."""
    with subprocess.Popen([*COMMAND, server], **PIPES) as process:
        for text in (b"um", b"dois"):
            process.stdin.write(text + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == text.upper() + b"\n"
        stub.behave, answered = lambda request, context: time.sleep(3), len(stub.requests)
        process.stdin.write(b"um\n" * 500)
        process.stdin.flush()
        end = time.monotonic() + 20
        while len(stub.requests) < answered + 2 and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(2.5) == status
        assert process.stdout.read() == process.stderr.read() == b""


def test_a_server_that_is_not_there_ends_it_though_the_input_is_open():
    with unused_port() as port:
        command = [*COMMAND, f"--server=127.0.0.1:{port}", "--timeout=0.5"]
        with subprocess.Popen(command, **PIPES) as process:
            process.stdin.write(b"um\n")
            process.stdin.flush()
            assert process.wait(timeout=20) == 3
            assert b"does not answer" in process.stderr.read().splitlines()[-1]


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
