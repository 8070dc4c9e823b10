// A folder in place: a GGUF whose tensors lie where the checkpoint is mapped, or in memory of ours
// where they have to be turned, put together anew or widened.
#include <stdlib.h>

#include "base/alloc.h"
#include "hf/hf_pieces.h"

struct lp_hf {
    struct lp_hf_plan plan;
    struct lp_gguf *gguf;
    struct lp_gguf_place *places; // [n_tensors]
    void **owned;                 // [n_tensors]: what `places` points at, or NULL
};

static lp_type type_of(const struct lp_hf_tensor *t) {
    return t->keep_f32 ? LP_TYPE_F32 : t->source_type;
}

// Whether the bytes of the checkpoint are those of the tensor.
static bool is_in_place(const struct lp_hf_tensor *t) {
    if (t->make != LP_HF_MAKE_COPY || t->n_parts == 0) return false;
    for (int64_t i = 0; i < t->n_parts; i++) {
        const struct lp_hf_matrix *m = &t->parts[i];
        if (m->form != LP_HF_PLAIN || t->types[i] != type_of(t)) return false;
        // Values that lie across their own size are not read by every machine.
        if ((uintptr_t)m->values->data % (t->types[i] == LP_TYPE_F32 ? 4 : 2)) return false;
    }
    return true;
}

// One array: where it is. Several: the list of their places.
static lp_status point(struct lp_hf *hf, uint64_t i, struct lp_err *err) {
    const struct lp_hf_tensor *t = &hf->plan.tensors[i];
    if (t->n_parts == 1) {
        hf->places[i].data = t->parts[0].values->data;
        return LP_OK;
    }
    const uint8_t **mats = lp_alloc((size_t)t->n_parts, sizeof *mats);
    if (!mats) return lp_err_memory(err, (size_t)t->n_parts * sizeof *mats, t->name);
    for (int64_t m = 0; m < t->n_parts; m++) mats[m] = t->parts[m].values->data;
    hf->owned[i] = mats;
    hf->places[i].mats = mats;
    return LP_OK;
}

static lp_status make_room(struct lp_hf *hf, uint64_t i, struct lp_err *err) {
    const struct lp_hf_tensor *t = &hf->plan.tensors[i];
    uint64_t n_bytes = lp_gguf_writer_bytes(hf->plan.writer, i);
    hf->owned[i] = n_bytes <= SIZE_MAX ? lp_alloc_aligned((size_t)n_bytes, 1) : NULL;
    hf->places[i].data = hf->owned[i];
    hf->places[i].in_memory = true;
    return hf->owned[i] ? LP_OK : lp_err_memory(err, (size_t)n_bytes, t->name);
}

static lp_status pack(void *data, int worker, const struct lp_hf_piece *piece, struct lp_err *err) {
    struct lp_hf *hf = data;
    const struct lp_hf_tensor *t = &hf->plan.tensors[piece->tensor];
    uint64_t row_bytes = 0;
    (void)worker;
    lp_type_row_bytes(type_of(t), t->ne[0], &row_bytes);
    uint8_t *to = (uint8_t *)hf->owned[piece->tensor] + (uint64_t)piece->first * row_bytes;
    lp_status status = lp_hf_tensor_pack(&hf->plan, t, piece->first, piece->n, to, err);
    if (piece->is_last && t->make != LP_HF_MAKE_FACTORS) lp_hf_tensor_forget(t);
    return status;
}

static lp_status pack_rest(struct lp_hf *hf, const bool *packed, int n_threads,
                           struct lp_err *err) {
    struct lp_hf_piece *pieces = NULL;
    uint64_t n, max_values;
    struct lp_hf_work work = {.fn = pack, .data = hf, .n_threads = n_threads};
    lp_status status = lp_hf_pieces_make(&pieces, &n, &max_values, &hf->plan, packed, err);
    if (!status && n) status = lp_hf_pieces_run(&work, pieces, n, err);
    lp_free(pieces);
    return status;
}

static lp_status make_header(struct lp_hf_plan *plan, struct lp_err *err) {
    for (uint64_t i = 0; i < plan->n_tensors; i++) {
        const struct lp_hf_tensor *t = &plan->tensors[i];
        lp_status status = lp_gguf_writer_add(plan->writer, lp_str_from(t->name), type_of(t),
                                              t->n_dims, t->ne, err);
        if (status) return status;
    }
    return lp_gguf_writer_finish(plan->writer, err);
}

static lp_status fill(struct lp_hf *hf, int n_threads, struct lp_err *err) {
    size_t n = (size_t)hf->plan.n_tensors;
    bool *packed = lp_alloc(n, sizeof *packed);
    hf->places = lp_alloc(n, sizeof *hf->places);
    hf->owned = lp_alloc(n, sizeof *hf->owned);
    lp_status status = packed && hf->places && hf->owned
                           ? LP_OK
                           : lp_err_memory(err, n * sizeof *hf->places, "the places of tensors");
    for (size_t i = 0; i < n && !status; i++) {
        packed[i] = !is_in_place(&hf->plan.tensors[i]);
        status = packed[i] ? make_room(hf, i, err) : point(hf, i, err);
    }
    if (!status) status = pack_rest(hf, packed, n_threads, err);
    lp_free(packed);
    return status;
}

lp_status lp_hf_describe(struct lp_gguf **out, struct lp_hf_plan *plan, struct lp_err *err) {
    static const uint8_t nowhere[1] = {0};
    size_t n = (size_t)plan->n_tensors + 1;
    struct lp_gguf_place *places = lp_alloc(n, sizeof *places);
    if (!places) return lp_err_memory(err, n * sizeof *places, "the folder's tensors");
    for (size_t i = 0; i < plan->n_tensors; i++)
        places[i] =
            (struct lp_gguf_place){.data = nowhere, .in_memory = !is_in_place(&plan->tensors[i])};
    lp_status status = make_header(plan, err);
    if (!status)
        status = lp_gguf_assemble(out, plan->writer, places,
                                  lp_safetensors_file_bytes(plan->folder.weights),
                                  plan->folder.path, err);
    lp_free(places);
    return status;
}

lp_status lp_hf_open(struct lp_hf **out, const char *path, int n_threads, struct lp_err *err) {
    const struct lp_hf_plan_options options = {.fused = true};
    *out = NULL;
    struct lp_hf *hf = lp_alloc(1, sizeof *hf);
    if (!hf) return lp_err_memory(err, sizeof *hf, "a model folder");
    lp_status status = lp_hf_plan_make(&hf->plan, path, &options, err);
    if (!status) status = make_header(&hf->plan, err);
    if (!status) status = fill(hf, n_threads, err);
    if (!status)
        status = lp_gguf_assemble(&hf->gguf, hf->plan.writer, hf->places,
                                  lp_safetensors_file_bytes(hf->plan.folder.weights), path, err);
    if (status)
        lp_hf_close(hf);
    else
        *out = hf;
    return status;
}

void lp_hf_close(struct lp_hf *hf) {
    if (!hf) return;
    lp_gguf_close(hf->gguf);
    for (uint64_t i = 0; hf->owned && i < hf->plan.n_tensors; i++) lp_free(hf->owned[i]);
    lp_free(hf->owned);
    lp_free(hf->places);
    lp_hf_plan_release(&hf->plan);
    lp_free(hf);
}

const struct lp_gguf *lp_hf_gguf(const struct lp_hf *hf) {
    return hf->gguf;
}
