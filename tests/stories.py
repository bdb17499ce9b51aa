"""Stories with a question, made by a small simulator: who is where, and where are their things?

In the manner of the first two bAbI tasks (Weston et al. 2015, Towards AI-Complete Question
Answering, arXiv 1502.05698): people move between rooms, take things with them and drop them. One
fact answers "where is Ana", two facts together answer "where is the lamp".
"""

import random
from typing import NamedTuple

import numpy as np

PEOPLE = ("ana", "bruno", "clara", "duarte")
ROOMS = ("kitchen", "garden", "library", "cellar", "balcony", "workshop")
THINGS = ("lamp", "apple", "map")
MOVES = ("walked", "went", "ran", "hurried")
TAKES = ("took", "grabbed", "found")
DROPS = ("dropped", "left", "forgot")
GLUE = ("to", "the", "there", "where", "is")

# Id 0 is padding.
WORDS = ("", *PEOPLE, *ROOMS, *THINGS, *MOVES, *TAKES, *DROPS, *GLUE)
IDS = {word: i for i, word in enumerate(WORDS)}
FACT_WORDS, QUESTION_WORDS = 5, 4


class Story(NamedTuple):
    """`facts` in order, a list of words each; `support`: the numbers of the facts that answer."""

    facts: list
    question: list
    answer: str
    support: tuple


class World:
    """What is so, and which fact says it. Everybody's first room is known by a first move only."""

    def __init__(self, draw):
        self.draw = draw
        self.facts = []
        self.person_at = {}  # person: (room, number of the fact that says so)
        self.room_of = {thing: draw.choice(ROOMS) for thing in THINGS}  # of what nobody carries
        self.carrier = {}  # thing: (person, number of the fact that says so)
        self.dropped = {}  # thing: numbers of the facts that say where

    def move(self, person):
        """A person goes to another room."""
        here = self.person_at.get(person, (None,))[0]
        room = self.draw.choice([room for room in ROOMS if room != here])
        self.person_at[person] = room, len(self.facts)
        self.facts.append([person, self.draw.choice(MOVES), "to", "the", room])

    def take(self, person, thing):
        self.carrier[thing] = person, len(self.facts)
        self.dropped.pop(thing, None)
        self.facts.append([person, self.draw.choice(TAKES), "the", thing, "there"])

    def drop(self, person, thing):
        room, known_by = self.person_at[person]
        self.room_of[thing] = room
        self.dropped[thing] = known_by, len(self.facts)
        del self.carrier[thing]
        self.facts.append([person, self.draw.choice(DROPS), "the", thing, "there"])

    def happen(self):
        """One event: half of the time somebody moves, else a thing is handled where one can be."""
        person = self.draw.choice(PEOPLE)
        room = self.person_at.get(person, (None,))[0]
        carried = [thing for thing in THINGS if self.carrier.get(thing, (None,))[0] == person]
        lying = [t for t in THINGS if t not in self.carrier and self.room_of[t] == room]
        chances = [(self.take, thing) for thing in lying] + [(self.drop, t) for t in carried]
        if not chances or self.draw.random() < 0.5:
            return self.move(person)
        event, thing = self.draw.choice(chances)
        return event(person, thing)

    def place_of(self, thing):
        """(room, facts that say so) of a thing that was ever taken."""
        if thing in self.dropped:
            return self.room_of[thing], self.dropped[thing]
        person, taken = self.carrier[thing]
        room, known_by = self.person_at[person]
        return room, tuple(sorted((known_by, taken)))


def one_fact(draw):
    """A story of 2 to 10 moves, and where one of its people is."""
    world = World(draw)
    for _ in range(draw.randint(2, 10)):
        world.move(draw.choice(PEOPLE))
    person = draw.choice(sorted(world.person_at))
    room, known_by = world.person_at[person]
    return Story(world.facts, ["where", "is", person], room, (known_by,))


def two_facts(draw):
    """A story of 4 to 20 events, and where one of the things is that were taken in it."""
    world, events = World(draw), draw.randint(4, 20)
    for _ in range(events):
        world.happen()
    if not (world.carrier or world.dropped):
        return two_facts(draw)
    thing = draw.choice(sorted({*world.carrier, *world.dropped}))
    room, support = world.place_of(thing)
    return Story(world.facts, ["where", "is", "the", thing], room, support)


def generate(make, sizes, seed):
    """Sets of stories, none of which has a story of another.

    Args:
        make: `one_fact` or `two_facts`.
        sizes: How many stories each set has.
        seed: Of the whole.

    Returns:
        A list of lists of `Story`.
    """
    draw, seen, sets = random.Random(seed), set(), []
    for size in sizes:
        stories = []
        while len(stories) < size:
            story = make(draw)
            text = str((story.facts, story.question))
            if text not in seen:
                seen.add(text)
                stories.append(story)
        sets.append(stories)
    return sets


def encode(stories):
    """Stories as ids, padded with 0.

    Returns:
        int32 facts `[stories, facts, 5]`, questions `[stories, 4]`, answers `[stories]`.
    """
    longest = max(len(story.facts) for story in stories)
    facts = np.zeros((len(stories), longest, FACT_WORDS), np.int32)
    questions = np.zeros((len(stories), QUESTION_WORDS), np.int32)
    for row, story in enumerate(stories):
        for i, fact in enumerate(story.facts):
            facts[row, i, : len(fact)] = [IDS[word] for word in fact]
        questions[row, : len(story.question)] = [IDS[word] for word in story.question]
    answers = np.array([IDS[story.answer] for story in stories], np.int32)
    return facts, questions, answers
