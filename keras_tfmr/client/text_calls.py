"""The calls of classifiers, taggers and language models."""

from collections.abc import Iterable
from typing import Any

from keras_tfmr._inputs import Text, check_sampling, checked_texts, seeds_of
from keras_tfmr.client import answers, text_answers
from keras_tfmr.client.answers import Likelihood
from keras_tfmr.client.call import Answer, Call
from keras_tfmr.client.text_answers import Classification, Completion, Tags


class Numbers(list):
    """Numbers to send as a tensor of this dtype; a plain list is sent as texts.

    >>> Numbers("int32", [1, 2]).dtype
    'int32'
    """

    def __init__(self, dtype: str, values: Iterable[float]) -> None:
        super().__init__(float(v) if dtype == "float32" else int(v) for v in values)
        self.dtype = dtype


def _classify(texts: Iterable[Text]) -> Call[Classification]:
    return Call("classify", {"text": checked_texts(texts)}, text_answers.classifications)


def _tag(texts: Iterable[Text], split: bool) -> Call[Tags]:
    inputs = {"text": checked_texts(texts)}
    return Call("tag" if split else "tag_words", inputs, text_answers.tags)


def _complete(
    prompts: Iterable[Text],
    length: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int | None,
) -> Call[Completion]:
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
    return Call("complete", inputs, text_answers.completions)


def _log_prob(texts: Iterable[Text]) -> Call[Likelihood]:
    return Call("log_prob", {"text": checked_texts(texts)}, answers.likelihoods)


class TextCalls:
    """The calls of a client that waits for its answers."""

    def _ask(self, call: Call[Answer]) -> list[Answer]:
        raise NotImplementedError

    def classify(self, texts: Iterable[Text]) -> list[Classification]:
        """The labels of each text, for the export of a `Classifier`.

        Args:
            texts: List of str.

        Returns:
            List of `Classification(label, probabilities, truncated)`, one for each text.

        Raises:
            ServingError: If there is no answer; its subclass says why.
        """
        return self._ask(_classify(texts))

    def tag(self, texts: Iterable[Text], split: bool = True) -> list[Tags]:
        """The words of each text and their tags, for the export of a `Tagger`.

        Args:
            texts: List of str.
            split: Whether to split punctuation marks off words; otherwise texts are split at
                spaces only.

        Returns:
            List of `Tags(words, tags, probabilities, truncated)`, one for each text.

        Raises:
            ServingError: If there is no answer; its subclass says why.
        """
        return self._ask(_tag(texts, split))

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
            length: The most tokens of a completion; the server clips it to the export's maximum.
            temperature: Log-probabilities are divided by it; with 0, each token is the most
                probable one.
            top_k: Draw from the k most probable tokens only; 0 for all.
            top_p: Draw from the smallest set of most probable tokens whose probabilities sum to p
                or more; 1 for all.
            seed: An int; prompt i is completed with seed + i. The same seed and options give the
                same text, whatever the other prompts are. None draws a new seed at each call.

        Returns:
            List of `Completion(text, log_prob, tokens, finished, truncated)`, one for each prompt.

        Raises:
            ValueError: If an option is out of range.
            ServingError: If there is no answer; its subclass says why.
        """
        return self._ask(_complete(prompts, length, temperature, top_k, top_p, seed))

    def log_prob(self, texts: Iterable[Text]) -> list[Likelihood]:
        """The log-probability of each text, its end included, for the export of a `Completer`.

        Args:
            texts: List of str.

        Returns:
            List of `Likelihood(log_prob, tokens, truncated)`, one for each text.

        Raises:
            ServingError: If there is no answer; its subclass says why.
        """
        return self._ask(_log_prob(texts))


class AsyncTextCalls:
    """The methods of `TextCalls` as coroutines."""

    async def _ask(self, call: Call[Answer]) -> list[Answer]:
        raise NotImplementedError

    async def classify(self, texts: Iterable[Text]) -> list[Classification]:
        """As `TextCalls.classify`."""
        return await self._ask(_classify(texts))

    async def tag(self, texts: Iterable[Text], split: bool = True) -> list[Tags]:
        """As `TextCalls.tag`."""
        return await self._ask(_tag(texts, split))

    async def complete(
        self,
        prompts: Iterable[Text],
        *,
        length: int = 64,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> list[Completion]:
        """As `TextCalls.complete`."""
        return await self._ask(_complete(prompts, length, temperature, top_k, top_p, seed))

    async def log_prob(self, texts: Iterable[Text]) -> list[Likelihood]:
        """As `TextCalls.log_prob`."""
        return await self._ask(_log_prob(texts))
