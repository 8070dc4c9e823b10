#!/bin/sh
# limpid beside other engines on the same file, in turns: bench/compare.sh --help
exec "${PYTHON:-python3}" -B "$(dirname "$0")/compare.py" "$@"
