"""LoRA on a published model: twelve sentence pairs teach a translator the style of a house.

It learns to write "He is not" where it wrote "He's not". LoRA trains two small matrices beside each
projection of queries and of values in the attention; the model itself stays as it is.

`PRESET` is a model of OPUS-MT on the Hugging Face Hub (`pip install huggingface-hub`), or a folder.
We have never loaded the published weights: the output below is that of "runs/phrasebook", which
README's main command trains.
"""

import keras
import numpy as np

from keras_tfmr import LabelSmoothedCrossEntropy, Translator

PRESET, EPOCHS = "hf://Helsinki-NLP/opus-mt-ROMANCE-en@refs/pr/4", 40
keras.utils.set_random_seed(1)

# Data
PAIRS = [
    ("Ela é médica.", "She is a doctor."),
    ("Ele não está no restaurante.", "He is not at the restaurant."),
    ("Eles são meus amigos.", "They are my friends."),
    ("Eu não sei.", "I do not know."),
    ("Ela não quer dormir.", "She does not want to sleep."),
    ("Não consigo ver o mar.", "I cannot see the sea."),
    ("O Tom não foi à escola ontem.", "Tom did not go to school yesterday."),
    ("Nós estamos cansados.", "We are tired."),
    ("Eu sou professor.", "I am a teacher."),
    ("Maria não vai comprar pão.", "Maria is not going to buy bread."),
    ("Os meninos não gostam de peixe.", "The boys do not like fish."),
    ("O gato não estava na cama.", "The cat was not on the bed."),
]
sources, targets = zip(*PAIRS, strict=True)

# Model
translator = Translator.from_preset(PRESET)
texts = ["A minha mãe não gosta de gatos.", "Eles não leram o livro.", "Não estamos prontos."]
before = translator.translate(texts)
model = translator.model
model.enable_lora(rank=8)  # and freeze the rest

# Training: the decoder sees the tokens before each one.
source_ids, _ = translator.source_tokenizer.encode_truncated(sources, max_length=64)
tokenizer = translator.target_tokenizer
labels = tokenizer.encode_truncated(targets, max_length=64)[0].numpy()  # [pairs, longest]
inputs = np.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=tokenizer.bos_id)
model.compile(keras.optimizers.Adam(0.003), LabelSmoothedCrossEntropy())
model.fit([source_ids.numpy(), inputs], labels, batch_size=6, epochs=EPOCHS, verbose=2)

# Results on other sentences, printed below. `translator.export(folder)` merges LoRA.
trained = sum(np.prod(weight.shape) for weight in model.trainable_weights)
print(f"{trained:,} of {model.count_params():,} weights were trained")
for old, new in zip(before, translator.translate(texts), strict=True):
    print(f"{old} -> {new}")

# 58,752 of 4,707,072 weights were trained
# My mother doesn't like cats. -> My mother does not like cats.
# They didn't read the book. -> They did not read the book.
# We're not ready. -> We are not ready.
