// The typed getters: every integer width for an integer, both floats for a float, and a clear
// refusal of anything else.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "gguf/gguf.h"
#include "gguf_build.h"

struct fixture {
    struct lp_bytes b;
    struct lp_gguf *g;
    struct lp_err err;
};

#define RAW(b, key, type, ctype, ...)                                                              \
    gb_kv_raw(b, key, type, (ctype[]){__VA_ARGS__}, sizeof(ctype[]){__VA_ARGS__})

static int setup(void **state) {
    static struct fixture f;
    struct lp_bytes *b = &f.b;
    f = (struct fixture){0};
    gb_header(b, 3, 1, 0);
    RAW(b, "u8", GB_U8, uint8_t, 200);
    RAW(b, "i8", GB_I8, int8_t, -3);
    RAW(b, "u16", GB_U16, uint16_t, 60000);
    RAW(b, "i16", GB_I16, int16_t, 12345);
    RAW(b, "u32", GB_U32, uint32_t, 4000000000u);
    RAW(b, "i32", GB_I32, int32_t, -2000000000);
    RAW(b, "u64", GB_U64, uint64_t, 1ull << 63);
    RAW(b, "i64", GB_I64, int64_t, INT64_MIN);
    RAW(b, "i64.pos", GB_I64, int64_t, 1ll << 40);
    RAW(b, "f32", GB_F32, float, 1.5f);
    RAW(b, "f64", GB_F64, double, 0.1);
    RAW(b, "f32.nan", GB_F32, float, NAN);
    RAW(b, "f64.inf", GB_F64, double, INFINITY);
    RAW(b, "f64.big", GB_F64, double, 1e300);
    RAW(b, "bool", GB_BOOL, uint8_t, 1);
    RAW(b, "bool.no", GB_BOOL, uint8_t, 0);
    gb_kv_str(b, "str", "hello");
    gb_kv_str(b, "str.empty", "");
    gb_kv_arr(b, "arr.i16", GB_I16, 3);
    lp_bytes_append(b, (int16_t[]){-1, 0, 300}, 6);
    gb_kv_arr(b, "arr.f32", GB_F32, 2);
    lp_bytes_append(b, (float[]){-0.5f, 8.0f}, 8);
    gb_kv_arr(b, "arr.bool", GB_BOOL, 2);
    lp_bytes_append(b, "\1\0", 2);
    gb_kv_arr(b, "arr.none", GB_STR, 0);
    uint64_t n_kv = 22;
    memcpy(b->data + 16, &n_kv, 8);
    gb_tensor_1d(b, "w", 8, GB_TYPE_F32, 0);
    gb_pad(b, 32), gb_fill(b, 32, 0);
    *state = &f;
    return lp_gguf_parse(&f.g, (const uint8_t *)b->data, b->len, "m.gguf", &f.err) ? -1 : 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    lp_gguf_close(f->g);
    lp_bytes_release(&f->b);
    return 0;
}

static void refused(struct fixture *f, lp_status status, const char *text) {
    assert_int_equal(status, LP_STATUS_FORMAT);
    assert_string_equal(f->err.text, text);
}

