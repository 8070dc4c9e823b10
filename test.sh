#!/bin/sh
# Installs what is missing, then builds limpid and runs all its tests twice: optimised, and with the
# address and undefined-behaviour sanitizers (where the slow end-to-end tests run a reduced matrix). Then
# builds the CPU kernels for 64-bit ARM and runs their tests in an emulator.
#
#     ./test.sh [CTEST OPTION]...        for example  ./test.sh -R golden
#
# With options, or with LIMPID_TEST_AARCH64=0 in the environment, the emulator is left out; where its packages are
# missing and cannot be installed, the last lines say so.
set -eu
cd "$(dirname "$0")"
. tools/setup_debian.sh
setup_packages tests
setup_python
setup_clients
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"

presets="release asan"
closing=""
if [ $# = 0 ] && [ "${LIMPID_TEST_AARCH64:-1}" != 0 ] && [ "$(uname -m)" = x86_64 ]; then
    if setup_cross; then
        presets="$presets aarch64"
    else
        closing="aarch64: skipped, its compiler or emulator is missing
"
    fi
fi

jobs=$(nproc)
status=0
for preset in $presets; do
    echo "== $preset: build"
    log=build/$preset/build.log
    mkdir -p "build/$preset"
    if ! { cmake --preset "$preset" -DPython3_EXECUTABLE="$python" \
        -DLIMPID_CLIENTS_PYTHON="$clients_python" && cmake --build --preset "$preset"; } >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        echo "the $preset build failed; all of its output is in $log" >&2
        exit 1
    fi
    grep -E 'warning:' "$log" || true
    echo "== $preset: tests"
    log=build/$preset/test.log
    ctest --test-dir "build/$preset" -j "$jobs" --no-tests=error --output-on-failure "$@" 2>&1 | tee "$log"
    line=$(grep -E '^[0-9]+% tests passed' "$log" || echo "the tests did not end")
    skipped=$(sed -n 's/^.*Test *#[0-9]*: \([^ ]*\) .*Skipped.*/\1/p' "$log" | sort | tr '\n' ' ')
    closing="$closing$preset: $line${skipped:+, skipped (ctest -V names what is missing): ${skipped% }}
"
    case $line in
    "100% tests passed"*) ;;
    *) status=1 ;;
    esac
done
echo
printf '%s' "$closing"
exit $status
