"""The calls of text models: the same of a model in this process and of one behind a server.

Each is written once, as a coroutine, which `AsyncServingClient` has as it is. In a class that
waits, as all others do, it is a method that returns the answer.
"""

import abc
import functools
import types
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from keras_tfmr.signatures import signature as signatures
from keras_tfmr.signatures.answers import (
    Classification,
    Completion,
    Document,
    Explanation,
    Likelihood,
    Tags,
    Translation,
)
from keras_tfmr.signatures.inputs import Inputs, pairs_of, sampling_of, text_of, with_terms
from keras_tfmr.signatures.signature import Answer, Signature
from keras_tfmr.text.strings import Text

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Asked(abc.ABC):
    """What answers signatures, in coroutines.

    A single str instead of a list is a TypeError in every call, because it would be read as a list
    of letters.
    """

    @abc.abstractmethod
    async def _ask(
        self, signature: Signature[Answer], inputs: Inputs, batch_size: int | None = None
    ) -> list[Answer]:
        """The answers to inputs with one value for each text, in their order."""


class Waiting(Asked):
    """What answers signatures, and waits for the answers in `_ask`: its calls return them."""


class call(Generic[Arguments, Result]):  # noqa: N801, a decorator, as `property` is
    """Makes a call of a coroutine: a method that returns its result if the class is `Waiting`."""

    def __init__(
        self, coroutine: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]]
    ) -> None:
        @functools.wraps(coroutine)
        def waiting(*arguments, **options):
            try:
                coroutine(*arguments, **options).send(None)
            except StopIteration as end:  # at once, because nothing is awaited but what has waited
                return end.value
            raise RuntimeError(f"{coroutine.__name__} awaits what a class that waits must wait for")

        self._coroutine, self._waiting = coroutine, waiting

    @overload
    def __get__(self, instance: Waiting, owner: Any) -> Callable[Arguments, Result]: ...

    @overload
    def __get__(
        self, instance: Asked, owner: Any
    ) -> Callable[Arguments, Coroutine[Any, Any, Result]]: ...

    @overload
    def __get__(self, instance: None, owner: Any) -> Callable[..., Any]: ...

    def __get__(self, instance: Any, owner: Any) -> Any:
        function = self._waiting if issubclass(owner, Waiting) else self._coroutine
        return function if instance is None else types.MethodType(function, instance)


class TranslatorCalls(Asked):
    """The calls of a translator."""

    @call
    async def translate(
        self, texts: Iterable[Text], batch_size: int | None = None
    ) -> list[Translation]:
        """The best translation of each text.

        Args:
            texts: List of str or bytes; bytes that are not UTF-8 are read as U+FFFD.
            batch_size: The number of texts that are answered together. None: in this process 32,
                of similar length; from a server, up to the client's `batch_texts`.

        Returns:
            List of `Translation`, each a str with a score, one for each text, in order.
        """
        return await self._ask(signatures.TRANSLATE, text_of(texts), batch_size)

    @call
    async def translate_nbest(
        self, texts: Iterable[Text], batch_size: int | None = None
    ) -> list[list[Translation]]:
        """The n best translations of each text; an export fixes n.

        Args:
            texts: List of str or bytes.
            batch_size: As in `translate`.

        Returns:
            List of lists of `Translation`, best first; there can be fewer than n.
        """
        return await self._ask(signatures.TRANSLATE_NBEST, text_of(texts), batch_size)

    @call
    async def translate_document(self, texts: Iterable[Text]) -> list[Document]:
        """The translation of each text sentence by sentence, whatever its length.

        All sentences of all texts are translated in batches of similar length; the source's white
        space stays between them. A text of one sentence gets the answer of `translate`.

        Args:
            texts: List of str or bytes.

        Returns:
            List of `Document`, one for each text.
        """
        inputs = text_of(texts)
        together = max(len(inputs["text"]), 1)
        return await self._ask(signatures.TRANSLATE_DOCUMENT, inputs, together)

    @call
    async def translate_with_terms(
        self, texts: Iterable[Text], terms: Mapping[str, str], batch_size: int | None = None
    ) -> list[Translation]:
        """The best translation of each text, with given translations of terms.

        Each place where a term stands in a text as whole words gets its translation, to the letter.
        Of terms that begin at the same place, the longest counts. A term is found in any case,
        unless it has a capital letter, and not within what is protected.

        Args:
            texts: List of str or bytes.
            terms: Dict from terms to their translations. Only those that may occur in a text are
                sent with it.
            batch_size: As in `translate`.

        Returns:
            List of `Translation`, one for each text.

        Raises:
            TypeError, ValueError: If a term or translation is no str, or a term is blank.
            ValueError, ServingError: If the model has no slots for them.
        """
        inputs = with_terms(texts, terms)
        return await self._ask(signatures.TRANSLATE_WITH_TERMS, inputs, batch_size)

    @call
    async def score(
        self, texts: Iterable[Text], references: Iterable[Text], batch_size: int | None = None
    ) -> list[Likelihood]:
        """The log-probability of each reference as a translation of its text.

        Args:
            texts: List of str or bytes.
            references: List of str or bytes, one for each text.
            batch_size: As in `translate`.

        Returns:
            List of `Likelihood`, one for each text.

        Raises:
            ValueError: If there are more or fewer references than texts.
        """
        return await self._ask(signatures.SCORE, pairs_of(texts, references), batch_size)

    @call
    async def explain(
        self, texts: Iterable[Text], batch_size: int | None = None
    ) -> list[Explanation]:
        """What each token of each translation attended to.

        Args:
            texts: List of str or bytes.
            batch_size: As in `translate`.

        Returns:
            List of `Explanation`, one for each text.
        """
        return await self._ask(signatures.EXPLAIN, text_of(texts), batch_size)


