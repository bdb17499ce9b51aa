"""Models that take strings and return strings: translators, classifiers, completers.

Enters: texts, and a Keras model with its tokenizers. Leaves: answers. This room stands on all
others but the client: a text model loads itself by `presets` and writes itself by `presets` and
`export`, which know none of its classes, only what it is asked.

    text_models ──> presets ──┐
         │                    ├──> text, faster, models, decoding
         ├──────> export ─────┘
         └──────> signatures
"""
