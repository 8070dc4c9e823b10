// From bound tensors to the layer structs that the operations take. Host backends use matrices
// where the file is mapped, others get a copy of each, in its type; vectors, routers and the
// indexer's head weights become float32 (they are small and decide much: docs/numerics.md).
#include "model/model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/log.h"
#include "model/cost.h"
#include "model/dummy.h"
#include "model/host_experts.h"
#include "model/rank_plan.h"
#include "model/shard.h"
#include "quant/widen.h"

// A block of device memory that the model frees.
static void *own_bytes(struct lp_model *m, size_t n_bytes, const char *what, struct lp_err *err) {
    if (m->n_owned == m->owned_capacity) {
        size_t capacity = m->owned_capacity ? 2 * m->owned_capacity : 64;
        void **owned = lp_realloc(m->owned, capacity, sizeof *owned);
        if (!owned) {
            lp_err_memory(err, capacity * sizeof *owned, "the model's tensors");
            return NULL;
        }
        m->owned = owned;
        m->owned_capacity = capacity;
    }
    void *block = m->dev->backend->alloc(m->dev, n_bytes);
    if (!block) {
        lp_err_memory(err, n_bytes, what);
        return NULL;
    }
    m->owned[m->n_owned++] = block;
    return block;
}

static float *own(struct lp_model *m, size_t n_floats, struct lp_err *err) {
    float *block = own_bytes(m, n_floats * sizeof(float), "a float32 tensor", err);
    if (block) m->owned_bytes += n_floats * sizeof(float);
    return block;
}

// A float32 device copy of a tensor of F32, F16, BF16 or any dequantisable type.
static lp_status to_f32(struct lp_model *m, const struct lp_gguf_tensor *t, const float **out,
                        struct lp_err *err) {
    *out = NULL;
    if (!t) return LP_OK;
    size_t n_mats = (size_t)(t->ne[2] * t->ne[3]), n = (size_t)(t->ne[0] * t->ne[1]);
    float *host = lp_alloc(n_mats * n, sizeof *host);
    if (!host) return lp_err_memory(err, n_mats * n * sizeof *host, "a tensor");
    float *device = own(m, n_mats * n, err);
    if (device) {
        for (size_t i = 0; i < n_mats; i++)
            lp_type_info(t->type)->dequant(lp_gguf_tensor_mat(t, i), host + i * n, n);
        m->dev->backend->write(m->dev, device, host, n_mats * n * sizeof *host);
    }
    lp_free(host);
    *out = device;
    return device ? LP_OK : LP_STATUS_MEMORY;
}

struct lp_weight lp_weight_of(const struct lp_gguf_tensor *t) {
    uint64_t row_bytes = 0;
    lp_type_row_bytes(t->type, t->ne[0], &row_bytes); // checked by the reader
    bool single = t->ne[2] == 1 && t->ne[3] == 1;
    return (struct lp_weight){.data = single ? lp_gguf_tensor_mat(t, 0) : t->data,
                              .mats = single ? NULL : t->mats,
                              .type = t->type,
                              .n_in = (int64_t)t->ne[0],
                              .n_out = (int64_t)t->ne[1],
                              .n_mats = (int64_t)(t->ne[2] * t->ne[3]),
                              .row_bytes = row_bytes,
                              .mat_bytes = row_bytes * t->ne[1],
                              .name = t->name};
}

// The bytes of a matrix of w to one block on the device, its rows one behind the other.
static lp_status upload_matrix(struct lp_model *m, const struct lp_weight *w, int64_t i,
                               size_t row_bytes, uint8_t *to, struct lp_err *err) {
    const struct lp_backend *backend = m->dev->backend;
    const size_t n_rows = (size_t)w->n_out, n_bytes = row_bytes * n_rows;
    const uint8_t *mat = lp_weight_mat(w, i);
    if (row_bytes == w->row_bytes) {
        backend->write(m->dev, to, mat, n_bytes);
        lp_gguf_drop_pages(m->gguf, mat, n_bytes);
        return LP_OK;
    }
    uint8_t *rows = lp_alloc(n_bytes, 1);
    if (!rows) return lp_err_memory(err, n_bytes, "columns of a weight");
    for (size_t r = 0; r < n_rows; r++)
        memcpy(rows + r * row_bytes, mat + r * w->row_bytes, row_bytes);
    backend->write(m->dev, to, rows, n_bytes);
    lp_free(rows);
    return LP_OK;
}

