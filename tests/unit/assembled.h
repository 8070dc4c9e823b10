// A golden model with more tensors than its file has, or with tensors elsewhere in memory: its
// header written again, its data where the file is mapped.
#ifndef LP_TEST_ASSEMBLED_H
#define LP_TEST_ASSEMBLED_H

#include "lp_test.h"

#include "base/alloc.h"
#include "gguf/gguf_assemble.h"

struct more_tensor {
    const char *name; // NULL: the end
    lp_type type;
    uint64_t n;
    const void *data;
};

struct assembled {
    struct lp_gguf *source, *gguf;
    const uint8_t **mats; // of the scattered stack, or NULL
};

// more: added behind those of the file. scattered: a stack whose matrices lie in a list, or NULL.
static inline void assemble(struct assembled *a, const char *path, const struct more_tensor *more,
                            const char *scattered) {
    struct lp_err err;
    *a = (struct assembled){0};
    if (lp_gguf_open(&a->source, path, &err)) fail_msg("%s", err.text);
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    uint64_t n = lp_gguf_n_tensors(a->source), n_more = 0;
    while (more[n_more].name) n_more++;
    struct lp_gguf_place *places = lp_alloc((size_t)(n + n_more), sizeof *places);
    for (uint64_t i = 0; i < lp_gguf_n_kv(a->source); i++)
        lp_gguf_writer_copy(w, lp_gguf_kv_at(a->source, i));
    for (uint64_t i = 0; i < n; i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(a->source, i);
        assert_int_equal(lp_gguf_writer_add(w, t->name, t->type, t->n_dims, t->ne, &err), LP_OK);
        places[i].data = t->data;
        if (!scattered || !lp_str_is(t->name, scattered)) continue;
        a->mats = lp_alloc((size_t)t->ne[2], sizeof *a->mats);
        for (uint64_t m = 0; m < t->ne[2]; m++) a->mats[m] = lp_gguf_tensor_mat(t, m);
        places[i] = (struct lp_gguf_place){.mats = a->mats};
    }
    for (uint64_t i = 0; i < n_more; i++) {
        const struct more_tensor *t = &more[i];
        assert_int_equal(
            lp_gguf_writer_add(w, lp_str_from(t->name), t->type, 1, (uint64_t[]){t->n}, &err),
            LP_OK);
        places[n + i].data = t->data;
    }
    assert_int_equal(lp_gguf_writer_finish(w, &err), LP_OK);
    if (lp_gguf_assemble(&a->gguf, w, places, 1000, "assembled", &err)) fail_msg("%s", err.text);
    lp_gguf_writer_free(w);
    lp_free(places);
}

static inline void disassemble(struct assembled *a) {
    lp_gguf_close(a->gguf);
    lp_gguf_close(a->source);
    lp_free(a->mats);
}

#endif
