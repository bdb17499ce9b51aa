"""The client: texts to a server, answers from it."""

import functools
import itertools
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import tenacity

from keras_tfmr import answers
from keras_tfmr._inputs import Text, check_sampling, checked_pairs, checked_texts, seeds_of, utf8
from keras_tfmr.answers import (
    Answer,
    Classification,
    Completion,
    Document,
    Explanation,
    Likelihood,
    Outputs,
    Tags,
    Translation,
)
from keras_tfmr.client.connection import (
    GRPC_PORT,
    REST_PORT,
    TLS,
    ServingError,
    Target,
    UnavailableError,
    with_default_port,
)
from keras_tfmr.client.grpc_transport import GrpcTransport, Numbers
from keras_tfmr.client.rest_transport import RestTransport

MAX_MESSAGE_BYTES = 256 << 20
STREAM_BYTES = 2000  # in which the lines of a request begin: a batch of sentences on the server
STREAM_LINES = 256  # at most in a request, which servers limit
Version = tuple[int, str, str]  # number, state, message

log = logging.getLogger("keras_tfmr.client")


class ServingClient:
    """A client of a translator, or of another text model, behind TensorFlow Serving.

    Threads may share one client; a coroutine calls `asyncio.to_thread(client.translate, texts)`.
    `classify`, `tag`, `complete` and `log_prob` are for the exports of classifiers, taggers and
    language models.

    While there is no server at the address, as while it starts, or it accepts no requests, the
    client sends a request again, with growing random pauses, until the timeout. It logs a warning
    at the first failure, to the logger `keras_tfmr.client`.

    Args:
        server: `HOST:PORT`; the default port is 8500, or 8501 for REST.
        rest: Whether to use the REST API instead of gRPC.
        model: The model's name on the server.
        version: Its version number; None for the newest.
        label: Its version label, instead of a number.
        timeout: Seconds that a call may take, retries included.
        retry: Whether to send a request again while the server is unavailable; no other error is
            retried.
        tls: A `TLS` for an encrypted connection; None for a plain one.
        max_message_bytes: Largest request and answer in bytes; -1 for no limit.

    Raises:
        ValueError: If the timeout is not positive and finite, the limit is neither positive nor
            -1, both a version and a label are given, or the server is no address of the protocol
            or a URL that a `TLS` contradicts.

    >>> client = ServingClient("localhost", model="translator", timeout=5)
    >>> client.target.described()
    'model translator'
    >>> client.close()
    """

    def __init__(
        self,
        server: str = Target.server,
        *,
        rest: bool = False,
        model: str = Target.model,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 30.0,
        retry: bool = True,
        tls: TLS | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        if not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be a positive number of seconds. Received: {timeout}")
        if max_message_bytes < 1 and max_message_bytes != -1:
            raise ValueError(
                f"max_message_bytes must be positive, or -1. Received: {max_message_bytes}"
            )
        server = with_default_port(server, REST_PORT if rest else GRPC_PORT)
        self.target = Target(server, model, version, label)
        self.rest, self.timeout, self.retry = rest, timeout, retry
        transport = RestTransport if rest else GrpcTransport
        self._transport = transport(self.target, tls, max_message_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def translate(self, texts: Iterable[Text]) -> list[Translation]:
        """The best translation of each text.

        Args:
            texts: List of str or bytes; bytes that are not UTF-8 are read as U+FFFD.

        Returns:
            List of `Translation(text, score, truncated)`, one for each text, in order.

        Raises:
            ServingError: If there is no answer; its subclass says why.
            TypeError: If `texts` is not a list of str or bytes. The other methods raise both, too.
        """
        return self._ask("translate", {"text": checked_texts(texts)}, answers.translations)

    def translate_nbest(self, texts: Iterable[Text]) -> list[list[Translation]]:
        """The n best translations of each text: a list of `Translation`, best first, for each."""
        inputs = {"text": checked_texts(texts)}
        return self._ask("translate_nbest", inputs, answers.nbest_translations)

    def translate_document(self, texts: Iterable[Text]) -> list[Document]:
        """The translation of each text sentence by sentence, whatever its length.

        Returns a list of `Document(text, sentences, truncated, pieces)`, one for each text.
        """
        return self._ask("translate_document", {"text": checked_texts(texts)}, answers.documents)

    def stream_document(self, text: Text) -> Iterator[Document]:
        """The translation of one text paragraph by paragraph, for texts of any size.

        Each request has its own timeout, and holds whole paragraphs of some 30 sentences.

        Args:
            text: str or bytes.

        Yields:
            A `Document` for each line of the text, its line end included, in order. Their texts
            joined are the text of `translate_document`.
        """
        (text,) = checked_texts([text])
        lines = re.findall(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", utf8(text))
        begun = itertools.accumulate(map(len, lines), initial=0)
        numbered = zip(begun, lines, strict=False)
        for _, group in itertools.groupby(numbered, lambda line: line[0] // STREAM_BYTES):
            some = [line for _, line in group]
            for start in range(0, len(some), STREAM_LINES):
                yield from self.translate_document(some[start : start + STREAM_LINES])

    def score(self, texts: Iterable[Text], references: Iterable[Text]) -> list[Likelihood]:
        """The log-probability of each reference as a translation of its text.

        Args:
            texts: List of str.
            references: List of str, one for each text.

        Returns:
            List of `Likelihood(log_prob, tokens, truncated)`, one for each text.

        Raises:
            ValueError: If there are more or fewer references than texts.
        """
        texts, references = checked_pairs(texts, references)
        inputs = {"text": texts, "reference": references}
        return self._ask("score", inputs, answers.likelihoods)

    def explain(self, texts: Iterable[Text]) -> list[Explanation]:
        """What the translation of each text attended to: a list of `Explanation`."""
        return self._ask("explain", {"text": checked_texts(texts)}, answers.explanations)

    def classify(self, texts: Iterable[Text]) -> list[Classification]:
        """The labels of each text, for the export of a `Classifier`: a list of `Classification`."""
        return self._ask("classify", {"text": checked_texts(texts)}, answers.classifications)

    def tag(self, texts: Iterable[Text], split: bool = True) -> list[Tags]:
        """The words of each text and their tags, for the export of a `Tagger`.

        Args:
            texts: List of str.
            split: Whether to split punctuation marks off words; otherwise texts are split at
                spaces only.

        Returns:
            List of `Tags(words, tags, probabilities, truncated)`, one for each text.
        """
        signature = "tag" if split else "tag_words"
        return self._ask(signature, {"text": checked_texts(texts)}, answers.tags)

    def complete(
        self,
        prompts: Iterable[Text],
        *,
        length: int = 64,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> list[Completion]:
        """One continuation of each prompt, for the export of a `Completer`.

        Args:
            prompts: List of str; an empty one starts a new text.
            length: Maximum number of tokens of a completion; the server clips it to the export's
                maximum.
            temperature: As the other options, it is that of `Completer.complete`.

        Returns:
            List of `Completion(text, log_prob, tokens, finished, truncated)`, one for each prompt.

        Raises:
            ValueError: If an option is out of range.
        """
        prompts = checked_texts(prompts, "prompts")
        check_sampling(length, temperature, top_k, top_p)
        count = len(prompts)
        inputs: dict[str, Any] = {
            "prompt": prompts,
            "length": Numbers("int32", [length] * count),
            "temperature": Numbers("float32", [temperature] * count),
            "top_k": Numbers("int32", [top_k] * count),
            "top_p": Numbers("float32", [top_p] * count),
            "seed": Numbers("int64", seeds_of(seed, count)),
        }
        return self._ask("complete", inputs, answers.completions)

    def log_prob(self, texts: Iterable[Text]) -> list[Likelihood]:
        """The log-probability of each text, its end included, for the export of a `Completer`.

        Returns a list of `Likelihood(log_prob, tokens, truncated)`, one for each text.
        """
        return self._ask("log_prob", {"text": checked_texts(texts)}, answers.likelihoods)

    def status(self) -> list[Version]:
        """The versions of the model on the server: a list of (version, state, message)."""
        return self._retried(self._transport.status)

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def _ask(
        self,
        signature: str,
        inputs: dict[str, Any],
        read: Callable[[Outputs], list[Answer]],
    ) -> list[Answer]:
        """The answers of a signature to inputs with one value for each text."""
        count = len(next(iter(inputs.values())))
        if not count:
            return []
        send = functools.partial(self._transport.predict, signature, inputs)
        outputs = self._retried(send)
        try:
            found = read(outputs)
        except KeyError as error:
            raise ServingError(
                f"The model answered without {error.args[0]}: it was exported without the "
                f"signature {signature} of keras_tfmr"
            ) from error
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise ServingError(f"The model's answer to {signature} cannot be read") from error
        if len(found) != count:
            raise ServingError(f"The model answered {len(found)} rows to {count} texts")
        return found

    def _retried(self, send: Callable[[float], Any]) -> Any:
        """Sends, again and again while the server is unavailable; all within the timeout."""
        deadline = time.monotonic() + self.timeout
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            stop=tenacity.stop_before_delay(self.timeout if self.retry else 0),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=2),
            before_sleep=self._before_retry,
            reraise=True,
        )
        return attempts(lambda: send(max(deadline - time.monotonic(), 1e-3)))

    def _before_retry(self, state):
        if state.attempt_number == 1:
            error = state.outcome.exception()
            log.warning("%s. Trying again for up to %g s", error, self.timeout)
