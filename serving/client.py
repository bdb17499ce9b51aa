"""Sends texts to a model behind TensorFlow Serving or this project's development server.

    python serving/client.py "o livro está na mesa"
    python serving/client.py --server=translator.example:8500 --nbest "bom dia"
    python serving/client.py < portuguese.txt > english.txt
    python serving/client.py --ask tag "the book is on the table"

Lines on standard input are sent as they arrive, in batches, several of them at the same time. The
answers are printed in order, one line for each text. Exit status: 0 done, 2 wrong arguments, 3 no
server, 4 no such model, 5 message too large, 6 no answer in time, 1 any other error, 130 after
Ctrl-C.
"""

if __name__ == "__main__":
    from training.command.scripts import end_at_ctrl_c

    end_at_ctrl_c()

import functools
import itertools
import os
import signal
import sys
from pathlib import Path

from keras_tfmr.client import TLS, ServingClient, ServingError, Target
from training.command import scripts

# What each word of --ask and the other options call, and what is printed of an answer.
CALLS = {
    "translate": (ServingClient.translate, lambda best: one_line(best.text)),
    "translate_nbest": (
        ServingClient.translate_nbest,
        lambda hypothesis: f"{hypothesis.score + 0.0:.4f}\t{one_line(hypothesis.text)}",
    ),
    "classify": (
        ServingClient.classify,
        lambda answer: f"{answer.label}\t{answer.probabilities[answer.label]:.4f}",
    ),
    "tag": (
        ServingClient.tag,
        lambda answer: " ".join(map("/".join, zip(answer.words, answer.tags, strict=True))),
    ),
    "complete": (ServingClient.complete, lambda answer: one_line(answer.text.strip())),
    "log_prob": (ServingClient.log_prob, lambda answer: f"{answer.log_prob:.4f}\t{answer.tokens}"),
}
OTHERS = [call for call in CALLS if not call.startswith("translate")]


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    texts = "texts to send (default: the lines of standard input)"
    parser.add_argument("texts", nargs="*", metavar="TEXT", any_bytes=True, help=texts)
    what = parser.add_mutually_exclusive_group()
    nbest = "print all hypotheses: number of the text, score, translation"
    what.add_argument("--nbest", action="store_true", help=nbest)
    what.add_argument(
        "--explain", metavar="FILE.png", help="draw what the translation of one TEXT attended to"
    )
    terms = "file of lines TERM<TAB>TRANSLATION: terms with given translations"
    what.add_argument("--terms", metavar="FILE", type=Path, help=terms)
    ask = "call another model than a translator, and print: label and probability (classify), "
    ask += "word/TAG (tag), a continuation (complete), log-probability and tokens (log_prob)"
    what.add_argument("--ask", choices=OTHERS, help=ask)
    add = parser.add_argument_group("server").add_argument
    server = "address of the server (default: 127.0.0.1:8500, with --rest 8501)"
    add("--server", metavar="HOST:PORT", help=server)
    add("--rest", action="store_true", help="use the REST API instead of gRPC")
    add("--model", metavar="NAME", default=Target.model, help="name of the model on the server")
    count = {"type": scripts.at_least(1), "metavar": "N"}
    version = {"type": scripts.at_least(0), "metavar": "N"}
    add("--model_version", **version, help="version number (default: the newest)")
    label = "version label, instead of --model_version"
    add("--label", metavar="NAME", not_with=["--model_version"], help=label)
    header = "what a gateway asks for, as in 'authorization: Bearer TOKEN'"
    add("--header", nargs="+", default=(), metavar="NAME:VALUE", help=header)
    add = parser.add_argument_group("limits").add_argument
    size = "maximum texts in one request"
    add("--batch_size", **count, default=32, not_with=["--explain"], help=size)
    seconds = {"type": scripts.at_least(0.0), "default": 30.0, "metavar": "S"}
    add("--timeout", **seconds, help="seconds a request may take, retries included")
    add = parser.add_argument_group("encryption").add_argument
    add("--tls", action="store_true", help="encrypt; check the server with the system's CAs")
    add("--ca", metavar="FILE", help="encrypt; check the server with these CA certificates (PEM)")
    add("--cert", metavar="FILE", help="encrypt; present this client certificate (PEM)")
    add("--key", metavar="FILE", only_with=["--cert"], help="private key of --cert (PEM)")
    name = "name in the server's certificate (default: the host's)"
    add("--server_name", metavar="NAME", help=name)
    options = parser.parse_args(arguments)
    if options.explain and len(options.texts) != 1:
        parser.error(f"--explain needs exactly one TEXT. Received: {len(options.texts)}")
    return options


def connect(options):
    """The client that the options describe."""
    headers = (text.partition(":") for text in options.header)
    files = (options.ca, options.cert, options.key, options.server_name)
    return ServingClient(
        options.server or Target.server,
        rest=options.rest,
        model=options.model,
        version=options.model_version,
        label=options.label,
        headers={name: value.strip() for name, _, value in headers},
        timeout=options.timeout,
        tls=TLS(*files) if options.tls or any(files) else None,
    )


def print_translations(client, options):
    """Prints a line for each text, or one for each hypothesis with `--nbest`.

    The first batch that fails stops it; the output then holds the answers before that batch.
    """
    call = options.ask or ("translate_nbest" if options.nbest else "translate")
    ask = functools.partial(CALLS[call][0], client)
    if options.terms is not None:
        terms = scripts.terms(options.terms)
        ask = functools.partial(client.translate_with_terms, terms=terms)
    numbers = itertools.count(1)
    for texts in [options.texts] if options.texts else lines(standard_input()):
        try:
            answers, failed = ask(texts, batch_size=options.batch_size), None
        except ServingError as error:
            answers, failed = error.answers, error
        for answer in itertools.takewhile(lambda answer: answer is not None, answers):
            show(call, next(numbers), answer)
        sys.stdout.flush()
        if failed:
            raise failed


def lines(chunks):
    """Yields, for each chunk of bytes, the list of lines that it completes, without line ends."""
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        yield [line.removesuffix(b"\r") for line in complete]
    yield [rest] if rest else []


def show(call, number, answer):
    """Prints the answer to text `number`; warns if the model has read a part of it only."""
    line_of = CALLS[call][1]
    if call == "translate_nbest":
        for hypothesis in answer:
            print(number, line_of(hypothesis), sep="\t")
        answer = answer[0]
    else:
        print(line_of(answer))
    if answer.truncated:
        part = "end" if call == "complete" else "beginning"
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
    print(one_line(translation.text))


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
        with connect(options) as client:
            if options.explain:
                explain(client, options)
            else:
                print_translations(client, options)
    except ServingError as error:
        warn(error)
        return error.exit_code
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
