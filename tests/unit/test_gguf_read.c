// The container reader on images built byte by byte: what is right is read as written; each single
// defect is refused with a sentence that names the thing; failing allocations neither crash nor
// leak.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "gguf/gguf.h"
#include "gguf_build.h"

// A caller-side copy of exactly the image's size, so that a sanitizer sees a read past its end.
static lp_status parse(const struct lp_bytes *b, struct lp_gguf **g, struct lp_err *err) {
    static uint8_t *copy;
    free(copy);
    copy = malloc(b->len ? b->len : 1);
    assert_non_null(copy);
    if (b->len) memcpy(copy, b->data, b->len);
    return lp_gguf_parse(g, copy, b->len, "dir/x.gguf", err);
}

static void refuse(struct lp_bytes *b, lp_status want, const char *needle) {
    struct lp_gguf *g = (void *)1;
    struct lp_err err = {0};
    lp_status status = parse(b, &g, &err);
    if (status != want || !strstr(err.text, needle))
        fail_msg("status %d, expected %d; \"%s\" should contain \"%s\"", (int)status, (int)want,
                 err.text, needle);
    assert_null(g);
    assert_int_equal(err.status, want);
    lp_bytes_release(b);
}
#define BAD(b, needle) refuse(b, LP_STATUS_FORMAT, needle)

// Three keys, two tensors (4 f32 at 0, 8 f32 in 2 x 4 at 32).
static void good_head(struct lp_bytes *b) {
    gb_header(b, 3, 2, 3);
    gb_kv_str(b, "general.architecture", "test");
    gb_kv_u32(b, "test.block_count", 7);
    gb_kv_arr(b, "test.names", GB_STR, 3);
    gb_str(b, "a"), gb_str(b, ""), gb_str(b, "ccc");
}
static void good_rest(struct lp_bytes *b) {
    gb_tensor_1d(b, "one", 4, GB_TYPE_F32, 0);
    gb_tensor(b, "two", 2, (uint64_t[]){2, 4}, GB_TYPE_F32, 32);
    gb_pad(b, 32);
    gb_fill(b, 16, 1), gb_pad(b, 32);
    gb_fill(b, 32, 101);
}
static void good(struct lp_bytes *b) {
    good_head(b);
    good_rest(b);
}

static void reads_what_was_written(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct lp_bytes b = {0};
        good(&b);
        memcpy(b.data + 4, &version, 4);
        struct lp_gguf *g;
        struct lp_err err;
        assert_int_equal(parse(&b, &g, &err), LP_OK);
        assert_int_equal(lp_gguf_version(g), version);
        assert_int_equal(lp_gguf_n_kv(g), 3);
        assert_int_equal(lp_gguf_n_tensors(g), 2);
        assert_int_equal(lp_gguf_n_shards(g), 1);
        assert_int_equal(lp_gguf_alignment(g, 0), 32);
        assert_int_equal(lp_gguf_file_bytes(g), b.len);
        const struct lp_gguf_kv *kv = lp_gguf_kv_at(g, 2);
        assert_true(lp_str_is(kv->key, "test.names"));
        assert_int_equal(kv->type, LP_GGUF_ARRAY);
        assert_int_equal(kv->element_type, LP_GGUF_STRING);
        assert_int_equal(kv->count, 3);
        assert_true(lp_str_is(kv->strings[0], "a") && lp_str_is(kv->strings[1], "") &&
                    lp_str_is(kv->strings[2], "ccc"));
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(g, 1);
        assert_true(lp_str_is(t->name, "two"));
        assert_int_equal(t->type, LP_TYPE_F32);
        assert_int_equal(t->n_dims, 2);
        assert_true(t->ne[0] == 2 && t->ne[1] == 4 && t->ne[2] == 1 && t->ne[3] == 1);
        assert_int_equal(t->n_bytes, 32);
        assert_int_equal(t->data[0], 101);
        assert_int_equal(t->data[31], 132);
        assert_int_equal(t->file_offset, b.len - 32);
        assert_int_equal(lp_gguf_tensor_at(g, 0)->data[0], 1);
        lp_gguf_close(g);
        lp_bytes_release(&b);
    }
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    good(&b);
    for (size_t n = 0; n < b.len; n++) {
        struct lp_bytes cut = {0};
        lp_bytes_append(&cut, b.data, n);
        struct lp_gguf *g;
        struct lp_err err = {0};
        assert_int_equal(parse(&cut, &g, &err), LP_STATUS_FORMAT);
        assert_true(strncmp(err.text, "x.gguf: ", 8) == 0 && strlen(err.text) > 30);
        lp_bytes_release(&cut);
    }
    lp_bytes_release(&b);
}

