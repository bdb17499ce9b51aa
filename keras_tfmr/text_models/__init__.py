"""Models that take strings and return strings: translators, classifiers, completers.

Enters: texts, and a Keras model with its tokenizers. Leaves: answers. This room stands on all
others except the client: `presets` loads and saves a text model, `export` writes it for servers,
and neither knows its class.

    text_models ──> presets ──┐
         │                    ├──> text, faster, models, decoding
         ├──────> export ─────┘
         └──────> signatures
"""
