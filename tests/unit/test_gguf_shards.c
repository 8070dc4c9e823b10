// Split sets as one logical file, and what is refused about them; sets are written to a directory
// of their own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "gguf/gguf.h"
#include "gguf_build.h"

// What one part says; spec() gives the right one.
struct spec {
    unsigned number, count; // of the file name
    uint64_t no, n, total;  // split.no, split.count, split.tensors.count
    const char *arch, *name, *prefix;
    const char *tensors[3];
    uint32_t alignment, int_type;
};

static char dir[200];

static const char *at(const char *prefix, unsigned number, unsigned count) {
    static char path[4][300];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s-%05u-of-%05u.gguf", dir, prefix, number, count);
    return path[turn];
}

static void put_int(struct lp_bytes *b, const char *key, uint32_t type, uint64_t v) {
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 0, 0, 0, 0, 8, 8};
    gb_kv_raw(b, key, type, &v, bytes[type]);
}

static void write_part(const struct spec *s) {
    struct lp_bytes b = {0};
    uint64_t n_tensors = 0, alignment = s->alignment ? s->alignment : 32;
    uint32_t t = s->int_type ? s->int_type : GB_U16;
    while (n_tensors < 3 && s->tensors[n_tensors]) n_tensors++;
    gb_header(&b, 3, n_tensors, 3u + (s->arch != NULL) + (s->name != NULL) + (s->alignment != 0));
    if (s->arch) gb_kv_str(&b, "general.architecture", s->arch);
    if (s->name) gb_kv_str(&b, "general.name", s->name);
    if (s->alignment) gb_kv_u32(&b, "general.alignment", s->alignment);
    put_int(&b, "split.no", t, s->no);
    put_int(&b, "split.count", t, s->n);
    put_int(&b, "split.tensors.count", t == GB_U16 ? GB_I32 : t, s->total);
    for (uint64_t i = 0; i < n_tensors; i++)
        gb_tensor_1d(&b, s->tensors[i], 2, GB_TYPE_F32, i * alignment);
    for (uint64_t i = 0; i < n_tensors; i++) {
        gb_pad(&b, alignment);
        gb_fill(&b, 8, (uint8_t)s->tensors[i][0]);
    }
    assert_int_equal(gb_write(&b, at(s->prefix, s->number, s->count)), 0);
    lp_bytes_release(&b);
}

// Three parts: no tensors, a b, c.
static struct spec spec(unsigned i) {
    struct spec s = {.number = i + 1, .count = 3, .no = i, .n = 3, .total = 3, .prefix = "m"};
    if (i == 0) s.arch = "test", s.name = "toy";
    if (i == 1) s.tensors[0] = "a", s.tensors[1] = "b";
    if (i == 2) s.tensors[0] = "c";
    return s;
}

static void write_set(void) {
    for (unsigned i = 0; i < 3; i++) {
        struct spec s = spec(i);
        write_part(&s);
    }
}

static int setup(void **state) {
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/limpid-shards-XXXXXX", parent ? parent : P_tmpdir);
    if (!mkdtemp(dir)) return -1;
    write_set();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command) == 0 ? 0 : -1;
}

static void check_set(const char *path) {
    struct lp_gguf *g = NULL;
    struct lp_err err = {0};
    if (lp_gguf_open(&g, path, &err)) fail_msg("%s", err.text);
    assert_int_equal(lp_gguf_n_shards(g), 3);
    assert_int_equal(lp_gguf_n_tensors(g), 3);
    for (uint64_t i = 0; i < 3; i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(g, i);
        assert_int_equal(t->name.data[0], "abc"[i]);
        assert_int_equal(t->shard, i < 2 ? 1 : 2);
        assert_int_equal(t->n_bytes, 8);
        for (int k = 0; k < 8; k++) assert_int_equal(t->data[k], "abc"[i] + k);
    }
    struct lp_str arch;
    assert_int_equal(lp_gguf_get_str(g, "general.architecture", &arch, NULL, &err), LP_OK);
    assert_true(lp_str_is(arch, "test"));
    assert_string_equal(lp_gguf_shard_path(g, 2), at("m", 3, 3));
    lp_gguf_close(g);
}

