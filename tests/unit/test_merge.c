// In one process, with each allocation failing in turn: an error, never a crash, a leak or a wrong
// file. What merge and split write is tests/e2e/merge_split.py's.
#include "lp_test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "files/split.h"
#include "gguf_build.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/limpid-merge-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

// Three tensors of 8 floats, and a padding behind the header that only split.header_padding keeps.
static void make_file(struct lp_bytes *b) {
    gb_header(b, 3, 3, 2);
    gb_kv_str(b, "general.architecture", "none");
    gb_kv_u32(b, "a.number", 7);
    gb_tensor_1d(b, "one", 8, GB_TYPE_F32, 0);
    gb_tensor_1d(b, "two", 8, GB_TYPE_F32, 32);
    gb_tensor_1d(b, "three", 8, GB_TYPE_F32, 64);
    assert_true(b->len % 32 != 0);
    while (b->len % 32) gb_u8(b, 0x77);
    gb_fill(b, 96, 1);
}

static void holds(const char *path, const struct lp_bytes *want) {
    char *text;
    size_t n;
    struct lp_err err;
    assert_int_equal(lp_file_read(path, 1 << 20, &text, &n, &err), LP_OK);
    assert_int_equal(n, want->len);
    assert_memory_equal(text, want->data, n);
    lp_free(text);
}

static void no_allocation_is_taken_for_granted(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    make_file(&b);
    assert_int_equal(gb_write(&b, "in.gguf"), 0);
    const struct lp_split_options split = {
        .input = "in.gguf", .prefix = "part", .limits = {.max_tensors = 1}};
    const struct lp_merge_options merge = {.input = "part-00002-of-00003.gguf",
                                           .output = "out.gguf"};
    struct lp_copy_report report;
    struct lp_err err;
    lp_status status = LP_STATUS_MEMORY;
    size_t nth = 0;
    while (status && nth < 2000) {
        lp_alloc_fail_after(++nth);
        status = lp_split(&split, &report, &err);
        lp_alloc_fail_after(0);
        if (status) assert_int_equal(status, LP_STATUS_MEMORY);
    }
    assert_int_equal(status, LP_OK);
    assert_true(nth > 20);
    assert_int_equal(report.n_parts, 3);
    assert_int_equal(report.n_tensors, 3);
    status = LP_STATUS_MEMORY;
    for (nth = 0; status && nth < 2000;) {
        lp_alloc_fail_after(++nth);
        status = lp_merge(&merge, &report, &err);
        lp_alloc_fail_after(0);
        if (status) assert_int_equal(status, LP_STATUS_MEMORY);
    }
    assert_int_equal(status, LP_OK);
    assert_int_equal(report.n_bytes, b.len);
    holds("out.gguf", &b);
    lp_bytes_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_allocation_is_taken_for_granted)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
