// The list of points against its page for users; values in strides become dense.
#include <stdio.h>

#include "lp_test.h"

#include "backend/probe.h"
#include "base/alloc.h"
#include "base/file.h"

static void docs_have_every_point(void **state) {
    (void)state;
    struct lp_err err;
    char *page;
    size_t n;
    assert_int_equal(lp_file_read("docs/probes.md", 1 << 20, &page, &n, &err), LP_OK);
    const char *at = page;
    for (int i = 0; i < LP_N_PROBE_POINTS; i++) { // in this order
        enum lp_probe_point point = (enum lp_probe_point)i;
        char row[512];
        snprintf(row, sizeof row, "| `%s` | [%s]%s | %s | %s |\n", lp_probe_name(point),
                 lp_probe_shape(point), lp_probe_is_int(point) ? " int32" : "",
                 lp_probe_meaning(point), lp_probe_need_text(lp_probe_need(point)));
        const char *found = strstr(at, row);
        if (!found) print_message("docs/probes.md lacks, or has elsewhere: %s", row);
        assert_non_null(found);
        at = found;
    }
    lp_free(page);
}

static void names_are_found(void **state) {
    (void)state;
    enum lp_probe_point point;
    for (int i = 0; i < LP_N_PROBE_POINTS; i++) {
        assert_true(lp_probe_find(lp_probe_name((enum lp_probe_point)i), &point));
        assert_int_equal(point, i); // no name twice
    }
    assert_false(lp_probe_find("attn", &point));
    assert_false(lp_probe_find("", &point));
}

// A device whose memory cannot be read in place.
static int n_reads;
static void read_far(struct lp_device *dev, void *to, const void *from, size_t n) {
    (void)dev;
    n_reads++;
    memcpy(to, from, n);
}

static void strides_are_packed(void **state) {
    (void)state;
    float buffer[2 * 24]; // 2 rows of [3 heads, 8], of which [3, 2] at an offset of 5 are shown
    for (int i = 0; i < 48; i++) buffer[i] = (float)i;
    struct lp_backend near = {.host_memory = true}, far = {.read = read_far};
    struct lp_probe_value value = {.data = buffer + 5,
                                   .n_rows = 2,
                                   .row_stride = 24,
                                   .n_dims = 2,
                                   .dims = {3, 2},
                                   .dim_stride = 8};
    assert_int_equal((int)lp_probe_row_values(&value), 6);
    const struct lp_backend *backends[] = {&near, &far};
    for (int b = 0; b < 2; b++) {
        struct lp_device dev = {.backend = backends[b]};
        float out[12];
        assert_true(lp_probe_read(&dev, &value, 0, 2, out));
        for (int r = 0; r < 2; r++)
            for (int h = 0; h < 3; h++)
                for (int i = 0; i < 2; i++)
                    assert_true(out[r * 6 + h * 2 + i] == (float)(r * 24 + h * 8 + 5 + i));
        assert_true(lp_probe_read(&dev, &value, 1, 1, out));
        assert_true(out[0] == 29 && out[5] == 46);
    }
    assert_int_equal(n_reads, 3);
    lp_alloc_fail_after(1);
    struct lp_device dev = {.backend = &far};
    float out[12];
    assert_false(lp_probe_read(&dev, &value, 0, 2, out));
    lp_alloc_fail_after(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(docs_have_every_point),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(strides_are_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
