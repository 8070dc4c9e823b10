#!/bin/sh
# The runs that are too long for ./test.sh: mixed load for ten minutes under AddressSanitizer and again under ThreadSanitizer,
# a thousand random schedules that ./test.sh does not draw, two hundred kills of a server with a cache directory. Needs what
# ./test.sh has installed. Prints a line for each; the exit status is 0 if all are good. What was found when:
# docs/internals/testing.md.
#
#     tests/long.sh [STAGE]...    of: schedules power_off asan tsan; without any: all
#
# LIMPID_SOAK_SECONDS (600), LIMPID_ROUNDS (200), LIMPID_SCHEDULES (80, of each model), LIMPID_SEED (1000) in the environment
# change the length. The build for ThreadSanitizer alone takes a quarter of an hour on two cores: its kernels of AVX-512 are
# large.
set -eu
cd "$(dirname "$0")/.."
. tools/setup_debian.sh
setup_python
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=0 second_deadlock_stack=1}"
seconds=${LIMPID_SOAK_SECONDS:-600}
rounds=${LIMPID_ROUNDS:-200}
n_schedules=${LIMPID_SCHEDULES:-80}
seed=${LIMPID_SEED:-1000}
logs=build/long
mkdir -p "$logs"
status=0

# build PRESET TARGET...: false, with the end of its output, if it fails
build() {
    preset=$1
    shift
    log=$logs/build-$preset.log
    if cmake --preset "$preset" -DPython3_EXECUTABLE="$python" >"$log" 2>&1 &&
        cmake --build --preset "$preset" --target "$@" >>"$log" 2>&1; then
        return 0
    fi
    tail -n 40 "$log" >&2
    echo "$preset: the build failed; all of its output is in $log"
    status=1
    return 1
}

# run NAME COMMAND...: the last line that it prints, or where its output is
run() {
    name=$1
    shift
    log=$logs/$name.log
    begin=$(date +%s)
    if "$@" >"$log" 2>&1; then
        echo "$name: $(tail -n 1 "$log") ($(($(date +%s) - begin)) s)"
    else
        tail -n 20 "$log" >&2
        echo "$name: FAILED after $(($(date +%s) - begin)) s; all of its output is in $log"
        status=1
    fi
}

soak() { # PRESET
    build "$1" limpid || return 0
    run "soak-$1" "$python" -B tests/e2e/soak.py "build/$1/limpid" --sanitizer --prompts long --seconds "$seconds"
    run "soak-loose-$1" "$python" -B tests/e2e/soak.py "build/$1/limpid" --sanitizer --loose --seconds $((seconds / 5))
}

schedules() {
    build release schedules || return 0
    for model in tests/golden/*.gguf models/*.gguf; do
        seed=$((seed + 1))
        trained=
        case $model in models/*) trained=trained ;; esac
        run "schedules-$(basename "$model" .gguf)" build/release/tests/schedules "$model" "$n_schedules" "$seed" \
            ${trained:+"$trained"}
    done
}

power_off() {
    build release limpid || return 0
    run power_off "$python" -B tests/e2e/power_off.py build/release/limpid --rounds "$rounds"
}

[ $# != 0 ] || set -- schedules power_off asan tsan
for stage in "$@"; do
    case $stage in
    schedules | power_off) $stage ;;
    asan | tsan) soak "$stage" ;;
    *)
        echo "no stage is named $stage; there are schedules, power_off, asan, tsan" >&2
        exit 2
        ;;
    esac
done
exit $status
