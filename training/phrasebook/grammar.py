"""The grammar: turns a row of `sentences.tsv` into a sentence of both languages.

The Portuguese is written first, from left to right, and what it drew is kept: the things in braces
by their names, the verbs in brackets by their order. The English of the row then says the same.
English words may carry their part of speech behind a slash, such as `watch/VERB`, until the end.
"""

import functools
import re
from typing import NamedTuple

from training.phrasebook import english, portuguese
from training.phrasebook.lexicon import Action, Thing, actions, phrases
from training.phrasebook.portuguese import FIRST, FIRST_PLURAL, SECOND
from training.phrasebook.things import REFLEXIVE, Things

_PART = re.compile(r"\{([^}]*)\}|\[([^\]]*)\]|\(([^)]*)\)|([^{\[(]+)")
# How Portuguese says a tense of two verbs: the tense of the first, it, and the form of the other.
_TENSES = {
    "now": ("pres", "estar", "ger"),
    "was": ("imp", "estar", "ger"),
    "going": ("pres", "ir", "inf"),
    "pperf": ("imp", "ter", "part"),
    "cperf": ("cond", "ter", "part"),
}
# Tenses whose first person looks like the third, so that it needs its pronoun.
_AMBIGUOUS = ("imp", "was", "cond", "subj", "isubj", "fsubj", "pperf", "cperf", "inf")


class Part(NamedTuple):
    """A part of a row: text, a thing, a clause, or alternatives with their number."""

    kind: str
    text: str
    alternatives: tuple = ()


class Scope:
    """What a row of a table has drawn."""

    def __init__(self):
        self.choices, self.things, self.clauses = [], {}, []


class Clause(NamedTuple):
    """A subject with its verb."""

    subject: Thing
    tense: str
    tense_index: int
    verb_index: int
    adverb_index: int
    denied: bool
    asked: bool
    action: Action | None
    scope: Scope
    object: Thing | None


class ClauseSpec(NamedTuple):
    """The words in brackets: `who|nunca/já + querer @do:pres/past`."""

    subject: str
    adverbs: tuple
    verbs: tuple
    tenses: tuple


@functools.cache
def compiled(text):
    """The parts of a row."""
    found = []
    for thing, clause, options, words in _PART.findall(text):
        if words:
            found.append(Part("text", words))
        elif clause:
            found.append(Part("clause", clause))
        elif thing:
            found.append(Part("thing", thing))
        else:
            number, _, rest = options.rpartition(":") if options[1:2] == ":" else ("", "", options)
            found.append(Part("options", number, tuple(map(compiled, rest.split("|")))))
    return tuple(found)


@functools.cache
def _clause_spec(text):
    subject, bar, rest = text.rpartition("|")
    rest, _, tenses = rest.partition(":")
    adverbs, _, verbs = rest.rpartition(" + ")
    return ClauseSpec(
        subject if bar else "",
        tuple(adverbs.split("/")),
        tuple(verb.strip() for verb in verbs.split("/")),
        tuple(tenses.split("/")) if tenses else (),
    )


