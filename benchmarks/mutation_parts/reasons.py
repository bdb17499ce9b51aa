"""Why the surviving mutants survive."""

FUSED = "fused kernels are JAX's and torch's: `.ci/run` tests them on JAX"
SPEED = "decides how fast, not what: either way gives the same ids"
SAME = "the same function: "
TWICE = f"{SAME}what is silenced twice"
DECODING = "keras_tfmr/decoding/"
ATTENTION = "keras_tfmr/layers/attention.py"
BATCHING = "serving/devserver/batching.py"
DOT_PRODUCT = "keras_tfmr/layers/dot_product.py fused_attention"
REASONS = {
    f"{DOT_PRODUCT}: `0` → `1`": FUSED,
    f"{DOT_PRODUCT}: `0` → `1` (2)": FUSED,
    f"{DOT_PRODUCT}: `0` → `1` (3)": FUSED,
    f"{DOT_PRODUCT}: `0` → `1` (4)": FUSED,
    f"{DOT_PRODUCT}: `3` → `4` (4)": FUSED,
    f"{ATTENTION} _fused: `not (training and self.dropout_rate > 0)` → "
    "`not not (training and self.dropout_rate > 0)`": FUSED,
    f"{ATTENTION} attend: `attention_mask(may_attend)._replace(attends=None)` → "
    "`attention_mask(may_attend)._replace()`": f"{SAME}a causal mask leaves no query without keys",
    f"{DOT_PRODUCT}: `mask is None` → `mask is not None`": FUSED,
    "keras_tfmr/layers/dot_product.py has_fused_attention: "
    "`return keras.backend.backend() in FUSED_BACKENDS` → `return None`": FUSED,
    f"{ATTENTION} _fused: `self.key_dim == self.value_dim and self.compute_dtype != 'float16'` → "
    "`self.key_dim == self.value_dim or self.compute_dtype != 'float16'`": FUSED,
    f"{ATTENTION} attend: `mask._replace(attends=None)` → `mask._replace()`": TWICE,
    f"{ATTENTION} memory: `mask._replace(attends=None)` → `mask._replace()`": TWICE,
    f"{ATTENTION} build: `True` → `False`": f"{SAME}Keras sets `built` too",
    "training/run/checkpoints.py value_of: `if isinstance(variable, np.ndarray):` → "
    "`if not isinstance(variable, np.ndarray):`": (
        f"{SAME}NumPy reads a variable; those of several devices are tested elsewhere"
    ),
    "training/run/checkpoints.py save: `old.unlink(missing_ok=True)` → `old.unlink()`": (
        "somebody else would have to delete the file in that instant"
    ),
    f"{BATCHING} close: `self._pool.shutdown()` → `None`": "the threads end with the process",
    f"{BATCHING} run_batch: `:-1` → `:`": f"{SAME}an empty part at the end, which nobody takes",
    f"{BATCHING} _results: `task.future.cancel()` → `None`": (
        "a result for which nobody waits; `drop` frees the room"
    ),
    f"{ATTENTION} project_self: `zip((y[..., :ends[0]], y[..., ends[0]:ends[1]], "
    "y[..., ends[1]:]), (self.key_dim, self....` → `zip((y[..., :ends[0]], "
    "y[..., ends[0]:ends[1]], y[..., ends[1]:]), (self.key_dim, self....`": (
        f"{SAME}`strict` for two tuples of three"
    ),
    f"{DECODING}constraints.py Task: `1` → `2`": "no caller left it out: the default has gone",
    f"{DECODING}topk.py _group_size: `n * rows >= 1024` → `n * rows > 1024`": SPEED,
    f"{DECODING}topk.py relative: `2` → `3`": f"{SAME}exp() of either bound is 0",
    f"{DECODING}topk.py threshold: `0` → `1` (3)": (
        f"{SAME}after 30 halvings the bounds differ by rounding"
    ),
    f"{DECODING}constraints.py __init__: `1` → `2`": f"{SAME}one more column of padding",
    f"{DECODING}constraints.py take: `ops.take(self.start_ids, examples, axis=0)` → "
    "`ops.take(self.start_ids, examples)`": f"{SAME}a tensor of one axis",
    f"{DECODING}constraints.py take: `ops.take(self.limits, examples, axis=0)` → "
    "`ops.take(self.limits, examples)`": f"{SAME}a tensor of one axis",
    f"{DECODING}beam.py start: `ops.repeat(self.task.start_ids, self.beams, axis=0)` → "
    "`ops.repeat(self.task.start_ids, self.beams)`": f"{SAME}a tensor of one axis",
    f"{DECODING}beam.py start: `ops.convert_to_tensor(0, dtype='int32')` → "
    "`ops.convert_to_tensor(0)`": f"{SAME}int32 is the default",
    f"{DECODING}single.py __init__: `np.arange(task.max_length, dtype='int32')` → "
    "`np.arange(task.max_length)`": f"{SAME}compared with an int32 position",
    f"{DECODING}sampling.py choose: `ops.take(ops.take(noise, position, axis=0), rows, axis=0)` → "
    "`ops.take(ops.take(noise, position, axis=0), rows)`": f"{SAME}a tensor of one axis",
    f"{DECODING}sampling.py sample: `0` → `1`": f"{SAME}a hypothesis has at least one token",
    f"{DECODING}sampling.py draw_place: `-1` → `--1`": f"{SAME}the last of two axes",
    f"{DECODING}scoring.py score: `-1` → `--1` (2)": f"{SAME}the last of two axes",
}
