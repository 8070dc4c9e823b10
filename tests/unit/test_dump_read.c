// Arrays from other programs: the layouts are those of the safetensors and NumPy formats, written
// here by hand.
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lp_test.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "doctor/dump_read.h"

static struct lp_bytes safetensors(const char *header, const void *data, size_t n) {
    struct lp_bytes out = {0};
    uint64_t length = strlen(header);
    lp_bytes_append(&out, &length, sizeof length);
    lp_bytes_puts(&out, header);
    lp_bytes_append(&out, data, n);
    return out;
}

static struct lp_bytes npy(int version, const char *header, const void *data, size_t n) {
    struct lp_bytes out = {0};
    unsigned char head[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)version, 0};
    uint32_t length = (uint32_t)strlen(header);
    memcpy(head + 8, &length, 4);
    lp_bytes_append(&out, head, version == 1 ? 10 : 12);
    lp_bytes_puts(&out, header);
    lp_bytes_append(&out, data, n);
    return out;
}

static void every_type_has_its_values(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_dump *dump;
    unsigned char data[48];
    float f[] = {1.5f, -2.0f};
    double d[] = {0.25, 1e10};
    uint16_t half[] = {0x3c00, 0xc000}, brain[] = {0x3f80, 0xc000}; // 1 and -2 in both
    int32_t i = -7;
    int64_t wide = 1LL << 40;
    memcpy(data, f, 8);
    memcpy(data + 8, d, 16);
    memcpy(data + 24, half, 4);
    memcpy(data + 28, brain, 4);
    memcpy(data + 32, &i, 4);
    memcpy(data + 36, &wide, 8);
    struct lp_bytes file =
        safetensors("{\"__metadata__\": {\"x\": \"y\"},"
                    "\"f\": {\"dtype\": \"F32\", \"shape\": [1, 2], \"data_offsets\": [0, 8]},"
                    "\"d\": {\"dtype\": \"F64\", \"shape\": [2], \"data_offsets\": [8, 24]},"
                    "\"h\": {\"dtype\": \"F16\", \"shape\": [2], \"data_offsets\": [24, 28]},"
                    "\"b\": {\"dtype\": \"BF16\", \"shape\": [2], \"data_offsets\": [28, 32]},"
                    "\"i\": {\"dtype\": \"I32\", \"shape\": [], \"data_offsets\": [32, 36]},"
                    "\"w\": {\"dtype\": \"I64\", \"shape\": [1], \"data_offsets\": [36, 44]},"
                    "\"o\": {\"dtype\": \"F8_E4M3\", \"shape\": [4], \"data_offsets\": [44, 48]}}",
                    data, sizeof data);
    assert_int_equal(lp_dump_read_safetensors(&dump, file.data, file.len, "f", &err), LP_OK);
    assert_int_equal((int)lp_dump_count(dump), 7);
    float got[2];
    const char *names[] = {"h", "b"};
    for (int k = 0; k < 2; k++) {
        lp_dump_floats(lp_dump_find(dump, names[k]), 0, 2, got);
        assert_true(got[0] == 1 && got[1] == -2);
    }
    lp_dump_floats(lp_dump_find(dump, "f"), 1, 1, got);
    assert_true(got[0] == -2);
    lp_dump_floats(lp_dump_find(dump, "d"), 0, 2, got);
    assert_true(got[0] == 0.25f && got[1] == 1e10f);
    assert_int_equal(lp_dump_int(lp_dump_find(dump, "i"), 0), -7);
    assert_true(lp_dump_int(lp_dump_find(dump, "w"), 0) == wide);
    assert_int_equal(lp_dump_find(dump, "o")->type, LP_DUMP_OTHER);
    assert_string_equal(lp_dump_find(dump, "o")->type_name, "F8_E4M3");
    assert_null(lp_dump_find(dump, "none"));
    lp_dump_free(dump);
    lp_bytes_release(&file);
}