static void refuses_foreign_versions(void **state) {
    (void)state;
    const struct {
        uint32_t version;
        lp_status status;
        const char *needle;
    } rows[] = {{0, LP_STATUS_FORMAT, "version 0 is unknown"},
                {1, LP_STATUS_UNSUPPORTED, "version 1 is obsolete"},
                {4, LP_STATUS_FORMAT, "version 4 is unknown"},
                {99, LP_STATUS_FORMAT, "version 99 is unknown"},
                {0x03000000, LP_STATUS_UNSUPPORTED, "big-endian"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lp_bytes b = {0};
        good(&b);
        memcpy(b.data + 4, &rows[i].version, 4);
        refuse(&b, rows[i].status, rows[i].needle);
    }
    struct lp_bytes b = {0};
    good(&b);
    memcpy(b.data, "GGML", 4);
    BAD(&b, "not a GGUF file");
    BAD(&b, "not a GGUF file"); // empty: it was released
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void huge_counts_are_refused_at_once(void **state) {
    (void)state;
    const uint64_t counts[] = {1u << 31, UINT64_MAX, 1ull << 63, (1ull << 63) / 33, 2};
    double start = seconds();
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct lp_bytes b = {0};
        gb_header(&b, 3, 0, counts[i]);
        gb_fill(&b, 16, 0);
        BAD(&b, "n_kv");
        gb_header(&b, 3, counts[i], 0);
        gb_fill(&b, 16, 0);
        BAD(&b, "n_tensors");
    }
    for (uint32_t type = 0; type <= 12; type++) {
        if (type == GB_ARR) continue;
        struct lp_bytes b = {0};
        gb_header(&b, 3, 0, 1);
        gb_kv_arr(&b, "many", type, 1u << 30);
        BAD(&b, "many");
        gb_header(&b, 3, 0, 1);
        gb_kv_arr(&b, "many", type, 1ull << 63);
        refuse(&b, LP_STATUS_LIMIT, "many");
    }
    struct lp_bytes b = {0};
    gb_header(&b, 3, 0, 1);
    gb_key(&b, "long", GB_STR);
    gb_u64(&b, 1ull << 63);
    BAD(&b, "string 1 of 1 says it is 9223372036854775808 bytes");
    assert_true(seconds() - start < 1.0);
}

static void refuses_bad_keys(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    gb_header(&b, 3, 0, 1), gb_kv_u32(&b, "", 1);
    BAD(&b, "key of pair 1 of 1 is empty");
    gb_header(&b, 3, 0, 1), gb_strn(&b, "a\0b", 3), gb_u32(&b, GB_U32), gb_u32(&b, 0);
    BAD(&b, "NUL");
    gb_header(&b, 3, 0, 2), gb_kv_u32(&b, "twice", 1), gb_kv_u32(&b, "twice", 2);
    BAD(&b, "key twice occurs twice");
    char *longest = malloc(65537);
    memset(longest, 'k', 65536);
    longest[65536] = 0;
    gb_header(&b, 3, 0, 1), gb_kv_u32(&b, longest, 1);
    refuse(&b, LP_STATUS_LIMIT, "65536 bytes long");
    gb_header(&b, 3, 0, 1), gb_kv_u32(&b, longest + 1, 1);
    struct lp_gguf *g;
    struct lp_err err;
    assert_int_equal(parse(&b, &g, &err), LP_OK); // 65535 are allowed
    lp_gguf_close(g);
    lp_bytes_release(&b);
    free(longest);
}

static void refuses_bad_values(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    gb_header(&b, 3, 0, 1), gb_kv_raw(&b, "flag", GB_BOOL, "\7", 1), gb_u8(&b, 0);
    BAD(&b, "key flag holds the byte 7");
    gb_header(&b, 3, 0, 1), gb_kv_arr(&b, "flags", GB_BOOL, 3), lp_bytes_append(&b, "\1\0\2", 3);
    BAD(&b, "key flags holds the byte 2");
    gb_header(&b, 3, 0, 1), gb_kv_raw(&b, "odd", 13, "\0\0\0\0", 4);
    BAD(&b, "key odd has value type 13");
    gb_header(&b, 3, 0, 1), gb_kv_arr(&b, "odd", 99, 1), gb_u64(&b, 0);
    BAD(&b, "key odd is an array of type 99");
    gb_header(&b, 3, 0, 1), gb_kv_arr(&b, "deep", GB_ARR, 1), gb_u32(&b, 0), gb_u64(&b, 0);
    refuse(&b, LP_STATUS_UNSUPPORTED, "deep is an array of arrays");
    gb_header(&b, 3, 0, 1), gb_kv_raw(&b, "cut", GB_U64, "\0\0\0", 3);
    BAD(&b, "inside the value of key cut");
    gb_header(&b, 3, 0, 1), gb_kv_arr(&b, "texts", GB_STR, 2), gb_str(&b, "0123456789");
    gb_u64(&b, 5), gb_u8(&b, 'x');
    BAD(&b, "key texts: string 2 of 2 says it is 5 bytes");
}

static void checks_the_alignment(void **state) {
    (void)state;
    const uint32_t bad[] = {0, 1, 3, 4, 24, 1u << 17, 1u << 31, UINT32_MAX};
    struct lp_bytes b = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gb_header(&b, 3, 0, 1), gb_kv_u32(&b, "general.alignment", bad[i]);
        BAD(&b, "general.alignment");
    }
    gb_header(&b, 3, 0, 1), gb_kv_str(&b, "general.alignment", "32");
    BAD(&b, "general.alignment has type string, expected u32");
    for (uint32_t a = 8; a <= 1u << 16; a *= 2) {
        gb_header(&b, 3, 2, 1), gb_kv_u32(&b, "general.alignment", a);
        gb_tensor_1d(&b, "one", 1, GB_TYPE_F32, 0), gb_tensor_1d(&b, "two", 1, GB_TYPE_F32, a);
        gb_pad(&b, a), gb_fill(&b, 4, 50), gb_pad(&b, a), gb_fill(&b, 4, 60);
        struct lp_gguf *g;
        struct lp_err err;
        assert_int_equal(parse(&b, &g, &err), LP_OK);
        assert_int_equal(lp_gguf_alignment(g, 0), a);
        assert_int_equal(lp_gguf_tensor_at(g, 0)->data[0], 50);
        assert_int_equal(lp_gguf_tensor_at(g, 1)->data[0], 60);
        lp_gguf_close(g);
        lp_bytes_release(&b);
    }
}

