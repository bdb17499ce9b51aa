"""A translator of your own sentence pairs, served.

It learns from a file with one `source<TAB>target` a line: put yours in the place of `PAIRS`. The
export has tokenizer, model and search in one SavedModel. The development server loads it, as
TensorFlow Serving would, and the client asks it over gRPC.
"""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np

from keras_tfmr import SubwordTokenizer, Transformer, TransformerConfig, Translator
from keras_tfmr.client import ServingClient
from keras_tfmr.losses import LabelSmoothedCrossEntropy

PAIRS, EPOCHS, PORT = "training/phrasebook/pairs.tsv", 12, 8500
keras.utils.set_random_seed(1)

# Data: one vocabulary for both languages. The decoder sees the tokens before each one.
lines = Path(PAIRS).read_text(encoding="utf-8").splitlines()
sources, targets = zip(*(line.split("\t") for line in lines), strict=True)
tokenizer = SubwordTokenizer.learn([*sources, *targets], vocab_size=2000)
source_ids, _ = tokenizer.encode_truncated(sources, max_length=16)  # int32 [pairs, longest]
labels = tokenizer.encode_truncated(targets, max_length=16)[0].numpy()
inputs = np.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=tokenizer.bos_id)

# Model and training: a ready model; one of your own layers is a `TranslationModel`.
size = tokenizer.vocab_size
config = TransformerConfig(
    source_vocab=size, target_vocab=size, encoder_layers=2, decoder_layers=2, d_model=96,
    num_heads=4, dff=384, norm_first=True,
)  # fmt: skip
model = Transformer(config)
model.compile(keras.optimizers.Adam(0.002), LabelSmoothedCrossEntropy())
model.fit([source_ids.numpy(), inputs], labels, batch_size=32, epochs=EPOCHS, verbose=2)

# Export and server: it serves the newest version in the folder.
Translator(model, tokenizer).export("models/own_pairs")
command = [sys.executable, "serving/server.py", "--model_base_path=models/own_pairs"]
command += [f"--port={PORT}", "--rest_api_port=0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

# Client. None of these sentences is among the pairs; the answers are printed below.
texts = ["O gato está na mesa.", "Onde fica a estação?", "Como está o seu pai?"]
try:
    server.stdout.readline()  # once it serves
    with ServingClient(f"127.0.0.1:{PORT}") as client:
        for text, translation in zip(texts, client.translate(texts), strict=True):
            print(f"{text} -> {translation}")
finally:
    server.terminate()
    server.communicate()

# O gato está na mesa. -> The cat is on the table.
# Onde fica a estação? -> Where's the station?
# Como está o seu pai? -> How is your father?
