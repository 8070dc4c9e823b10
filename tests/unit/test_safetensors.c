// Headers written by hand after the format's description; what is read back is what stands in them.
#include "temp_folder.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "gguf/safetensors.h"

static struct lp_bytes file_of(const char *header, const void *data, size_t n) {
    struct lp_bytes out = {0};
    uint64_t length = strlen(header);
    lp_bytes_append(&out, &length, sizeof length);
    lp_bytes_puts(&out, header);
    lp_bytes_append(&out, data, n);
    return out;
}

static void every_dtype_and_shape(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum lp_st_dtype dtype;
        uint64_t bytes;
    } dtypes[] = {
        {"BOOL", LP_ST_BOOL, 1},       {"U8", LP_ST_U8, 1},           {"I8", LP_ST_I8, 1},
        {"F8_E4M3", LP_ST_F8_E4M3, 1}, {"F8_E5M2", LP_ST_F8_E5M2, 1}, {"F8_E8M0", LP_ST_F8_E8M0, 1},
        {"I16", LP_ST_I16, 2},         {"U16", LP_ST_U16, 2},         {"F16", LP_ST_F16, 2},
        {"BF16", LP_ST_BF16, 2},       {"I32", LP_ST_I32, 4},         {"U32", LP_ST_U32, 4},
        {"F32", LP_ST_F32, 4},         {"I64", LP_ST_I64, 8},         {"U64", LP_ST_U64, 8},
        {"F64", LP_ST_F64, 8},
    };
    unsigned char data[104];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        struct lp_bytes header = {0};
        struct lp_safetensors *st;
        struct lp_err err;
        uint64_t n = 12 * dtypes[i].bytes; // [4, 3] and a scalar before it
        lp_bytes_printf(&header,
                        " {\"s\\u00e9\" : {\"data_offsets\":[0,%d],\"shape\":[],\"dtype\":\"%s\"},"
                        "\"__metadata__\":{\"a\":[{\"b\":\"}\\\"\"}]},\"m\":{\"dtype\":\"%s\","
                        "\"shape\":[4,3],\"data_offsets\":[%d,%d]}}   ",
                        (int)dtypes[i].bytes, dtypes[i].name, dtypes[i].name, (int)dtypes[i].bytes,
                        (int)(n + dtypes[i].bytes));
        struct lp_bytes file = file_of(header.data, data, (size_t)(n + dtypes[i].bytes));
        assert_int_equal(lp_safetensors_parse(&st, file.data, file.len, "f", &err), LP_OK);
        assert_int_equal((int)lp_safetensors_count(st), 2);
        assert_true(lp_safetensors_file_bytes(st) == file.len);
        const struct lp_st_array *s = lp_safetensors_find(st, "s\xc3\xa9"),
                                 *m = lp_safetensors_find(st, "m");
        assert_true(s && s->n_dims == 0 && s->n_values == 1 && s->n_bytes == dtypes[i].bytes);
        assert_true(m && m->n_dims == 2 && m->dims[0] == 4 && m->dims[1] == 3);
        assert_true(m->n_values == 12 && m->n_bytes == n && m->data[0] == dtypes[i].bytes);
        assert_int_equal(m->dtype, dtypes[i].dtype);
        assert_string_equal(m->dtype_name, dtypes[i].name);
        assert_ptr_equal(lp_safetensors_at(st, 1), m);
        assert_null(lp_safetensors_find(st, "__metadata__"));
        lp_safetensors_close(st);
        lp_bytes_release(&file);
        lp_bytes_release(&header);
    }
}

