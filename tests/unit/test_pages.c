#include "lp_test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "kv/kv_types.h"

static struct lp_device *device(void) {
    struct lp_device *dev;
    struct lp_device_options options = {.n_threads = 1, .cpu_level = "auto"};
    assert_int_equal(lp_backend_ref.open(&dev, &options, NULL), LP_OK);
    return dev;
}

static const struct lp_kv_layer layers[2] = {{.width = {576, 128, 0, 0}},
                                             {.width = {576, 0, 0, 0}}};
// Every kind of state somewhere, and a layer as the MTP one is.
static const struct lp_kv_layer mixed[3] = {
    {.width = {96, 32, 0, 0}}, {.width = {0, 32, 64, 128}}, {.width = {96}, .slot_offset = 1}};
enum { MIXED_WIDTH = 96 + 32 + 32 + 64 + 128 + 96, PAGE = LP_KV_PAGE_TOKENS };

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

static void pages_count_their_holders(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_rng rng;
    int32_t held[64], n_held = 0, refs[10] = {0}; // held: one entry a reference
    lp_rng_init(&rng, 3);
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_BF16, 10 * PAGE, NULL), LP_OK);
    for (int round = 0; round < 5000; round++) {
        int64_t n_free = 0;
        uint64_t what = lp_rng_u64(&rng) % 3;
        int32_t at = n_held ? (int32_t)(lp_rng_u64(&rng) % (uint64_t)n_held) : 0;
        if (what == 0 && n_held < 64) {
            int32_t page = lp_kv_page_take(kv);
            for (int32_t p = 0; p < 10; p++) n_free += refs[p] == 0;
            assert_int_equal(page >= 0, n_free > 0); // -1 exactly when none is free
            n_free = 0;
            if (page >= 0) {
                assert_int_equal(refs[page], 0);
                refs[page]++;
                held[n_held++] = page;
            }
        } else if (what == 1 && n_held > 0 && n_held < 64) {
            lp_kv_page_share(kv, held[at]);
            refs[held[at]]++;
            held[n_held++] = held[at];
        } else if (n_held > 0) {
            lp_kv_page_put(kv, held[at]);
            refs[held[at]]--;
            held[at] = held[--n_held];
        }
        for (int32_t p = 0; p < 10; p++) {
            assert_int_equal(lp_kv_page_refs(kv, p), refs[p]);
            n_free += refs[p] == 0;
        }
        assert_int_equal(lp_kv_n_free(kv), n_free);
    }
    while (n_held > 0) lp_kv_page_put(kv, held[--n_held]);
    assert_int_equal(lp_kv_n_free(kv), lp_kv_n_pages(kv));
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

// A page's bytes of one kind and layer, found by the view, as the operations find them.
static uint8_t *bytes_at(const struct lp_kv *kv, int32_t layer, int kind,
                         const struct lp_page_table *table, int64_t slot, size_t *n) {
    struct lp_cache_view view = lp_kv_view(kv, layer, (enum lp_kv_kind)kind, table);
    *n = view.row_bytes;
    if (!view.base) return NULL;
    return (uint8_t *)view.base + (size_t)view.pages[slot / PAGE] * view.page_bytes +
           (size_t)(slot % PAGE) * view.row_bytes;
}

static uint8_t value_of(int seed, int32_t layer, int kind, int64_t slot, size_t byte) {
    return (uint8_t)(seed * 151 + layer * 37 + kind * 61 + slot * 7 + (int64_t)byte * 3);
}

// Writes (check false) or compares the first page of a table with the values of a seed.
static void fill_page(const struct lp_kv *kv, const struct lp_page_table *table, int seed,
                      bool check) {
    for (int32_t l = 0; l < 3; l++)
        for (int kind = 0; kind < LP_KV_N_KINDS; kind++)
            for (int64_t slot = 0; slot < PAGE; slot++) {
                size_t n;
                uint8_t *at = bytes_at(kv, l, kind, table, slot, &n);
                for (size_t i = 0; at && i < n; i++) {
                    uint8_t value = value_of(seed, l, kind, slot, i);
                    if (check)
                        assert_int_equal(at[i], value);
                    else
                        at[i] = value;
                }
            }
}

