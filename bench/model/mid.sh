#!/bin/sh
# Writes the synthetic middle-sized GLM-5 model (2.9 billion parameters, 1.93 GB), measures it, and states
# the three figures that a release is held to:
#   1. decode: the fraction of this machine's read bandwidth that is used;
#   2. loading, with the file in the page cache: under 1 s;
#   3. memory: no more than file + KV cache + 300 MB.
# Usage: bench/model/mid.sh [LIMPID [MODEL]]     exit 0 when 2 and 3 hold, else 1
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
limpid=${1:-$root/build/release/limpid}
model=${2:-${TMPDIR:-/tmp}/limpid-synth-mid.gguf}
python=${PYTHON:-python3}

if [ ! -f "$model" ]; then
    "$python" "$root/tools/synth_gguf.py" "$model" --arch glm-dsa --preset mid
fi
cat "$model" > /dev/null # the page cache is warm
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
"$limpid" bench "$model" -p 512 -n 32 -d 0,4096 --json "$rows"
"$python" "$here/figures.py" "$rows"
