"""The nouns and names of the phrasebook, by what can be done with them."""

from training.corpus.phrasebook.lists import words
from training.corpus.phrasebook.words import Phrase, nouns

FRUIT = nouns(
    "food",
    """
    maçã, f, apple
    banana, f, banana
    laranja, f, orange
    pera, f, pear
    manga, f, mango
    morango, m, strawberry
    tomate, m, tomato
    batata, f, potato
    cenoura, f, carrot
    cebola, f, onion
    limão, m, lemon
    abacaxi, m, pineapple
    melancia, f, watermelon
    pêssego, m, peach
    ovo, m, egg
    """,
)
DISH = nouns(
    "food",
    """
    sanduíche, m, sandwich
    bolo, m, cake
    pizza, f, pizza
    salada, f, salad
    sopa, f, soup
    sobremesa, f, dessert
    torta, f, pie
    pastel, m, pastry
    """,
)
FOOD = nouns(
    "food",
    """
    pão, m, bread
    arroz, m, rice
    queijo, m, cheese
    carne, f, meat
    peixe, m, fish
    frango, m, chicken
    manteiga, f, butter
    mel, m, honey
    chocolate, m, chocolate
    macarrão, m, pasta
    iogurte, m, yogurt
    sorvete, m, ice cream
    """,
    mass=True,
)
DRINK = nouns(
    "drink",
    """
    água, f, water
    café, m, coffee
    chá, m, tea
    leite, m, milk
    suco, m, juice
    suco de laranja, m, orange juice
    vinho, m, wine
    cerveja, f, beer
    limonada, f, lemonade
    """,
    mass=True,
)
MEAL = nouns(
    "meal",
    """
    jantar, m, dinner
    almoço, m, lunch
    café da manhã, m, breakfast
    """,
)
TEXT = nouns(
    "text",
    """
    livro, m, book
    jornal, m, newspaper
    revista, f, magazine
    romance, m, novel
    conto, m, short story
    artigo, m, article
    """,
)
WRITING = nouns(
    "text",
    """
    carta, f, letter
    poema, m, poem
    relatório, m, report
    mensagem, f, message
    lista, f, list
    história, f, story
    """,
)
CLOTHES = nouns(
    "clothes",
    """
    camisa, f, shirt
    camiseta, f, T-shirt
    vestido, m, dress
    casaco, m, coat
    jaqueta, f, jacket
    saia, f, skirt
    chapéu, m, hat
    gravata, f, tie
    sapato, m, shoe
    bota, f, boot
    cachecol, m, scarf
    meia, f, sock
    luva, f, glove
    cinto, m, belt
    blusa, f, blouse
    """,
)
OBJECT = nouns(
    "object",
    """
    chave, f, key
    relógio, m, watch
    caneta, f, pen
    lápis, m, pencil
    caderno, m, notebook
    mochila, f, backpack
    bolsa, f, bag
    carteira, f, wallet
    telefone, m, phone
    computador, m, computer
    câmera, f, camera
    guarda-chuva, m, umbrella
    mapa, m, map
    dicionário, m, dictionary
    passaporte, m, passport
    presente, m, gift
    brinquedo, m, toy
    bola, f, ball
    boneca, f, doll
    vela, f, candle
    espelho, m, mirror
    foto, f, photo
    quadro, m, painting
    martelo, m, hammer
    lanterna, f, flashlight
    """,
)
DISHES = nouns(
    "object",
    """
    copo, m, glass
    xícara, f, cup
    prato, m, plate
    faca, f, knife
    garfo, m, fork
    colher, f, spoon
    panela, f, pan
    tigela, f, bowl
    """,
)
CONTAINER = nouns(
    "object",
    """
    caixa, f, box
    mala, f, suitcase
    garrafa, f, bottle
    gaveta, f, drawer
    """,
)
STORAGE = tuple(noun for noun in CONTAINER if noun.en != "bottle")
OPENING = nouns(
    "opening",
    """
    porta, f, door
    janela, f, window
    portão, m, gate
    """,
)
FURNITURE = nouns(
    "object",
    """
    mesa, f, table
    cadeira, f, chair
    cama, f, bed
    sofá, m, couch
    estante, f, bookshelf
    tapete, m, rug
    lâmpada, f, lamp
    geladeira, f, refrigerator
    fogão, m, stove
    """,
)
SURFACE = tuple(noun for noun in FURNITURE if noun.en in ("table", "chair", "bed", "couch", "rug"))
VEHICLE = nouns(
    "vehicle",
    """
    carro, m, car
    bicicleta, f, bicycle
    caminhão, m, truck
    moto, f, motorcycle
    barco, m, boat
    """,
)
TRANSPORT = nouns(
    "transport",
    """
    ônibus, m, bus
    trem, m, train
    táxi, m, taxi
    avião, m, plane
    metrô, m, subway
    """,
)
ANIMAL = nouns(
    "animal",
    """
    gato, m, cat
    cachorro, m, dog
    cavalo, m, horse
    vaca, f, cow
    pássaro, m, bird
    coelho, m, rabbit
    tartaruga, f, turtle
    pato, m, duck
    porco, m, pig
    ovelha, f, sheep
    macaco, m, monkey
    leão, m, lion
    elefante, m, elephant
    borboleta, f, butterfly
    rato, m, mouse
    """,
)
PET = ANIMAL[:2] + ANIMAL[4:7]
ROOM = nouns(
    "place",
    """
    quarto, m, bedroom
    cozinha, f, kitchen
    banheiro, m, bathroom
    sala, f, living room
    garagem, f, garage
    varanda, f, balcony
    """,
)
HOME = nouns(
    "place",
    """
    casa, f, house
    apartamento, m, apartment
    """,
)
BRIDGE = nouns("place", "ponte, f, bridge\nmuro, m, wall\ntorre, f, tower")
PLANT = nouns("plant", "flor, f, flower\nárvore, f, tree\nrosa, f, rose")
SHOW = nouns(
    "show",
    """
    filme, m, movie
    jogo, m, game
    programa, m, show
    novela, f, soap opera
    documentário, m, documentary
    concerto, m, concert
    """,
)
SONG = nouns("show", "canção, f, song")
EVENT = nouns(
    "show",
    """
    festa, f, party
    aula, f, class
    viagem, f, trip
    reunião, f, meeting
    prova, f, test
    exposição, f, exhibition
    """,
)
BILL = nouns("bill", "conta, f, bill\naluguel, m, rent")