static void a_page_moves_with_all_its_state(void **state) {
    (void)state;
    const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_Q8_0};
    const size_t value_bytes[] = {4 * 32, 2 * 32, 2 * 32, 34}; // of 32 values; Q8_0 has a scale
    for (int t = 0; t < 4; t++) {
        struct lp_device *dev = device();
        struct lp_kv *kv;
        struct lp_page_table a = {0}, b = {0};
        assert_int_equal(lp_kv_new(&kv, dev, mixed, 3, types[t], 3 * PAGE, NULL), LP_OK);
        assert_int_equal(lp_kv_type(kv), types[t]);
        assert_int_equal(lp_kv_token_bytes(kv), MIXED_WIDTH / 32 * value_bytes[t]);
        assert_int_equal(lp_kv_page_bytes(kv), MIXED_WIDTH / 32 * value_bytes[t] * PAGE);
        assert_int_equal(lp_kv_bytes(kv), 3 * lp_kv_page_bytes(kv));
        assert_int_equal(lp_page_table_grow(&a, kv, PAGE, NULL), LP_OK);
        assert_int_equal(lp_page_table_grow(&b, kv, PAGE, NULL), LP_OK);
        fill_page(kv, &a, 1, false);
        fill_page(kv, &b, 2, false);
        lp_kv_page_copy(kv, b.pages[0], a.pages[0]);
        fill_page(kv, &b, 1, true);
        fill_page(kv, &a, 1, true);
        // Read, then written into the other: in the order of layers and kinds.
        uint8_t *host = malloc(lp_kv_page_bytes(kv));
        fill_page(kv, &a, 3, false);
        lp_kv_page_read(kv, a.pages[0], host);
        size_t at = 0, n;
        for (int32_t l = 0; l < 3; l++)
            for (int kind = 0; kind < LP_KV_N_KINDS; kind++)
                for (int64_t slot = 0; slot < PAGE && bytes_at(kv, l, kind, &a, slot, &n); slot++)
                    for (size_t i = 0; i < n; i++)
                        assert_int_equal(host[at++], value_of(3, l, kind, slot, i));
        assert_int_equal(at, lp_kv_page_bytes(kv));
        lp_kv_page_write(kv, b.pages[0], host);
        fill_page(kv, &b, 3, true);
        free(host);
        lp_page_table_release(&a, kv);
        lp_page_table_release(&b, kv);
        lp_kv_free(kv);
        lp_backend_ref.close(dev);
    }
}

