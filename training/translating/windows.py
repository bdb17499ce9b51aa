"""Windows of lines, whose texts are translated in batches of similar length by several threads."""

import collections
import concurrent.futures
import itertools

WINDOW = 4096  # lines that are sorted together by their token counts
AHEAD = 2  # windows in progress at the same time
# Minimum fraction of the tokens of the longest text in a batch that the next text needs to join
# it, once the batch is a quarter full: a shorter text would cost too much padding.
SIMILAR = 0.6


def translated(lines, model, text_of, size, first=0, window=None):
    """Yields windows of lines and the answers for each line, in order.

    Args:
        lines: An iterator of lines.
        model: A `Callers`.
        text_of: A function from a line to the text to translate in it.
        size: Texts in a batch.
        first: Number of the first window, which seeds are made of.
        window: Lines in a window; `WINDOW` by default.
    """
    callers, window = collections.deque(model.callers), window or WINDOW
    pool = concurrent.futures.ThreadPoolExecutor(len(callers))

    def call(texts, seed):
        caller = callers.popleft()  # as many as threads
        try:
            return caller(texts, seed)
        finally:
            callers.append(caller)

    def begun(number, rows_of_window):
        texts = [text_of(line) for line in rows_of_window]
        return [
            (rows, pool.submit(call, [texts[row] for row in rows], (number, i)))
            for i, rows in enumerate(batches_of(model.token_counts(texts), size))
        ]

    under_way = collections.deque()
    try:
        for number in itertools.count(first):
            if read := list(itertools.islice(lines, window)):
                under_way.append((read, begun(number, read)))
            while under_way and (not read or len(under_way) > AHEAD):
                done, batches = under_way.popleft()
                answers = [None] * len(done)
                for rows, future in batches:
                    for row, answer in zip(rows, future.result(), strict=True):
                        answers[row] = answer
                yield done, answers
            if not read:
                return
    finally:  # after an error, Ctrl-C or a closed pipe, nothing waits for what is under way
        pool.shutdown(wait=False, cancel_futures=True)


def batches_of(counts, size):
    """Batches of up to `size` texts with similar token counts: lists of rows, longest first."""
    batches = []
    for row in sorted(range(len(counts)), key=counts.__getitem__, reverse=True):
        batch = batches[-1] if batches else []
        shorter = batch and counts[row] < SIMILAR * counts[batch[0]]
        if not batch or len(batch) == size or (shorter and 4 * len(batch) >= size):
            batches.append(batch := [])
        batch.append(row)
    return batches