// Where what is cut from a weight lies in it.
static struct lp_dummy_place place_of(const struct lp_weight *whole, struct lp_cut cut) {
    struct lp_dummy_place place = lp_dummy_whole(whole);
    if (cut.kind == LP_CUT_ROWS) place.first_row = cut.range.first;
    if (cut.kind == LP_CUT_COLUMNS) place.first_column = cut.range.first;
    if (cut.kind == LP_CUT_MATRICES) place.first_mat = cut.range.first;
    return place;
}

// Where a device has memory of its own: all matrices into one block of it, or random ones. The pages of
// the file that held them are read no more. row_bytes: of the rows' bytes those that count. place: of w in its
// tensor.
static lp_status upload(struct lp_model *m, struct lp_weight *w, size_t row_bytes,
                        const struct lp_dummy_place *place, struct lp_err *err) {
    lp_status status = LP_OK;
    const size_t mat_bytes = row_bytes * (size_t)w->n_out;
    if (m->dev->backend->host_memory || !mat_bytes || !w->n_mats) return LP_OK;
    uint8_t *block = own_bytes(m, mat_bytes * (size_t)w->n_mats, "a weight on the device", err);
    if (!block) return LP_STATUS_MEMORY;
    for (int64_t i = 0; i < w->n_mats && !m->dummy && !status; i++) {
        status = upload_matrix(m, w, i, row_bytes, block + (size_t)i * mat_bytes, err);
        m->uploaded_bytes += mat_bytes;
        lp_progress_update(&m->uploading, m->uploaded_bytes);
    }
    w->row_bytes = row_bytes;
    w->mat_bytes = mat_bytes;
    if (m->dummy) {
        status = lp_dummy_fill(m->dev, w, place, block, err);
        m->uploaded_bytes += mat_bytes * (size_t)w->n_mats;
    }
    if (status) return status;
    w->data = block;
    w->mats = NULL;
    w->mats_offset = 0;
    return LP_OK;
}

// Of a device with memory of its own, for the up-projections, whose rows are too short for blocks of 256, so
// that files have them in types of 32: the same values as Q8_0, which has fast kernels, in rows that begin
// at multiples of 16 bytes, as these want them.
#define ROW_ALIGNMENT 16
static bool widens(const struct lp_model *m, lp_type type, uint64_t row_bytes) {
    return !m->dev->backend->host_memory && lp_widens_to_q8_0(type) &&
           (type != LP_TYPE_Q8_0 || row_bytes % ROW_ALIGNMENT != 0);
}
static uint64_t widened_row(uint64_t n_in) { // bytes
    uint64_t bytes = 0;
    lp_type_row_bytes(LP_TYPE_Q8_0, n_in, &bytes); // whole blocks of 32: the type's own are as long
    return (bytes + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
}

// What up-projections take beyond their bytes in the file, widened.
static uint64_t widened_bytes(const struct lp_model *m) {
    static const enum lp_slot slots[] = {LP_SLOT_K_B, LP_SLOT_V_B};
    uint64_t more = 0;
    for (int32_t l = 0; l < m->h.n_layers + m->binding.has_mtp; l++)
        for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
            const struct lp_gguf_tensor *t = m->binding.blocks[l].tensor[slots[i]];
            if (!t || !widens(m, t->type, lp_weight_of(t).row_bytes)) continue;
            more += widened_row(t->ne[0]) * t->ne[1] * t->ne[2] * t->ne[3] - t->n_bytes;
        }
    return more;
}

// Which layers' experts go to the device. *n_bytes: of all weights; those that do not are taken off.
static lp_status divide_experts(struct lp_model *m, const struct lp_load *load, uint64_t *n_bytes,
                                struct lp_err *err) {
    uint64_t experts, dense;
    if (!load->expert_dev) return LP_OK;
    experts = lp_host_experts_bytes(m);
    dense = *n_bytes - experts;
    if (load->weight_bytes && dense > load->weight_bytes)
        return lp_err_set(
            err, LP_STATUS_MEMORY,
            "without its routed experts the model takes %.2f GB of device memory, and "
            "%.2f GB of the budget are left for weights beside KV cache and buffers; "
            "raise --vram-budget, lower --ctx, or use a file with fewer bits per "
            "weight",
            (double)dense * 1e-9, (double)load->weight_bytes * 1e-9);
    lp_host_experts_divide(m, load->weight_bytes ? load->weight_bytes - dense : 0, &experts);
    *n_bytes = dense + experts;
    lp_log(LP_LOG_INFO, "routed experts of %d layers on the GPU (%.2f GB), of %d on the CPU",
           m->h.n_layers + m->binding.has_mtp - m->h.n_dense - m->n_host_layers,
           (double)experts * 1e-9, m->n_host_layers);
    return LP_OK;
}

