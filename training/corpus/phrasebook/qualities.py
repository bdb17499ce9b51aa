"""The adjectives of the phrasebook, by the kinds of nouns that they describe."""

from training.corpus.phrasebook.words import adjectives

_COLOURS = "vermelho red, azul blue, verde green, amarelo yellow, preto black, branco white"
_SIZES = "grande big, pequeno small"
ADJECTIVES = {  # by kind of noun
    "food": adjectives("fresco fresh, delicioso delicious, quente hot, frio cold"),
    "drink": adjectives("quente hot, frio cold, delicioso delicious"),
    "meal": adjectives("delicioso delicious, especial special"),
    "text": adjectives(
        "interessante interesting, longo long, curto short, difícil difficult, novo new, "
        "bom/boa/bons/boas good"
    ),
    "clothes": adjectives(
        f"{_COLOURS}, novo new, velho old, caro expensive, barato cheap, limpo clean, sujo dirty, "
        "bonito beautiful, cinza/cinza/cinza/cinza gray, marrom brown"
    ),
    "object": adjectives(
        f"{_COLOURS}, {_SIZES}, novo new, velho old, caro expensive, barato cheap, bonito beautiful"
    ),
    "vehicle": adjectives(
        f"{_COLOURS}, novo new, velho old, caro expensive, moderno modern, rápido fast"
    ),
    "animal": adjectives(f"{_SIZES}, preto black, branco white, bonito beautiful, manso tame"),
    "place": adjectives(f"{_SIZES}, bonito beautiful, antigo old, moderno modern, novo new"),
    "plant": adjectives("bonito beautiful, pequeno small, vermelho red, branco white"),
    "show": adjectives(
        "interessante interesting, longo long, engraçado funny, chato boring, novo new, "
        "bom/boa/bons/boas good, ruim bad"
    ),
    "person": adjectives(
        "alto tall, baixo short, inteligente smart, simpático nice, jovem young, forte strong, "
        "famoso famous, tímido shy, gentil/gentil/gentis/gentis kind"
    ),
}
# Of people: what they are (ser) ...
CHARACTER = adjectives(
    "alto tall, baixo short, inteligente smart, simpático nice, engraçado funny, forte strong, "
    "rico rich, famoso famous, honesto honest, gentil/gentil/gentis/gentis kind, "
    "educado polite, sério serious, curioso curious, paciente patient, corajoso brave, "
    "preguiçoso lazy, trabalhador hardworking, jovem young, generoso generous, criativo creative"
)
COMPARABLE = tuple(a for a in CHARACTER if a.en != "hardworking")
# ... and how they are (estar).
MOOD = adjectives(
    "cansado tired, feliz happy, triste sad, doente sick, ocupado busy, preocupado worried, "
    "pronto ready, nervoso nervous, calmo calm, atrasado late, sozinho alone, acordado awake, "
    "animado excited, surpreso surprised, zangado angry, entediado bored, perdido lost, "
    "com_fome hungry, com_sede thirsty, com_sono sleepy, com_pressa in a hurry, com_medo afraid"
)
STATE = {  # of things, by kind
    "opening": adjectives("aberto open, fechado closed"),
    "object": adjectives("quebrado broken, limpo clean, sujo dirty, molhado wet, seco dry"),
    "clothes": adjectives("limpo clean, sujo dirty, molhado wet, seco dry, rasgado torn"),
    "food": adjectives("quente hot, frio cold, pronto ready, delicioso delicious"),
    "place": adjectives("cheio crowded, vazio empty, aberto open, fechado closed, limpo clean"),
}
NATIONALITY = adjectives(
    "brasileiro Brazilian, português Portuguese, francês French, inglês English, "
    "alemão/alemã/alemães/alemãs German, italiano Italian, japonês Japanese, "
    "espanhol/espanhola/espanhóis/espanholas Spanish, americano American, mexicano Mexican"
)
