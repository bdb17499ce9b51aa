"""Sends texts to a model behind TensorFlow Serving or this project's development server.

    python serving/client.py "o livro está na mesa"
    python serving/client.py --server=translator.example:8500 --nbest "bom dia"
    python serving/client.py < portuguese.txt > english.txt
    python serving/client.py --ask classify "the train was late again"

Lines on standard input are sent as they arrive, in batches, several of them at the same time. The
answers are printed in order, one line for each text. Exit status: 0 done, 2 wrong arguments, 3 no
server, 4 no such model, 5 no answer in time, 1 any other error, 130 after Ctrl-C.
"""

import os
import signal
import ssl
import sys
from pathlib import Path

import grpc

from keras_tfmr.client import ServingClient, ServingError
from keras_tfmr.text.strings import read_terms
from training.command import scripts

EXIT_STATUS = {"UNAVAILABLE": 3, "NOT_FOUND": 4, "DEADLINE_EXCEEDED": 5}  # by the gRPC status


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    # fmt: off
    parser.add_argument("texts", nargs="*", metavar="TEXT",
        help="texts to send (default: the lines of standard input)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--nbest", action="store_true",
        help="print all hypotheses: number of the text, score, translation")
    what.add_argument("--explain", metavar="FILE.png", type=scripts.picture,
        help="draw what the translation of one TEXT attended to")
    what.add_argument("--terms", metavar="FILE", type=Path,
        help="file of lines TERM<TAB>TRANSLATION: terms with given translations")
    what.add_argument("--ask", choices=("classify", "complete", "log_prob"),
        help="call another model than a translator, and print: label and probability (classify), a "
        "continuation (complete), log-probability and tokens (log_prob)")
    parser.add_argument("--batch_size", metavar="N", type=scripts.number_from(1), default=32,
        help="maximum texts in one request")
    # fmt: on
    add_server_options(parser)
    options = parser.parse_args(arguments)
    if options.explain and len(options.texts) != 1:
        parser.error(f"--explain needs exactly one TEXT. Received: {len(options.texts)}")
    return options


def add_server_options(parser):
    """Adds the options that `connect` reads."""
    # fmt: off
    server = parser.add_argument_group("server")
    server.add_argument("--server", metavar="HOST:PORT", default="127.0.0.1:8500",
        help="address of the server")
    server.add_argument("--model", metavar="NAME", default="default",
        help="name of the model on the server")
    server.add_argument("--model_version", metavar="N", type=scripts.number_from(0, 2**63 - 1),
        help="version number (default: the newest)")
    server.add_argument("--label", metavar="NAME", help="version label, instead of --model_version")
    server.add_argument("--header", nargs="+", default=[], metavar="NAME:VALUE",
        help="what a gateway asks for, as in 'authorization: Bearer TOKEN'")
    server.add_argument("--timeout", metavar="S", type=float, default=30.0,
        help="seconds a request may take, retries included")
    encryption = parser.add_argument_group("encryption")
    encryption.add_argument("--tls", action="store_true",
        help="encrypt; check the server with the system's CAs")
    encryption.add_argument("--ca", metavar="FILE",
        help="encrypt; check the server with these CA certificates (PEM)")
    encryption.add_argument("--cert", metavar="FILE",
        help="encrypt; present this client certificate (PEM)")
    encryption.add_argument("--key", metavar="FILE", help="private key of --cert (PEM)")
    # fmt: on


def connect(options, *, batch_size, retry=True):
    """The client that the options describe; a ValueError if they do not fit together."""
    if bool(options.cert) != bool(options.key):
        raise ValueError("--cert and --key must be given together")
    headers = (text.partition(":") for text in options.header)
    credentials = None
    if options.tls or options.ca or options.cert:
        check_pem(options)
        files = (options.ca, options.key, options.cert)
        credentials = grpc.ssl_channel_credentials(
            *(file and Path(file).read_bytes() for file in files)
        )
    return ServingClient(
        options.server,
        model=options.model,
        version=options.model_version,
        label=options.label,
        headers={name: value.strip() for name, _, value in headers},
        timeout=options.timeout,
        retry=retry,
        credentials=credentials,
        batch_size=batch_size,
    )