// Before anything is uploaded: does it fit?
static lp_status check_room(struct lp_model *m, const struct lp_load *load, struct lp_err *err) {
    const struct lp_backend *backend = m->dev->backend;
    size_t total = 0, left = backend->memory ? backend->memory(m->dev, &total) : 0;
    uint64_t matrices = lp_cost_mapped_bytes(&m->h, &m->binding, true) +
                        lp_cost_memory_bytes(&m->h, &m->binding, true) + widened_bytes(m),
             small = lp_cost_float32_bytes(&m->h, &m->binding), need = matrices + small;
    lp_status status = divide_experts(m, load, &need, err);
    if (status) return status;
    if (m->ranks) need = lp_rank_weight_bytes(m) + small;
    matrices = need - small;
    if (total == 0 || need <= left) {
        lp_progress_init(&m->uploading, "uploading", matrices);
        return LP_OK;
    }
    return lp_err_set(
        err, LP_STATUS_MEMORY,
        "the weights take %.2f GB of device memory, and %.2f GB of its %.2f GB are free; "
        "keep routed experts on the CPU (--experts cpu, or --vram-budget), use a file with fewer "
        "bits per weight, or --backend cpu",
        (double)need * 1e-9, (double)left * 1e-9, (double)total * 1e-9);
}

// The factors of n_mats matrices: as the file has them, or its only one for each.
static lp_status place_scales(struct lp_model *m, const struct lp_gguf_tensor *scale,
                              int64_t n_mats, const float **out, struct lp_err *err) {
    size_t n = (size_t)n_mats;
    if (scale->ne[0] != 1 || n == 1) return to_f32(m, scale, out, err);
    float *device = own(m, n, err), *host = lp_alloc(n, sizeof *host);
    if (device && host) {
        for (size_t i = 0; i < n; i++) memcpy(host + i, lp_gguf_tensor_mat(scale, 0), sizeof *host);
        m->dev->backend->write(m->dev, device, host, n * sizeof *host);
    }
    lp_free(host);
    *out = device;
    if (device && !host) return lp_err_memory(err, n * sizeof *host, "a tensor");
    return device ? LP_OK : LP_STATUS_MEMORY;
}

// One weight of a block or of the model, its matrices where the file has them; all zeros where it has
// none for the slot.
static lp_status describe_weight(struct lp_model *m, const struct lp_bound *bound,
                                 enum lp_slot slot, struct lp_weight *out, struct lp_err *err) {
    const struct lp_gguf_tensor *t = bound->tensor[slot];
    *out = t ? lp_weight_of(t) : (struct lp_weight){0};
    if (!t || !bound->scale[slot]) return LP_OK;
    return place_scales(m, bound->scale[slot], out->n_mats, &out->scales, err);
}

struct placing {
    enum lp_slot slot;
    struct lp_weight *to;
    struct lp_cut cut; // what of it is on this rank
};

// Of a weight's rows those bytes that are there after a cut.
static size_t bytes_of_row(const struct lp_weight *w, struct lp_cut cut) {
    uint64_t bytes = 0;
    if (cut.kind != LP_CUT_COLUMNS) return w->row_bytes;
    lp_type_row_bytes((uint32_t)w->type, (uint64_t)w->n_in, &bytes); // less than the whole row's
    return bytes;
}

static lp_status place_weight(struct lp_model *m, const struct lp_bound *bound,
                              const struct placing *p, struct lp_err *err) {
    lp_status status = describe_weight(m, bound, p->slot, p->to, err);
    if (status || !bound->tensor[p->slot]) return status;
    const struct lp_dummy_place place = place_of(p->to, p->cut);
    *p->to = lp_weight_cut(p->to, p->cut);
    return upload(m, p->to, bytes_of_row(p->to, p->cut), &place, err);
}

static lp_status place_weights(struct lp_model *m, const struct lp_bound *bound,
                               const struct placing *list, size_t n, struct lp_err *err) {
    lp_status status = LP_OK;
    for (size_t i = 0; i < n && !status; i++) status = place_weight(m, bound, &list[i], err);
    return status;
}
#define PLACE_WEIGHTS(m, bound, list, err)                                                         \
    place_weights(m, bound, list, sizeof(list) / sizeof(list)[0], err)