#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void others_and_empty_ones(void **state) {
    (void)state;
    struct lp_safetensors *st;
    struct lp_err err;
    struct lp_bytes file =
        file_of("{" ENTRY("four", "F4", "[2,3]", "[0,3]") "," ENTRY(
                    "none", "F32", "[0,7]", "[2,2]") "," ENTRY("gap", "U8", "[2]", "[6,8]") "}",
                "12345678", 8);
    assert_int_equal(lp_safetensors_parse(&st, file.data, file.len, "f", &err), LP_OK);
    const struct lp_st_array *four = lp_safetensors_find(st, "four");
    assert_true(four->dtype == LP_ST_OTHER && four->n_values == 6 && four->n_bytes == 3);
    assert_string_equal(four->dtype_name, "F4");
    assert_true(lp_safetensors_find(st, "none")->n_values == 0);
    assert_true(lp_safetensors_find(st, "gap")->data[1] == '8');
    lp_safetensors_close(st);
    lp_bytes_release(&file);
    file = file_of("{}", "", 0);
    assert_int_equal(lp_safetensors_parse(&st, file.data, file.len, "f", &err), LP_OK);
    assert_int_equal((int)lp_safetensors_count(st), 0);
    lp_safetensors_close(st);
    lp_bytes_release(&file);
}

static void bad_headers(void **state) {
    (void)state;
    static const struct {
        const char *header, *words;
    } bad[] = {
        {"{" ENTRY("a", "U8", "[4]", "[0,4]") "," ENTRY("a", "U8", "[4]", "[4,8]") "}", "twice"},
        {"{" ENTRY("a", "U8", "[4]", "[0,4]") "," ENTRY("\\u0061", "U8", "[4]", "[4,8]") "}",
         "twice"},
        {"{" ENTRY("a", "U8", "[5]", "[0,5]") "," ENTRY("b", "U8", "[4]", "[4,8]") "}",
         "same bytes"},
        {"{" ENTRY("b", "U8", "[4]", "[4,8]") "," ENTRY("a", "U8", "[8]", "[0,8]") "}",
         "same bytes"},
        {"{" ENTRY("a", "F32", "[3]", "[0,8]") "}", "other bytes"},
        {"{" ENTRY("a", "F32", "[4611686018427387904,4]", "[0,0]") "}", "other bytes"},
        {"{" ENTRY("a", "X", "[4611686018427387904,4]", "[0,0]") "}", "other bytes"},
        {"{" ENTRY("a", "U8", "[9]", "[0,9]") "}", "outside"},
        {"{" ENTRY("a", "U8", "[4]", "[4,0]") "}", "outside"},
        {"{" ENTRY("a", "U8", "[4]", "[-4,0]") "}", "outside"},
        {"{" ENTRY("a", "U8", "[-4]", "[0,4]") "}", "whole number"},
        {"{" ENTRY("a", "U8", "[4.0]", "[0,4]") "}", "whole number"},
        {"{" ENTRY("a", "U8", "[\"4\"]", "[0,4]") "}", "whole number"},
        {"{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]") "}", "8 dimensions"},
        {"{" ENTRY("a", "U8", "[4]", "[0,4.0]") "}", "data_offsets"},
        {"{" ENTRY("a", "U8", "[4]", "[0,4,4]") "}", "data_offsets"},
        {"{" ENTRY("a", "U8", "[4]", "[0,99999999999999999999]") "}", "JSON"},
        {"{" ENTRY("a", "U8", "[4]", "[0,4}") "}", "JSON"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
         "duplicate"},
        {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", "no dtype"},
        {"{\"a\\u0000\":{}}", "JSON"},
        {"{\"\xff\":{}}", "JSON"},
        {"{\"a\":7}", "JSON"},
        {"{\"a\"}", "JSON"},
        {"{\"a\":{}", "JSON"},
        {"{\"a\":{},}", "JSON"},
        {"{\"__metadata__\":[}", "JSON"},
        {"{\"__metadata__\":{\"a\"}}", "JSON"},
        {"{} x", "JSON"},
        {"[1]", "JSON"},
        {"{", "JSON"},
        {"{\"", "JSON"},
        {"", "JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct lp_safetensors *st = (void *)&st;
        struct lp_err err;
        struct lp_bytes file = file_of(bad[i].header, "12345678", 8);
        assert_int_equal(lp_safetensors_parse(&st, file.data, file.len, "file", &err),
                         LP_STATUS_FORMAT);
        if (!strstr(err.text, bad[i].words)) print_message("%s: %s\n", bad[i].header, err.text);
        assert_non_null(strstr(err.text, bad[i].words));
        assert_non_null(strstr(err.text, "file"));
        assert_null(st);
        lp_bytes_release(&file);
    }
}

// A header that is too deep, and one that claims more bytes than there are.
static void deep_and_long_headers(void **state) {
    (void)state;
    struct lp_safetensors *st;
    struct lp_err err;
    struct lp_bytes header = {0};
    lp_bytes_puts(&header, "{\"a\":");
    for (int i = 0; i < 30000; i++) lp_bytes_puts(&header, "[");
    for (int i = 0; i < 30000; i++) lp_bytes_puts(&header, "]");
    lp_bytes_puts(&header, "}");
    struct lp_bytes file = file_of(header.data, "", 0);
    assert_int_equal(lp_safetensors_parse(&st, file.data, file.len, "file", &err),
                     LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "JSON"));
    lp_bytes_release(&file);
    lp_bytes_release(&header);
    lp_bytes_puts(&header, "{\"a\":{\"dtype\":\"");
    for (int i = 0; i < 70000; i++) lp_bytes_puts(&header, "x");
    lp_bytes_puts(&header, "\"}}");
    file = file_of(header.data, "", 0);
    assert_int_equal(lp_safetensors_parse(&st, file.data, file.len, "file", &err),
                     LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "too long"));
    lp_bytes_release(&file);
    lp_bytes_release(&header);
    unsigned char huge[] = {0, 0, 0, 0, 0, 0, 0, 0x80, '{', '}'},
                  beyond[] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    assert_int_equal(lp_safetensors_parse(&st, huge, 10, "f", &err), LP_STATUS_FORMAT);
    assert_int_equal(lp_safetensors_parse(&st, beyond, 10, "f", &err), LP_STATUS_FORMAT);
    assert_int_equal(lp_safetensors_parse(&st, beyond, 7, "f", &err), LP_STATUS_FORMAT);
    assert_int_equal(lp_safetensors_parse(&st, NULL, 0, "f", &err), LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "cut short"));
}