static void q8_0_needs_whole_blocks(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_err err;
    const struct lp_kv_layer odd[2] = {{.width = {64}}, {.width = {0, 0, 80, 64}}};
    assert_int_equal(lp_kv_new(&kv, dev, odd, 2, LP_TYPE_Q8_0, 100, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "layer 1"));
    assert_non_null(strstr(err.text, "80"));
    assert_int_equal(lp_kv_new(&kv, dev, odd, 2, LP_TYPE_F16, 100, &err), LP_OK);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

// The latents in blocks and their rotated part behind them; an indexer key in blocks where it is whole ones.
static void fp8_rows_have_their_parts(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_err err;
    struct lp_page_table none = {0};
    const struct lp_kv_layer glm[3] = {{.width = {576, 128}, .rope = 64},
                                       {.width = {128 + 10, 48}, .rope = 10},
                                       {.width = {0, 0, 256, 128}}};
    const size_t bytes[3][LP_KV_N_KINDS] = {{656, 132}, {132 + 20, 96}, {0, 0, 264, 132}};
    const int32_t tails[3][LP_KV_N_KINDS] = {{64, 0}, {10, 48}, {0}};
    assert_int_equal(lp_kv_new(&kv, dev, glm, 3, LP_TYPE_F8_E4M3, 100, &err), LP_OK);
    size_t sum = 0;
    for (int32_t l = 0; l < 3; l++)
        for (int kind = 0; kind < LP_KV_N_KINDS; kind++) {
            const struct lp_cache_view view = lp_kv_view(kv, l, (enum lp_kv_kind)kind, &none);
            assert_int_equal(view.row_bytes, bytes[l][kind]);
            assert_int_equal(view.n_tail, tails[l][kind]);
            assert_int_equal(lp_kv_row_bytes(LP_TYPE_F8_E4M3, &glm[l], (enum lp_kv_kind)kind),
                             bytes[l][kind]);
            sum += bytes[l][kind];
        }
    assert_int_equal(lp_kv_token_bytes(kv), sum);
    lp_kv_free(kv);
    static const struct {
        struct lp_kv_layer layer;
        const char *says[4];
    } refused[] = {
        {{.width = {192 + 64}, .rope = 64}, {"FP8", "128", "latents of layer 0 have 192", "q8_0"}},
        {{.width = {100 + 64}, .rope = 64}, {"FP8", "128", "latents of layer 0 have 100", "f16"}},
        {{.width = {0, 0, 128, 64}}, {"FP8", "128", "values of layer 0 have 64", "q8_0"}}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(lp_kv_new(&kv, dev, &refused[i].layer, 1, LP_TYPE_F8_E4M3, 100, &err),
                         LP_STATUS_INVALID);
        for (int k = 0; k < 4; k++) assert_non_null(strstr(err.text, refused[i].says[k]));
    }
    lp_backend_ref.close(dev);
}

static void types_have_names(void **state) {
    (void)state;
    static const struct {
        const char *name, *title;
        lp_type type;
    } names[] = {{"f32", "F32", LP_TYPE_F32},
                 {"f16", "F16", LP_TYPE_F16},
                 {"bf16", "BF16", LP_TYPE_BF16},
                 {"q8_0", "Q8_0", LP_TYPE_Q8_0},
                 {"fp8", "FP8", LP_TYPE_F8_E4M3}};
    lp_type type;
    struct lp_err err;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(lp_kv_type_parse(names[i].name, &type));
        assert_int_equal(type, names[i].type);
        assert_string_equal(lp_kv_type_name(type), names[i].title);
        assert_true(lp_kv_type_supported(type));
        assert_non_null(strstr(LP_KV_TYPE_NAMES, names[i].name));
    }
    assert_false(lp_kv_type_parse("f8_e4m3", &type) || lp_kv_type_parse("", &type));
    assert_false(lp_kv_type_supported(LP_TYPE_Q4_0));
    assert_string_equal(lp_kv_type_name(LP_TYPE_Q4_0), "(unknown)");
    assert_int_equal(lp_kv_heads_check(LP_TYPE_F8_E4M3, 128, 256, &err), LP_OK);
    assert_int_equal(lp_kv_heads_check(LP_TYPE_F8_E4M3, 64, 64, &err), LP_STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "KV type FP8 needs heads of a multiple of 128 values, this "
                                  "model's have 64 and 64; use --kv q8_0");
    assert_int_equal(lp_kv_heads_check(LP_TYPE_Q8_0, 80, 64, &err), LP_STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "KV type Q8_0 needs heads of a multiple of 32 values, this "
                                  "model's have 80 and 64; use --kv f16");
}

