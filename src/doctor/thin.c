// A model of some of another's layers.
#include "doctor/thin.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

#define WHOLE_BYTES ((uint64_t)256 << 20) // a file up to this is run through all its layers
#define BRIEF_BYTES ((uint64_t)512 << 20) // more weights than this make a step slow
#define MAX_THIN 5

// The first layer of each kind, by attention and FFN; and the last layer.
static int32_t choose(const struct lp_model *m, bool all, int32_t *numbers) {
    bool seen[8] = {false};
    int32_t n = 0, last = m->h.n_layers - 1;
    for (int32_t l = 0; l <= last; l++) {
        int kind = (int)m->layers[l].mla.indexer * 2 + m->layers[l].is_moe;
        bool wanted = all || l == last || (!seen[kind] && n < MAX_THIN - 1);
        seen[kind] = true;
        if (wanted) numbers[n++] = l;
    }
    return n;
}

// The hyperparameters that are told by layer.
static void renumber(struct lp_hparams *h, const struct lp_hparams *whole,
                     const struct lp_layer *layers, const int32_t *numbers, int32_t n) {
    h->n_layers = h->n_blocks = n;
    h->n_nextn = 0;
    h->n_dense = 0;
    for (int32_t l = 0; l < n; l++) {
        h->n_ff[l] = whole->n_ff[numbers[l]];
        h->index_role[l] = whole->index_role[numbers[l]];
        if (!layers[l].is_moe) h->n_dense = l + 1;
    }
}

lp_status lp_thin_new(struct lp_thin **out, const struct lp_model *whole, bool quick,
                      struct lp_err *err) {
    struct lp_thin *thin = lp_alloc(1, sizeof *thin);
    if (!thin) return lp_err_memory(err, sizeof *thin, "some layers of the model");
    uint64_t bytes = lp_gguf_file_bytes(whole->gguf);
    thin->model = *whole;
    thin->n_whole = whole->h.n_layers;
    int32_t n = choose(whole, !quick || bytes <= WHOLE_BYTES, thin->numbers);
    thin->brief = quick && bytes / (uint64_t)whole->h.n_blocks * (uint64_t)n > BRIEF_BYTES;
    thin->model.layers = lp_alloc((size_t)n, sizeof *thin->model.layers);
    if (!thin->model.layers) {
        lp_free(thin);
        return lp_err_memory(err, (size_t)n * sizeof *whole->layers, "some layers of the model");
    }
    for (int32_t l = 0; l < n; l++) thin->model.layers[l] = whole->layers[thin->numbers[l]];
    thin->model.has_mtp = false;
    renumber(&thin->model.h, &whole->h, thin->model.layers, thin->numbers, n);
    *out = thin;
    return LP_OK;
}

void lp_thin_free(struct lp_thin *thin) {
    if (!thin) return;
    lp_free(thin->model.layers);
    lp_free(thin);
}

double *lp_thin_spread(const struct lp_thin *thin, const double *values) {
    double *out = lp_alloc((size_t)thin->n_whole, sizeof *out);
    for (int32_t l = 0; out && l < thin->n_whole; l++) out[l] = NAN;
    for (int32_t l = 0; out && l < thin->model.h.n_layers; l++) out[thin->numbers[l]] = values[l];
    return out;
}
