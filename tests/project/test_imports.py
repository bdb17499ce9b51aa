"""What `import keras_tfmr` does: every public name, at little cost, and saved models that load."""

import os
import subprocess
import sys

import keras

import keras_tfmr


def printed(code, *words):
    """What a new process on JAX, which never imports TensorFlow, prints; it must succeed."""
    code = f"import sys; sys.modules['tensorflow'] = None\n{code}"
    command = [sys.executable, "-c", code, *map(str, words)]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_public_name_is_there():
    for name in dir(keras_tfmr):
        assert getattr(keras_tfmr, name) is not None
    for part in (keras_tfmr.layers, keras_tfmr.models):
        assert {*part.__all__} - {*dir(keras_tfmr)} <= {"AttentionScores"}


def test_the_client_imports_neither_keras_nor_tensorflow():
    code = """
before = set(sys.modules)
import keras_tfmr.client
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""
    (imported,) = printed(code)
    assert "keras_tfmr" in imported.split()
    assert not {"keras", "numpy", "training", "serving"} & {*imported.split()}


def test_keras_loads_a_compiled_model_where_only_the_models_are_imported(tmp_path):
    config = keras_tfmr.TransformerConfig.preset("tiny", source_vocab=9, target_vocab=9)
    model = keras_tfmr.Transformer(config)
    rate = keras_tfmr.NoamSchedule(32)
    model.compile(
        keras.optimizers.Adam(rate), keras_tfmr.LabelSmoothedCrossEntropy(),
        metrics=[keras_tfmr.TokenAccuracy()],
    )  # fmt: skip
    model.save(tmp_path / "model.keras")
    code = """
import keras_tfmr.models, keras
print(keras.models.load_model(sys.argv[1]).count_params())
"""
    assert printed(code, tmp_path / "model.keras") == [str(model.count_params())]
