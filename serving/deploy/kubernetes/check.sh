#!/usr/bin/env bash
# Does each server behind a name serve the newest version, and answer a sentence?
#
#   check.sh NAME FOLDER_OF_VERSIONS [PORT] [SECONDS]
#
# Ends with 0 once all do; with 1, and what is wrong, if one of them did not for SECONDS (270). A
# folder without versions is not compared with.
port=${3:-8501}

ask() { # ask ADDRESS REQUEST_LINE [BODY]: the answer without white space; "" if none comes in 10 s
  local request="$2 HTTP/1.1\r\nHost: $1\r\nContent-Length: ${#3}\r\nConnection: close\r\n\r\n$3"
  timeout 10 bash -c 'exec 3<>"/dev/tcp/$0/$1" && printf "$2" >&3 && cat <&3' "$1" "$port" "$request" \
    2>/dev/null | tr -d ' \r\n'
}

problems() { # problems NAME FOLDER: a line for each
  local newest addresses address
  newest=$(ls "$2" 2>/dev/null | grep -xE '[0-9]+' | sort -n | tail -n 1)
  addresses=$(getent ahosts "$1" | cut -d ' ' -f 1 | sort -u)
  [ -n "$addresses" ] || echo "$1 has no pod that is ready"
  for address in $addresses; do
    ask "$address" "GET /v1/models/default" |
      grep -qE "\"version\":\"${newest:-[0-9]+}\",\"state\":\"AVAILABLE\"" ||
      echo "$address does not serve version ${newest:-(any)}"
    # Any status is an answer.
    ask "$address" "POST /v1/models/default:predict" '{"inputs": ["."]}' | grep -q '^HTTP/1' ||
      echo "$address does not answer a sentence"
  done
}

while found=$(problems "$1" "$2"); [ -n "$found" ]; do
  if [ "$SECONDS" -ge "${4:-270}" ]; then
    echo "$found"
    exit 1
  fi
  sleep 10
done