def check_pem(options):
    """A ValueError for files that gRPC would ignore in silence: it then finds no server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if options.ca:
            context.load_verify_locations(options.ca)
        if options.cert:
            context.load_cert_chain(options.cert, options.key)
    except ssl.SSLError as error:
        files = ", ".join(file for file in (options.ca, options.cert, options.key) if file)
        raise ValueError(f"{files}: expected PEM, and the key of --cert: {error}") from error


def print_answers(client, options):
    """Prints a line for each text, or one for each hypothesis with `--nbest`.

    The first batch that fails stops it; the output then holds the answers before that batch.
    """
    terms = options.terms and read_terms(options.terms)
    number = 0
    for texts in [options.texts] if options.texts else lines(standard_input()):
        try:
            answers = ask(client, options, texts, terms)
        except ServingError as error:
            show_all(options, number, error.answers)
            raise
        show_all(options, number, answers)
        number += len(answers)


def ask(client, options, texts, terms):
    """The answers to a list of texts."""
    if options.ask == "classify":
        return client.classify(texts)
    if options.ask == "complete":
        return client.complete(texts)
    if options.ask == "log_prob":
        return client.log_prob(texts)
    if options.nbest:
        return client.translate_nbest(texts)
    if options.terms:
        return client.translate_with_terms(texts, terms)
    return client.translate(texts)


def lines(chunks):
    """Yields, for each chunk of bytes, the list of lines that it completes, without line ends."""
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        yield [line.removesuffix(b"\r") for line in complete]
    yield [rest] if rest else []


def show_all(options, before, answers):
    """Prints answers; `before` is the number of texts answered earlier."""
    for number, answer in enumerate(answers, before + 1):
        show(options, number, answer)
    sys.stdout.flush()


def show(options, number, answer):
    """Prints the answer to text `number`; warns if the model has read a part of it only."""
    if options.nbest:
        for hypothesis in answer:
            print(number, f"{hypothesis.score + 0.0:.4f}", one_line(hypothesis), sep="\t")
        answer = answer[0]
    elif options.ask == "classify":
        print(answer.label, f"{answer.probabilities[answer.label]:.4f}", sep="\t")
    elif options.ask == "complete":
        print(one_line(answer.text.strip()))
    elif options.ask == "log_prob":
        print(f"{answer.log_prob:.4f}", answer.tokens, sep="\t")
    else:
        print(one_line(answer))
    if answer.truncated:
        part = "end" if options.ask == "complete" else "beginning"
        warn(f"line {number} is too long for the model: only its {part} was read")


def explain(client, options):
    """Prints the translation of one text and draws what it attended to."""
    from keras_tfmr.plots import plot_attention  # matplotlib takes a second

    (translation,) = client.translate(options.texts)
    (explanation,) = client.explain(options.texts)
    source, target = explanation.source_tokens, explanation.target_tokens
    if target:
        plot_attention(explanation.attention, source, target).savefig(options.explain, dpi=150)
    else:
        warn("the translation is empty, so there is nothing to draw")
    print(one_line(translation))


def one_line(text):
    """The text without line breaks, so that line n of the output answers line n of the input."""
    return " ".join(text.splitlines())


def warn(message):
    """Prints a message to standard error."""
    print(f"client.py: {message}", file=sys.stderr)


def standard_input():
    """Yields the bytes of standard input as they arrive."""
    if os.isatty(0):
        warn("enter one text per line; Ctrl-D ends")
    while chunk := os.read(0, 1 << 16):
        yield chunk


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what was answered is printed
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        with connect(options, batch_size=options.batch_size) as client:
            if options.explain:
                explain(client, options)
            else:
                print_answers(client, options)
    except ServingError as error:
        warn(error)
        return EXIT_STATUS.get(error.code, 1)
    except BrokenPipeError:  # `| head` has read enough; otherwise Python reports it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError) as error:
        warn(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