// ---- folders

static void put_arrays(const char *name, const char *header) {
    struct lp_bytes file = file_of(header, "12345678", 8);
    put_bytes(name, file.data, file.len);
    lp_bytes_release(&file);
}

static void put_index(const char *text) {
    put("model.safetensors.index.json", text);
}

static void refused(lp_status status, const char *words, const char *more) {
    struct lp_safetensors *st;
    struct lp_err err;
    assert_int_equal(lp_safetensors_open_folder(&st, folder, &err), status);
    if (!strstr(err.text, words) || !strstr(err.text, more)) print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, words));
    assert_non_null(strstr(err.text, more));
    assert_null(st);
}

static void opens(int n_arrays) {
    struct lp_safetensors *st;
    struct lp_err err;
    if (lp_safetensors_open_folder(&st, folder, &err)) print_message("%s\n", err.text);
    assert_int_equal((int)lp_safetensors_count(st), n_arrays);
    lp_safetensors_close(st);
}

#define A "{" ENTRY("a", "U8", "[8]", "[0,8]") "}"
#define B "{" ENTRY("b", "F32", "[2]", "[0,8]") "," ENTRY("c", "F32", "[0]", "[0,0]") "}"

static void an_index_and_its_shards(void **state) {
    (void)state;
    struct lp_safetensors *st;
    struct lp_err err;
    put_arrays("y.safetensors", A);
    put_arrays("x.safetensors", B);
    put_arrays("other.safetensors", A); // not in the index
    put_index("{\"metadata\":{\"total_size\":16},\"weight_map\":{\"a\":\"y.safetensors\","
              "\"b\":\"x.safetensors\"}}");
    assert_int_equal(lp_safetensors_open_folder(&st, folder, &err), LP_OK);
    assert_int_equal((int)lp_safetensors_count(st), 3);
    const struct lp_st_array *a = lp_safetensors_find(st, "a"), *b = lp_safetensors_find(st, "b");
    assert_true(a->file == 1 && b->file == 0 && a->data[7] == '8' && b->n_values == 2);
    lp_safetensors_close(st);
    for (size_t n = 1; n < 100; n++) { // every allocation fails once
        lp_alloc_fail_after(n);
        lp_status status = lp_safetensors_open_folder(&st, folder, &err);
        lp_alloc_fail_after(0);
        if (!status) {
            lp_safetensors_close(st);
            break;
        }
        assert_int_equal(status, LP_STATUS_MEMORY);
    }
    drop("other.safetensors");

    put_index("{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"x.safetensors\"}}");
    refused(LP_STATUS_FORMAT, "a is in x.safetensors", "none of the files");
    put_index("{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"y.safetensors\"}}");
    refused(LP_STATUS_FORMAT, "a is in x.safetensors", "y.safetensors;");
    put_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\","
              "\"c\":\"x.safetensors\"}}");
    refused(LP_STATUS_IO, "lacks 2 of the 3", "1.safetensors, 2.safetensors;");
    const char *outside[] = {"../x", "a/x", "/etc/passwd", ".", "..", ""};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", outside[i]);
        put_index(text);
        refused(LP_STATUS_FORMAT, "no file of the folder", "index.json");
    }
    put_index("{\"weight_map\":{\"a\":7}}");
    refused(LP_STATUS_FORMAT, "without naming its file", "index.json");
    put_index("{\"weight_map\":[\"x\"]}");
    refused(LP_STATUS_FORMAT, "weight_map that is no JSON object", "");
    put_index("{\"weight_map\":{},\"weight_map\":{}}");
    refused(LP_STATUS_FORMAT, "two weight_maps", "");
    put_index("{\"weight_map\":{}}");
    refused(LP_STATUS_FORMAT, "names no files", "");
    put_index("{\"metadata\":{}}");
    refused(LP_STATUS_FORMAT, "no weight_map", "");
    put_index("{\"weight_map\":{\"a\":\"y.safet");
    refused(LP_STATUS_FORMAT, "no JSON object", "");
    put_index("");
    refused(LP_STATUS_FORMAT, "no JSON object", "");
    drop("model.safetensors.index.json");
    drop("x.safetensors");
    drop("y.safetensors");
}