class ClassifierCalls(Asked):
    """The calls of a classifier."""

    @call
    async def classify(
        self, texts: Iterable[Text], batch_size: int | None = None
    ) -> list[Classification]:
        """The labels of each text.

        Args:
            texts: List of str or bytes.
            batch_size: The number of texts that are answered together. None: in this process 32,
                of similar length; from a server, up to the client's `batch_texts`.

        Returns:
            List of `Classification`, one for each text.
        """
        return await self._ask(signatures.CLASSIFY, text_of(texts), batch_size)


class TaggerCalls(Asked):
    """The calls of a tagger."""

    @call
    async def tag(
        self, texts: Iterable[Text], split: bool = True, batch_size: int | None = None
    ) -> list[Tags]:
        """The words of each text with their tags.

        Args:
            texts: List of str or bytes.
            split: Whether to split punctuation marks off words; otherwise texts are split at
                spaces only.
            batch_size: The number of texts that are answered together. None: in this process 32,
                of similar length; from a server, up to the client's `batch_texts`.

        Returns:
            List of `Tags`, one for each text.
        """
        signature = signatures.TAG if split else signatures.TAG_WORDS
        return await self._ask(signature, text_of(texts), batch_size)


class CompleterCalls(Asked):
    """The calls of a completer."""

    @call
    async def complete(
        self,
        prompts: Iterable[Text],
        *,
        length: int = 64,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        batch_size: int | None = None,
    ) -> list[Completion]:
        """One continuation of each prompt.

        Args:
            prompts: List of str or bytes; an empty one starts a new text.
            length: Maximum number of tokens of a completion. `Completer` refuses more than its
                `max_new_tokens`; a server clips it to them.
            temperature: Log-probabilities are divided by it; with 0, each token is the most
                probable one.
            top_k: Draw from the k most probable tokens only; 0 for all.
            top_p: Draw from the smallest set of most probable tokens whose probabilities sum to p
                or more; 1 for all.
            seed: An int; prompt i is completed with seed + i. The same seed and options give the
                same text, whatever the other prompts are. None draws a new seed at each call.
            batch_size: The number of prompts that are answered together. None: in this process 32,
                of similar length; from a server, up to the client's `batch_texts`.

        Returns:
            List of `Completion`, one for each prompt.

        Raises:
            ValueError: If an option is out of range.
        """
        inputs = sampling_of(prompts, length, temperature, top_k, top_p, seed)
        return await self._ask(signatures.COMPLETE, inputs, batch_size)

    @call
    async def log_prob(
        self, texts: Iterable[Text], batch_size: int | None = None
    ) -> list[Likelihood]:
        """The log-probability of each whole text, its end included.

        Args:
            texts: List of str or bytes.
            batch_size: As in `complete`.

        Returns:
            List of `Likelihood`, one for each text.
        """
        return await self._ask(signatures.LOG_PROB, text_of(texts), batch_size)