// What a cache operation writes at a position is found in the slot behind it, over a page's border too.
static void the_slot_offset_reaches_the_view(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_page_table table = {0};
    float row[96], zero[96] = {0};
    assert_int_equal(lp_kv_new(&kv, dev, mixed, 3, LP_TYPE_F32, 3 * PAGE, NULL), LP_OK);
    assert_int_equal(lp_page_table_grow(&table, kv, PAGE + 1, NULL), LP_OK);
    struct lp_cache_view view = lp_kv_view(kv, 2, LP_KV_LATENT, &table);
    assert_int_equal(view.slot_offset, 1);
    assert_int_equal(lp_kv_view(kv, 0, LP_KV_LATENT, &table).slot_offset, 0);
    for (int i = 0; i < 96; i++) row[i] = (float)i + 1;
    for (int64_t slot = 0; slot <= PAGE; slot++) {
        size_t n;
        memcpy(bytes_at(kv, 2, LP_KV_LATENT, &table, slot, &n), zero, sizeof zero);
    }
    struct lp_op_cache_write op = {
        .cache = &view, .x = row, .x_stride = 96, .first_pos = PAGE - 1, .n_rows = 1};
    dev->backend->cache_write(dev, &op);
    for (int64_t slot = 0; slot <= PAGE; slot++) {
        size_t n;
        const void *at = bytes_at(kv, 2, LP_KV_LATENT, &table, slot, &n);
        assert_memory_equal(at, slot == PAGE ? row : zero, n);
    }
    lp_page_table_release(&table, kv);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

static void appended_pages_belong_to_the_table(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_page_table table = {0}, second = {0};
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_F16, 40 * PAGE, NULL), LP_OK);
    for (int i = 0; i < 20; i++) { // past the first capacity
        int32_t page = lp_kv_page_take(kv);
        assert_int_equal(lp_page_table_append(&table, kv, page, i < 19 ? PAGE : 5, NULL), LP_OK);
        lp_kv_page_share(kv, page);
        assert_int_equal(lp_page_table_append(&second, kv, page, PAGE, NULL), LP_OK);
    }
    assert_int_equal(table.n_tokens, 19 * PAGE + 5);
    check_pages(&table, 1, kv);
    assert_int_equal(lp_page_table_grow(&table, kv, 20 * PAGE + 1, NULL), LP_OK); // goes on behind
    assert_int_equal(table.n_pages, 21);
    assert_int_equal(lp_kv_n_free(kv), 40 - 21);
    lp_page_table_release(&table, kv);
    assert_int_equal(lp_kv_n_free(kv), 20); // the second table's are still held
    for (int i = 0; i < 20; i++) assert_int_equal(lp_kv_page_refs(kv, second.pages[i]), 1);
    lp_page_table_release(&second, kv);
    assert_int_equal(lp_kv_n_free(kv), 40);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

// Without memory the caller keeps the page, and the table what it had.
static void append_and_grow_without_memory(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_err err;
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_F16, 40 * PAGE, NULL), LP_OK);
    for (int64_t had = 0; had <= 16; had += 16)
        for (size_t nth = 1; nth <= 2; nth++) { // the host's numbers, the device's
            struct lp_page_table table = {0};
            assert_int_equal(lp_page_table_grow(&table, kv, had * PAGE, NULL), LP_OK);
            int32_t page = lp_kv_page_take(kv);
            lp_alloc_fail_after(nth);
            lp_status status = lp_page_table_append(&table, kv, page, PAGE, &err);
            lp_status grown = lp_page_table_grow(&table, kv, (had + 1) * PAGE, &err);
            lp_alloc_fail_after(0);
            assert_int_equal(status, LP_STATUS_MEMORY);
            assert_int_equal(grown, LP_STATUS_MEMORY);
            assert_int_equal(table.n_pages, had);
            assert_int_equal(lp_kv_page_refs(kv, page), 1);
            assert_int_equal(lp_page_table_append(&table, kv, page, PAGE, NULL), LP_OK);
            check_pages(&table, 1, kv);
            lp_page_table_release(&table, kv);
            assert_int_equal(lp_kv_n_free(kv), 40);
        }
    lp_kv_free(kv);
    for (size_t nth = 1; nth < 20; nth++) { // making a cache
        lp_alloc_fail_after(nth);
        lp_status status = lp_kv_new(&kv, dev, mixed, 3, LP_TYPE_Q8_0, PAGE, &err);
        lp_alloc_fail_after(0);
        if (!status) lp_kv_free(kv);
        assert_int_equal(status, nth <= 7 + 6 ? LP_STATUS_MEMORY : LP_OK);
    }
    lp_backend_ref.close(dev);
}

// Of three parts of four pages a table has those of its own, and only what is of part 0 is here.
struct there {
    int n_copies, n_reads, n_writes;
    int32_t page;
};
static void copy_there(void *user, int32_t to, int32_t from) {
    struct there *t = user;
    t->n_copies++;
    t->page = to;
    assert_int_equal(from / 4, to / 4);
}
static bool read_there(void *user, int32_t page, void *out) {
    struct there *t = user;
    t->n_reads++;
    t->page = page;
    memset(out, 0x5a, 1);
    return true;
}
static void write_there(void *user, int32_t page, const void *whole) {
    struct there *t = user;
    t->n_writes++;
    t->page = page;
    assert_int_equal(*(const uint8_t *)whole, 0x5a);
}

