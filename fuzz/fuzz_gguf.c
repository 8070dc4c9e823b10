// Any bytes as a GGUF image: the reader accepts or refuses, and what it accepts can be walked to
// the last element -- every key through every getter, every string, the first and last byte of each
// tensor.
#include <stdlib.h>

#include "gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; // keeps the reads

static void require(bool holds) {
    if (!holds) abort();
}

static void walk_kv(const struct lp_gguf *g, const struct lp_gguf_kv *kv) {
    for (uint64_t i = 0; i < kv->count; i++) {
        if (kv->strings) {
            struct lp_str s = kv->strings[i];
            for (size_t k = 0; k < s.len; k++) sink += (uint8_t)s.data[k];
        } else if (lp_gguf_is_integral(kv->element_type)) {
            sink += (uint64_t)lp_gguf_int_at(kv, i);
        } else {
            sink += lp_gguf_float_at(kv, i) > 0;
        }
    }
    char key[256];
    if (kv->key.len >= sizeof key) return;
    memcpy(key, kv->key.data, kv->key.len);
    key[kv->key.len] = 0;
    require(lp_gguf_find(g, key) == kv);
    struct lp_err err;
    uint64_t u;
    float f;
    bool b, found = false;
    struct lp_str s;
    int n_ok = 0;
    n_ok += lp_gguf_get_u64(g, key, UINT64_MAX, &u, &found, &err) == LP_OK;
    require(found);
    n_ok += lp_gguf_get_f32(g, key, &f, NULL, &err) == LP_OK;
    n_ok += lp_gguf_get_bool(g, key, &b, NULL, &err) == LP_OK;
    n_ok += lp_gguf_get_str(g, key, &s, NULL, &err) == LP_OK;
    require(n_ok <= 1); // a value has one class
}

static void walk_tensor(const struct lp_gguf *g, const struct lp_gguf_tensor *t, size_t size) {
    require(t->n_bytes > 0 && t->file_offset <= size && t->n_bytes <= size - t->file_offset);
    require(t->file_offset % lp_gguf_alignment(g, 0) == 0);
    sink += t->data[0];
    sink += t->data[t->n_bytes - 1];
    require(lp_gguf_find_tensor(g, t->name) == t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lp_gguf *g;
    struct lp_err err = {0};
    lp_status status = lp_gguf_parse(&g, data, size, "fuzz", &err);
    if (status) {
        require(g == NULL && err.status == status && err.text[0] != 0);
        return 0;
    }
    for (uint64_t i = 0; i < lp_gguf_n_kv(g); i++) walk_kv(g, lp_gguf_kv_at(g, i));
    for (uint64_t i = 0; i < lp_gguf_n_tensors(g); i++)
        walk_tensor(g, lp_gguf_tensor_at(g, i), size);
    lp_gguf_close(g);
    return 0;
}
