"""Pictures to words: a convolution reads a picture, a decoder writes what is in it.

The source of a `TranslationModel` need not be text. Here it is a picture of one to three shapes on
noise, drawn by this script; the decoder attends to features of a convolution while it writes.
"""

import keras
import numpy as np

from keras_tfmr import TranslationModel
from keras_tfmr.layers import AddPositions, Decoder, LMHead, PositionalEmbedding
from keras_tfmr.losses import LabelSmoothedCrossEntropy

EPOCHS = 12
keras.utils.set_random_seed(1)

# Tokens: a word's ID is its place in the list. ID 0 is padding.
words = ["", "<start>", "<end>", "red", "green", "blue", "square", "ring", "cross"]
START, END, COLOURS, SHAPES = 1, 2, 3, 6

# Data: pictures, and captions that name the shapes from left to right.
row, column = np.abs(np.mgrid[-1:2, -1:2])
shapes = [row < 2, row + column > 0, row * column == 0]  # bool [3, 3]: square, ring, cross
rng = np.random.default_rng(6)
pictures, labels = rng.uniform(0, 0.4, (4200, 4, 12, 3)), np.zeros((4200, 7), "int32")
for picture, label in zip(pictures, labels, strict=True):
    count = rng.integers(1, 4)
    for place in range(count):
        colour, shape, y, x = rng.integers(0, [3, 3, 2, 2])
        picture[y : y + 3, 4 * place + x : 4 * place + x + 3][shapes[shape], colour] = 1
        label[2 * place : 2 * place + 2] = COLOURS + colour, SHAPES + shape
    label[2 * count] = END
inputs = np.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=START)  # the words before

# Model
image = keras.Input((4, 12, 3), name="image")
target_ids = keras.Input((None,), dtype="int32", name="target_ids")
context = keras.layers.Conv2D(64, kernel_size=4, activation="relu")(image)  # [batch, 1, 9, 64]
context = AddPositions(d_model=64)(keras.layers.Reshape((9, 64))(context))
x = PositionalEmbedding(len(words), d_model=64)(target_ids)
x = Decoder(num_layers=1, d_model=64, num_heads=4, dff=128)(x, context)
model = TranslationModel([image, target_ids], LMHead(len(words))(x))

# Training
model.compile(keras.optimizers.Adam(0.002), LabelSmoothedCrossEntropy())
model.fit([pictures[200:], inputs[200:]], labels[200:], batch_size=64, epochs=EPOCHS, verbose=2)

# Results on pictures that the model has not seen, printed below
found = np.array(model.generate(pictures[:200], bos_id=START, eos_id=END, max_length=7).ids[:, 0])
print(f"{(found == labels[:200]).all(axis=1).mean():.0%} of 200 captions are right")
for line in pictures[0]:
    print("".join("rgb"[pixel.argmax()] if pixel.max() == 1 else "." for pixel in line))
print(" ".join(words[i] for i in found[0] if i > END))

# 100% of 200 captions are right
# .....rrrbbb.
# .ggg.rrrb.b.
# .g.g.rrrbbb.
# .ggg........
# green ring red square blue ring