static lp_status place_f32_weight(struct lp_model *m, const struct lp_bound *bound,
                                  enum lp_slot slot, struct lp_weight *out, struct lp_err *err) {
    const float *data;
    lp_status status = describe_weight(m, bound, slot, out, err);
    if (!status) status = to_f32(m, bound->tensor[slot], &data, err);
    if (status) return status;
    out->data = data;
    out->type = LP_TYPE_F32;
    out->row_bytes = (size_t)out->n_in * sizeof(float);
    out->mat_bytes = out->row_bytes * (size_t)out->n_out;
    return LP_OK;
}

// Rows [first, first + n_out) of every run of `stride` rows of a matrix, as a stack of n_mats
// matrices. `both` is one matrix (whose factor is given n_mats times), or a stack of runs.
static struct lp_weight row_view(const struct lp_weight *both, int64_t first, int64_t n_out,
                                 int64_t stride, int64_t n_mats) {
    struct lp_weight w = lp_weight_part(both, 0, n_mats, first, n_out);
    w.mat_bytes = (size_t)stride * w.row_bytes;
    return w;
}

static lp_status place_indexer(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const struct lp_bound *bound = &m->binding.blocks[l];
    const struct lp_gguf_tensor *const *t = bound->tensor;
    struct lp_mla_layer *w = &m->layers[l].mla;
    w->indexer = h->top_k ? h->index_role[l] : LP_INDEXER_NONE;
    w->top_k = h->top_k;
    if (w->indexer != LP_INDEXER_FULL) return LP_OK;
    w->index_heads = h->index_heads;
    w->index_width = h->index_width;
    w->index_eps = h->index_eps;
    w->index_scale = 1.0f / __builtin_sqrtf((float)h->index_heads * (float)h->index_width);
    w->index_rope = (struct lp_rope_spec){h->rope_width, h->arch->index_rope_pairing, m->inv_freq,
                                          h->rope_magnitude};
    const struct placing weights[] = {{.slot = LP_SLOT_INDEX_Q, .to = &w->index_q},
                                      {.slot = LP_SLOT_INDEX_K, .to = &w->index_k}};
    lp_status status = PLACE_WEIGHTS(m, bound, weights, err);
    if (!status) status = place_f32_weight(m, bound, LP_SLOT_INDEX_PROJ, &w->index_proj, err);
    if (!status) status = to_f32(m, t[LP_SLOT_INDEX_NORM_W], &w->index_norm_w, err);
    if (!status) status = to_f32(m, t[LP_SLOT_INDEX_NORM_B], &w->index_norm_b, err);
    return status;
}

// Up-projections as they are placed. *copy: host memory to be freed.
static lp_status widen(const struct lp_model *m, struct lp_weight *w, uint8_t **copy,
                       struct lp_err *err) {
    const size_t from_bytes = lp_type_info((uint32_t)w->type)->block_bytes,
                 to_bytes = lp_type_info(LP_TYPE_Q8_0)->block_bytes;
    *copy = NULL;
    if (!widens(m, w->type, w->row_bytes)) return LP_OK;
    const size_t n_blocks = w->row_bytes / from_bytes, n_rows = (size_t)w->n_out,
                 row_bytes = (size_t)widened_row((uint64_t)w->n_in),
                 n_bytes = row_bytes * n_rows * (size_t)w->n_mats;
    uint8_t *out = m->dummy ? NULL : lp_alloc(n_bytes, 1); // zeros
    if (!out && !m->dummy) return lp_err_memory(err, n_bytes, "up-projections");
    *copy = out;
    for (int64_t i = 0; i < w->n_mats && out; i++)
        for (size_t r = 0; r < n_rows; r++, out += row_bytes)
            for (size_t b = 0; b < n_blocks; b++)
                lp_widen_to_q8_0(w->type, lp_weight_mat(w, i) + r * w->row_bytes + b * from_bytes,
                                 out + b * to_bytes);
    w->data = *copy;
    w->mats = NULL;
    w->mats_offset = 0;
    w->type = LP_TYPE_Q8_0;
    w->row_bytes = row_bytes;
    w->mat_bytes = row_bytes * n_rows;
    return LP_OK;
}

static lp_status place_widened(struct lp_model *m, const struct lp_bound *bound, enum lp_slot slot,
                               struct lp_cut cut, struct lp_weight *out, struct lp_err *err) {
    uint8_t *copy = NULL;
    lp_status status = describe_weight(m, bound, slot, out, err);
    const struct lp_dummy_place place = place_of(out, cut);
    if (!status) *out = lp_weight_cut(out, cut);
    if (!status) status = widen(m, out, &copy, err);
    if (!status) status = upload(m, out, out->row_bytes, &place, err);
    lp_free(copy);
    return status;
}

