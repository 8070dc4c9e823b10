// Two states of the cache, changed in known places: the layer, the kinds and the positions are
// named.
#include "lp_test.h"

#include "base/alloc.h"
#include "model/cache_state.h"

#define N 100

struct fixture {
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_page_table table;
    struct lp_cache_state a, b;
};

static void fill(const struct fixture *f, int32_t layer, enum lp_kv_kind kind) {
    struct lp_cache_view view = lp_kv_view(f->kv, layer, kind, &f->table);
    for (int64_t pos = 0; pos < N && view.width > 0; pos++) {
        float *row = (float *)((uint8_t *)view.base +
                               view.page_bytes * (size_t)f->table.pages[pos / LP_KV_PAGE_TOKENS] +
                               view.row_bytes * (size_t)(pos % LP_KV_PAGE_TOKENS));
        for (int32_t i = 0; i < view.width; i++)
            row[i] = (float)(layer * 1000000 + (int)kind * 100000 + pos * 500 + i);
    }
}

static void open_fixture(struct fixture *f, const char *path) {
    struct lp_err err = {0};
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    *f = (struct fixture){0};
    assert_int_equal(lp_gguf_open(&f->gguf, path, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&f->dev, NULL, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&f->model, f->gguf, f->dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    lp_model_kv_layers(f->model, false, layers);
    assert_int_equal(lp_kv_new(&f->kv, f->dev, layers, lp_model_kv_count(f->model, false),
                               LP_TYPE_F32, 256, &err),
                     LP_OK);
    assert_int_equal(lp_page_table_grow(&f->table, f->kv, N, &err), LP_OK);
    for (int32_t l = 0; l < f->model->h.n_layers; l++)
        for (int kind = 0; kind < LP_KV_N_KINDS; kind++) fill(f, l, (enum lp_kv_kind)kind);
    assert_int_equal(lp_cache_state_read(&f->a, f->kv, &f->table, N, &err), LP_OK);
}

static void close_fixture(struct fixture *f) {
    lp_cache_state_release(&f->a);
    lp_cache_state_release(&f->b);
    lp_page_table_release(&f->table, f->kv);
    lp_kv_free(f->kv);
    lp_model_free(f->model);
    lp_backend_ref.close(f->dev);
    lp_gguf_close(f->gguf);
}

// Changes one value of a row.
static void change(struct fixture *f, int32_t layer, enum lp_kv_kind kind, int64_t pos,
                   int32_t value) {
    struct lp_cache_view view = lp_kv_view(f->kv, layer, kind, &f->table);
    float *row = (float *)((uint8_t *)view.base +
                           view.page_bytes * (size_t)f->table.pages[pos / LP_KV_PAGE_TOKENS] +
                           view.row_bytes * (size_t)(pos % LP_KV_PAGE_TOKENS));
    row[value] = -row[value] - 1;
}

static struct lp_cache_difference compare(struct fixture *f, int64_t first, int64_t n) {
    struct lp_err err = {0};
    lp_cache_state_release(&f->b);
    assert_int_equal(lp_cache_state_read(&f->b, f->kv, &f->table, N, &err), LP_OK);
    return lp_cache_state_compare(&f->a, &f->b, f->model, LP_TYPE_F32, first, n);
}

static void differences_are_named(void **state) {
    (void)state;
    struct fixture f;
    char text[192];
    open_fixture(&f, "tests/golden/dsa_sparse.gguf");
    int32_t latent = f.model->h.latent;
    assert_int_equal(compare(&f, 0, N).layer, -1);
    change(&f, 1, LP_KV_INDEX, 70, 0);
    change(&f, 2, LP_KV_LATENT, 3, 0); // a later layer does not count
    struct lp_cache_difference d = compare(&f, 0, N);
    assert_int_equal(d.layer, 1);
    assert_true(d.kinds[LP_KV_INDEX] && !d.kinds[LP_KV_LATENT] && d.count == 1);
    assert_int_equal(d.belongs_to, -1);
    lp_cache_difference_text(text, sizeof text, &d);
    assert_string_equal(text, "the indexer keys of layer 1 at position 70");
    lp_cache_difference_same(text, sizeof text, &d);
    assert_string_equal(text, "latents");
    assert_int_equal(compare(&f, 0, 70).layer, 2); // the positions that are asked for alone
    change(&f, 0, LP_KV_LATENT, 98, latent);
    change(&f, 0, LP_KV_LATENT, 60, latent + 1);
    d = compare(&f, 0, N);
    assert_int_equal(d.layer, 0);
    assert_true(d.only_rotated && d.first == 60 && d.last == 98 && d.count == 2);
    change(&f, 0, LP_KV_LATENT, 98, 0);
    assert_false(compare(&f, 0, N).only_rotated);
    close_fixture(&f);
}

static void swapped_pages_are_known_by_their_rows(void **state) {
    (void)state;
    struct fixture f;
    open_fixture(&f, "tests/golden/llama.gguf");
    int32_t page = f.table.pages[0];
    f.table.pages[0] = f.table.pages[1];
    f.table.pages[1] = page;
    struct lp_cache_difference d = compare(&f, 0, N);
    assert_int_equal(d.layer, 0);
    assert_int_equal(d.first, 0);
    assert_int_equal(d.belongs_to, LP_KV_PAGE_TOKENS);
    assert_true(d.kinds[LP_KV_KEY] && d.kinds[LP_KV_VALUE] && !d.only_rotated);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(swapped_pages_are_known_by_their_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
