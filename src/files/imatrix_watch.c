#include "files/imatrix_watch.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"

struct entry {
    const char *name; // of the weight
    int64_t n_in, n_mats;
    double *sums, *counts; // [n_mats, n_in], [n_mats]
    int64_t same_as;       // of another entry whose inputs are the same (up: gate's), or -1
    bool is_experts;
};

struct known {        // a tensor of the file
    const char *view; // weights of this tensor have it for their name
    char *name;
    int64_t entry; // or -1: nothing has met it yet
};

struct latent { // of a layer with a fused attn_kv_b
    const float *norm;
    const struct lp_weight *k_up, *v_up; // its halves
    struct known k_b, v_b;               // tensors that such a file has not
};

struct pair { // weights of a layer that meet the same inputs
    const struct lp_weight *of, *also;
};

struct lp_imatrix_watch {
    struct lp_backend table;
    const struct lp_backend *real;
    struct lp_model *model;
    bool with_output;
    struct entry *entries;
    size_t n, capacity;
    struct known *known; // [n_known], by view
    size_t n_known;
    struct latent *latents;
    size_t n_latents;
    struct pair *pairs;
    size_t n_pairs;
    float *x, *gate, *up; // of the rows that one expert gets
    const char *failed;   // the weight that could not be counted, or NULL
};

static struct lp_imatrix_watch *watch_of(const struct lp_device *dev) {
    return (struct lp_imatrix_watch *)((const char *)dev->backend -
                                       offsetof(struct lp_imatrix_watch, table));
}

// ---- counting

static int by_view(const void *a, const void *b) {
    const struct known *x = a, *y = b;
    return x->view < y->view ? -1 : x->view > y->view;
}

static struct known *find(const struct lp_imatrix_watch *w, const struct lp_weight *weight) {
    struct known key = {.view = weight->name.data};
    return bsearch(&key, w->known, w->n_known, sizeof key, by_view);
}

// The entry of a tensor, made where it is not there yet; NULL without memory.
static struct entry *entry_at(struct lp_imatrix_watch *w, struct known *known, int64_t n_in,
                              int64_t n_mats) {
    if (known->entry >= 0) return &w->entries[known->entry];
    struct entry e = {.name = known->name, .n_in = n_in, .n_mats = n_mats, .same_as = -1};
    e.sums = lp_alloc((size_t)e.n_mats, (size_t)e.n_in * sizeof *e.sums);
    e.counts = lp_alloc((size_t)e.n_mats, sizeof *e.counts);
    if (!e.sums || !e.counts || !LP_GROW(w->entries, w->capacity, w->n + 1)) {
        lp_free(e.sums);
        lp_free(e.counts);
        w->failed = known->name;
        return NULL;
    }
    known->entry = (int64_t)w->n;
    w->entries[w->n] = e;
    return &w->entries[w->n++];
}

// NULL where the weight is not counted.
static struct entry *entry_of(struct lp_imatrix_watch *w, const struct lp_weight *weight) {
    struct known *known = find(w, weight);
    bool counts = known && (strncmp(known->name, "blk.", 4) == 0 ||
                            (w->with_output && weight->data == w->model->output.data));
    return counts ? entry_at(w, known, weight->n_in, weight->n_mats) : NULL;
}

static void add_row(struct entry *e, int64_t mat, const float *x) {
    double *sums = e->sums + mat * e->n_in;
    for (int64_t i = 0; i < e->n_in; i++) sums[i] += (double)x[i] * x[i];
    e->counts[mat]++;
}

static void add_rows(struct lp_imatrix_watch *w, const struct lp_weight *weight, const float *x,
                     int64_t stride, int64_t n_rows) {
    struct entry *e = entry_of(w, weight);
    for (int64_t t = 0; e && t < n_rows; t++) add_row(e, 0, x + t * stride);
}

// An entry for a weight whose inputs are those of another one that has an entry. (Two views of one
// stack, gate and up, are one entry anyway.)
static void share_inputs(struct lp_imatrix_watch *w, const struct lp_weight *of,
                         const struct lp_weight *also) {
    const struct known *with = find(w, of), *known = find(w, also);
    if (of->name.data == also->name.data || !known || known->entry >= 0 || !with || with->entry < 0)
        return;
    struct lp_weight small = *also; // no room of its own
    small.n_mats = small.n_in = 0;
    struct entry *e = entry_of(w, &small);
    if (!e) return;
    e->n_in = also->n_in;
    e->n_mats = also->n_mats;
    e->same_as = with->entry;
}

