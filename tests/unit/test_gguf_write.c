// The writer against the reader, and its bytes against those of a builder that knows nothing of it.
#include "gguf/gguf_write.h"

#include "base/alloc.h"
#include "gguf/gguf_assemble.h"
#include "gguf_build.h"
#include "lp_test.h"

static void bytes_are_the_formats(void **state) {
    (void)state;
    // version 3, 1 tensor, 2 keys, written out by hand
    static const uint8_t expected[] = {
        'G', 'G', 'U', 'F', 3,   0, 0, 0,                                // magic, version
        1,   0,   0,   0,   0,   0, 0, 0, 2,   0, 0, 0, 0, 0,   0, 0,    // counts
        1,   0,   0,   0,   0,   0, 0, 0, 'a', 4, 0, 0, 0, 7,   0, 0, 0, // a: u32 7
        1,   0,   0,   0,   0,   0, 0, 0, 'b', 8, 0, 0, 0, 2,   0, 0, 0, 0,
        0,   0,   0,   'h', 'i', 1, 0, 0, 0,   0, 0, 0, 0, 't', 2, 0, 0, 0, // name, n_dims
        32,  0,   0,   0,   0,   0, 0, 0, 3,   0, 0, 0, 0, 0,   0, 0,       // ne
        8,   0,   0,   0,   0,   0, 0, 0, 0,   0, 0, 0,                     // Q8_0, offset 0
    };
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    struct lp_err err;
    uint64_t ne[] = {32, 3};
    lp_gguf_writer_str(w, "a", lp_str_from("replaced"));
    lp_gguf_writer_str(w, "b", lp_str_from("hi"));
    lp_gguf_writer_u32(w, "a", 7); // keeps its place
    lp_gguf_writer_u32(w, "gone", 7);
    lp_gguf_writer_remove(w, "gone");
    assert_false(lp_gguf_writer_has(w, "gone"));
    assert_int_equal(lp_gguf_writer_add(w, lp_str_from("t"), LP_TYPE_Q8_0, 2, ne, &err), LP_OK);
    assert_int_equal(lp_gguf_writer_finish(w, &err), LP_OK);
    struct lp_str header = lp_gguf_writer_header(w);
    assert_int_equal(header.len, (sizeof expected + 31) / 32 * 32);
    assert_memory_equal(header.data, expected, sizeof expected);
    for (size_t i = sizeof expected; i < header.len; i++) assert_int_equal(header.data[i], 0);
    assert_int_equal(lp_gguf_writer_offset(w, 0), header.len);
    assert_int_equal(lp_gguf_writer_bytes(w, 0), 3 * 34);
    assert_int_equal(lp_gguf_writer_total(w), header.len + 128); // padded to 32
    lp_gguf_writer_free(w);
}

// What stands behind a removed key is still found by its name, and a key set again comes last.
static void keys_behind_a_removed_one(void **state) {
    (void)state;
    static const char *const expected[] = {"b", "c", "a"};
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    struct lp_gguf *gguf;
    struct lp_err err;
    lp_gguf_writer_u32(w, "a", 1);
    lp_gguf_writer_u32(w, "b", 2);
    lp_gguf_writer_u32(w, "c", 3);
    lp_gguf_writer_remove(w, "a");
    lp_gguf_writer_u32(w, "b", 20);
    lp_gguf_writer_u32(w, "a", 10);
    assert_int_equal(lp_gguf_writer_finish(w, &err), LP_OK);
    struct lp_str header = lp_gguf_writer_header(w);
    assert_int_equal(lp_gguf_parse(&gguf, (const uint8_t *)header.data, header.len, "f", &err),
                     LP_OK);
    assert_int_equal(lp_gguf_n_kv(gguf), 3);
    for (uint64_t i = 0; i < 3; i++)
        assert_true(lp_str_is(lp_gguf_kv_at(gguf, i)->key, expected[i]));
    assert_int_equal(lp_gguf_int_at(lp_gguf_find(gguf, "b"), 0), 20);
    assert_int_equal(lp_gguf_int_at(lp_gguf_find(gguf, "c"), 0), 3);
    assert_int_equal(lp_gguf_int_at(lp_gguf_find(gguf, "a"), 0), 10);
    lp_gguf_close(gguf);
    lp_gguf_writer_free(w);
}

