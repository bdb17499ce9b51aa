"""Why the surviving mutants survive."""

FUSED = "fused kernels are JAX's and torch's: `.ci/run` tests them on JAX"
SPEED = "decides how fast, not what: either way gives the same ids"
DOT_PRODUCT = "keras_tfmr/layers/dot_product.py fused_attention"
REASONS = {
    f"{DOT_PRODUCT}: `0` → `1`": FUSED,
    f"{DOT_PRODUCT}: `0` → `1` (2)": FUSED,
    f"{DOT_PRODUCT}: `0` → `1` (3)": FUSED,
    f"{DOT_PRODUCT}: `0` → `1` (4)": FUSED,
    "keras_tfmr/decoding/topk.py _group_size: `n >= 1024` → `n > 1024`": SPEED,
}