static void refuse(const char *path, lp_status want, const char *needle) {
    struct lp_gguf *g = (void *)1;
    struct lp_err err = {0};
    lp_status status = lp_gguf_open(&g, path, &err);
    if (status != want || !strstr(err.text, needle))
        fail_msg("status %d, expected %d; \"%s\" should contain \"%s\"", (int)status, (int)want,
                 err.text, needle);
    assert_null(g);
}

static void any_part_opens_the_set(void **state) {
    (void)state;
    for (unsigned i = 1; i <= 3; i++) check_set(at("m", i, 3));
    // a relative path without a slash
    char cwd[4096];
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(dir), 0);
    struct lp_gguf *g = NULL;
    struct lp_err err;
    assert_int_equal(lp_gguf_open(&g, "m-00002-of-00003.gguf", &err), LP_OK);
    assert_string_equal(lp_gguf_shard_path(g, 0), "m-00001-of-00003.gguf");
    lp_gguf_close(g);
    assert_int_equal(chdir(cwd), 0);
}

static void any_integer_type_and_own_alignment(void **state) {
    (void)state;
    const uint32_t types[] = {GB_U8, GB_I8, GB_I16, GB_U32, GB_I32, GB_U64, GB_I64};
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
        for (unsigned i = 0; i < 3; i++) {
            struct spec s = spec(i);
            s.int_type = types[k];
            s.alignment = 32u << i;
            write_part(&s);
        }
        check_set(at("m", 1, 3));
    }
}

static void the_name_alone_makes_no_part(void **state) {
    (void)state;
    for (uint64_t count = 0; count <= 2; count++) { // 2: no split keys at all
        struct lp_bytes b = {0};
        gb_header(&b, 3, 1, count < 2);
        if (count < 2) gb_kv_u32(&b, "split.count", (uint32_t)count);
        gb_tensor_1d(&b, "w", 8, GB_TYPE_F32, 0), gb_pad(&b, 32), gb_fill(&b, 32, 0);
        assert_int_equal(gb_write(&b, at("x", 1, 13)), 0);
        lp_bytes_release(&b);
        struct lp_gguf *g = NULL;
        struct lp_err err;
        assert_int_equal(lp_gguf_open(&g, at("x", 1, 13), &err), LP_OK);
        assert_int_equal(lp_gguf_n_shards(g), 1);
        lp_gguf_close(g);
    }
}

static void all_missing_parts_are_named_at_once(void **state) {
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        struct spec s = {.number = i + 1, .count = 5, .no = i, .n = 5, .prefix = "five"};
        write_part(&s);
    }
    assert_int_equal(unlink(at("five", 2, 5)), 0);
    assert_int_equal(unlink(at("five", 4, 5)), 0);
    refuse(at("five", 3, 5), LP_STATUS_IO,
           "five-00003-of-00005.gguf belongs to a split set of 5 parts; missing from its folder "
           "(2): five-00002-of-00005.gguf, five-00004-of-00005.gguf");
    struct spec s = {.number = 1, .count = 4000, .n = 4000, .prefix = "many"};
    write_part(&s);
    refuse(at("many", 1, 4000), LP_STATUS_IO,
           "missing from its folder (3999): many-00002-of-04000.gguf, ");
    refuse(at("many", 1, 4000), LP_STATUS_IO, " more");
    s = (struct spec){.number = 1, .count = 1, .n = 60000, .prefix = "toomany"};
    write_part(&s);
    refuse(at("toomany", 1, 1), LP_STATUS_FORMAT, "key split.count is 60000");
}