// W_UK and W_UV, from two tensors or from one.
static lp_status place_up(struct lp_model *m, const struct lp_bound *bound, struct lp_range heads,
                          struct lp_mla_layer *w, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const int64_t head_rows = h->nope + h->v_dim;
    if (bound->tensor[LP_SLOT_K_B]) {
        const struct lp_cut cut = {LP_CUT_MATRICES, heads};
        w->k_transposed = true;
        lp_status status = place_widened(m, bound, LP_SLOT_K_B, cut, &w->k_up, err);
        return status ? status : place_widened(m, bound, LP_SLOT_V_B, cut, &w->v_up, err);
    }
    // rows of head h: nope rows of W_UK, then v rows of W_UV
    struct lp_weight both = lp_weight_of(bound->tensor[LP_SLOT_KV_B]);
    const struct lp_gguf_tensor *scale = bound->scale[LP_SLOT_KV_B];
    lp_status status = scale ? place_scales(m, scale, h->n_heads, &both.scales, err) : LP_OK;
    const struct lp_cut rows = {LP_CUT_ROWS, {heads.first * head_rows, heads.n * head_rows}};
    const struct lp_dummy_place place = place_of(&both, rows);
    both = lp_weight_cut(&both, rows);
    if (!status) status = upload(m, &both, both.row_bytes, &place, err);
    w->k_up = row_view(&both, 0, h->nope, head_rows, heads.n);
    w->v_up = row_view(&both, h->nope, h->v_dim, head_rows, heads.n);
    return status;
}

static lp_status place_mla(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const struct lp_bound *bound = &m->binding.blocks[l];
    const struct lp_gguf_tensor *const *t = bound->tensor;
    struct lp_mla_layer *w = &m->layers[l].mla;
    const struct lp_range heads = lp_shard_heads(m, l);
    const int64_t head = h->nope + h->rope_dim;
    const struct lp_cut rows = {LP_CUT_ROWS, {heads.first * head, heads.n * head}};
    *w = (struct lp_mla_layer){.has_q_rank = h->q_rank > 0,
                               .n_heads = (int32_t)heads.n,
                               .nope = h->nope,
                               .rope_dim = h->rope_dim,
                               .latent = h->latent,
                               .v_dim = h->v_dim,
                               .q_rank = h->q_rank,
                               .eps = h->eps,
                               .scale = h->attn_scale};
    w->rope =
        (struct lp_rope_spec){h->rope_width, h->arch->rope_pairing, m->inv_freq, h->rope_magnitude};
    const struct placing weights[] = {{.slot = LP_SLOT_Q, .to = &w->q, .cut = rows},
                                      {.slot = LP_SLOT_Q_A, .to = &w->q_a},
                                      {.slot = LP_SLOT_Q_B, .to = &w->q_b, .cut = rows},
                                      {.slot = LP_SLOT_KV_A, .to = &w->kv_a}};
    lp_status status = PLACE_WEIGHTS(m, bound, weights, err);
    if (!status) status = place_up(m, bound, heads, w, err);
    if (!status) status = to_f32(m, t[LP_SLOT_Q_A_NORM], &w->q_a_norm, err);
    if (!status) status = to_f32(m, t[LP_SLOT_KV_A_NORM], &w->kv_a_norm, err);
    return status ? status : place_indexer(m, l, err);
}