// ---- operations

static void matmul(struct lp_device *dev, const struct lp_op_matmul *op) {
    struct lp_imatrix_watch *w = watch_of(dev);
    bool counted_elsewhere = false;
    for (size_t i = 0; i < w->n_pairs; i++) counted_elsewhere |= op->w == w->pairs[i].also;
    if (!counted_elsewhere) add_rows(w, op->w, op->x, op->x_stride, op->n_rows);
    for (size_t i = 0; i < w->n_pairs; i++)
        if (op->w == w->pairs[i].of) share_inputs(w, op->w, w->pairs[i].also);
    w->real->matmul(dev, op);
}

// The entry for a product of each head: half of a fused matrix counts as the tensor that would hold
// it. attn_k_b is transposed there, so that its columns are the inputs of either form.
static struct entry *head_entry(struct lp_imatrix_watch *w, const struct lp_op_head_matmul *op) {
    int64_t n_x = op->transposed ? op->w->n_out : op->w->n_in;
    for (size_t i = 0; i < w->n_latents; i++) {
        if (op->w == w->latents[i].k_up) return entry_at(w, &w->latents[i].k_b, n_x, op->w->n_mats);
        if (op->w == w->latents[i].v_up) return entry_at(w, &w->latents[i].v_b, n_x, op->w->n_mats);
    }
    return op->transposed ? NULL : entry_of(w, op->w);
}

static void head_matmul(struct lp_device *dev, const struct lp_op_head_matmul *op) {
    struct lp_imatrix_watch *w = watch_of(dev);
    struct entry *e = head_entry(w, op);
    for (int64_t t = 0; e && t < op->n_rows; t++)
        for (int64_t h = 0; h < op->w->n_mats; h++)
            add_row(e, h, op->x + t * op->x_row_stride + h * op->x_head_stride);
    w->real->head_matmul(dev, op);
}

static void rms_norm(struct lp_device *dev, const struct lp_op_rms_norm *op) {
    struct lp_imatrix_watch *w = watch_of(dev);
    w->real->rms_norm(dev, op);
    for (size_t i = 0; i < w->n_latents; i++)
        if (op->w == w->latents[i].norm) {
            struct lp_weight one = *w->latents[i].k_up;
            one.n_mats = 1; // the file's tensor has two dimensions
            add_rows(w, &one, op->y, op->y_stride, op->n_rows);
        }
}

static struct lp_weight expert_of(const struct lp_weight *stack, int64_t mat) {
    return lp_weight_part(stack, mat, 1, 0, stack->n_out);
}

// The rows that chose an expert, one behind the other in w->x.
static int64_t gather(struct lp_imatrix_watch *w, const struct lp_op_experts *op, int64_t expert) {
    int64_t n = 0, n_in = op->gate->n_in;
    for (int64_t t = 0; t < op->n_rows; t++)
        for (int32_t j = 0; j < op->n_used; j++)
            if (op->ids[t * op->n_used + j] == expert) {
                memcpy(w->x + n++ * n_in, op->x + t * op->x_stride, (size_t)n_in * sizeof *w->x);
                break;
            }
    return n;
}

// w->gate = silu(gate x) * (up x) for n rows of w->x
static void hidden(struct lp_device *dev, struct lp_imatrix_watch *w,
                   const struct lp_op_experts *op, int64_t expert, int64_t n) {
    const struct lp_weight *stacks[2] = {op->gate, op->up};
    float *to[2] = {w->gate, w->up};
    int64_t width = op->gate->n_out;
    for (int i = 0; i < 2; i++) {
        struct lp_weight one = expert_of(stacks[i], expert);
        w->real->matmul(dev, &(struct lp_op_matmul){.w = &one,
                                                    .x = w->x,
                                                    .x_stride = one.n_in,
                                                    .y = to[i],
                                                    .y_stride = width,
                                                    .n_rows = n});
    }
    w->real->silu_mul(dev, &(struct lp_op_silu_mul){.gate = w->gate,
                                                    .up = w->up,
                                                    .y = w->gate,
                                                    .stride = width,
                                                    .n_rows = n,
                                                    .width = (int32_t)width});
}

