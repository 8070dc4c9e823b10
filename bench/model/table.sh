#!/bin/sh
# Every speed that limpid is held to, measured and judged, part by part: bench/model/table.sh --help
exec "${PYTHON:-python3}" -B "$(dirname "$0")/table.py" "$@"