class Sentence(Things):
    """A sentence in the making.

    Args:
        draw: A `random.Random`.
        mood: "." or "!" for a statement, "-" for a denial, "?" for a question, "q" for one that
            begins with a question word.
    """

    def __init__(self, draw, mood):
        super().__init__(draw)
        self.mood = mood

    def write(self, pt, en):
        """The sentence in Portuguese, and in English with the tags."""
        scope = Scope()
        self.row = scope
        found = self._portuguese(compiled(pt), scope), self._english(compiled(en), scope)
        pt, en = (self._finished(text) for text in found)
        return portuguese.contract(pt), english.article(en)

    def _finished(self, text):
        text = re.sub(r" +", " ", text).strip()
        text = re.sub(r" ([,.?!;:])", r"\1", text)
        if self.mood == "?":
            text = text[:-1] + "?"
        return re.sub(r"(^|[.?!] )(\w)", lambda m: m[1] + m[2].upper(), text)

    # --- Portuguese

    def _portuguese(self, parts, scope, before=""):
        text = before
        for part in parts:
            if part.kind == "text":
                text += part.text
            elif part.kind == "thing":
                text += self._said(part.text, scope).pt
            elif part.kind == "clause":
                text = self._portuguese_clause(_clause_spec(part.text), scope, text)
            else:
                chosen = self.draw.randrange(len(part.alternatives))
                scope.choices.append(chosen)
                text = self._portuguese(part.alternatives[chosen], scope, text)
        return text

    def _said(self, spec, scope):
        """The thing in braces of Portuguese, which is kept for English."""
        words = spec.split(" ")
        name = words[0]
        if name == "when":
            name = f"when-{self.row.clauses[-1].tense}"
            found = self._phrase(name) if name in phrases() else Thing("", "")
        elif name in phrases():
            found = self._phrase(name)
        else:
            found = self.thing(words)
        scope.things[name if words[0] in ("n", "d") else words[-1].rstrip("+")] = found
        for i, clause in enumerate(scope.clauses):
            if clause.subject.en == "there" and clause.subject.pronoun == "there":
                number = "they" if found.plural else "it"
                scope.clauses[i] = clause._replace(subject=clause.subject._replace(pronoun=number))
        return found

    def _phrase(self, name):
        weights, entries = phrases()[name]
        pt, en = self.draw.choices(entries, cum_weights=weights)[0]
        if "{" not in pt:
            return Thing(pt, en)
        scope = Scope()
        return Thing(self._portuguese(compiled(pt), scope), self._english(compiled(en), scope))

    def _portuguese_clause(self, spec, scope, before):
        first = not self.row.clauses
        asked = first and self.mood in "?q"
        subject = self.subject_of(spec.subject, asked and self.mood == "?")
        index = self.draw.randrange(len(spec.verbs))
        verb = spec.verbs[index]
        tense_index = self.draw.randrange(len(spec.tenses)) if spec.tenses else 0
        tense = spec.tenses[tense_index] if spec.tenses else "pres"
        adverb = self.draw.randrange(len(spec.adverbs))
        denied = verb.startswith("não ") or (first and self.mood == "-")
        inverted = verb.startswith("<")
        words = verb.removeprefix("não ").removeprefix("<").split(" ")
        action, pronoun = None, None
        for i, word in enumerate(words):
            if word.startswith("@"):
                group, _, form = word[1:].partition(".")
                action = self.one(actions()[group])
                words[i] = (
                    action.clitic + "_" * bool(action.clitic) + action.pt + "." * bool(form) + form
                )
            elif "_" in word:
                action = action or Action("", "", "", "", "")
        kinds = [word.partition("_")[0] for word in words if "_" in word]
        if kinds and kinds[-1] != "se":
            pronoun = self.object_of(subject, kinds[-1], tense)
        said = spec.adverbs[adverb] + " " + "não " * denied
        text = self._conjugated(words, tense, subject, pronoun)
        bare = not said.strip() and not before.strip()
        subject_pt = subject.pt
        if self._drops(subject, tense, text, bare):
            subject_pt = ""
        if "~" in text:
            clitic, verb_form = text.split("~")
            last = clitic.rpartition(" ")
            enclitic = bare and not subject_pt and tense not in ("fut", "cond")
            verb_form, _, rest = verb_form.partition(" ")
            text = f"{last[0]} " + (
                f"{verb_form}-{last[2]}" if enclitic else f"{last[2]} {verb_form}"
            )
            text += " " + rest
        clause = Clause(
            subject, tense, tense_index, index, adverb, denied, asked, action, Scope(), pronoun
        )
        scope.clauses.append(clause)
        if scope is not self.row:
            self.row.clauses.append(clause)
        order = (said + text, subject_pt) if inverted else (subject_pt, said + text)
        text = f"{before}{' '.join(order)} "
        return self._portuguese(compiled(action.pt_rest), clause.scope, text) if action else text

    def _drops(self, subject, tense, text, bare):
        if subject.pronoun not in ("I", "we", "you") or tense in _AMBIGUOUS:
            return False
        if subject.person not in (FIRST, SECOND, FIRST_PLURAL):
            return False
        if "~" in text and bare and subject.person == FIRST_PLURAL:
            return False
        return self.chance(0.55)

    def _conjugated(self, words, tense, subject, pronoun):
        """The verb with the words behind it; `~` is between a pronoun and the finite verb."""
        clitic, _, verb = words[0].rpartition("_")
        clitic = self._clitic(clitic, subject, pronoun)
        rest = [self._infinitive(word, subject, pronoun) for word in words[1:]]
        if tense in _TENSES:
            first, auxiliary, form = _TENSES[tense]
            head = portuguese.conjugate(auxiliary)[first][subject.person]
            if clitic in ("o", "a", "os", "as") and form == "part":
                head, clitic = f"{clitic}~{head}", ""
            if tense == "going" and verb == "ir":  # vai embora
                return " ".join([head, *rest])
            return " ".join([head, _attached(verb, form, clitic), *rest])
        if tense in ("inf", "ger", "part"):
            return " ".join([_attached(verb, tense, clitic), *rest])
        if tense == "cmd":
            head = portuguese.conjugate(verb)["subj"][subject.person]
        else:
            head = portuguese.conjugate(verb)[tense][subject.person]
        return " ".join([f"{clitic}~{head}" if clitic else head, *rest])

    def _infinitive(self, word, subject, pronoun):
        clitic, _, verb = word.rpartition("_")
        verb, dot, form = verb.partition(".")
        if not clitic and not dot and verb[-2:] not in ("ar", "er", "ir", "ôr"):
            return word
        return _attached(verb, form or "inf", self._clitic(clitic, subject, pronoun))

    def _clitic(self, kind, subject, pronoun):
        if not kind:
            return ""
        return REFLEXIVE[subject.person] if kind == "se" else pronoun.pt

    # --- English

    def _english(self, parts, scope):
        text, numbers, clauses = "", iter(range(99)), iter(scope.clauses)
        for part in parts:
            if part.kind == "text":
                text += part.text
            elif part.kind == "thing":
                text += self._meant(part.text, scope)
            elif part.kind == "clause":
                if part.text[1:2] == ">":
                    clause, spec = scope.clauses[int(part.text[0]) - 1], part.text[2:]
                else:
                    clause, spec = next(clauses), part.text
                text += self._english_clause(_clause_spec(spec), clause)
            else:
                number = int(part.text) - 1 if part.text else next(numbers)
                text += self._english(part.alternatives[scope.choices[number]], scope)
        return text

    def _english_clause(self, spec, clause):
        verb = spec.verbs[clause.verb_index % len(spec.verbs)] or "@"
        adverb = spec.adverbs[clause.adverb_index % len(spec.adverbs)]
        tense = spec.tenses[clause.tense_index % len(spec.tenses)] if spec.tenses else clause.tense
        verb = verb.removeprefix("not ")
        if clause.action:
            verb = re.sub(
                r"@(ing|part)?",
                lambda m: english.form(clause.action.en, m[1]) if m[1] else clause.action.en,
                verb,
            )
        self.subject, self.object = clause.subject, clause.object or self.object
        subject = clause.subject.en
        if tense in ("cmd", "inf"):
            words = ("don't " if clause.denied else "") + english.with_head(verb)
        elif tense == "ger":
            words = "not " * clause.denied + english.with_head(
                verb, lambda w: english.form(w, "ing")
            )
        else:
            supported = clause.denied or clause.asked
            auxiliary, main = english.verb_words(verb, tense, clause.subject.pronoun, supported)
            if clause.asked:
                auxiliary = english.denied(auxiliary) if clause.denied else auxiliary
                words = f"{auxiliary} {subject} {adverb} {main}"
            elif clause.denied and auxiliary != "am":
                words = f"{subject} {english.denied(auxiliary)} {adverb} {main}"
            elif auxiliary:
                said = english.joined_subject(subject, auxiliary)
                words = f"{said} {'not ' * clause.denied}{adverb} {main}"
            else:
                words = f"{subject} {adverb} {main}"
        text = f" {words} "
        if clause.action:
            text += self._english(compiled(clause.action.en_rest), clause.scope)
        return text

    def _meant(self, spec, scope):
        """The English of what is in braces."""
        name, _, rest = spec.partition(" ")
        if name == "tag":
            return self._tag_question(scope.clauses[0])
        if name == "subject":
            subject = scope.clauses[-1].subject
            return english.OBJECT.get(subject.en, subject.en)
        if name in ("my", "self", "obj", "he"):
            return self.pronoun_of(name)
        thing = scope.things[(rest or name).rstrip("+")]
        if name == "'s":
            return english.possessive(thing.en)
        if name == "at":
            return self.place(thing)
        if name == "to":
            return self.place(thing, "to")
        return english.OBJECT.get(thing.en, thing.en)

    def _tag_question(self, clause):
        verb = clause.action.en if clause.action else "be"
        auxiliary, _ = english.verb_words(verb, clause.tense, clause.subject.pronoun, True)
        auxiliary = auxiliary if clause.denied else english.denied(auxiliary)
        return f"{auxiliary} {clause.subject.pronoun}".replace("am not I", "aren't I")


def _attached(verb, form, clitic):
    """An infinitive, gerund or participle with its pronoun: `vê-lo`, `me ver`, `vendo-o`."""
    forms = portuguese.conjugate(verb)
    if clitic in ("o", "a", "os", "as"):
        return portuguese.with_object(verb, clitic) if form == "inf" else f"{forms[form]}-{clitic}"
    return f"{clitic} {forms[form]}".strip()