static void count_experts(struct lp_device *dev, struct lp_imatrix_watch *w,
                          const struct lp_op_experts *op) {
    if (!entry_of(w, op->gate) || !entry_of(w, op->down)) return;
    share_inputs(w, op->gate, op->up);
    struct entry *in = entry_of(w, op->gate), *down = entry_of(w, op->down);
    in->is_experts = down->is_experts = true;
    for (int64_t expert = 0; expert < op->gate->n_mats; expert++) {
        int64_t n = gather(w, op, expert);
        if (n == 0) continue;
        hidden(dev, w, op, expert, n);
        for (int64_t t = 0; t < n; t++) {
            add_row(in, expert, w->x + t * in->n_in);
            add_row(down, expert, w->gate + t * down->n_in);
        }
    }
}

static void experts(struct lp_device *dev, const struct lp_op_experts *op) {
    struct lp_imatrix_watch *w = watch_of(dev);
    count_experts(dev, w, op);
    w->real->experts(dev, op);
}

// ---- beginning and end

// The indexer's pairs of all layers.
static lp_status find_pairs(struct lp_imatrix_watch *w, struct lp_err *err) {
    size_t n = (size_t)(w->model->h.n_layers + w->model->has_mtp);
    w->pairs = lp_alloc(2 * n, sizeof *w->pairs);
    if (!w->pairs) return lp_err_memory(err, 2 * n * sizeof *w->pairs, "the layers");
    for (size_t l = 0; l < n && w->model->h.arch->attention == LP_ATTENTION_MLA; l++) {
        const struct lp_mla_layer *mla = &w->model->layers[l].mla;
        if (mla->indexer != LP_INDEXER_FULL || !mla->has_q_rank) continue;
        w->pairs[w->n_pairs++] = (struct pair){&mla->q_b, &mla->index_q};
        w->pairs[w->n_pairs++] = (struct pair){&mla->q_a, &mla->index_proj};
    }
    return LP_OK;
}

static char *name_in_block(int32_t block, const char *stem) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", (int)block, stem);
    return lp_strdup(name);
}

static lp_status find_latents(struct lp_imatrix_watch *w, struct lp_err *err) {
    int32_t n = w->model->h.n_layers + w->model->has_mtp;
    w->latents = lp_alloc((size_t)n, sizeof *w->latents);
    if (!w->latents) return lp_err_memory(err, (size_t)n * sizeof *w->latents, "the layers");
    for (int32_t l = 0; l < n && w->model->h.arch->attention == LP_ATTENTION_MLA; l++) {
        const struct lp_mla_layer *mla = &w->model->layers[l].mla;
        if (mla->k_transposed) continue; // halves of their own
        struct latent *latent = &w->latents[w->n_latents++];
        *latent =
            (struct latent){mla->kv_a_norm, &mla->k_up, &mla->v_up, {.entry = -1}, {.entry = -1}};
        latent->k_b.name = name_in_block(l, "attn_k_b");
        latent->v_b.name = name_in_block(l, "attn_v_b");
        if (!latent->k_b.name || !latent->v_b.name) return lp_err_memory(err, 64, "a name");
    }
    return LP_OK;
}

static lp_status list_names(struct lp_imatrix_watch *w, struct lp_err *err) {
    const struct lp_gguf *gguf = w->model->gguf;
    size_t n = (size_t)lp_gguf_n_tensors(gguf);
    w->known = lp_alloc(n, sizeof *w->known);
    if (!w->known) return lp_err_memory(err, n * sizeof *w->known, "the tensors' names");
    for (; w->n_known < n; w->n_known++) {
        struct lp_str name = lp_gguf_tensor_at(gguf, w->n_known)->name;
        struct known *known = &w->known[w->n_known];
        *known = (struct known){name.data, lp_strndup(name.data, name.len), -1};
        if (!known->name) return lp_err_memory(err, name.len, "a tensor's name");
    }
    qsort(w->known, n, sizeof *w->known, by_view);
    return LP_OK;
}

