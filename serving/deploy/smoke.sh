#!/usr/bin/env bash
# Asks a server of a translator, over gRPC and REST, ordinary and hostile texts, and says pass or fail:
#
#   serving/deploy/smoke.sh http://127.0.0.1:8501 [GRPC_HOST:PORT] [MODEL]
#
# gRPC is asked on port 8500 of the same host unless a second argument names another address; "-"
# skips it. Needs curl, and Python with this project for gRPC (PYTHON=.venv/bin/python).
# Exit status: the number of checks that failed.
set -u
url=${1:?usage: smoke.sh URL [GRPC_HOST:PORT] [MODEL]}
url=${url%/}
host=${url#*://}
host=${host%%/*}
rpc=${2:-${host%:*}:8500}
model=${3:-default}
folder=$(cd "$(dirname "$0")/../.." && pwd)
failed=0

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

available() {
  curl -sS -m 30 "$url/v1/models/$model" | tr -d ' \n' | grep -q '"state":"AVAILABLE"'
}

ask() { # ask NAME TEXT: one translation by rows and by columns; the text is inside of JSON quotes
  say "REST, $1, columns" rest 200 '"translation"' "{\"inputs\": {\"text\": [\"$2\"]}}"
  say "REST, $1, rows" rest 200 '"translation"' "{\"instances\": [\"$2\", \"bom dia\"]}"
}

say "the model is available" available
ask "a sentence" "O gato está na mesa."
ask "an empty text" ""
ask "emoji and right-to-left" "🙂 שלום"
ask "control characters" '\u0000\n\t\u0007'
ask "marks and markup" '<s></s> [MASK] <unk> ▁▁ \" \\'
ask "a combining flood" "$(printf 'e\xcc\x81%.0s' $(seq 500))"
ask "a word of 20,000 letters" "$(printf 'a%.0s' $(seq 20000))"
say "REST, bytes that are no UTF-8" rest 200 '"translation"' '{"inputs": {"text": [{"b64": "/8OA"}]}}'
say "REST, a hundred texts" rest 200 '"translation"' \
  "{\"inputs\": {\"text\": [$(printf '"bom dia", %.0s' $(seq 99))\"fim\"]}}"
say "REST, n-best" rest 200 '"translations"' '{"signature_name": "translate_nbest", "inputs": ["bom dia"]}'
say "REST, no JSON" rest 400 error '{"inputs": '
say "REST, a number for a text" rest 400 error '{"inputs": {"text": [1]}}'
say "REST, an unknown signature" rest 400 error '{"signature_name": "none", "inputs": ["a"]}'
say "REST, an unknown model" rest 404 error '{"inputs": ["a"]}' "-none:predict"

if [ "$rpc" != - ]; then
  lines=$(printf '%s\n' "O gato está na mesa." "" "🙂 שלום" "$(printf 'a%.0s' $(seq 20000))" $'\xff\xc3\x80')
  client=("${PYTHON:-python3}" "$folder/serving/client.py" --server "$rpc" --model)
  count=$(printf '%s\n' "$lines" | "${client[@]}" "$model" 2>/dev/null | wc -l)
  say "gRPC, five texts have five answers" test "$count" = 5
  say "gRPC, an unknown model" test "$("${client[@]}" none um >/dev/null 2>&1; echo $?)" = 4
fi
say "the model is still available" available
if [ "$failed" = 0 ]; then echo "pass: every check"; else echo "FAIL: $failed"; fi
exit "$failed"