static void integers_of_any_width(void **state) {
    struct fixture *f = *state;
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {{"u8", 200},          {"u16", 60000},      {"i16", 12345},
                {"u32", 4000000000u}, {"u64", 1ull << 63}, {"i64.pos", 1ull << 40}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t v = 0;
        bool found = false;
        assert_int_equal(lp_gguf_get_u64(f->g, rows[i].key, UINT64_MAX, &v, &found, &f->err),
                         LP_OK);
        assert_true(found && v == rows[i].value);
        assert_int_equal(lp_gguf_get_u64(f->g, rows[i].key, rows[i].value, &v, NULL, &f->err),
                         LP_OK);
        assert_int_equal(lp_gguf_get_u64(f->g, rows[i].key, rows[i].value - 1, &v, NULL, &f->err),
                         LP_STATUS_FORMAT);
    }
    uint64_t v = 77;
    refused(f, lp_gguf_get_u64(f->g, "i8", 100, &v, NULL, &f->err),
            "m.gguf: key i8 is -3, expected an integer from 0 to 100");
    refused(f, lp_gguf_get_u64(f->g, "i64", 9, &v, NULL, &f->err),
            "m.gguf: key i64 is -9223372036854775808, expected an integer from 0 to 9");
    refused(f, lp_gguf_get_u64(f->g, "str", 9, &v, NULL, &f->err),
            "m.gguf: key str has type string, expected an integer");
    refused(f, lp_gguf_get_u64(f->g, "f32", 9, &v, NULL, &f->err),
            "m.gguf: key f32 has type f32, expected an integer");
    refused(f, lp_gguf_get_u64(f->g, "bool", 9, &v, NULL, &f->err),
            "m.gguf: key bool has type bool, expected an integer");
    refused(f, lp_gguf_get_u64(f->g, "arr.i16", 9, &v, NULL, &f->err),
            "m.gguf: key arr.i16 has type array of i16, expected an integer");
    assert_int_equal(v, 77);
}

static void missing_keys(void **state) {
    struct fixture *f = *state;
    uint64_t u = 5;
    float x = 5;
    bool b = true, found = true;
    struct lp_str s = lp_str_from("old");
    assert_int_equal(lp_gguf_get_u64(f->g, "none", 9, &u, &found, &f->err), LP_OK);
    assert_false(found);
    found = true;
    assert_int_equal(lp_gguf_get_f32(f->g, "none", &x, &found, &f->err), LP_OK);
    assert_false(found);
    found = true;
    assert_int_equal(lp_gguf_get_bool(f->g, "none", &b, &found, &f->err), LP_OK);
    assert_false(found);
    found = true;
    assert_int_equal(lp_gguf_get_str(f->g, "none", &s, &found, &f->err), LP_OK);
    assert_false(found);
    assert_true(u == 5 && x == 5 && b && lp_str_is(s, "old"));
    refused(f, lp_gguf_get_u64(f->g, "none", 9, &u, NULL, &f->err),
            "m.gguf: key none is missing, expected an integer");
    refused(f, lp_gguf_get_f32(f->g, "none", &x, NULL, &f->err),
            "m.gguf: key none is missing, expected a float");
    refused(f, lp_gguf_get_bool(f->g, "none", &b, NULL, &f->err),
            "m.gguf: key none is missing, expected a bool");
    refused(f, lp_gguf_get_str(f->g, "none", &s, NULL, &f->err),
            "m.gguf: key none is missing, expected a string");
    assert_int_equal(lp_gguf_get_u64(f->g, "none", 9, &u, NULL, NULL), LP_STATUS_FORMAT); // no err
}

static void floats(void **state) {
    struct fixture *f = *state;
    float x = 9;
    assert_int_equal(lp_gguf_get_f32(f->g, "f32", &x, NULL, &f->err), LP_OK);
    assert_true(x == 1.5f);
    assert_int_equal(lp_gguf_get_f32(f->g, "f64", &x, NULL, &f->err), LP_OK);
    assert_true(x == 0.1f);
    refused(f, lp_gguf_get_f32(f->g, "f32.nan", &x, NULL, &f->err),
            "m.gguf: key f32.nan is nan, expected a finite float");
    refused(f, lp_gguf_get_f32(f->g, "f64.inf", &x, NULL, &f->err),
            "m.gguf: key f64.inf is inf, expected a finite float");
    assert_int_equal(lp_gguf_get_f32(f->g, "f64.big", &x, NULL, &f->err), LP_STATUS_FORMAT);
    refused(f, lp_gguf_get_f32(f->g, "u32", &x, NULL, &f->err),
            "m.gguf: key u32 has type u32, expected a float (f32 or f64)");
    assert_int_equal(lp_gguf_get_f32(f->g, "arr.f32", &x, NULL, &f->err), LP_STATUS_FORMAT);
    assert_true(x == 0.1f);
}