static lp_status place_gqa(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const struct lp_bound *bound = &m->binding.blocks[l];
    const struct lp_gguf_tensor *const *t = bound->tensor;
    struct lp_gqa_layer *w = &m->layers[l].gqa;
    const struct lp_range kv = lp_shard_heads(m, l);
    const int64_t group = h->n_heads / h->n_kv_heads; // query heads of a key/value head
    const struct lp_range q_rows = {kv.first * group * h->head_dim, kv.n * group * h->head_dim},
                          k_rows = {kv.first * h->head_dim, kv.n * h->head_dim},
                          v_rows = {kv.first * h->v_dim, kv.n * h->v_dim};
    *w = (struct lp_gqa_layer){.n_heads = (int32_t)(kv.n * group),
                               .n_kv_heads = (int32_t)kv.n,
                               .head_dim = h->head_dim,
                               .v_dim = h->v_dim,
                               .eps = h->eps,
                               .scale = h->attn_scale};
    w->rope =
        (struct lp_rope_spec){h->rope_width, h->arch->rope_pairing, m->inv_freq, h->rope_magnitude};
    const struct {
        enum lp_slot slot;
        const float **to;
        int64_t first; // value of this rank
    } vectors[] = {{LP_SLOT_Q_BIAS, &w->q_bias, q_rows.first},
                   {LP_SLOT_K_BIAS, &w->k_bias, k_rows.first},
                   {LP_SLOT_V_BIAS, &w->v_bias, v_rows.first},
                   {LP_SLOT_Q_NORM, &w->q_norm, 0},
                   {LP_SLOT_K_NORM, &w->k_norm, 0}};
    const struct placing weights[] = {
        {.slot = LP_SLOT_Q, .to = &w->q, .cut = {LP_CUT_ROWS, q_rows}},
        {.slot = LP_SLOT_K, .to = &w->k, .cut = {LP_CUT_ROWS, k_rows}},
        {.slot = LP_SLOT_V, .to = &w->v, .cut = {LP_CUT_ROWS, v_rows}}};
    lp_status status = PLACE_WEIGHTS(m, bound, weights, err);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0] && !status; i++) {
        status = to_f32(m, t[vectors[i].slot], vectors[i].to, err);
        if (*vectors[i].to) *vectors[i].to += vectors[i].first;
    }
    return status;
}

// Where the file has them: weights of a layer with host_experts.
static lp_status describe_experts(struct lp_model *m, const struct lp_bound *bound,
                                  const struct placing *list, size_t n, struct lp_err *err) {
    for (size_t i = 0; i < n; i++) {
        if (bound->scale[list[i].slot])
            return lp_err_set(
                err, LP_STATUS_UNSUPPORTED,
                "tensor %.*s has factors (.scale), and such experts cannot be kept on "
                "the CPU while the rest is on a GPU",
                LP_STR_ARGS(bound->tensor[list[i].slot]->name));
        lp_status status = describe_weight(m, bound, list[i].slot, list[i].to, err);
        if (status) return status;
    }
    return LP_OK;
}

// Of gate and up in one tensor, the rows of this rank: a view of each, uploaded by itself.
static lp_status place_fused_rows(struct lp_model *m, const struct lp_bound *bound,
                                  struct lp_range rows, struct lp_ffn *w, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    struct lp_weight both;
    lp_status status = describe_weight(m, bound, LP_SLOT_GATE_UP_EXPS, &both, err);
    if (status) return status;
    w->gate = row_view(&both, rows.first, rows.n, 2 * h->expert_ff, h->n_experts);
    w->up = row_view(&both, h->expert_ff + rows.first, rows.n, 2 * h->expert_ff, h->n_experts);
    struct lp_dummy_place place = place_of(&both, (struct lp_cut){LP_CUT_ROWS, rows});
    status = upload(m, &w->gate, both.row_bytes, &place, err);
    place.first_row += h->expert_ff;
    return status ? status : upload(m, &w->up, both.row_bytes, &place, err);
}

// What of routed experts is on this rank: some, or of each some rows of gate and up and the columns of down
// that take them.
struct expert_cuts {
    struct lp_cut up, down;
};

static struct expert_cuts cut_experts(const struct lp_model *m, const struct lp_bound *bound) {
    if (!lp_shard_is_cut(m)) return (struct expert_cuts){0};
    if (m->part.whole_experts) {
        const struct lp_cut some = {LP_CUT_MATRICES, lp_shard_experts(m)};
        return (struct expert_cuts){some, some};
    }
    const struct lp_range range =
        lp_shard_width(m, m->h.expert_ff, bound->tensor[LP_SLOT_DOWN_EXPS]);
    return (struct expert_cuts){{LP_CUT_ROWS, range}, {LP_CUT_COLUMNS, range}};
}

