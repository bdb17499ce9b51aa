"""Why the surviving mutants survive."""

FUSED = "fused kernels are JAX's and torch's: `.ci/run` tests them on JAX"
SPEED = "decides how fast, not what: either way gives the same ids"
SAME = "the same function: "
DECODING = "keras_tfmr/decoding/"
ATTENTION = "keras_tfmr/layers/attention.py"
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
    f"{ATTENTION} attend: `self.dropout(scores, training=training)` → `self.dropout(scores)`": (
        f"{SAME}Keras hands on what the outer call was given"
    ),
    f"{DECODING}topk.py _group_size: `n >= 1024` → `n > 1024`": SPEED,
    f"{DECODING}topk.py relative: `2` → `3`": f"{SAME}exp() of either bound is 0",
    f"{DECODING}topk.py threshold: `0` → `1` (3)": (
        f"{SAME}after 30 halvings the bounds differ by rounding"
    ),
    f"{DECODING}topk.py top_k: `ops.take(best, inside // size + offsets(rows, k), axis=0)` → "
    "`ops.take(best, inside // size + offsets(rows, k))`": f"{SAME}a tensor of one axis",
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