static void alignment_places_the_data(void **state) {
    (void)state;
    struct lp_gguf_writer *w = lp_gguf_writer_new(2);
    struct lp_err err;
    uint64_t one[] = {5};
    lp_gguf_writer_u32(w, "general.alignment", 64);
    lp_gguf_writer_add(w, lp_str_from("x"), LP_TYPE_F32, 1, one, &err);
    lp_gguf_writer_add(w, lp_str_from("y"), LP_TYPE_F32, 1, one, &err);
    assert_int_equal(lp_gguf_writer_finish(w, &err), LP_OK);
    assert_int_equal(lp_gguf_writer_offset(w, 0) % 64, 0);
    assert_int_equal(lp_gguf_writer_offset(w, 1), lp_gguf_writer_offset(w, 0) + 64);
    lp_gguf_writer_free(w);
}

static void refused(const char *name, lp_type type, uint32_t n_dims, const uint64_t *ne,
                    const char *says) {
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    struct lp_err err;
    uint64_t fine[] = {4};
    assert_int_equal(lp_gguf_writer_add(w, lp_str_from("there"), LP_TYPE_F32, 1, fine, &err),
                     LP_OK);
    assert_int_not_equal(lp_gguf_writer_add(w, lp_str_from(name), type, n_dims, ne, &err), LP_OK);
    assert_non_null(strstr(err.text, says));
    lp_gguf_writer_free(w);
}

static void bad_tensors_are_refused(void **state) {
    (void)state;
    uint64_t four[] = {4}, zero[] = {0}, large[] = {1ull << 33, 1ull << 33}, odd[] = {33},
             five[] = {1, 1, 1, 1, 4};
    refused("there", LP_TYPE_F32, 1, four, "twice");
    refused("", LP_TYPE_F32, 1, four, "empty");
    refused("a-name-that-is-longer-than-the-sixty-three-bytes-that-ggml-has-room-for", LP_TYPE_F32,
            1, four, "63");
    refused("z", LP_TYPE_F32, 1, zero, "0");
    refused("l", LP_TYPE_F32, 2, large, "2^63");
    refused("o", LP_TYPE_Q8_0, 1, odd, "33");
    refused("d", LP_TYPE_F32, 5, five, "5 dimensions");
}

static void a_bad_key_is_said_at_the_end(void **state) {
    (void)state;
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    struct lp_err err;
    lp_gguf_writer_u32(w, "", 1);
    lp_gguf_writer_u32(w, "fine", 1);
    assert_int_equal(lp_gguf_writer_finish(w, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "empty"));
    lp_gguf_writer_free(w);
    w = lp_gguf_writer_new(3);
    lp_gguf_writer_u32(w, "general.alignment", 24);
    assert_int_equal(lp_gguf_writer_finish(w, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "24"));
    lp_gguf_writer_free(w);
}

// Every kind of key of a real file, copied, is the same file again.
static void a_copy_is_the_same_bytes(void **state) {
    (void)state;
    struct lp_gguf *gguf;
    struct lp_err err;
    assert_int_equal(lp_gguf_open(&gguf, "tests/golden/dsa_shared.gguf", &err), LP_OK);
    struct lp_gguf_writer *w = lp_gguf_writer_new(lp_gguf_version(gguf));
    for (uint64_t i = 0; i < lp_gguf_n_kv(gguf); i++)
        lp_gguf_writer_copy(w, lp_gguf_kv_at(gguf, i));
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        assert_int_equal(lp_gguf_writer_add(w, t->name, t->type, t->n_dims, t->ne, &err), LP_OK);
    }
    assert_int_equal(lp_gguf_writer_finish(w, &err), LP_OK);
    struct lp_str header = lp_gguf_writer_header(w);
    const struct lp_gguf_tensor *first = lp_gguf_tensor_at(gguf, 0);
    assert_int_equal(header.len, first->file_offset);
    assert_memory_equal(header.data, first->data - first->file_offset, header.len);
    assert_int_equal(lp_gguf_writer_total(w), lp_gguf_file_bytes(gguf));
    lp_gguf_writer_free(w);
    lp_gguf_close(gguf);
}