static void bad_safetensors_are_refused(void **state) {
    (void)state;
    const struct {
        const char *header, *words;
    } bad[] = {
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [3], \"data_offsets\": [0, 8]}}", "other bytes"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 80]}}", "outside"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [8, 0]}}", "outside"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [-8, 0]}}", "outside"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [-2], \"data_offsets\": [0, 8]}}",
         "whole number"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2.0], \"data_offsets\": [0, 8]}}",
         "whole number"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 4], \"data_offsets\": [0, "
         "0]}}",
         "other bytes"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,2], \"data_offsets\": [0, 8]}}",
         "8 dimensions"},
        {"{\"a\": {\"shape\": [2], \"data_offsets\": [0, 8]}}", "no dtype"},
        {"{\"a\": 7}", "no dtype"},
        {"{\"a\": 7, \"a\": 8}", "JSON"},
        {"[1]", "JSON"},
        {"{", "JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct lp_err err;
        struct lp_dump *dump;
        struct lp_bytes file = safetensors(bad[i].header, "12345678", 8);
        assert_int_equal(lp_dump_read_safetensors(&dump, file.data, file.len, "file", &err),
                         LP_STATUS_FORMAT);
        if (!strstr(err.text, bad[i].words)) print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, bad[i].words));
        assert_non_null(strstr(err.text, "file"));
        lp_bytes_release(&file);
    }
    struct lp_err err;
    struct lp_dump *dump;
    unsigned char huge[8] = {0, 0, 0, 0, 0, 0, 0, 0x80};
    assert_int_equal(lp_dump_read_safetensors(&dump, huge, 8, "file", &err), LP_STATUS_FORMAT);
    assert_int_equal(lp_dump_read_safetensors(&dump, huge, 3, "file", &err), LP_STATUS_FORMAT);
    assert_int_equal(lp_dump_read_safetensors(&dump, NULL, 0, "file", &err), LP_STATUS_FORMAT);
}

static void npy_headers(void **state) {
    (void)state;
    const struct {
        int version;
        const char *header, *words; // words NULL: right, [2, 1] of float32
    } cases[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }  \n", NULL},
        {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }  \n", NULL},
        {3, "{'shape':(2,1),'fortran_order':False,'descr':'<f4'}\n", NULL},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1), }\n", "other bytes"},
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }\n", "Fortran"},
        {1, "{'descr': '<f4', 'shape': (2, 1), }\n", "without descr"},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 1), }\n",
         "without descr"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1\n", "no usable shape"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': 2}\n", "no usable shape"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}\n", "no usable shape"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}\n",
         "no usable shape"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}\n",
         "no usable shape"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lp_err err;
        struct lp_dump *dump;
        float values[] = {4, 5}, got;
        struct lp_bytes file = npy(cases[i].version, cases[i].header, values, sizeof values);
        lp_status status = lp_dump_read_npy(&dump, "x", file.data, file.len, "x.npy", &err);
        if (cases[i].words) {
            assert_int_equal(status, LP_STATUS_FORMAT);
            if (!strstr(err.text, cases[i].words)) print_message("%s\n", err.text);
            assert_non_null(strstr(err.text, cases[i].words));
        } else {
            assert_int_equal(status, LP_OK);
            const struct lp_dump_array *a = lp_dump_find(dump, "x");
            assert_true(a->n_dims == 2 && a->dims[0] == 2 && a->dims[1] == 1 && a->n_values == 2);
            lp_dump_floats(a, 1, 1, &got);
            assert_true(got == 5);
            lp_dump_free(dump);
        }
        lp_bytes_release(&file);
    }
}

static void folders_and_missing_files(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_dump *dump;
    char folder[] = "/tmp/limpid-dump-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(lp_dump_open(&dump, folder, &err), LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "no .npy files"));
    float value = 3;
    struct lp_bytes file =
        npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", &value, sizeof value);
    const char *names[] = {"a.npy", "layer0.attn.q.npy", "ignored.txt"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(file.data, 1, file.len, out), file.len);
        fclose(out);
    }
    assert_int_equal(lp_dump_open(&dump, folder, &err), LP_OK);
    assert_int_equal((int)lp_dump_count(dump), 2);
    assert_non_null(lp_dump_find(dump, "layer0.attn.q"));
    lp_dump_free(dump);
    for (size_t n = 1; n < 30; n++) { // every allocation fails once
        lp_alloc_fail_after(n);
        lp_status status = lp_dump_open(&dump, folder, &err);
        lp_alloc_fail_after(0);
        if (!status) {
            lp_dump_free(dump);
            break;
        }
        assert_int_equal(status, LP_STATUS_MEMORY);
    }
    snprintf(path, sizeof path, "%s/a.npy", folder);
    assert_int_equal(lp_dump_open(&dump, path, &err), LP_OK);
    assert_non_null(lp_dump_find(dump, "a"));
    lp_dump_free(dump);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    rmdir(folder);
    assert_int_equal(lp_dump_open(&dump, folder, &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, folder));
    lp_bytes_release(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_its_values),
        cmocka_unit_test(bad_safetensors_are_refused),
        cmocka_unit_test(npy_headers),
        cmocka_unit_test(folders_and_missing_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