ADULT = nouns(
    "person",
    """
    homem, m, man
    mulher, f, woman
    professor, m, teacher
    professora, f, teacher
    médico, m, doctor
    médica, f, doctor
    vizinho, m, neighbor
    vizinha, f, neighbor
    cozinheiro, m, cook
    enfermeira, f, nurse
    engenheiro, m, engineer
    engenheira, f, engineer
    advogado, m, lawyer
    advogada, f, lawyer
    garçom, m, waiter
    garçonete, f, waitress
    motorista, m, driver
    dentista, f, dentist
    artista, f, artist
    cantor, m, singer
    cantora, f, singer
    escritor, m, writer
    escritora, f, writer
    jornalista, m, journalist
    fazendeiro, m, farmer
    """,
)
PROFESSION = ADULT[2:6] + ADULT[8:]
YOUNG = nouns(
    "person",
    """
    menino, m, boy
    menina, f, girl
    criança, f, child
    aluno, m, student
    aluna, f, student
    """,
)
FAMILY = nouns(
    "family",
    """
    pai, m, father
    mãe, f, mother
    irmão, m, brother, irmãos
    irmã, f, sister
    filho, m, son
    filha, f, daughter
    avô, m, grandfather
    avó, f, grandmother
    tio, m, uncle
    tia, f, aunt
    primo, m, cousin
    prima, f, cousin
    amigo, m, friend
    amiga, f, friend
    marido, m, husband
    esposa, f, wife
    """,
)
SINGLE = frozenset(words("father mother husband wife"))  # a person has only one of each


def phrases(text):
    return tuple(Phrase(*(part.strip() for part in line.split("="))) for line in text.split(","))


LANGUAGE = phrases(
    "português=Portuguese, inglês=English, espanhol=Spanish, francês=French, alemão=German, "
    "italiano=Italian, japonês=Japanese, chinês=Chinese, russo=Russian"
)
SUBJECT = phrases(
    "matemática=math, história=history, biologia=biology, física=physics, química=chemistry, "
    "geografia=geography, literatura=literature, filosofia=philosophy, música=music, arte=art"
)
INSTRUMENT = phrases(
    "piano=the piano, violão=the guitar, violino=the violin, flauta=the flute, trompete=the trumpet"
)
SPORT = phrases(
    "futebol=soccer, vôlei=volleyball, basquete=basketball, tênis=tennis, xadrez=chess, "
    "cartas=cards"
)
SOUND = phrases("música=music, o rádio=the radio, as notícias=the news, o vento=the wind")
CITY = phrases(
    "Lisboa=Lisbon, São Paulo=São Paulo, o Rio de Janeiro=Rio de Janeiro, o Recife=Recife, "
    "Londres=London, Paris=Paris, Nova York=New York, Salvador=Salvador, Coimbra=Coimbra, "
    "Roma=Rome, o Porto=Porto, Madri=Madrid, Berlim=Berlin, Tóquio=Tokyo"
)
COUNTRY = phrases(
    "o Brasil=Brazil, Portugal=Portugal, a França=France, a Itália=Italy, a Espanha=Spain, "
    "a Inglaterra=England, o Japão=Japan, a Alemanha=Germany, o Canadá=Canada, "
    "a Argentina=Argentina, o México=Mexico, os Estados Unidos=the United States, "
    "Angola=Angola, a China=China, a Índia=India"
)
WOMEN = tuple(words("Ana Maria Beatriz Carla Helena Júlia Laura Sofia Teresa Luísa"))
MEN = tuple(words("Pedro João Carlos Daniel Paulo Rafael Miguel Tiago Bruno André"))
