"""Tiny GPT: a decoder-only language model that writes English sentences.

A causal decoder with pre-norm and GELU, as in GPT-2, learns to predict the next subword of 20,000
English sentences of the built-in phrasebook. A `LanguageModel` is a `keras.Model` that can be
decoded: `generate` goes on with prompts, token by token, with caches of keys and values.
"""

import gzip
from pathlib import Path

import keras
import numpy as np

from keras_tfmr import LanguageModel, SubwordTokenizer
from keras_tfmr.decoding import Sampling
from keras_tfmr.layers import CausalDecoder, LMHead, PositionalEmbedding
from keras_tfmr.losses import LabelSmoothedCrossEntropy

SENTENCES, EPOCHS = 20_000, 3
keras.utils.set_random_seed(1)

# Data: lines of a Portuguese sentence, its English translation, and its type.
data = gzip.decompress(Path("training/phrasebook/train.tsv.gz").read_bytes()).decode()
texts = [line.split("\t")[1] for line in data.splitlines()[:SENTENCES]]

# Tokens: subwords, an end ID, and 0 for padding. The model sees the tokens before each one.
tokenizer = SubwordTokenizer.learn(texts, vocab_size=2000)
labels = tokenizer.encode_truncated(texts, max_length=16)[0].numpy()  # [texts, 16]
inputs = np.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=tokenizer.bos_id)

# Model
token_ids = keras.Input((None,), dtype="int32", name="token_ids")
x = PositionalEmbedding(tokenizer.vocab_size, d_model=128)(token_ids)  # [batch, length, 128]
x = CausalDecoder(
    num_layers=2, d_model=128, num_heads=4, dff=512, norm_first=True, activation="gelu"
)(x)
model = LanguageModel(token_ids, LMHead(tokenizer.vocab_size)(x))

# Training: the loss leaves padding out.
model.compile(keras.optimizers.Adam(0.002), LabelSmoothedCrossEntropy())
model.fit(inputs, labels, batch_size=64, epochs=EPOCHS, verbose=2)

# Results, printed below: two sentences drawn after each prompt, which begins with the start ID.
prompts = [prompt for prompt in ("My sister", "Where", "I would like") for _ in range(2)]
ids = tokenizer.encode(prompts).to_tensor().numpy()  # [prompts, longest], padded with 0
ids = np.pad(ids, [[0, 0], [1, 0]], constant_values=tokenizer.bos_id)
sampling = Sampling(seed=1, temperature=0.7)
result = model.generate(ids, eos_id=tokenizer.eos_id, max_length=16, sampling=sampling)
for text in tokenizer.decode(result.ids[:, 0]).numpy():
    print(text.decode())

# My sister almost went without stopping.
# My sister isn't going to drink coffee.
# Where is the newspaper?
# Where is the office?
# I would like to dance.
# I would like to listen to music.