static void tail(struct lp_bytes *b) {
    gb_pad(b, 32), gb_fill(b, 96, 0);
}

static void refuses_bad_descriptors(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    char name[65];
    memset(name, 'n', 64), name[64] = 0;
    gb_header(&b, 3, 1, 0), gb_tensor_1d(&b, name, 4, 0, 0), tail(&b);
    BAD(&b, "64 bytes long");
    gb_header(&b, 3, 1, 0), gb_tensor_1d(&b, "", 4, 0, 0), tail(&b);
    BAD(&b, "name of tensor 1 of 1 is empty");
    gb_header(&b, 3, 1, 0), gb_strn(&b, "a\0b", 3), gb_u32(&b, 1), gb_u64(&b, 4), gb_u32(&b, 0);
    gb_u64(&b, 0), tail(&b);
    BAD(&b, "NUL");
    gb_header(&b, 3, 2, 0), gb_tensor_1d(&b, "w", 8, 0, 0), gb_tensor_1d(&b, "w", 8, 0, 32),
        tail(&b);
    BAD(&b, "tensor w occurs twice");
    uint64_t five[] = {1, 1, 1, 1, 1};
    gb_header(&b, 3, 1, 0), gb_tensor(&b, "w", 5, five, 0, 0), tail(&b);
    BAD(&b, "tensor w has 5 dimensions");
    gb_header(&b, 3, 1, 0), gb_tensor(&b, "w", 0, five, 0, 0), tail(&b);
    BAD(&b, "tensor w has 0 dimensions");
    const uint64_t ne[] = {0, UINT64_MAX, 1ull << 63, 1ull << 61, 1ull << 62};
    for (size_t i = 0; i < sizeof ne / sizeof ne[0]; i++) {
        gb_header(&b, 3, 1, 0), gb_tensor(&b, "w", 2, (uint64_t[]){4, ne[i]}, 0, 0), tail(&b);
        BAD(&b, "tensor w");
        gb_header(&b, 3, 1, 0), gb_tensor(&b, "w", 2, (uint64_t[]){ne[i], 4}, 0, 0), tail(&b);
        BAD(&b, "tensor w");
    }
    gb_header(&b, 3, 1, 0), gb_tensor(&b, "w", 2, (uint64_t[]){1ull << 33, 1ull << 33}, 0, 0),
        tail(&b);
    BAD(&b, "tensor w has ne[1]"); // 2^66 values would wrap to a small size
    gb_header(&b, 3, 1, 0), gb_tensor_1d(&b, "w", 33, GB_TYPE_Q8_0, 0), tail(&b);
    BAD(&b, "rows of 33 values, expected a multiple of 32");
}

