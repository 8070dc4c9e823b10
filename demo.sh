#!/bin/sh
# Installs what is missing, builds limpid, and shows it at work on the small model in models/: answers
# on the command line, then the HTTP server.
set -eu
cd "$(dirname "$0")"
. tools/setup_debian.sh
setup_packages
setup_python

limpid=build/release/limpid
model=models/mini-glm-dsa.gguf
server=""
work=$(mktemp -d)

stop_server() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=""
    fi
}
cleanup() {
    stop_server
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

say "Building (a minute or two; build/release/build.log has the details)"
mkdir -p build/release
if ! { cmake --preset release -DPython3_EXECUTABLE="$python" && cmake --build --preset release --target limpid liblimpid; } \
    >build/release/build.log 2>&1; then
    tail -n 40 build/release/build.log >&2
    echo "the build failed; all of its output is in build/release/build.log" >&2
    exit 1
fi
echo "$limpid"

say "A 22-million-parameter model of GLM-5's architecture, on the command line"
show() {
    printf '\n$ limpid run %s' "$model"
    for word in "$@"; do
        case $word in
        *" "*) printf ' "%s"' "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$limpid" run "$model" "$@"
}
show -p "The capital of France is" -n 2 --temp 0
show -p "1, 2, 3," -n 18 --temp 0
show --chat -p "What is 347 + 285?" -n 64 --temp 0

say "The same model behind HTTP"
printf '\n$ limpid serve %s --port 0 &\n' "$model"
"$limpid" serve "$model" --port 0 >"$work/ready" 2>"$work/errors" &
server=$!
tries=0
while ! grep -q http "$work/ready"; do
    if ! kill -0 "$server" 2>/dev/null || [ "$tries" -ge 600 ]; then
        cat "$work/errors" >&2
        echo "the server did not start" >&2
        exit 1
    fi
    tries=$((tries + 1))
    sleep 0.1
done
cat "$work/ready"
url=$(sed -n 's/.*\(http:[^ ]*\).*/\1/p' "$work/ready")

post() {
    printf "\n\$ curl %s/v1/completions -d '%s'\n" "$url" "$1"
    curl -sS --fail-with-body --max-time 120 -H 'Content-Type: application/json' -d "$1" "$url/v1/completions"
}
post '{"prompt": "Hello", "max_tokens": 1, "temperature": 0, "logprobs": 5}'
post '{"prompt": "Monday, Tuesday,", "max_tokens": 6, "temperature": 0}'
post '{"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0.8, "seed": 1, "stop": ["."]}'
stop_server

say "With a real model"
cat <<'TEXT'
    build/release/limpid inspect GLM-5-Q4_K_M-00001-of-00010.gguf    what is in the file, and the memory it needs
    build/release/limpid run     GLM-5-Q4_K_M-00001-of-00010.gguf --chat -p "Hello" --ctx 8192
    build/release/limpid serve   GLM-5-Q4_K_M-00001-of-00010.gguf --ctx 32768 --port 8080
TEXT