static lp_status take_buffers(struct lp_imatrix_watch *w, int64_t max_rows, struct lp_err *err) {
    const struct lp_hparams *h = &w->model->h;
    size_t n_in = (size_t)(max_rows * h->n_embd), width = (size_t)(max_rows * h->expert_ff);
    if (h->n_experts == 0) return LP_OK;
    w->x = lp_alloc_aligned(n_in, sizeof *w->x);
    w->gate = lp_alloc_aligned(width, sizeof *w->gate);
    w->up = lp_alloc_aligned(width, sizeof *w->up);
    return w->x && w->gate && w->up
               ? LP_OK
               : lp_err_memory(err, (n_in + 2 * width) * sizeof *w->x, "rows of an expert");
}

lp_status lp_imatrix_watch_new(struct lp_imatrix_watch **out, struct lp_model *model,
                               int64_t max_rows, bool with_output, struct lp_err *err) {
    struct lp_device *dev = model->dev;
    if (!dev->backend->host_memory)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "backend %s keeps activations where they cannot be read; take cpu",
                          dev->backend->name);
    struct lp_imatrix_watch *w = lp_alloc(1, sizeof *w);
    if (!w) return lp_err_memory(err, sizeof *w, "the importance matrix");
    w->model = model;
    w->real = dev->backend;
    w->with_output = with_output;
    lp_status status = list_names(w, err);
    if (!status) status = find_latents(w, err);
    if (!status) status = find_pairs(w, err);
    if (!status) status = take_buffers(w, max_rows, err);
    if (status) {
        w->model = NULL; // the device is as it was
        lp_imatrix_watch_free(w);
        return status;
    }
    w->table = *dev->backend;
    w->table.matmul = matmul;
    w->table.head_matmul = head_matmul;
    w->table.rms_norm = rms_norm;
    w->table.experts = experts;
    dev->backend = &w->table;
    *out = w;
    return LP_OK;
}

void lp_imatrix_watch_free(struct lp_imatrix_watch *w) {
    if (!w) return;
    if (w->model) w->model->dev->backend = w->real;
    for (size_t i = 0; i < w->n; i++) {
        lp_free(w->entries[i].sums);
        lp_free(w->entries[i].counts);
    }
    for (size_t i = 0; i < w->n_known; i++) lp_free(w->known[i].name);
    for (size_t i = 0; i < w->n_latents; i++) {
        lp_free(w->latents[i].k_b.name);
        lp_free(w->latents[i].v_b.name);
    }
    lp_free(w->known);
    lp_free(w->entries);
    lp_free(w->latents);
    lp_free(w->pairs);
    lp_free(w->x);
    lp_free(w->gate);
    lp_free(w->up);
    lp_free(w);
}

// ---- results

lp_status lp_imatrix_watch_check(const struct lp_imatrix_watch *w, struct lp_err *err) {
    if (w->failed) return lp_err_memory(err, 0, w->failed);
    for (size_t i = 0; i < w->n; i++) {
        const struct entry *e = &w->entries[i];
        double sum = 0;
        for (int64_t k = 0; e->same_as < 0 && k < e->n_in * e->n_mats; k++) sum += e->sums[k];
        if (!isfinite(sum))
            return lp_err_set(err, LP_STATUS_NUMERIC,
                              "what meets %s is not finite; limpid doctor looks further", e->name);
    }
    return LP_OK;
}

lp_status lp_imatrix_watch_sums(const struct lp_imatrix_watch *w, struct lp_imatrix_sums **out,
                                size_t *n, struct lp_err *err) {
    struct lp_imatrix_sums *sums = lp_alloc(w->n + 1, sizeof *sums);
    if (!sums) return lp_err_memory(err, w->n * sizeof *sums, "the importance matrix");
    for (size_t i = 0; i < w->n; i++) {
        const struct entry *e = &w->entries[i],
                           *from = e->same_as < 0 ? e : &w->entries[e->same_as];
        sums[i] = (struct lp_imatrix_sums){e->name, e->n_in, e->n_mats, from->sums, from->counts};
    }
    *out = sums;
    *n = w->n;
    return LP_OK;
}

void lp_imatrix_watch_experts(const struct lp_imatrix_watch *w, int64_t *n_unmet, int64_t *n) {
    *n_unmet = *n = 0;
    for (size_t i = 0; i < w->n; i++) {
        const struct entry *e = &w->entries[i];
        if (!e->is_experts || e->same_as >= 0) continue;
        *n += e->n_mats;
        for (int64_t m = 0; m < e->n_mats; m++) *n_unmet += e->counts[m] == 0;
    }
}
