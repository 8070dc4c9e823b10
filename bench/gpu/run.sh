#!/bin/sh
# Everything of the CUDA backend that needs a GPU, in one run: builds if need be, checks each operation
# against ref, the golden models and the mini model, runs compute-sanitizer where it is installed, and
# prints one table. CSV: FOLDER/gpu-checks.csv (check, result, seconds) and gpu-figures.csv (name,
# largest difference, bound); each check's output in FOLDER/*.log.
#
#     bench/gpu/run.sh [BUILD [FOLDER]]        (default: build/cuda, BUILD/gpu)
#
# LIMIT_S: the most seconds a check may take (900). PYTHON: an interpreter with numpy.
# Exit status: 0, or 1 if a check failed. What cannot run says why (skipped).
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/cuda}
out=${2:-$build/gpu}
python=${PYTHON:-python3}

if ! [ -x "$build/limpid" ]; then
    (cd "$root" && cmake --preset cuda && cmake --build "$build") || exit 1
fi
mkdir -p "$out" || exit 1
checks=$out/gpu-checks.csv figures=$out/gpu-figures.csv
echo "check,result,seconds" > "$checks"
echo "name,largest difference,bound" > "$figures"
failed=0

# check NAME COMMAND...: runs it, takes its figures, adds a row
check() {
    name=$1
    shift
    begin=$(date +%s.%N)
    (cd "$root" && timeout "${LIMIT_S:-900}" "$@") > "$out/$name.log" 2>&1
    status=$?
    seconds=$(echo "$(date +%s.%N) $begin" | awk '{printf "%.1f", $1 - $2}')
    case $status in
        0) result=ok ;;
        124) result="FAILED: longer than ${LIMIT_S:-900} s" failed=1 ;;
        77) result="skipped: $(sed -n 's/^skipped: //p' "$out/$name.log" | head -n 1 | tr , ';')" ;;
        *) result=FAILED failed=1 ;;
    esac
    sed -n 's/^figure,//p' "$out/$name.log" >> "$figures"
    echo "$name,$result,$seconds" >> "$checks"
    echo "$name: $result ($seconds s)" >&2
}

check check_cuda "$build/tests/check_cuda"
check check_cuda_wide "$build/tests/check_cuda_wide"
check check_cuda_together "$build/tests/check_cuda_together"
for op in matmul head_matmul experts elementwise router attention kv_types indexer batch; do
    check "check_$op" "$build/tests/check_cuda_$op"
done
check golden "$python" tests/e2e/golden.py "$build/limpid" --backends cuda
check mini "$python" tests/e2e/mini.py "$build/limpid" --generate "$build/tests/generate" --backends cuda
check api "$python" tests/api/run_cases.py "$build/limpid" models/mini-glm-dsa.gguf -- --backend cuda
check doctor "$build/limpid" doctor models/mini-glm-dsa.gguf --quick --backend cuda
if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck; do
        for op in elementwise router matmul; do # small ones: they are 20 to 100 times slower so
            check "${tool}_$op" compute-sanitizer --tool $tool --error-exitcode 9 \
                "$build/tests/check_cuda_$op"
        done
        check "${tool}_step" compute-sanitizer --tool $tool --error-exitcode 9 "$build/limpid" dump \
            tests/golden/dsa_sparse.gguf --tokens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24 \
            --backend cuda --chunk 13
    done
else
    echo "memcheck,skipped: compute-sanitizer is not installed,0" >> "$checks"
fi

date -u +"%Y-%m-%d"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null || echo "no nvidia-smi"
echo
awk -F, '{printf "%-24s %-40s %10s\n", $1, $2, $3}' "$checks"
echo
awk -F, '{printf "%-36s %20s %10s\n", $1, $2, $3}' "$figures"
exit $failed
