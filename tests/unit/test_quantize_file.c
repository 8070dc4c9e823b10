// Quantising while allocations fail, one after the other: a sentence, no leak, nothing left on the
// disk. (What is written: tests/e2e/quantize.py.)
#include "lp_test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "files/quantize_file.h"

static char output[64], partial[80];

static lp_status quantize(struct lp_err *err) {
    struct lp_quant_plan plan;
    struct lp_quantize_options options = {.input = "tests/golden/dsa_dense.gguf", .preset = "Q4_0"};
    lp_status status = lp_quant_plan_make(&plan, &options, err);
    if (!status) status = lp_quantize_file(&plan, output, 1, false, err);
    lp_quant_plan_release(&plan);
    return status;
}

static void without_memory(void **state) {
    (void)state;
    struct stat st;
    lp_status status = LP_STATUS_MEMORY;
    snprintf(output, sizeof output, "/tmp/limpid-quantize-%d.gguf", (int)getpid());
    snprintf(partial, sizeof partial, "%s.partial", output);
    for (size_t nth = 1; status; nth += 1 + nth / 16) {
        struct lp_err err = {0};
        lp_alloc_fail_after(nth);
        status = quantize(&err);
        lp_alloc_fail_after(0);
        if (status && status != LP_STATUS_MEMORY) fail_msg("%s", err.text);
        assert_true(!status || err.text[0]);
        assert_int_equal(stat(partial, &st), -1);
        assert_int_equal(stat(output, &st), status ? -1 : 0);
        assert_true(nth < 1000000);
    }
    unlink(output);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
