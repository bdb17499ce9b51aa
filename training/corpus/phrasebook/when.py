"""Expressions of time, by tense. Those of the past are clearly past, so that verbs whose past looks
like the present (`nós falamos`) are never ambiguous."""

from training.corpus.phrasebook import english, portuguese
from training.corpus.phrasebook.words import Phrase

_DAYS = (
    ("segunda-feira", "Monday", True),
    ("terça-feira", "Tuesday", True),
    ("quarta-feira", "Wednesday", True),
    ("quinta-feira", "Thursday", True),
    ("sexta-feira", "Friday", True),
    ("sábado", "Saturday", False),
    ("domingo", "Sunday", False),
)
MONTHS = (
    "janeiro=January fevereiro=February março=March abril=April maio=May junho=June julho=July "
    "agosto=August setembro=September outubro=October novembro=November dezembro=December"
)
MONTHS = tuple(Phrase(*pair.split("=")) for pair in MONTHS.split())
_PARTS = (
    Phrase("de manhã", "in the morning"),
    Phrase("à tarde", "in the afternoon"),
    Phrase("à noite", "in the evening"),
)


def _phrases(text):
    return tuple(Phrase(*pair.strip().split("=")) for pair in text.split(","))


_HABITUAL = _phrases(
    "todos os dias=every day, toda semana=every week, toda manhã=every morning, "
    "toda noite=every night, duas vezes por semana=twice a week, "
    "uma vez por mês=once a month"
)
_WEEKENDS = Phrase("nos fins de semana", "on weekends")
_NOW = _phrases("agora=now, neste momento=at the moment")
_PAST = _phrases(
    "ontem=yesterday, ontem à noite=last night, na semana passada=last week, "
    "no mês passado=last month, no ano passado=last year, anteontem=the day before yesterday, "
    "ontem de manhã=yesterday morning, ontem à tarde=yesterday afternoon"
)
_FUTURE = _phrases(
    "amanhã=tomorrow, hoje=today, hoje à noite=tonight, na semana que vem=next week, "
    "no mês que vem=next month, no ano que vem=next year, depois de amanhã=the day after tomorrow, "
    "amanhã de manhã=tomorrow morning, amanhã à tarde=tomorrow afternoon, "
    "neste fim de semana=this weekend"
)
TODAY = _phrases("hoje=today, agora=now")
FREQUENCY = _phrases(
    "sempre=always, nunca=never, geralmente=usually, raramente=rarely, às vezes=sometimes, "
    "também=also"
)


def clock(draw):
    """`as oito e meia`, `half past eight`."""
    chance = draw.random()
    if chance < 0.05:
        return Phrase("o meio-dia", "noon")
    if chance < 0.1:
        return Phrase("a meia-noite", "midnight")
    hour = draw.randint(1, 12)
    article = "a" if hour == 1 else "as"
    pt, en = f"{article} {portuguese.number(hour, feminine=True)}", english.number(hour)
    if chance < 0.4:
        return Phrase(f"{pt} hora{'s' * (hour > 1)}", f"{en} o'clock")
    if chance < 0.55:
        return Phrase(f"{pt} e meia", f"half past {en}")
    minutes = draw.choice((5, 10, 15, 20, 25))
    word = "a quarter" if minutes == 15 else english.number(minutes)
    return Phrase(f"{pt} e {portuguese.number(minutes)}", f"{word} past {en}")


def at_clock(draw):
    time = clock(draw)
    return Phrase(portuguese.contract("a", time.pt), f"at {time.en}")


def _day(draw):
    pt, en, feminine = draw.choice(_DAYS)
    return Phrase(f"na {pt}" if feminine else f"no {pt}", f"on {en}")


def _days(draw):
    pt, en, feminine = draw.choice(_DAYS)
    plural = "-".join(part + "s" for part in pt.split("-"))  # segundas-feiras
    return Phrase(f"às {plural}" if feminine else f"aos {plural}", f"on {en}s")


def habitually(draw):
    chance = draw.random()
    if chance < 0.4:
        return draw.choice((*_HABITUAL, _WEEKENDS))
    if chance < 0.6:
        return _days(draw)
    return draw.choice(_PARTS) if chance < 0.75 else at_clock(draw)


def now(draw):
    return draw.choice(_NOW)


def before(draw):
    chance = draw.random()
    if chance < 0.55:
        return draw.choice(_PAST)
    if chance < 0.75:
        return _last_day(draw)
    if chance < 0.9:
        unit_pt, unit_en, feminine = draw.choice(
            (
                ("dias", "days", False),
                ("semanas", "weeks", True),
                ("anos", "years", False),
                ("horas", "hours", True),
            )
        )
        n = draw.randint(2, 12)
        return Phrase(
            f"há {portuguese.number(n, feminine)} {unit_pt}", f"{english.number(n)} {unit_en} ago"
        )
    time = at_clock(draw)
    return Phrase(f"ontem {time.pt}", f"yesterday {time.en}")


def habitual_day(draw):
    """`todos os dias`, `aos sábados`."""
    return _days(draw) if draw.random() < 0.6 else draw.choice((_HABITUAL[0], _WEEKENDS))


def coming_day(draw):
    """`amanhã`, `na segunda-feira`."""
    return _day(draw) if draw.random() < 0.5 else draw.choice(_FUTURE[:2])


def past_day(draw):
    """`ontem`, `no domingo passado`."""
    return _last_day(draw) if draw.random() < 0.6 else _PAST[0]


def _last_day(draw):
    pt, en, feminine = draw.choice(_DAYS)
    return Phrase(f"na {pt} passada" if feminine else f"no {pt} passado", f"last {en}")


def later(draw):
    chance = draw.random()
    if chance < 0.55:
        return draw.choice(_FUTURE)
    if chance < 0.7:
        return _day(draw)
    if chance < 0.8:
        month = draw.choice(MONTHS)
        return Phrase(f"em {month.pt}", f"in {month.en}")
    time = at_clock(draw)
    return Phrase(f"amanhã {time.pt}", f"tomorrow {time.en}")
