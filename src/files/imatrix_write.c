// Writing importance matrices, entry by entry.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "files/imatrix.h"
#include "files/new_file.h"
#include "gguf/gguf_write.h"

struct output {
    struct lp_new_file *file;
    uint64_t at;
    float *values; // of one entry
    struct lp_err *err;
};

static int by_name(const void *a, const void *b) {
    const struct lp_imatrix_sums *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static lp_status put(struct output *o, const void *data, uint64_t n) {
    lp_status status = lp_new_file_write(o->file, o->at, data, n, o->err);
    o->at += n;
    return status;
}

static lp_status put_i32(struct output *o, int64_t value) {
    int32_t v = value > INT32_MAX ? INT32_MAX : (int32_t)value;
    return put(o, &v, sizeof v);
}

static lp_status open_output(struct output *o, const char *path, bool overwrite, uint64_t n_bytes,
                             const struct lp_imatrix_sums *const *sums, size_t n) {
    size_t most = 1;
    for (size_t i = 0; i < n; i++) {
        size_t values = (size_t)(sums[i]->n_in * sums[i]->n_mats);
        if (values > most) most = values;
    }
    o->values = lp_alloc(most, sizeof *o->values);
    if (!o->values) return lp_err_memory(o->err, most * sizeof *o->values, "an entry");
    return lp_new_file_open(
        &o->file,
        &(struct lp_new_file_options){.path = path, .n_bytes = n_bytes, .overwrite = overwrite},
        NULL, o->err);
}

// ---- GGUF

static lp_status make_header(struct lp_gguf_writer *w, const struct lp_imatrix_sums *const *sums,
                             size_t n, const struct lp_imatrix_about *about, struct lp_err *err) {
    char name[128];
    lp_status status = LP_OK;
    struct lp_str dataset = lp_str_from(about->dataset);
    lp_gguf_writer_str(w, "general.type", lp_str_from("imatrix"));
    lp_gguf_writer_strings(w, "imatrix.datasets", &dataset, 1);
    lp_gguf_writer_u32(w, "imatrix.chunk_count", about->n_chunks);
    lp_gguf_writer_u32(w, "imatrix.chunk_size", about->chunk_tokens);
    for (size_t i = 0; i < n && !status; i++) {
        uint64_t ne[2] = {(uint64_t)sums[i]->n_in, (uint64_t)sums[i]->n_mats};
        int len = snprintf(name, sizeof name, "%s.in_sum2", sums[i]->name);
        if (len < 0 || (size_t)len >= sizeof name)
            return lp_err_set(err, LP_STATUS_LIMIT, "the name %s is too long", sums[i]->name);
        status = lp_gguf_writer_add(w, lp_str_from(name), LP_TYPE_F32, 2, ne, err);
        ne[0] = 1;
        snprintf(name, sizeof name, "%s.counts", sums[i]->name);
        if (!status) status = lp_gguf_writer_add(w, lp_str_from(name), LP_TYPE_F32, 2, ne, err);
    }
    return status ? status : lp_gguf_writer_finish(w, err);
}

static lp_status put_floats(struct output *o, const struct lp_gguf_writer *w, uint64_t tensor,
                            const double *values, int64_t n) {
    for (int64_t i = 0; i < n; i++) o->values[i] = (float)values[i];
    uint64_t end = tensor + 1 < lp_gguf_writer_n_tensors(w) ? lp_gguf_writer_offset(w, tensor + 1)
                                                            : lp_gguf_writer_total(w);
    o->at = lp_gguf_writer_offset(w, tensor);
    lp_status status = put(o, o->values, (uint64_t)n * sizeof *o->values);
    static const uint8_t zeros[32];
    return status || o->at == end ? status : put(o, zeros, end - o->at);
}

static lp_status write_gguf(struct output *o, const char *path, bool overwrite,
                            const struct lp_imatrix_sums *const *sums, size_t n,
                            const struct lp_imatrix_about *about) {
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    if (!w) return lp_err_memory(o->err, 0, "the header");
    lp_status status = make_header(w, sums, n, about, o->err);
    if (!status) status = open_output(o, path, overwrite, lp_gguf_writer_total(w), sums, n);
    if (!status) {
        struct lp_str header = lp_gguf_writer_header(w);
        status = put(o, header.data, header.len);
    }
    for (size_t i = 0; i < n && !status; i++) {
        const struct lp_imatrix_sums *s = sums[i];
        status = put_floats(o, w, 2 * i, s->sums, s->n_in * s->n_mats);
        if (!status) status = put_floats(o, w, 2 * i + 1, s->counts, s->n_mats);
    }
    lp_gguf_writer_free(w);
    return status;
}

// ---- the older form

static double largest_count(const struct lp_imatrix_sums *s) {
    double largest = 0;
    for (int64_t m = 0; m < s->n_mats; m++)
        if (s->counts[m] > largest) largest = s->counts[m];
    return largest;
}

static lp_status put_entry(struct output *o, const struct lp_imatrix_sums *s,
                           const struct lp_imatrix_about *about) {
    double calls = ceil(largest_count(s) / about->chunk_tokens);
    int64_t n = s->n_in * s->n_mats;
    for (int64_t i = 0; i < n; i++) {
        double count = s->counts[i / s->n_in];
        o->values[i] = (float)(count > 0 ? s->sums[i] / count * calls : calls);
    }
    lp_status status = put_i32(o, (int64_t)strlen(s->name));
    if (!status) status = put(o, s->name, strlen(s->name));
    if (!status) status = put_i32(o, (int64_t)calls);
    if (!status) status = put_i32(o, n);
    return status ? status : put(o, o->values, (uint64_t)n * sizeof *o->values);
}

static lp_status write_older(struct output *o, const char *path, bool overwrite,
                             const struct lp_imatrix_sums *const *sums, size_t n,
                             const struct lp_imatrix_about *about) {
    uint64_t total = 12 + strlen(about->dataset);
    int64_t n_entries = 0;
    for (size_t i = 0; i < n; i++) {
        if (largest_count(sums[i]) == 0) continue;
        if (sums[i]->n_in > INT32_MAX / sums[i]->n_mats)
            return lp_err_set(o->err, LP_STATUS_LIMIT,
                              "%s has more values than the older form can hold; write GGUF",
                              sums[i]->name);
        total += 12 + strlen(sums[i]->name) + 4 * (uint64_t)(sums[i]->n_in * sums[i]->n_mats);
        n_entries++;
    }
    lp_status status = open_output(o, path, overwrite, total, sums, n);
    if (!status) status = put_i32(o, n_entries);
    for (size_t i = 0; i < n && !status; i++)
        if (largest_count(sums[i]) > 0) status = put_entry(o, sums[i], about);
    if (!status) status = put_i32(o, about->n_chunks);
    if (!status) status = put_i32(o, (int64_t)strlen(about->dataset));
    return status ? status : put(o, about->dataset, strlen(about->dataset));
}

lp_status lp_imatrix_write(const char *path, bool older_form, bool overwrite,
                           const struct lp_imatrix_sums *sums, size_t n,
                           const struct lp_imatrix_about *about, struct lp_err *err) {
    struct output o = {.err = err};
    const struct lp_imatrix_sums **sorted = lp_alloc(n, sizeof *sorted);
    if (!sorted) return lp_err_memory(err, n * sizeof *sorted, "the importance matrix");
    for (size_t i = 0; i < n; i++) sorted[i] = &sums[i];
    qsort(sorted, n, sizeof *sorted, by_name);
    lp_status status = older_form ? write_older(&o, path, overwrite, sorted, n, about)
                                  : write_gguf(&o, path, overwrite, sorted, n, about);
    if (!status) status = lp_new_file_finish(o.file, err);
    lp_new_file_close(o.file);
    lp_free(o.values);
    lp_free(sorted);
    return status;
}
