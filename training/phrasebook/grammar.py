"""The grammar: turns a row of `sentences.tsv` into a sentence of both languages.

Every phrase is made in both languages at once. Verbs are drawn first, because who can be the
subject depends on them; the other parts from left to right, because adjectives agree with it.
English words carry their part of speech behind a slash, such as `watch/VERB`, until the end.
"""

import functools
import re

from training.phrasebook import parts
from training.phrasebook.clauses import MODALS, Clause, Verb, head_and_tail, with_head
from training.phrasebook.words import NOTHING, Phrase, actions, join, phrases

_PARTS = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|[^\s{[])+")
_ALTERNATIVES = re.compile(r"(?:\{[^}]*\}|[^|{])+")


@functools.cache
def split_parts(text):
    """The parts of a row, each with its alternatives: `{a}|= b=c` is (("{a}", "="), ("b=c",))."""
    return tuple(
        (part,) if part[0] == "[" else tuple(_ALTERNATIVES.findall(part))
        for part in _PARTS.findall(text)
    )


@functools.cache
def _words(text):
    return text[1:-1].split(" ")


@functools.cache
def _pairs(text):
    """The alternatives `a_b=c|d=e`, each as (Portuguese, English)."""
    return tuple(tuple(pair.split("=")) for pair in text.replace("_", " ").split("|"))


class Sentence:
    """A sentence in the making.

    Args:
        draw: A `random.Random`.
        tense: "present", "past", "future", "now" or "was".
    """

    def __init__(self, draw, tense):
        self.draw, self.tense = draw, tense
        self.subject, self.verb, self.verbs = NOTHING, None, ()
        self.used = []  # nouns and names, none of which occurs twice

    def chance(self, share):
        """Whether an event of a probability happens."""
        return self.draw.random() < share

    def one(self, alternatives):
        """One of several, each as likely."""
        return self.draw.choice(alternatives) if len(alternatives) > 1 else alternatives[0]

    def write(self, row, mood):
        """The sentence with its marks, as a `Phrase`; English words keep their tags.

        Args:
            row: The words of a row of `sentences.tsv`.
            mood: One of the row's moods.
        """
        chosen = [self.one(part) for part in split_parts(row)]
        verbs = {i: self._verb(part[1:-1]) for i, part in enumerate(chosen) if part[0] == "["}
        self.verbs = tuple(verbs.values())
        found = []  # of `Phrase` and `Clause`
        for i, part in enumerate(chosen):
            if i in verbs and verbs[i].is_command:
                found.append(verbs[i].command())
            elif i in verbs:
                found.append(Clause(self.subject, verbs[i]))
            elif i + 1 in verbs and not verbs[i + 1].is_command:
                self.verb = verbs[i + 1]
                self.tense = self.verb.tense
                self.subject = self.phrase(part)
            else:
                found.append(self.phrase(part))
        return self._assembled(found, mood, timed=chosen[-1] == "{time}")

    def _assembled(self, found, mood, timed):
        """The first clause as the mood says, the others as statements; an end mark."""
        places = [i for i, part in enumerate(found) if isinstance(part, Clause)]
        if mood in "?~" and any(found[i].subject.en == "I" for i in places[:1]):
            mood = "."
        time = found[-1] if timed and len(places) == 1 and mood in ".-" else None
        for i in places:
            clause = found[i]
            if i > places[0]:
                found[i] = clause.said()
            elif mood in "?~":
                found[i] = clause.asked(inverted=mood == "~")
            else:
                adverb = NOTHING
                if time is NOTHING and mood == "." and clause.is_habit() and self.chance(0.3):
                    adverb = self.named("adverb")
                drops = clause.implies_subject() and self.chance(0.25)
                found[i] = clause.said(adverb, denied=mood == "-", drops=drops)
        if time not in (None, NOTHING) and self.chance(0.2):
            found = [Phrase(f"{time.pt},", f"{time.en},"), *found[:-1]]
        mark = {"-": ".", "~": "?", "w": "?"}.get(mood, mood)
        texts = (text[0].upper() + text[1:] for text in _joined(found))
        return Phrase(*(text if text[-1] in ".?!" else text + mark for text in texts))

    def _verb(self, text):
        """A `Verb` from the words in brackets: `gostar_de=like wish:present|past`."""
        text, _, tenses = text.partition(":")
        tense = self.draw.choice(tenses.split("|")) if tenses else self.tense
        *modal, name = text.split(" ")
        if "=" in name:
            pt, en = self._pair(name)
            return Verb(*head_and_tail(pt), en, tense)
        often = not modal and tense in ("present", "now", "was")
        action = self.draw.choice(actions(name, often))
        inner = head_and_tail(action.pt)[0]
        if not modal:
            return Verb(inner, "", action.en, tense, action)
        pt, en = self._pair(modal[0])
        head, tail = head_and_tail(pt)
        to = "" if en in MODALS else "to/PART"
        return Verb(head, join(tail, inner), join(en, to, with_head(action.en)), tense, action)

    def _pair(self, text):
        return self.one(_pairs(text))

    def phrase(self, text):
        """A part of a row that is no verb, as a `Phrase`."""
        if text[0] != "{":
            pt, en = self._pair(text)
            return Phrase(pt, en) if pt or en else NOTHING
        first, *rest = _words(text)
        if "=" in first:
            pt, en = self._pair(first)
            return parts.after(pt, en, self._braced(*rest))
        return self._braced(first, *rest)

    def _braced(self, names, *rest):
        """What stands in braces after a preposition."""
        name = self.one(names.split("|"))
        if name in parts.SLOTS:
            return parts.SLOTS[name](self, *rest)
        if name in phrases():
            return self.named(name)
        groups, *flags = rest
        noun = parts.noun_of(self, groups.split("|"))
        adjective = 0 if "plain" in flags else 0.3
        return parts.noun_phrase(
            self, noun, name, adjective=adjective, singular="singular" in flags
        )

    def named(self, name):
        """One of the phrases of a name in `phrases.tsv`."""
        weights, entries = phrases()[name]
        chosen = split_parts(self.draw.choices(entries, cum_weights=weights)[0])
        made = [self.phrase(self.one(part)) for part in chosen]
        return made[0] if len(made) == 1 else Phrase(*_joined(made))


def _joined(phrases):
    """The phrases' (Portuguese, English); no space before a comma."""
    return [join(*(phrase[side] for phrase in phrases)).replace(" ,", ",") for side in (0, 1)]