static void refuses_unknown_types(void **state) {
    (void)state;
    const uint32_t bad[] = {4, 5, 31, 33, 36, 38, 43, 97, 137, 156, 250, 999, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct lp_bytes b = {0};
        gb_header(&b, 3, 1, 0), gb_tensor_1d(&b, "blk.0.w", 256, bad[i], 0), tail(&b);
        refuse(&b, LP_STATUS_UNSUPPORTED, "tensor blk.0.w cannot be read: ");
    }
    struct lp_bytes b = {0}; // stored types that no weight may have are the binding's business
    gb_header(&b, 3, 2, 0), gb_tensor_1d(&b, "i", 8, GB_TYPE_I32, 0);
    gb_tensor_1d(&b, "q", 32, GB_TYPE_Q8_1, 32), gb_pad(&b, 32), gb_fill(&b, 68, 0);
    struct lp_gguf *g;
    struct lp_err err;
    assert_int_equal(parse(&b, &g, &err), LP_OK);
    assert_int_equal(lp_gguf_tensor_at(g, 1)->n_bytes, 36);
    lp_gguf_close(g);
    lp_bytes_release(&b);
}

static void two_at(struct lp_bytes *b, uint64_t first, uint64_t second) {
    gb_header(b, 3, 2, 0), gb_tensor_1d(b, "one", 8, 0, first),
        gb_tensor_1d(b, "two", 8, 0, second);
    gb_pad(b, 32), gb_fill(b, 64, 0);
}