static void bools_and_strings(void **state) {
    struct fixture *f = *state;
    bool b = false;
    struct lp_str s = {0};
    assert_int_equal(lp_gguf_get_bool(f->g, "bool", &b, NULL, &f->err), LP_OK);
    assert_true(b);
    assert_int_equal(lp_gguf_get_bool(f->g, "bool.no", &b, NULL, &f->err), LP_OK);
    assert_false(b);
    refused(f, lp_gguf_get_bool(f->g, "u8", &b, NULL, &f->err),
            "m.gguf: key u8 has type u8, expected a bool");
    assert_int_equal(lp_gguf_get_str(f->g, "str", &s, NULL, &f->err), LP_OK);
    assert_true(lp_str_is(s, "hello"));
    assert_int_equal(lp_gguf_get_str(f->g, "str.empty", &s, NULL, &f->err), LP_OK);
    assert_int_equal(s.len, 0);
    refused(f, lp_gguf_get_str(f->g, "arr.none", &s, NULL, &f->err),
            "m.gguf: key arr.none has type array of string, expected a string");
}

static void elements(void **state) {
    struct fixture *f = *state;
    const struct lp_gguf_kv *kv = lp_gguf_find(f->g, "arr.i16");
    assert_true(lp_gguf_is_integral(kv->element_type) && !lp_gguf_is_float(kv->element_type));
    assert_true(lp_gguf_int_at(kv, 0) == -1 && lp_gguf_int_at(kv, 1) == 0 &&
                lp_gguf_int_at(kv, 2) == 300);
    kv = lp_gguf_find(f->g, "arr.f32");
    assert_true(lp_gguf_is_float(kv->element_type));
    assert_true(lp_gguf_float_at(kv, 0) == -0.5 && lp_gguf_float_at(kv, 1) == 8.0);
    kv = lp_gguf_find(f->g, "arr.bool");
    assert_true(lp_gguf_int_at(kv, 0) == 1 && lp_gguf_int_at(kv, 1) == 0);
    assert_true(lp_gguf_int_at(lp_gguf_find(f->g, "u64"), 0) == INT64_MAX);
    assert_true(lp_gguf_int_at(lp_gguf_find(f->g, "i64"), 0) == INT64_MIN);
    assert_true(lp_gguf_int_at(lp_gguf_find(f->g, "i32"), 0) == -2000000000);
    assert_true(lp_gguf_int_at(lp_gguf_find(f->g, "i8"), 0) == -3);
    assert_int_equal(lp_gguf_find(f->g, "arr.none")->count, 0);
    assert_string_equal(lp_gguf_value_type_name(LP_GGUF_I64), "i64");
    assert_string_equal(lp_gguf_value_type_name((enum lp_gguf_value_type)13), "unknown");
}

static void lookups(void **state) {
    struct fixture *f = *state;
    assert_null(lp_gguf_find(f->g, "nothing"));
    assert_null(lp_gguf_kv_at(f->g, lp_gguf_n_kv(f->g)));
    assert_non_null(lp_gguf_find_tensor(f->g, lp_str_from("w")));
    assert_null(lp_gguf_find_tensor(f->g, lp_str_from("v")));
    assert_null(lp_gguf_tensor_at(f->g, 1));
    assert_null(lp_gguf_shard_path(f->g, 1));
    assert_string_equal(lp_gguf_shard_path(f->g, 0), "m.gguf");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(integers_of_any_width, setup, teardown),
        cmocka_unit_test_setup_teardown(missing_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(floats, setup, teardown),
        cmocka_unit_test_setup_teardown(bools_and_strings, setup, teardown),
        cmocka_unit_test_setup_teardown(elements, setup, teardown),
        cmocka_unit_test_setup_teardown(lookups, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
