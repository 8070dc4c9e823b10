// Tensor data that was read ahead, against the same file mapped.
#include "lp_test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "gguf/gguf_prefetch.h"

#define MODEL "models/mini-glm-dsa.gguf"

static const struct lp_gguf_prefetch_options plain = {.available_bytes = UINT64_MAX};
static char copy[64];

static int make_copy(void **state) {
    (void)state;
    static char bytes[1 << 20];
    size_t n;
    strcpy(copy, "/var/tmp/limpid-prefetch-XXXXXX");
    int fd = mkstemp(copy);
    FILE *from = fopen(MODEL, "rb"), *to = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!from || !to) return -1;
    while ((n = fread(bytes, 1, sizeof bytes, from)) > 0)
        if (fwrite(bytes, 1, n, to) != n) return -1;
    fclose(from);
    return fclose(to);
}

static int drop_copy(void **state) {
    (void)state;
    return unlink(copy);
}

static void check_same(const struct lp_gguf *got, const struct lp_gguf *want) {
    assert_int_equal(lp_gguf_n_tensors(got), lp_gguf_n_tensors(want));
    for (uint64_t i = 0; i < lp_gguf_n_tensors(want); i++) {
        const struct lp_gguf_tensor *a = lp_gguf_tensor_at(got, i), *b = lp_gguf_tensor_at(want, i);
        assert_true(a->in_memory);
        assert_false(b->in_memory);
        assert_ptr_not_equal(a->data, b->data);
        assert_int_equal(a->n_bytes, b->n_bytes);
        assert_memory_equal(a->data, b->data, a->n_bytes);
        // Kernels read what the file's alignment lets them.
        assert_int_equal((uintptr_t)a->data % 32, (uintptr_t)b->data % 32);
    }
}

static void every_tensor_is_the_mapped_one(void **state) {
    (void)state;
    struct lp_gguf *mapped, *read;
    struct lp_err err;
    assert_int_equal(lp_gguf_open(&mapped, copy, &err), LP_OK);
    for (int huge = 0; huge < 2; huge++) {
        struct lp_gguf_prefetch_options options = plain;
        options.huge_pages = huge;
        assert_int_equal(lp_gguf_open(&read, copy, &err), LP_OK);
        if (lp_gguf_prefetch(read, &options, &err)) fail_msg("%s", err.text);
        check_same(read, mapped);
        assert_non_null(lp_gguf_find(read, "general.architecture"));
        lp_gguf_close(read);
    }
    lp_gguf_close(mapped);
}

// A file that failed to be read ahead is the mapped file it was.
// Some bytes of each tensor, marked in any order, some twice.
static void marked_bytes_are_the_mapped_ones(void **state) {
    (void)state;
    enum { MARKS = 400 };
    const uint8_t *at[MARKS];
    uint64_t bytes[MARKS];
    struct lp_gguf *gguf;
    struct lp_gguf_ahead *ahead;
    struct lp_err err;
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    assert_int_equal(lp_gguf_open(&gguf, copy, &err), LP_OK);
    assert_int_equal(lp_gguf_ahead_new(&ahead, gguf, &err), LP_OK);
    for (int i = 0; i < MARKS; i++) {
        const struct lp_gguf_tensor *t =
            lp_gguf_tensor_at(gguf, lp_rng_u64(&rng) % lp_gguf_n_tensors(gguf));
        const uint64_t first = lp_rng_u64(&rng) % t->n_bytes;
        at[i] = (const uint8_t *)t->data + first;
        bytes[i] = 1 + lp_rng_u64(&rng) % (t->n_bytes - first);
        if (i % 3) bytes[i] = bytes[i] % 20000 + 1 < bytes[i] ? bytes[i] % 20000 + 1 : bytes[i];
        assert_int_equal(lp_gguf_ahead_mark(ahead, at[i], bytes[i], &err), LP_OK);
    }
    const int elsewhere = 0;
    assert_int_equal(lp_gguf_ahead_mark(ahead, &elsewhere, sizeof elsewhere, &err), LP_OK);
    if (lp_gguf_ahead_read(ahead, &plain, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < MARKS; i++) {
        const void *read = lp_gguf_ahead_at(ahead, at[i]);
        assert_ptr_not_equal(read, at[i]);
        assert_memory_equal(read, at[i], bytes[i]);
        assert_int_equal((uintptr_t)read % 64, (uintptr_t)at[i] % 64);
    }
    assert_ptr_equal(lp_gguf_ahead_at(ahead, &elsewhere), &elsewhere);
    lp_gguf_ahead_free(ahead);
    lp_gguf_close(gguf);
}

static void refuse(struct lp_gguf *g, const struct lp_gguf_prefetch_options *options,
                   lp_status want, const char *needle) {
    struct lp_err err = {0};
    const uint8_t *before = lp_gguf_tensor_at(g, 0)->data;
    lp_status status = lp_gguf_prefetch(g, options, &err);
    if (status != want || !strstr(err.text, needle))
        fail_msg("status %d, expected %d; \"%s\" should contain \"%s\"", (int)status, (int)want,
                 err.text, needle);
    assert_ptr_equal(lp_gguf_tensor_at(g, 0)->data, before);
    assert_false(lp_gguf_tensor_at(g, 0)->in_memory);
}

static void too_little_memory_is_told(void **state) {
    (void)state;
    struct lp_gguf *g;
    struct lp_gguf_prefetch_options options = plain;
    assert_int_equal(lp_gguf_open(&g, copy, NULL), LP_OK);
    options.available_bytes = 1000000;
    refuse(g, &options, LP_STATUS_MEMORY, "0.0 GB are free");
    for (size_t nth = 1; nth <= 4; nth++) {
        lp_alloc_fail_after(nth);
        refuse(g, &plain, LP_STATUS_MEMORY, "");
        lp_alloc_fail_after(0);
    }
    lp_gguf_close(g);
}

static void files_that_change_meanwhile_are_told(void **state) {
    (void)state;
    struct lp_gguf *g;
    struct stat st;
    assert_int_equal(stat(copy, &st), 0);
    assert_int_equal(lp_gguf_open(&g, copy, NULL), LP_OK);
    assert_int_equal(truncate(copy, st.st_size - 4096), 0);
    refuse(g, &plain, LP_STATUS_IO, "is being written");
    char moved[80];
    snprintf(moved, sizeof moved, "%s-moved", copy);
    assert_int_equal(rename(copy, moved), 0);
    refuse(g, &plain, LP_STATUS_IO, "No such file");
    assert_int_equal(rename(moved, copy), 0);
    lp_gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_tensor_is_the_mapped_one),
                                       cmocka_unit_test(marked_bytes_are_the_mapped_ones),
                                       cmocka_unit_test(too_little_memory_is_told),
                                       cmocka_unit_test(files_that_change_meanwhile_are_told)};
    return cmocka_run_group_tests(tests, make_copy, drop_copy);
}