// So many missing shards that one message cannot name them all.
static void many_missing_shards(void **state) {
    (void)state;
    struct lp_bytes text = {0};
    lp_bytes_puts(&text, "{\"weight_map\":{");
    for (int i = 1; i <= 163; i++)
        lp_bytes_printf(&text, "%s\"t%d\":\"model-%05d-of-00163.safetensors\"", i > 1 ? "," : "", i,
                        i);
    lp_bytes_puts(&text, "}}");
    put_index(text.data);
    lp_bytes_release(&text);
    refused(LP_STATUS_IO, "lacks 163 of the 163", "model-00002-of-00163.safetensors");
    refused(LP_STATUS_IO, " more; download", "");
    drop("model.safetensors.index.json");
}

static void folders_without_an_index(void **state) {
    (void)state;
    refused(LP_STATUS_IO, "no .safetensors", folder);
    put_arrays("weights.safetensors", A);
    opens(1);
    put_arrays("more.safetensors", B);
    refused(LP_STATUS_FORMAT, "2 .safetensors files", "index.json");
    put_arrays("model-00001-of-00003.safetensors", A);
    put_arrays("model-00003-of-00003.safetensors", "{}");
    refused(LP_STATUS_IO, "lacks 1 of the 3", ": model-00002-of-00003.safetensors;");
    put_arrays("model-00002-of-00003.safetensors", B);
    opens(3);
    put_arrays("model-00003-of-00003.safetensors", A);
    refused(LP_STATUS_FORMAT, "a is in two files", "model-00003-of-00003.safetensors");
    put_arrays("model.safetensors", B); // the whole of them
    opens(2);
    const char *names[] = {
        "weights", "more", "model-00001-of-00003", "model-00002-of-00003", "model-00003-of-00003",
        "model"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.safetensors", names[i]);
        drop(name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_and_shape),
        cmocka_unit_test(others_and_empty_ones),
        cmocka_unit_test(bad_headers),
        cmocka_unit_test(deep_and_long_headers),
        cmocka_unit_test(an_index_and_its_shards),
        cmocka_unit_test(many_missing_shards),
        cmocka_unit_test(folders_without_an_index),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
