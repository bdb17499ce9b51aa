#!/usr/bin/env bash
# Asks a translator's server ordinary and hostile texts, over gRPC and REST, and says pass or fail:
#
#   serving/deploy/smoke.sh tensorflow/serving:2.20.0 RUN_FOLDER
#   serving/deploy/smoke.sh http://127.0.0.1:8501 [GRPC_HOST:PORT] [MODEL] [FOLDER_OF_VERSIONS]
#
# The first form tests an image with docker: it exports the run in float32 and in int8, starts a
# container for each with the flags and limits of compose.yaml, and also checks that the container
# replays the warm-up and computes in int8. It removes what it has made.
#
# The second form asks a server that runs. gRPC is asked on port 8500 of the same host unless another
# address is given; "-" skips it. With the server's folder of versions, which it writes to, it also
# adds a broken version and a good one, and takes both away again.
#
# BATCHING=true tests batching. It leaves out the requests that stop a server that batches, or fail
# those of others: one without a text, and one of two dimensions.
#
# Needs curl, and Python with this project (PYTHON=.venv/bin/python).
# Exit status: the number of checks that failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
serving=$(dirname "$here")
python=${PYTHON:-python3}
failed=0
patience=${PATIENCE:-30} # seconds in which a version must load, on a machine that is not busy
: "${CPUS:=$(nproc)}"
# Those of compose.yaml.
flags=(
  --port=8500
  --rest_api_port=8501
  --model_config_file=/config/models.config
  --model_config_file_poll_wait_seconds=10
  --allow_version_labels_for_unavailable_models=true
  --enable_batching=${BATCHING:-false}
  --enable_per_model_batching_parameters=${BATCHING:-false}
  --num_load_threads=2
  --grpc_max_threads=128
  --monitoring_config_file=/config/monitoring.config
  --enable_grpc_healthcheck_service=true
  --rest_api_timeout_in_ms=30000
  --tensorflow_intra_op_parallelism=1
  --tensorflow_inter_op_parallelism=${CPUS}
)

say() { # say NAME COMMAND...: runs the command, prints pass or fail
  local name=$1
  shift
  if "$@"; then echo "pass  $name"; else echo "FAIL  $name"; failed=$((failed + 1)); fi
}