static lp_status place_experts(struct lp_model *m, const struct lp_bound *bound, bool on_host,
                               struct lp_ffn *w, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    struct lp_weight both = {0};
    const struct expert_cuts cut = cut_experts(m, bound);
    const struct placing split[] = {{.slot = LP_SLOT_DOWN_EXPS, .to = &w->down, .cut = cut.down},
                                    {.slot = LP_SLOT_GATE_EXPS, .to = &w->gate, .cut = cut.up},
                                    {.slot = LP_SLOT_UP_EXPS, .to = &w->up, .cut = cut.up}};
    const struct placing fused[] = {{.slot = LP_SLOT_DOWN_EXPS, .to = &w->down, .cut = cut.down},
                                    {.slot = LP_SLOT_GATE_UP_EXPS, .to = &both, .cut = cut.up}};
    const bool is_fused = bound->tensor[LP_SLOT_GATE_UP_EXPS] != NULL;
    const bool by_rows = is_fused && cut.up.kind == LP_CUT_ROWS;
    const struct placing *list = is_fused ? fused : split;
    const size_t n = by_rows ? 1 : is_fused ? 2 : 3;
    lp_status status =
        on_host ? describe_experts(m, bound, list, n, err) : place_weights(m, bound, list, n, err);
    if (status || !is_fused) return status;
    if (by_rows) return place_fused_rows(m, bound, cut.up.range, w, err);
    w->gate = row_view(&both, 0, h->expert_ff, 2 * h->expert_ff, both.n_mats);
    w->up = row_view(&both, h->expert_ff, h->expert_ff, 2 * h->expert_ff, both.n_mats);
    return LP_OK;
}

// A FFN of three weights, of which this rank has some rows of two and the columns of the third that take
// them.
static lp_status place_swiglu(struct lp_model *m, const struct lp_bound *bound,
                              const enum lp_slot slots[3], struct lp_range range, struct lp_ffn *w,
                              struct lp_err *err) {
    const struct placing weights[] = {
        {.slot = slots[0], .to = &w->gate, .cut = {LP_CUT_ROWS, range}},
        {.slot = slots[1], .to = &w->up, .cut = {LP_CUT_ROWS, range}},
        {.slot = slots[2], .to = &w->down, .cut = {LP_CUT_COLUMNS, range}}};
    return PLACE_WEIGHTS(m, bound, weights, err);
}

static lp_status place_ffn(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_bound *bound = &m->binding.blocks[l];
    struct lp_layer *layer = &m->layers[l];
    static const enum lp_slot dense[] = {LP_SLOT_FFN_GATE, LP_SLOT_FFN_UP, LP_SLOT_FFN_DOWN},
                              shared[] = {LP_SLOT_GATE_SHEXP, LP_SLOT_UP_SHEXP, LP_SLOT_DOWN_SHEXP};
    layer->is_moe = bound->tensor[LP_SLOT_ROUTER] != NULL;
    const struct lp_gguf_tensor *down = bound->tensor[LP_SLOT_FFN_DOWN];
    if (!layer->is_moe) {
        const struct lp_range width = lp_shard_width(m, (int64_t)down->ne[0], down);
        return place_swiglu(m, bound, dense, width, &layer->dense, err);
    }
    layer->has_shared = m->h.n_shared > 0;
    lp_status status = place_experts(m, bound, layer->host_experts, &layer->experts, err);
    if (!status && layer->has_shared) {
        const struct lp_range width = lp_shard_shared_width(m, bound->tensor[LP_SLOT_DOWN_SHEXP]);
        status = place_swiglu(m, bound, shared, width, &layer->shared, err);
    }
    if (!status) status = place_f32_weight(m, bound, LP_SLOT_ROUTER, &layer->router, err);
    return status ? status
                  : to_f32(m, bound->tensor[LP_SLOT_ROUTER_BIAS], &layer->router_bias, err);
}

static lp_status place_rope(struct lp_model *m, struct lp_err *err) {
    size_t half = (size_t)m->h.rope_width / 2;
    const struct lp_gguf_tensor *t = m->binding.model.tensor[LP_SLOT_ROPE_FREQS];
    float *divisors = NULL, *inv_freq = lp_alloc(half, sizeof *inv_freq);
    lp_status status = LP_OK;
    if (!inv_freq || (t && !(divisors = lp_alloc(half, sizeof *divisors)))) {
        lp_free(inv_freq);
        return lp_err_memory(err, half * sizeof *inv_freq, "rotary frequencies");
    }
    if (t) lp_type_info(t->type)->dequant(lp_gguf_tensor_mat(t, 0), divisors, half);
    for (size_t i = 0; t && i < half && !status; i++)
        if (!(divisors[i] > 0))
            status = lp_err_set(err, LP_STATUS_FORMAT,
                                "tensor rope_freqs.weight holds %g, expected positive numbers",
                                (double)divisors[i]);
    lp_hparams_inv_freq(&m->h, divisors, inv_freq);
    if (!status) {
        m->inv_freq = own(m, half, err);
        if (m->inv_freq)
            m->dev->backend->write(m->dev, m->inv_freq, inv_freq, half * sizeof *inv_freq);
        else
            status = LP_STATUS_MEMORY;
    }
    lp_free(divisors);
    lp_free(inv_freq);
    return status;
}

