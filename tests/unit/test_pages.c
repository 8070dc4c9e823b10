#include "lp_test.h"

#include "base/rng.h"
#include "kv/pages.h"

static struct lp_device *device(void) {
    struct lp_device *dev;
    struct lp_device_options options = {.n_threads = 1, .cpu_level = "auto"};
    assert_int_equal(lp_backend_ref.open(&dev, &options, NULL), LP_OK);
    return dev;
}

static const struct lp_kv_layer layers[2] = {{{576, 128, 0, 0}}, {{576, 0, 0, 0}}};

// P1 of pages.h: the pages of all tables are different, and free + taken = all.
static void check_pages(const struct lp_page_table *tables, int n_tables, const struct lp_kv *kv) {
    int64_t taken = 0, n = lp_kv_capacity_tokens(kv) / LP_KV_PAGE_TOKENS;
    bool *seen = calloc((size_t)n, 1);
    for (int t = 0; t < n_tables; t++)
        for (int64_t p = 0; p < tables[t].n_pages; p++) {
            int32_t page = tables[t].pages[p];
            assert_true(page >= 0 && page < n && !seen[page]);
            assert_int_equal(tables[t].device_pages[p], page); // P3
            seen[page] = true;
            taken++;
        }
    assert_int_equal(taken + lp_kv_free_tokens(kv) / LP_KV_PAGE_TOKENS, n);
    free(seen);
}

static void pages_are_never_shared_nor_lost(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_page_table tables[5] = {0};
    struct lp_rng rng;
    struct lp_err err;
    lp_rng_init(&rng, 7);
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_F16, 40 * LP_KV_PAGE_TOKENS, &err),
                     LP_OK);
    for (int round = 0; round < 2000; round++) {
        struct lp_page_table *t = &tables[lp_rng_u64(&rng) % 5];
        int64_t n = (int64_t)(lp_rng_u64(&rng) % (20 * LP_KV_PAGE_TOKENS)), before = t->n_pages;
        if (n > t->n_tokens) {
            lp_status status = lp_page_table_grow(t, kv, n, &err);
            if (status) {
                assert_int_equal(status, LP_STATUS_LIMIT);
                assert_int_equal(t->n_pages, before); // keeps what it had
            } else
                assert_int_equal(t->n_pages, (n + LP_KV_PAGE_TOKENS - 1) / LP_KV_PAGE_TOKENS);
        } else
            lp_page_table_truncate(t, kv, n);
        check_pages(tables, 5, kv);
    }
    for (int t = 0; t < 5; t++) lp_page_table_release(&tables[t], kv);
    assert_int_equal(lp_kv_free_tokens(kv), lp_kv_capacity_tokens(kv));
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

static void sizes_and_views(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_page_table table = {0};
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_F16, 100, NULL), LP_OK);
    assert_int_equal(lp_kv_capacity_tokens(kv), 128);
    assert_int_equal(lp_kv_token_bytes(kv), (576 + 128 + 576) * 2);
    assert_int_equal(lp_page_table_grow(&table, kv, 65, NULL), LP_OK);
    struct lp_cache_view view = lp_kv_view(kv, 0, LP_KV_INDEX, &table);
    assert_int_equal(view.width, 128);
    assert_int_equal(view.row_bytes, 256);
    assert_int_equal(view.page_bytes, 256 * LP_KV_PAGE_TOKENS);
    assert_null(lp_kv_view(kv, 1, LP_KV_INDEX, &table).base);
    lp_page_table_release(&table, kv);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

static void unknown_types_and_absurd_sizes_are_refused(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_err err;
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_Q4_0, 100, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "Q4_0"));
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_F16, 0, &err), LP_STATUS_INVALID);
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_F16, INT64_MAX, &err),
                     LP_STATUS_INVALID);
    lp_backend_ref.close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_never_shared_nor_lost), cmocka_unit_test(sizes_and_views),
        cmocka_unit_test(unknown_types_and_absurd_sizes_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
