"""The form in which transformers saves a MarianMTModel, as OPUS-MT's models are published.

Such a folder holds `config.json`, `generation_config.json`, `model.safetensors`, `vocab.json` (and
`target_vocab.json` if each language has its own), `source.spm` and `target.spm`. `folder` reads it,
`keras_tfmr.export.marian_mt` writes it, and both have the names of the weights from `weights`.
"""
