"""The grammar: turns a row of `sentences.tsv` into a sentence of both languages.

The Portuguese is written first, and what it drew is kept: the things in braces by their names, the
verbs in brackets by their order. Words may have a part of speech behind a slash: `watch/VERB`.
"""

import functools
import re
from collections import namedtuple

from training.phrasebook import english, portuguese
from training.phrasebook.lexicon import Thing, actions, phrases
from training.phrasebook.portuguese import FIRST, FIRST_PLURAL, SECOND, TABLES
from training.phrasebook.things import Things

_PART = re.compile(r"\{([^}]*)\}|\[([^\]]*)\]|\((?:(\d):)?([^)]*)\)|([^{\[(]+)")
_REFLEXIVE = ("me", "te", "se", "nos", "se")  # by person
_ACCUSATIVE = ("o", "a", "os", "as")
# How Portuguese says a tense of two verbs: the tense of the first, it, and the form of the other.
_TENSES = {"now": "pres estar ger", "was": "imp estar ger", "going": "pres ir inf"}
_TENSES |= {"pperf": "imp ter part"}
# Tenses whose first person looks like the third, so that it needs its pronoun.
_AMBIGUOUS = ("imp", "was", "cond", "subj", "isubj", "fsubj", "pperf", "inf")


class Scope:
    """The choices of a table's row."""

    def __init__(self):
        self.choices, self.things, self.clauses = [], {}, []


# A subject with its verb; `drawn` numbers its adverb, verb and tense, `scope` is the action's.
Clause = namedtuple("Clause", "subject tense drawn denied asked action scope object")


@functools.cache
def compiled(text):
    """The parts of a row, each (kind, what it says)."""
    found = []
    for thing, clause, number, options, words in _PART.findall(text):
        if words or thing:
            found.append(("text", words) if words else ("thing", thing))
        elif clause:
            found.append(("clause", _read(clause)))
        else:
            found.append((number, tuple(map(compiled, options.split("|")))))
    return tuple(found)


def _read(text):
    """`who|nunca/já + querer @do:pres/past`: the subject; adverbs, verbs and tenses."""
    subject, _, rest = text.rpartition("|")
    rest, _, tenses = rest.partition(":")
    adverbs, _, verbs = rest.rpartition(" + ")
    return subject, tuple(tuple(part.split("/")) for part in (adverbs, verbs, tenses))