static lp_status place_attn_output(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_range heads = lp_shard_heads(m, l);
    const int64_t width = lp_shard_head_units(&m->h).width;
    const struct placing weights[] = {
        {.slot = LP_SLOT_ATTN_OUTPUT,
         .to = &m->layers[l].attn_output,
         .cut = {LP_CUT_COLUMNS, {heads.first * width, heads.n * width}}}};
    return PLACE_WEIGHTS(m, &m->binding.blocks[l], weights, err);
}

static lp_status place_layer(struct lp_model *m, int32_t l, struct lp_err *err) {
    struct lp_layer *layer = &m->layers[l];
    const struct lp_bound *bound = &m->binding.blocks[l];
    lp_status status = to_f32(m, bound->tensor[LP_SLOT_ATTN_NORM], &layer->attn_norm, err);
    if (!status) status = to_f32(m, bound->tensor[LP_SLOT_FFN_NORM], &layer->ffn_norm, err);
    if (!status) status = place_attn_output(m, l, err);
    if (!status)
        status =
            m->h.arch->attention == LP_ATTENTION_MLA ? place_mla(m, l, err) : place_gqa(m, l, err);
    return status ? status : place_ffn(m, l, err);
}

static lp_status place_mtp(struct lp_model *m, struct lp_err *err) {
    const struct lp_bound *bound = &m->binding.blocks[m->h.n_layers];
    const struct lp_gguf_tensor *const *t = bound->tensor;
    struct lp_mtp *mtp = &m->mtp;
    const struct placing weights[] = {
        {.slot = LP_SLOT_NEXTN_EH_PROJ, .to = &mtp->eh_proj},
        {.slot = LP_SLOT_NEXTN_EMBD, .to = &mtp->embd},
        {.slot = LP_SLOT_NEXTN_HEAD, .to = &mtp->head, .cut = {LP_CUT_ROWS, lp_shard_vocab(m)}}};
    lp_status status = PLACE_WEIGHTS(m, bound, weights, err);
    if (!t[LP_SLOT_NEXTN_EMBD]) mtp->embd = m->token_embd;
    if (!t[LP_SLOT_NEXTN_HEAD]) mtp->head = m->output;
    if (!status) status = to_f32(m, t[LP_SLOT_NEXTN_ENORM], &mtp->enorm, err);
    if (!status) status = to_f32(m, t[LP_SLOT_NEXTN_HNORM], &mtp->hnorm, err);
    if (!status) status = to_f32(m, t[LP_SLOT_NEXTN_HEAD_NORM], &mtp->head_norm, err);
    if (!mtp->head_norm) mtp->head_norm = m->output_norm;
    return status ? status : place_layer(m, m->h.n_layers, err);
}

lp_status lp_model_place(struct lp_model *m, const struct lp_load *load, struct lp_err *err) {
    const struct lp_bound *bound = &m->binding.model;
    const struct lp_cut vocab = {LP_CUT_ROWS, lp_shard_vocab(m)};
    const struct placing embd = {.slot = LP_SLOT_TOKEN_EMBD, .to = &m->token_embd},
                         output = {.slot = LP_SLOT_OUTPUT, .to = &m->output, .cut = vocab};
    lp_status status = check_room(m, load, err);
    if (!status && lp_shard_embeds(m)) status = place_weight(m, bound, &embd, err);
    if (!status && lp_shard_is_last_stage(m)) status = place_weight(m, bound, &output, err);
    if (!bound->tensor[LP_SLOT_OUTPUT] && lp_shard_is_last_stage(m))
        m->output = lp_weight_cut(&m->token_embd, vocab);
    if (!status) status = to_f32(m, bound->tensor[LP_SLOT_OUTPUT_NORM], &m->output_norm, err);
    if (!status) status = place_rope(m, err);
    for (int32_t l = 0; l < m->h.n_layers && !status; l++)
        if (lp_shard_has_layer(m, l)) status = place_layer(m, l, err);
    m->has_mtp = m->binding.has_mtp;
    if (!status && m->has_mtp && lp_shard_is_last_stage(m)) status = place_mtp(m, err);
    lp_progress_finish(&m->uploading);
    if (!status && m->dev->backend->failed) status = m->dev->backend->failed(m->dev, err);
    return status;
}