static void refuses_bad_offsets(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    two_at(&b, 0, 0);
    BAD(&b, "tensor two has offset 0, expected 32");
    two_at(&b, 0, 64);
    BAD(&b, "tensor two has offset 64, expected 32");
    two_at(&b, 32, 0);
    BAD(&b, "tensor one has offset 32, expected 0");
    two_at(&b, 0, 36);
    BAD(&b, "multiple of the alignment 32");
    two_at(&b, 0, UINT64_MAX - 31);
    BAD(&b, "tensor two has offset 18446744073709551584, expected 32");
    // sizes that each fit but whose sum wraps
    gb_header(&b, 3, 3, 0);
    for (int i = 0; i < 3; i++)
        gb_tensor_1d(&b, i == 0 ? "a" : i == 1 ? "b" : "c", 1ull << 60, 0, (uint64_t)i << 62);
    tail(&b);
    BAD(&b, "tensor a needs 4611686018427387904 bytes");
    gb_header(&b, 3, 4, 0);
    for (int i = 0; i < 4; i++)
        gb_tensor_1d(&b,
                     i == 0   ? "a"
                     : i == 1 ? "b"
                     : i == 2 ? "c"
                              : "d",
                     1ull << 60, 0, (uint64_t)i << 62);
    tail(&b);
    BAD(&b, "tensor a");
}

static void checks_the_end(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    struct lp_gguf *g;
    struct lp_err err;
    gb_header(&b, 3, 1, 0), gb_tensor_1d(&b, "one", 9, 0, 0), gb_pad(&b, 32), gb_fill(&b, 36, 0);
    size_t bare = b.len;
    for (; b.len <= bare + 28; gb_u8(&b, 0)) { // padding may be missing, part or whole
        assert_int_equal(parse(&b, &g, &err), LP_OK);
        lp_gguf_close(g);
    }
    BAD(&b, "tensor count is wrong, or parts of a split set were joined by cat");
    good(&b);
    good(&b); // parts joined by cat
    BAD(&b, "open part 1 of N directly");
    gb_header(&b, 3, 0, 1), gb_kv_u32(&b, "split.count", 2); // no tensors: ends after the last key
    assert_int_equal(parse(&b, &g, &err), LP_OK);
    assert_int_equal(lp_gguf_n_tensors(g), 0);
    lp_gguf_close(g);
    gb_pad(&b, 32);
    assert_int_equal(parse(&b, &g, &err), LP_OK);
    lp_gguf_close(g);
    gb_u8(&b, 0);
    BAD(&b, "trailing data");
}

static void wrong_counts_are_refused(void **state) {
    (void)state;
    for (int d = -1; d <= 1; d += 2)
        for (int field = 8; field <= 16; field += 8) {
            struct lp_bytes b = {0};
            good(&b);
            b.data[field] = (char)(b.data[field] + d);
            BAD(&b, "x.gguf: ");
        }
}

static void control_bytes_do_not_reach_the_terminal(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    gb_header(&b, 3, 0, 1), gb_kv_raw(&b, "\033[31m\n", 77, "", 0), gb_u64(&b, 0);
    BAD(&b, "key ?[31m? has value type 77");
}

static void failing_allocations(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    good(&b);
    size_t n = 1;
    for (;; n++) {
        struct lp_gguf *g;
        struct lp_err err = {0};
        lp_alloc_fail_after(n);
        lp_status status = lp_gguf_parse(&g, (const uint8_t *)b.data, b.len, "x.gguf", &err);
        lp_alloc_fail_after(0);
        if (status == LP_OK) {
            lp_gguf_close(g);
            break;
        }
        assert_int_equal(status, LP_STATUS_MEMORY);
        assert_non_null(strstr(err.text, "out of memory"));
        assert_null(g);
        assert_true(n < 100);
    }
    assert_true(n > 5);
    lp_bytes_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(refuses_foreign_versions),
        cmocka_unit_test(huge_counts_are_refused_at_once),
        cmocka_unit_test(refuses_bad_keys),
        cmocka_unit_test(refuses_bad_values),
        cmocka_unit_test(checks_the_alignment),
        cmocka_unit_test(refuses_bad_descriptors),
        cmocka_unit_test(refuses_unknown_types),
        cmocka_unit_test(refuses_bad_offsets),
        cmocka_unit_test(checks_the_end),
        cmocka_unit_test(wrong_counts_are_refused),
        cmocka_unit_test(control_bytes_do_not_reach_the_terminal),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