rest() { # rest STATUS PATTERN BODY [SUFFIX]: the status and a pattern of the answer on one line
  local answer status
  answer=$(printf %s "$3" | curl -sS -m 60 -w '\n%{http_code}' --data-binary @- "$url/v1/models/$model${4:-:predict}" 2>&1)
  status=${answer##*$'\n'}
  [ "$status" = "$1" ] && printf %s "${answer%$'\n'*}" | tr -d '\n' | grep -Eq -- "$2" && return
  printf '      expected %s and %s. Received: %.300s\n' "$1" "$2" "$(printf %s "$answer" | tr '\n' ' ')"
  return 1
}

texts() { # texts N: short and long ones, as in a JSON list
  local n
  for n in $(seq "$1"); do
    printf '%s"%s"' "$([ "$n" = 1 ] || echo ', ')" "$(printf 'O gato %.0s' $(seq $((n * 7 % 13 + 1))))"
  done
}

with_terms() { # with_terms TERMS: a request for one text; the terms are a JSON string
  echo "{\"signature_name\": \"translate_with_terms\", \"inputs\": {\"text\": [\"O gato dorme.\"], \"terms\": [$1]}}"
}

available() { # available [VERSION]
  curl -sS -m 30 "$url/v1/models/$model" | tr -d ' \n' | grep -Eq "\"version\":\"${1:-[0-9]+}\",\"state\":\"AVAILABLE\""
}

within() { # within SECONDS COMMAND...: tries the command until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.5
  done
}

together() { # together SIGNATURE INPUTS...: a request for each, all at once, of which none fails
  local signature=$1 inputs calls=() call bad=0
  shift
  for inputs in "$@"; do
    rest 200 '"outputs"' "{\"signature_name\": \"$signature\", \"inputs\": $inputs}" &
    calls+=($!)
  done
  for call in "${calls[@]}"; do wait "$call" || bad=1; done
  return $bad
}

beside_others() { # beside_others INPUTS...: good ones are answered while one of two dimensions is not
  local others refused
  together translate "$@" &
  others=$!
  rest 400 error '{"inputs": {"text": [["a"]]}}'
  refused=$?
  wait "$others" && [ "$refused" = 0 ]
}

change_versions() { # change_versions FOLDER: a broken version, then a good one, then the old one
  local old broken good
  old=$(ls "$1" | grep -xE '[0-9]+' | sort -n | tail -n 1)
  broken=$((old + 1))
  good=$((old + 2))
  mkdir "$1/smoke" && echo broken >"$1/smoke/saved_model.pb" && mv "$1/smoke" "$1/$broken"
  sleep 2 # the server looks every second
  say "a broken version leaves the old one serving" available "$old"
  cp -r "$1/$old" "$1/smoke" && mv "$1/smoke" "$1/$good"
  say "a good version after a broken one serves within $patience s" within "$patience" available "$good"
  rm -r "${1:?}/$broken" "$1/$good"
  say "the old version serves again within $patience s" within "$patience" available "$old"
}

ask() { # ask NAME TEXT: one translation by rows and by columns; the text is inside of JSON quotes
  say "REST, $1, columns" rest 200 '"translation"' "{\"inputs\": {\"text\": [\"$2\"]}}"
  say "REST, $1, rows" rest 200 '"translation"' "{\"instances\": [\"$2\", \"bom dia\"]}"
}

ask_server() { # ask_server URL [GRPC_HOST:PORT] [MODEL] [FOLDER_OF_VERSIONS]
  local rpc host lines client count signature several
  url=${1%/}
  host=${url#*://}
  host=${host%%/*}
  rpc=${2:-${host%:*}:8500}
  model=${3:-default}
  say "the model is available" available
  ask "a sentence" "O gato está na mesa."
  ask "an empty text" ""
  ask "emoji and right-to-left" "🙂 שלום"
  ask "control characters" '\u0000\n\t\u0007'
  ask "marks and markup" '<s></s> [MASK] <unk> ▁▁ \" \\'
  ask "a combining flood" "$(printf 'e\xcc\x81%.0s' $(seq 500))"
  ask "a word of 20,000 letters" "$(printf 'a%.0s' $(seq 20000))"
  say "REST, bytes that are no UTF-8" rest 200 '"translation"' '{"inputs": {"text": [{"b64": "/8OA"}]}}'
  say "REST, 64 texts" rest 200 '"translation"' "{\"inputs\": {\"text\": [$(texts 64)]}}"
  say "REST, n-best" rest 200 '"translations"' '{"signature_name": "translate_nbest", "inputs": ["bom dia"]}'
  say "REST, no JSON" rest 400 error '{"inputs": '
  say "REST, a number for a text" rest 400 error '{"inputs": {"text": [1]}}'
  say "REST, an unknown signature" rest 400 error '{"signature_name": "none", "inputs": ["a"]}'
  say "REST, an unknown model" rest 404 error '{"inputs": ["a"]}' "-none:predict"

  several=()
  for count in 1 7 2 40 3 24 1 30; do several+=("{\"text\": [$(texts $count)]}"); done
  for signature in translate translate_nbest translate_document explain; do
    say "eight callers of $signature at once" together "$signature" "${several[@]}"
  done
  if [ "${BATCHING:-false}" = false ]; then
    say "REST, no text, columns" rest 200 '"translation": *\[ *\]' '{"inputs": {"text": []}}'
    say "REST, no text, rows" rest 400 error '{"instances": []}'
    say "two dimensions, beside eight callers" beside_others "${several[@]}"
  fi
  if rest 200 translation "$(with_terms '"gato\tCAT"')" >/dev/null; then
    say "the terms of a text" rest 200 'CAT' "$(with_terms '"gato\tCAT"')"
    say "eight callers with terms of different number at once" together translate_with_terms \
      '{"text": ["O gato."], "terms": ["gato\tCAT"]}' '{"text": ["O gato."], "terms": [""]}' \
      '{"text": ["O gato.", "A mesa."], "terms": ["gato\tCAT\nO\tTHE\nmesa\tDESK", "mesa\tDESK"]}' \
      '{"text": ["O gato."], "terms": ["no term"]}' '{"text": ["a", "b"], "terms": ["\t", "\u0000"]}' \
      '{"text": ["Bom dia."], "terms": ["bom dia\tHELLO"]}' '{"text": [""], "terms": ["a\tb"]}' \
      '{"text": ["O gato preto."], "terms": ["gato preto\tBLACK CAT\ngato\tCAT\npreto\tBLACK"]}'
  else
    echo "skip  terms: the model has no slots for them"
  fi

  if [ "$rpc" != - ]; then
    lines=$(printf '%s\n' "O gato está na mesa." "" "🙂 שלום" "$(printf 'a%.0s' $(seq 20000))" $'\xff\xc3\x80')
    client=("$python" "$serving/client.py" --server "$rpc" --model)
    count=$(printf '%s\n' "$lines" | "${client[@]}" "$model" 2>/dev/null | wc -l)
    say "gRPC, five texts have five answers" test "$count" -eq 5
    say "gRPC, an unknown model" test "$("${client[@]}" none um >/dev/null 2>&1; echo $?)" = 4
  fi
  [ -z "${4:-}" ] || change_versions "$4"
  say "the model is still available" available
}

test_image() { # test_image IMAGE RUN_FOLDER
  local precision
  work=$(mktemp -d)
  container=
  trap 'docker rm --force "$container" >/dev/null 2>&1; rm -rf "$work"' EXIT
  for precision in float32 int8; do
    echo "$1, $precision:"
    if "$python" "$serving/export.py" "$2" --output "$work/$precision" --precision "$precision" --no_check; then
      [ "$precision" = float32 ] ||
        say "the graph computes in int8: _QuantizedMatMul" grep -q _QuantizedMatMul "$work/int8/1/saved_model.pb"
      ask_container "$1" "$work/$precision"
    else
      say "an export in $precision" false
    fi
  done
}

ask_container() { # ask_container IMAGE FOLDER
  if ! container=$(
    docker run --detach --init --publish 127.0.0.1::8500 --publish 127.0.0.1::8501 \
      --user "$(id -u):$(id -g)" --read-only --tmpfs /tmp --cap-drop ALL \
      --security-opt no-new-privileges:true --memory 4g --cpus "$CPUS" --pids-limit 1000 \
      --mount "type=bind,source=$2,target=/models/default,readonly" \
      --mount "type=bind,source=$here/config,target=/config,readonly" \
      --entrypoint tensorflow_model_server "$1" "${flags[@]}"
  ); then
    say "the container starts" false
    return
  fi
  url=http://$(docker port "$container" 8501/tcp | head -n 1)
  model=default
  if loads; then
    ask_server "$url" "$(docker port "$container" 8500/tcp | head -n 1)" default "$2"
    if [ "${BATCHING:-false}" = true ]; then
      say "requests are batched" batched
      say "more texts than a batch has are refused" rest 400 65 "{\"inputs\": {\"text\": [$(texts 65)]}}"
    fi
  else
    say "the container loads the model in two minutes" false
  fi
  docker logs "$container" >"$work/log" 2>&1
  say "the warm-up was replayed" grep -Eq 'warmup records read: [1-9]' "$work/log"
  [ "$failed" = 0 ] || tail -n 30 "$work/log"
  docker rm --force "$container" >/dev/null
}

loads() {
  for _ in $(seq 120); do
    available 2>/dev/null && return
    [ -n "$(docker ps --quiet --no-trunc --filter "id=$container")" ] || return 1
    sleep 1
  done
  return 1
}

batched() {
  curl -sS -m 30 "$url/monitoring/prometheus/metrics" | grep -Eq ':batching_session:wrapped_run_count.* [1-9]'
}

case ${1:?usage: smoke.sh IMAGE RUN_FOLDER, or URL [GRPC_HOST:PORT] [MODEL] [FOLDER]} in
  http://* | https://*) ask_server "$@" ;;
  *) test_image "$1" "${2:?RUN_FOLDER is missing: the folder of a trained translator}" ;;
esac
if [ "$failed" = 0 ]; then echo "pass: every check"; else echo "FAIL: $failed"; fi
exit "$failed"