static void an_assembled_one_reads_like_a_file(void **state) {
    (void)state;
    static const float whole[4] = {1, 2, 3, 4}, first[2] = {5, 6}, second[2] = {7, 8};
    static const uint8_t *const mats[] = {(const uint8_t *)first, (const uint8_t *)second};
    uint64_t ne[] = {4}, stack[] = {2, 1, 2}, f8[] = {128};
    static uint8_t block[132];
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    struct lp_gguf *gguf;
    struct lp_err err;
    lp_gguf_writer_u32(w, "k", 3);
    lp_gguf_writer_add(w, lp_str_from("whole"), LP_TYPE_F32, 1, ne, &err);
    lp_gguf_writer_add(w, lp_str_from("stack"), LP_TYPE_F32, 3, stack, &err);
    lp_gguf_writer_add(w, lp_str_from("f8"), LP_TYPE_F8_E4M3, 1, f8, &err);
    assert_int_equal(lp_gguf_writer_finish(w, &err), LP_OK);
    struct lp_gguf_place places[] = {
        {.data = (const uint8_t *)whole}, {.mats = mats}, {.data = block, .in_memory = true}};
    assert_int_equal(lp_gguf_assemble(&gguf, w, places, 1000, "somewhere/model", &err), LP_OK);
    // what only a memory image may hold is no part of a file
    struct lp_str header = lp_gguf_writer_header(w);
    struct lp_gguf *file;
    assert_int_not_equal(lp_gguf_parse(&file, (const uint8_t *)header.data, header.len, "f", &err),
                         LP_OK);
    lp_gguf_writer_free(w);
    uint64_t k = 0;
    assert_int_equal(lp_gguf_get_u64(gguf, "k", 10, &k, NULL, &err), LP_OK);
    assert_int_equal(k, 3);
    const struct lp_gguf_tensor *t = lp_gguf_find_tensor(gguf, lp_str_from("stack"));
    assert_ptr_equal(lp_gguf_tensor_mat(t, 1), second);
    t = lp_gguf_find_tensor(gguf, lp_str_from("whole"));
    assert_ptr_equal(lp_gguf_tensor_mat(t, 0), whole);
    assert_false(t->in_memory);
    assert_true(lp_gguf_find_tensor(gguf, lp_str_from("f8"))->in_memory);
    assert_int_equal(lp_gguf_file_bytes(gguf), 1000);
    lp_gguf_close(gguf);
}

static void memory_runs_out(void **state) {
    (void)state;
    for (size_t nth = 1; nth < 60; nth++) {
        struct lp_err err;
        uint64_t ne[] = {4};
        lp_alloc_fail_after(nth);
        struct lp_gguf_writer *w = lp_gguf_writer_new(3);
        if (w) {
            lp_gguf_writer_str(w, "gone", lp_str_from("value"));
            lp_gguf_writer_str(w, "key", lp_str_from("value"));
            lp_gguf_writer_remove(w, "gone");
            if (!lp_gguf_writer_add(w, lp_str_from("t"), LP_TYPE_F32, 1, ne, &err))
                lp_gguf_writer_finish(w, &err);
        }
        lp_alloc_fail_after(0);
        lp_gguf_writer_free(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_the_formats),
        cmocka_unit_test(keys_behind_a_removed_one),
        cmocka_unit_test(alignment_places_the_data),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(a_bad_key_is_said_at_the_end),
        cmocka_unit_test(a_copy_is_the_same_bytes),
        cmocka_unit_test(an_assembled_one_reads_like_a_file),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
