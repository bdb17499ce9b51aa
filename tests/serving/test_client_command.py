"""`serving/client.py` in this process, and as a process of its own where that matters."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from stub_translator import LONGEST, StubTranslator, classify, complete, serving

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
    lines = [f"linha {n}" * (n % 7 and 1) for n in range(2000)]
    status, output, _ = run("--batch_size=50", input="\n".join(lines).encode())
    assert status == 0 and output.split("\n") == [line.upper() for line in lines] + [""]
    sizes = [request.inputs["text"].tensor_shape.dim[0].size for request in stub.requests]
    assert max(sizes) == 50 and sum(sizes) == 2000


def test_options_are_those_of_the_client(run, monkeypatch):
    headers = ["--header", "authorization: Bearer a:b", "x-tenant:c"]
    asked = ["--server=host:1", "--model=m", "--model_version=7", "--timeout=2", *headers, "--tls"]
    with monkeypatch.context() as patch:
        patch.setattr(script, "ServingClient", lambda *server, **options: (*server, options))
        server, options = script.connect(script.parse_arguments(asked), batch_size=32)
    assert isinstance(options.pop("credentials"), grpc.ChannelCredentials)
    assert server == "host:1" and options == {
        "model": "m", "version": 7, "label": None, "timeout": 2.0, "retry": True,
        "headers": {"authorization": "Bearer a:b", "x-tenant": "c"}, "batch_size": 32,
    }  # fmt: skip


def test_terms_and_hypotheses(run, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("gato\tthe cat\n")
    assert run("--terms", str(terms), "um gato", "x")[:2] == (0, "UM the cat\nX\n")
    _, output, errors = run("--nbest", "um", "dois\nlinhas", "x" * (LONGEST + 1))
    rows = [line.split("\t") for line in output.splitlines()]
    assert rows[0] == ["1", "0.0000", "UM"] and rows[5] == ["2", "-0.5000", "DOIS LINHAS 2"]
    assert len(rows) == 9 and "line 3 is too long" in errors


def test_explain_draws_a_picture(run, tmp_path):
    picture = tmp_path / "attention.png"
    status, output, _ = run(f"--explain={picture}", "o preço é 5$ e 3$ hoje")
    assert (status, output) == (0, "O PREÇO É 5$ E 3$ HOJE\n")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000


def test_the_answers_of_other_models(run):
    with serving(StubTranslator({"classify": classify, "complete": complete})) as address:
        at = f"--server={address}"
        assert run("--ask=classify", "um dia", at=at)[1] == "long\t0.6000\n"
        assert run("--ask=complete", "era", at=at)[1] == " ".join(["1"] * 64) + "\n"


def test_the_exit_status_says_what_went_wrong(run, stub, tmp_path):
    (junk := tmp_path / "junk").write_text("no PEM")
    for wrong, said in (
        ("--batch_size=0", "must be from 1"),
        ("--ca=no.pem", "No such file"),
        (f"--ca={junk}", f"{junk}: expected PEM"),
        ("--timeout=nan", "timeout must be"),
        ("--explain=a.png", "exactly one TEXT"),
        (f"--explain={junk}/a.png", "Not a directory"),
        ("--explain=a.xyz", "must end in .png"),
        ("--terms=no", "no"),
    ):
        status, output, errors = run(wrong, input=b"um")
        assert (status, output) == (2, "") and said in errors
    assert stub.requests == []
    for wrong in ("Authorization: a", "authorization"):
        status, _, errors = run("--header", wrong, "--", "um")
        assert status == 2 and "header" in errors
    assert run("um", at="--server=nobody.invalid:1")[0] == 3
    assert run("--model=nobody", "um")[0] == 4
    stub.behave = lambda request, context: time.sleep(0.5)
    status, output, errors = run("--timeout=0.2", "um")
    assert (status, output) == (5, "") and "in time" in errors


def test_a_failing_batch_ends_the_output_where_it_stands(run, stub):
    def fail_at(request, context):
        if b"linha 50" in request.inputs["text"].string_val:
            context.abort(grpc.StatusCode.INTERNAL, "no luck")

    stub.behave = fail_at
    lines = b"".join(b"linha %d\n" % n for n in range(100))
    status, output, errors = run("--batch_size=10", input=lines)
    assert status == 1 and "no luck" in errors
    assert output.splitlines() == [f"LINHA {n}" for n in range(50)]


def test_lines_are_answered_as_they_come_until_ctrl_c(server, stub):
    """The standard input stays open, and requests are under way."""
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
        process.send_signal(signal.SIGINT)
        assert process.wait(2.5) == 130
        assert process.stdout.read() == process.stderr.read() == b""


def test_a_reader_that_has_enough_ends_it_quietly(server, tmp_path):
    many = tmp_path / "lines"
    many.write_bytes(b"linha\n" * 20_000)
    pipes = {**PIPES, "stdin": many.open("rb")}
    with pipes["stdin"], subprocess.Popen([*COMMAND, server], **pipes) as process:
        assert process.stdout.readline() == b"LINHA\n"
        process.stdout.close()
        assert process.wait(timeout=20) == 0 and process.stderr.read() == b""