class Sentence(Things):
    """A sentence in the making.

    Args:
        draw: A `random.Random`.
        mood: "." for a statement, "-" for a denial, "?" for a question, "q" for one that begins
            with a question word.
    """

    def __init__(self, draw, mood):
        super().__init__(draw)
        self.mood, self.clauses = mood, []

    def write(self, pt, en):
        """The sentence in Portuguese, and in English with the tags."""
        pt, en = map(self._finished, self._both(pt, en))
        return portuguese.contract(pt), english.article(en)

    def _both(self, pt, en):
        scope = Scope()
        return self._portuguese(pt, scope), self._english(en, scope)

    def _finished(self, text):
        text = re.sub(r" ([,.?!;:])", r"\1", re.sub(r" +", " ", text).strip())
        text = text[:-1] + "?" if self.mood == "?" else text
        return re.sub(r"(^|[.?!] )(\w)", lambda found: found[1] + found[2].upper(), text)

    # --- Portuguese

    def _portuguese(self, row, scope, text=""):
        """The text with a row behind it."""
        for kind, part in compiled(row) if isinstance(row, str) else row:
            if kind == "text":
                text += part
            elif kind == "thing":
                text += self._said(part, scope).pt
            elif kind == "clause":
                text = self._portuguese_clause(*part, scope, text)
            else:
                scope.choices.append(self.draw.randrange(len(part)))
                text = self._portuguese(part[scope.choices[-1]], scope, text)
        return text

    def _said(self, spec, scope):
        """The thing in braces of Portuguese, which is kept for English."""
        first, *_, last = spec.split(" ") * 2
        name = f"when-{self.clauses[-1].tense}" if first == "when" else first
        skipped = first == "when" and self.mood == "-" and self.draw.random() < 0.7
        if name in phrases() and not skipped:
            weights, entries = phrases()[name]
            entry = self.draw.choices(entries, weights)[0]
            found = Thing(*(self._both(*entry) if "{" in entry[0] else entry))
        else:
            found = Thing("", "") if first == "when" else self.thing(spec)
        scope.things[first if first in ("n", "d") else last.rstrip("+")] = found
        for i, clause in enumerate(scope.clauses):
            if clause.subject.pronoun == "there":  # there is, there are
                there = clause.subject._replace(pronoun="they" if found.plural else "it")
                scope.clauses[i] = clause._replace(subject=there)
        return found

    def _portuguese_clause(self, subject, alternatives, scope, before):
        first = not self.clauses
        asked = first and self.mood in "?q"
        subject = self.subject_of(subject, asked)
        drawn = tuple(self.draw.randrange(len(part)) for part in alternatives)
        adverb, verb, tense = (part[i] for part, i in zip(alternatives, drawn, strict=True))
        tense = tense or "pres"
        denied = verb.startswith("não ") or (first and self.mood == "-")
        words, action, kind = verb.removeprefix("não ").lstrip("<").split(" "), None, ""
        for i, word in enumerate(words):
            if word[0] == "@":
                action = self.one(actions()[word[1:]])
                words[i] = f"{action.clitic}_{action.pt}"
            kind = words[i].rpartition("_")[0] or kind
        pronoun = self.object_of(subject, kind, tense) if kind in ("o", "lhe") else None
        said = f"{adverb} {'não' * denied}".strip()
        clitic, text = self._conjugated(words, tense, subject, pronoun)
        bare = not said and not before.strip()  # a pronoun cannot begin a sentence
        said_by_verb = subject.person in (FIRST, SECOND, FIRST_PLURAL) and tense not in _AMBIGUOUS
        dropped = said_by_verb and not (clitic and bare and subject.person == FIRST_PLURAL)
        subject_pt = "" if dropped and self.draw.random() < 0.55 else subject.pt
        if clitic and bare and not subject_pt and tense not in ("fut", "cond"):
            head, _, rest = text.partition(" ")
            text = f"{head}-{clitic} {rest}"
        else:
            text = f"{clitic} {text}"
        text = f"{said} {text} {subject_pt}" if verb[0] == "<" else f"{subject_pt} {said} {text}"
        clause = Clause(subject, tense, drawn, denied, asked, action, Scope(), pronoun)
        scope.clauses.append(clause)
        self.clauses.append(clause)
        text = f"{before}{text} "
        return self._portuguese(action.pt_rest, clause.scope, text) if action else text

    def _conjugated(self, words, tense, subject, pronoun):
        """(The pronoun before a finite verb, the verb with the words behind it)."""
        (clitic, verb), *rest = (
            (_REFLEXIVE[subject.person] if kind == "se" else pronoun.pt if kind else "", word)
            for kind, _, word in (word.rpartition("_") for word in words)
        )
        rest = [_attached(word, "inf", before) if before else word for before, word in rest]
        forms = portuguese.conjugate(verb)
        if tense in ("inf", "ger"):
            return "", " ".join([_attached(verb, tense, clitic), *rest])
        if tense not in _TENSES:
            return clitic, " ".join([forms[tense.replace("cmd", "subj")][subject.person], *rest])
        first, auxiliary, form = _TENSES[tense].split()
        finite = portuguese.conjugate(auxiliary)[first][subject.person]
        if clitic in _ACCUSATIVE and form == "part":
            return clitic, " ".join([finite, forms[form], *rest])
        head = "" if (auxiliary, verb) == ("ir", "ir") else _attached(verb, form, clitic)
        return "", " ".join([finite, head, *rest])

    # --- English

    def _english(self, row, scope):
        text, numbers, clauses = "", iter(range(99)), iter(scope.clauses)
        for kind, part in compiled(row) if isinstance(row, str) else row:
            if kind == "text":
                text += part
            elif kind == "thing":
                text += self._meant(part, scope)
            elif kind == "clause":
                text += self._english_clause(part[1], next(clauses))
            else:
                number = int(kind) - 1 if kind else next(numbers)
                text += self._english(part[scope.choices[number]], scope)
        return text

    def _english_clause(self, alternatives, clause):
        adverb, verb, tense = (
            part[i % len(part)] for part, i in zip(alternatives, clause.drawn, strict=True)
        )
        action, denied, tense = clause.action, clause.denied, tense or clause.tense
        if tense == "going" and not (denied or clause.asked):  # vou ver: I'll see
            tense = "will"
        if action:
            verb = (
                verb.replace("not @", "@")
                .replace("@ing", english.form(action.en, "ing"))
                .replace("@", action.en)
            )
        self.subject, self.object = clause.subject, clause.object or self.object
        if tense in ("cmd", "inf", "ger"):
            words = english.with_head(verb, "ing" if tense == "ger" else "")
            words = ("not " if tense == "ger" else "don't ") * denied + words
        else:
            auxiliary, main = english.verb_words(
                verb, tense, clause.subject.pronoun, denied or clause.asked
            )
            words = english.statement(clause.subject.en, auxiliary, adverb, main, denied)
            if clause.asked:
                auxiliary = english.denied(auxiliary) if denied else auxiliary
                words = f"{auxiliary} {clause.subject.en} {adverb} {main}"
        return f" {words} " + (self._english(action.en_rest, clause.scope) if action else "")

    def _meant(self, spec, scope):
        """The English of what is in braces."""
        name, _, rest = spec.partition(" ")
        if name == "tag":
            return self._tag_question(scope.clauses[0])
        if name == "my":
            return english.POSSESSIVE[self.subject.pronoun]
        if name == "self":
            word = self.subject.pronoun + "s" * self.subject.plural
            return TABLES["self"].get(word, TABLES["self"][self.subject.pronoun])
        if name in ("obj", "subject"):
            thing = self.object if name == "obj" else scope.clauses[-1].subject
        else:
            thing = scope.things[(rest or name).rstrip("+")]
        if name == "'s":
            return english.possessive(thing.en)
        if name in ("at", "to"):  # at school, to school; at the station, to the station
            wanted = thing.noun.place
            en = thing.en.removeprefix("the ") if wanted.endswith("0") else thing.en
            return f"{'to' if name == 'to' else wanted.rstrip('0')} {en}"
        return english.OBJECT.get(thing.en, thing.en)

    def _tag_question(self, clause):
        verb = clause.action.en if clause.action else "be"
        auxiliary, _ = english.verb_words(verb, clause.tense, clause.subject.pronoun, True)
        auxiliary = auxiliary if clause.denied else english.denied(auxiliary)
        return f"{auxiliary} {clause.subject.pronoun}".replace("am not I", "aren't I")


def _attached(verb, form, clitic):
    """An infinitive, gerund or participle with its pronoun: `vê-lo`, `me ver`, `vendo-o`."""
    forms = portuguese.conjugate(verb)
    if clitic in _ACCUSATIVE:
        return portuguese.with_object(verb, clitic) if form == "inf" else f"{forms[form]}-{clitic}"
    return f"{clitic} {forms[form]}".strip()