static void parts_have_pages_of_their_own(void **state) {
    (void)state;
    struct lp_device *dev = device();
    struct lp_kv *kv;
    struct lp_err err;
    struct there there = {0};
    const struct lp_kv_others others = {
        .user = &there, .copy = copy_there, .read = read_there, .write = write_there};
    assert_int_equal(lp_kv_new(&kv, dev, layers, 2, LP_TYPE_F16, 4 * PAGE, NULL), LP_OK);
    const size_t bytes = lp_kv_bytes(kv), page_bytes = lp_kv_page_bytes(kv);
    assert_int_equal(lp_kv_set_parts(kv, INT32_MAX / 2, &err), LP_STATUS_LIMIT);
    assert_int_equal(lp_kv_set_parts(kv, 3, NULL), LP_OK);
    lp_kv_set_others(kv, &others);
    assert_int_equal(lp_kv_bytes(kv), bytes); // what is here
    assert_int_equal(lp_kv_page_bytes(kv), page_bytes);
    assert_int_equal(lp_kv_capacity_tokens(kv), 12 * PAGE);
    struct lp_page_table tables[3] = {{.part = 0}, {.part = 1}, {.part = 2}};
    assert_int_equal(lp_page_table_grow(&tables[1], kv, 4 * PAGE, NULL), LP_OK);
    assert_int_equal(lp_page_table_grow(&tables[1], kv, 5 * PAGE, &err), LP_STATUS_LIMIT);
    assert_int_equal(lp_page_table_grow(&tables[2], kv, 2 * PAGE, NULL), LP_OK);
    assert_int_equal(lp_page_table_grow(&tables[0], kv, 2 * PAGE, NULL), LP_OK);
    for (int64_t i = 0; i < 4; i++) assert_int_equal(tables[1].pages[i], 4 + i);
    assert_int_equal(tables[2].pages[0], 8);
    assert_int_equal(lp_kv_n_free(kv), 4);
    assert_int_equal(lp_kv_n_free_in(kv, 1), 0);
    assert_int_equal(lp_kv_n_free_in(kv, 2), 2);
    assert_int_equal(lp_kv_page_take_in(kv, 1), -1);
    lp_kv_page_share(kv, 9);
    lp_kv_page_set_cached(kv, 9, true);
    lp_page_table_release(&tables[2], kv);
    assert_int_equal(lp_kv_n_idle_in(kv, 2), 1);
    assert_int_equal(lp_kv_n_idle_in(kv, 0) + lp_kv_n_idle_in(kv, 1), 0);
    assert_int_equal(lp_kv_n_idle(kv), 1);
    uint8_t *host = calloc(1, page_bytes);
    lp_kv_page_copy(kv, 1, 0);
    assert_true(lp_kv_page_read(kv, 0, host));
    lp_kv_page_write(kv, 1, host);
    assert_int_equal(there.n_copies + there.n_reads + there.n_writes, 0);
    lp_kv_page_copy(kv, 10, 9);
    assert_int_equal(there.page, 10);
    assert_true(lp_kv_page_read(kv, 5, host));
    assert_int_equal(there.page, 5);
    lp_kv_page_write(kv, 6, host);
    assert_int_equal(there.page, 6);
    assert_int_equal(there.n_copies + there.n_reads + there.n_writes, 3);
    free(host);
    lp_kv_page_set_cached(kv, 9, false);
    lp_kv_page_put(kv, 9);
    for (int i = 0; i < 2; i++) lp_page_table_release(&tables[i], kv);
    assert_int_equal(lp_kv_n_free(kv), 12);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pages_are_never_shared_nor_lost),
                                       cmocka_unit_test(sizes_and_views),
                                       cmocka_unit_test(unknown_types_and_absurd_sizes_are_refused),
                                       cmocka_unit_test(pages_count_their_holders),
                                       cmocka_unit_test(a_page_moves_with_all_its_state),
                                       cmocka_unit_test(q8_0_needs_whole_blocks),
                                       cmocka_unit_test(fp8_rows_have_their_parts),
                                       cmocka_unit_test(types_have_names),
                                       cmocka_unit_test(the_slot_offset_reaches_the_view),
                                       cmocka_unit_test(appended_pages_belong_to_the_table),
                                       cmocka_unit_test(append_and_grow_without_memory),
                                       cmocka_unit_test(parts_have_pages_of_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