static void names_that_disagree(void **state) {
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/renamed.gguf", dir);
    assert_int_equal(rename(at("m", 1, 3), path), 0);
    refuse(path, LP_STATUS_FORMAT, "its name does not end in -00001-of-00003.gguf");
    assert_int_equal(rename(path, at("m", 1, 4)), 0);
    refuse(at("m", 1, 4), LP_STATUS_FORMAT, "its name says 4 parts; rename");
    assert_int_equal(rename(at("m", 1, 4), at("m", 1, 3)), 0);
    // parts 2 and 3 exchanged, seen from each
    snprintf(path, sizeof path, "%s/t", dir);
    assert_int_equal(rename(at("m", 2, 3), path), 0);
    assert_int_equal(rename(at("m", 3, 3), at("m", 2, 3)), 0);
    assert_int_equal(rename(path, at("m", 3, 3)), 0);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT, "m-00002-of-00003.gguf says split.no = 2, expected 1");
    refuse(at("m", 2, 3), LP_STATUS_FORMAT, "m-00002-of-00003.gguf says split.no = 2");
}

static void parts_that_do_not_belong(void **state) {
    (void)state;
    struct spec s = spec(2);
    s.tensors[0] = "b";
    write_part(&s);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT, "tensor b is also in part 2 (m-00002-of-00003.gguf)");
    s = spec(2), s.tensors[1] = "d";
    write_part(&s);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT,
           "split.tensors.count = 3, but the 3 parts together hold 4");
    s = spec(2), s.total = 4;
    write_part(&s);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT,
           "m-00003-of-00003.gguf says split.tensors.count = 4, expected 3");
    s = spec(2), s.n = 4;
    write_part(&s);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT,
           "m-00003-of-00003.gguf says split.count = 4, expected 3");
    s = spec(2), s.arch = "other";
    write_part(&s);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT,
           "m-00003-of-00003.gguf is a part of another model: its general.architecture is other");
    s = spec(2), s.arch = "test", s.name = "toy2";
    write_part(&s);
    refuse(at("m", 2, 3), LP_STATUS_FORMAT, "its general.name is toy2");
    s = spec(2), s.arch = "test", s.name = "toy";
    write_part(&s);
    check_set(at("m", 3, 3)); // the same values are no fault
    s = spec(1), s.no = 0;    // a doubled first part
    write_part(&s);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT, "m-00002-of-00003.gguf says split.no = 0, expected 1");
    s = spec(0), s.no = 3;
    write_part(&s);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT, "key split.no is 3, expected an integer from 0 to 2");
}

static void a_damaged_part_is_named(void **state) {
    (void)state;
    assert_int_equal(truncate(at("m", 3, 3), 60), 0);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT, "m-00003-of-00003.gguf: ");
    refuse(at("m", 2, 3), LP_STATUS_FORMAT, "m-00003-of-00003.gguf: ");
    assert_int_equal(truncate(at("m", 3, 3), 0), 0);
    refuse(at("m", 1, 3), LP_STATUS_FORMAT, "m-00003-of-00003.gguf: this is not a GGUF file");
    refuse(dir, LP_STATUS_IO, "not a regular file");
    refuse("/nonexistent/x.gguf", LP_STATUS_IO, "/nonexistent/x.gguf");
}

static void failing_allocations(void **state) {
    (void)state;
    size_t n = 1;
    for (;; n++) {
        struct lp_gguf *g;
        struct lp_err err = {0};
        lp_alloc_fail_after(n);
        lp_status status = lp_gguf_open(&g, at("m", 3, 3), &err);
        lp_alloc_fail_after(0);
        if (status == LP_OK) {
            lp_gguf_close(g);
            break;
        }
        assert_int_equal(status, LP_STATUS_MEMORY);
        assert_null(g);
        assert_true(n < 300);
    }
    assert_true(n > 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(any_part_opens_the_set),       TEST(any_integer_type_and_own_alignment),
        TEST(the_name_alone_makes_no_part), TEST(all_missing_parts_are_named_at_once),
        TEST(names_that_disagree),          TEST(parts_that_do_not_belong),
        TEST(a_damaged_part_is_named),      TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
