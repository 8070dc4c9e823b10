// A .safetensors file, or the index of its shards (first byte 0 or another). What is accepted has
// its bytes in the file, as many as its shape says, in no two arrays, and is found by its name;
// what is refused has a sentence.
#include <stdlib.h>
#include <string.h>

#include "gguf/safetensors.h"
#include "gguf/safetensors_parts.h"

static void check_array(const struct lp_safetensors *st, uint64_t i, const uint8_t *data,
                        size_t n) {
    const struct lp_st_array *a = lp_safetensors_at(st, i);
    int64_t n_values = 1;
    if (a->n_dims < 0 || a->n_dims > LP_ST_MAX_DIMS) abort();
    for (int32_t k = 0; k < a->n_dims; k++) {
        if (a->dims[k] < 0) abort();
        n_values *= a->dims[k];
    }
    if (n_values != a->n_values || lp_safetensors_find(st, a->name) != a) abort();
    if (a->data < data || a->n_bytes > n || (size_t)(a->data - data) > n - a->n_bytes) abort();
    if (a->dtype != LP_ST_OTHER && a->n_bytes < (uint64_t)n_values) abort();
    for (uint64_t k = 0; k < i; k++) {
        const struct lp_st_array *b = lp_safetensors_at(st, k);
        if (a->n_bytes && b->n_bytes && a->data < b->data + b->n_bytes &&
            b->data < a->data + a->n_bytes)
            abort();
    }
}

static lp_status file(const uint8_t *data, size_t n, struct lp_err *err) {
    struct lp_safetensors *st = NULL;
    lp_status status = lp_safetensors_parse(&st, data, n, "input", err);
    if (status) return status;
    for (uint64_t i = 0; i < lp_safetensors_count(st) && i < 200; i++) check_array(st, i, data, n);
    lp_safetensors_close(st);
    return LP_OK;
}

static lp_status index_of_shards(const uint8_t *data, size_t n, struct lp_err *err) {
    struct lp_st_index index;
    lp_status status = lp_st_index_read(&index, data, n, "input", err);
    for (size_t i = 0; i < index.n_files && !status; i++)
        if (strchr(index.files[i], '/') || strcmp(index.files[i], "..") == 0) abort();
    for (size_t i = 0; i < index.n_entries && !status; i++)
        if (!index.entries[i].array || !index.entries[i].file) abort();
    lp_st_index_release(&index);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct lp_err err = {0};
    if (n == 0) return 0;
    lp_status status =
        data[0] == 0 ? file(data + 1, n - 1, &err) : index_of_shards(data + 1, n - 1, &err);
    if (status && (!err.text[0] || err.status != status)) abort();
    return 0;
}
