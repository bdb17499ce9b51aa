#!/usr/bin/env bash
# Starts TensorFlow Serving with a folder for the programs that XLA compiles, so that the next start
# finds them: $XLA_CACHE/KEY, or a temporary folder if that cannot be written. Matching programs in
# the exports under $MODELS are copied there first. KEY is that of
# keras_tfmr/export/compile_cache.py; it keeps programs for other processors apart, about which
# TensorFlow would only warn.
set -u
version=$(tensorflow_model_server --version | sed -n 's/^TensorFlow Library: //p')
features=$(grep -m1 -E '^(flags|Features)[[:space:]]*:' /proc/cpuinfo |
  sed 's/^[^:]*:[[:space:]]*//; s/[[:space:]]*$//')
key=$version-$(uname -m)-$(printf %s "$features" | sha256sum | cut -c1-16)
cache=${XLA_CACHE:-/cache}/$key
if ! mkdir -p "$cache" 2>/dev/null || [ ! -w "$cache" ]; then
  cache=$(mktemp -d)
fi
if [ -n "$version" ] && [ -n "$features" ] && [ -w "$cache" ]; then
  for program in "${MODELS:-/models}"/*/*/assets.extra/xla_cache/"$key"/*.pb; do
    name=$(basename "$program")
    [ -f "$program" ] && [ ! -e "$cache/$name" ] &&
      cp "$program" "$cache/.$$-$name" && mv "$cache/.$$-$name" "$cache/$name"
  done
  export TF_XLA_FLAGS="${TF_XLA_FLAGS:-} --tf_xla_persistent_cache_directory=$cache"
fi
exec tensorflow_model_server "$@"
