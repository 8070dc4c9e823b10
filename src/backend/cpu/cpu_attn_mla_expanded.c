// Expanded MLA on the CPU: the prefill form. A task is one head and a tile of queries: the head's
// two matrices are dequantised once, then block after block of keys
//
//   c[key][latent + rope]  from the cache
//   keys_t[nope + rope][key]   W_UK c, and k_pe transposed
//   values[key][v]             W_UV c
//
// is attended by all queries of the tile. Expanding a block costs as much as attending it with
// about 400 queries at the true sizes, so tiles are as long as the call allows.
//
// Where the cache is rounded to 16 bits or fewer, the matrices are quantised and no keys are selected, the products
// run on 16-bit whole numbers if the CPU has them (cpu_fixed16.h): the expansion of every key, and the
// attention of the queries that see a block whole. A query that sees a part of a block attends it in float32, since a
// column of values is rounded by all keys of the block (B2, A3).
//
// Blocks begin at multiples of LP_CPU_KEY_BLOCK of the absolute position (A1); what a query does
// not see, behind it or outside its selection, is left out of its sums (A3).
#include "backend/cpu/cpu_attn.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_fixed16.h"

#define MAX_TILE 1024 // queries
#define GROUP 32      // queries that are scored together

struct sizes {
    int64_t latent, rope, nope, v_dim, tile;
    int64_t ld_latent, ld_row, ld_query, ld_value, ld_keys;
    bool fixed; // with scratch for 16-bit products
};

// The 16-bit forms of what worker_scratch holds, with their scales.
struct fixed_scratch {
    int32_t *up;      // [latent / 2, nope + v_dim]: both matrices, transposed
    int16_t *rows;    // [LP_CPU_KEY_BLOCK, latent]
    int32_t *keys;    // [(nope + rope) / 2, LP_CPU_KEY_BLOCK]
    int32_t *values;  // [LP_CPU_KEY_BLOCK / 2, v_dim]
    int16_t *queries; // [tile, nope + rope]
    int16_t *weights; // [GROUP, LP_CPU_KEY_BLOCK]
    float *up_scale, *row_scale, *key_scale, *value_scale, *query_scale, *weight_scale;
    bool usual; // the block's keys and values could be rounded
};

struct worker_scratch {
    float *k_up;     // [nope, latent]; with 16-bit products both: [latent, nope + v_dim]
    float *v_up;     // [v_dim, latent]; not with 16-bit products
    float *row;      // [nope]: of a transposed k_up; with 16-bit products [8, latent]
    float *block;    // [LP_CPU_KEY_BLOCK, latent + rope]
    float *keys_t;   // [nope + rope, LP_CPU_KEY_BLOCK]
    float *values;   // [LP_CPU_KEY_BLOCK, v_dim], rows ld_value apart
    float *made;     // [LP_CPU_KEY_BLOCK, nope + v_dim]: keys and values from 16-bit products
    float *queries;  // [tile, nope + rope]
    float *scores;   // [GROUP, LP_CPU_KEY_BLOCK]
    int64_t *cursor; // [tile]: the next entry of each query's selection
    struct lp_cpu_softmax state;
    struct fixed_scratch fixed;
};

struct expanded_job {
    const struct lp_op_mla_expanded *op;
    const struct lp_cpu_lanes *lanes;
    const struct lp_cpu_fixed16 *fixed; // or NULL: float32 throughout
    struct sizes sizes;
    char *scratch;
    size_t worker_bytes;
    int64_t n_tiles;
    size_t n_tasks;
    atomic_size_t next;
};

static struct sizes sizes_of(int64_t latent, int64_t rope, int64_t nope, int64_t v_dim,
                             int64_t n_queries, bool fixed) {
    return (struct sizes){.latent = latent,
                          .rope = rope,
                          .nope = nope,
                          .v_dim = v_dim,
                          .tile = n_queries < MAX_TILE ? n_queries : MAX_TILE,
                          .ld_latent = lp_cpu_ld(latent),
                          .ld_row = lp_cpu_ld(latent + rope),
                          .ld_query = lp_cpu_ld(nope + rope),
                          .ld_value = fixed ? lp_cpu_ld(nope + v_dim) : lp_cpu_ld(v_dim),
                          .ld_keys = lp_cpu_ld(LP_CPU_KEY_BLOCK),
                          .fixed = fixed};
}

// Sizes that 16-bit products take without a rest; those of every published model.
static bool sizes_fit(const struct lp_cpu_fixed16 *fixed, const struct lp_op_mla_expanded *op) {
    const int width = op->nope + op->rope;
    return op->nope % LP_CPU_FIXED16_COLUMNS == 0 && op->v_dim % LP_CPU_FIXED16_COLUMNS == 0 &&
           op->latent % fixed->multiple == 0 && width % fixed->multiple == 0 &&
           op->latent <= fixed->most && width <= fixed->most;
}

static void cut_fixed(struct fixed_scratch *f, struct lp_cpu_cut *cut, const struct sizes *z) {
    const int64_t made = z->nope + z->v_dim, width = z->nope + z->rope;
    f->up = lp_cpu_cut(cut, z->latent / 2, (size_t)made * sizeof *f->up);
    f->rows = lp_cpu_cut(cut, LP_CPU_KEY_BLOCK, (size_t)z->latent * sizeof *f->rows);
    f->keys = lp_cpu_cut(cut, width / 2, LP_CPU_KEY_BLOCK * sizeof *f->keys);
    f->values = lp_cpu_cut(cut, LP_CPU_KEY_BLOCK / 2, (size_t)z->v_dim * sizeof *f->values);
    f->queries = lp_cpu_cut(cut, z->tile, (size_t)width * sizeof *f->queries);
    f->weights = lp_cpu_cut(cut, GROUP, LP_CPU_KEY_BLOCK * sizeof *f->weights);
    f->up_scale = lp_cpu_cut_floats(cut, made);
    f->row_scale = lp_cpu_cut_floats(cut, LP_CPU_KEY_BLOCK);
    f->key_scale = lp_cpu_cut_floats(cut, LP_CPU_KEY_BLOCK);
    f->value_scale = lp_cpu_cut_floats(cut, z->v_dim);
    f->query_scale = lp_cpu_cut_floats(cut, z->tile);
    f->weight_scale = lp_cpu_cut_floats(cut, GROUP);
}

static size_t cut_worker(struct worker_scratch *w, char *base, const struct sizes *z) {
    struct lp_cpu_cut cut = {base, 0};
    if (z->fixed) {
        w->k_up = lp_cpu_cut_floats(&cut, z->latent * (z->nope + z->v_dim));
        w->row = lp_cpu_cut_floats(&cut, 8 * z->ld_latent);
        w->made = lp_cpu_cut_floats(&cut, LP_CPU_KEY_BLOCK * z->ld_value);
        w->values = w->made ? w->made + z->nope : NULL;
        cut_fixed(&w->fixed, &cut, z);
    } else {
        w->k_up = lp_cpu_cut_floats(&cut, z->nope * z->ld_latent);
        w->v_up = lp_cpu_cut_floats(&cut, z->v_dim * z->ld_latent);
        w->row = lp_cpu_cut_floats(&cut, z->nope);
        w->values = lp_cpu_cut_floats(&cut, LP_CPU_KEY_BLOCK * z->ld_value);
    }
    w->block = lp_cpu_cut_floats(&cut, LP_CPU_KEY_BLOCK * z->ld_row);
    w->keys_t = lp_cpu_cut_floats(&cut, (z->nope + z->rope) * z->ld_keys);
    w->queries = lp_cpu_cut_floats(&cut, z->tile * z->ld_query);
    w->scores = lp_cpu_cut_floats(&cut, GROUP * z->ld_keys);
    w->cursor = lp_cpu_cut(&cut, z->tile, sizeof *w->cursor);
    lp_cpu_softmax_cut(&w->state, &cut, z->tile, z->v_dim);
    return cut.used;
}

size_t lp_cpu_mla_expanded_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev) {
    size_t most = 0;
    if (need->n_heads == 0 || need->nope == 0) return 0;
    for (int fixed = 0; fixed < 2; fixed++) { // the cache's type is not known here
        struct worker_scratch w;
        struct lp_cpu_cut cut = {0};
        struct sizes sizes =
            sizes_of(need->latent, need->rope, need->nope, need->v_dim, need->n_rows, fixed);
        lp_cpu_cut(&cut, dev->n_workers, cut_worker(&w, NULL, &sizes));
        if (cut.used > most) most = cut.used;
    }
    return most;
}

// A row of one of the head's matrices as float32, its factor in it.
static void load_row(const struct lp_weight *w, int64_t head, int64_t row, float *out) {
    const float factor = lp_weight_scale(w, head);
    lp_type_info((uint32_t)w->type)
        ->dequant(lp_weight_mat(w, head) + (size_t)row * w->row_bytes, out, (size_t)w->n_in);
    for (int64_t i = 0; factor != 1.0f && i < w->n_in; i++) out[i] *= factor;
}

// The head's matrices as float32, k_up as [nope][latent] in both storage orders.
static void load_head(const struct expanded_job *job, struct worker_scratch *w, int64_t head) {
    const struct lp_op_mla_expanded *op = job->op;
    int64_t ld = job->sizes.ld_latent;
    for (int64_t i = 0; i < op->v_dim; i++) load_row(op->v_up, head, i, w->v_up + i * ld);
    if (!op->k_transposed)
        for (int64_t i = 0; i < op->nope; i++) load_row(op->k_up, head, i, w->k_up + i * ld);
    else
        for (int64_t j = 0; j < op->latent; j++) {
            load_row(op->k_up, head, j, w->row);
            for (int64_t i = 0; i < op->nope; i++) w->k_up[i * ld + j] = w->row[i];
        }
}

// The same, transposed and side by side, rounded to 16 bits.
static void load_fixed_head(const struct expanded_job *job, struct worker_scratch *w,
                            int64_t head) {
    const struct lp_op_mla_expanded *op = job->op;
    const int64_t made = op->nope + op->v_dim, ld = job->sizes.ld_latent;
    if (op->k_transposed)
        for (int64_t j = 0; j < op->latent; j++) load_row(op->k_up, head, j, w->k_up + j * made);
    // nope and v_dim are multiples of 8 (sizes_fit)
    for (int64_t first = op->k_transposed ? op->nope : 0; first < made; first += 8) {
        bool is_key = first < op->nope;
        for (int64_t i = 0; i < 8; i++)
            load_row(is_key ? op->k_up : op->v_up, head, first + i - (is_key ? 0 : op->nope),
                     w->row + i * ld);
        job->lanes->transpose(8, op->latent, w->row, ld, w->k_up + first, made);
    }
    job->fixed->round_columns(w->k_up, made, op->latent, (int)made, w->fixed.up, made,
                              w->fixed.up_scale);
}

static void expand_fixed_block(const struct expanded_job *job, struct worker_scratch *w,
                               int n_keys) {
    const struct lp_op_mla_expanded *op = job->op;
    const struct sizes *z = &job->sizes;
    struct fixed_scratch *f = &w->fixed;
    const int64_t made = op->nope + op->v_dim;
    job->fixed->round_rows(w->block, z->ld_row, n_keys, op->latent, f->rows, op->latent,
                           f->row_scale);
    job->fixed->multiply(n_keys, (int)made, op->latent, f->rows, op->latent, f->row_scale, f->up,
                         made, f->up_scale, w->made, z->ld_value, false);
    job->lanes->transpose(n_keys, op->nope, w->made, z->ld_value, w->keys_t, z->ld_keys);
    job->lanes->transpose(n_keys, op->rope, w->block + op->latent, z->ld_row,
                          w->keys_t + op->nope * z->ld_keys, z->ld_keys);
    f->usual = false;
    if (n_keys < LP_CPU_KEY_BLOCK) return; // nobody sees a whole block
    f->usual = job->fixed->round_columns(w->keys_t, z->ld_keys, op->nope + op->rope,
                                         LP_CPU_KEY_BLOCK, f->keys, LP_CPU_KEY_BLOCK, f->key_scale);
    f->usual &= job->fixed->round_columns(w->values, z->ld_value, LP_CPU_KEY_BLOCK, op->v_dim,
                                          f->values, op->v_dim, f->value_scale);
}

static void expand_block(const struct expanded_job *job, struct worker_scratch *w,
                         int64_t first_key, int n_keys) {
    const struct lp_op_mla_expanded *op = job->op;
    const struct sizes *z = &job->sizes;
    for (int i = 0; i < n_keys; i++)
        lp_cpu_cache_load(job->lanes, op->cache, lp_cpu_cache_row(op->cache, first_key + i),
                          w->block + i * z->ld_row);
    if (job->fixed) {
        expand_fixed_block(job, w, n_keys);
        return;
    }
    job->lanes->mul_nt(op->nope, n_keys, op->latent, w->k_up, z->ld_latent, w->block, z->ld_row,
                       w->keys_t, z->ld_keys, 1);
    job->lanes->transpose(n_keys, op->rope, w->block + op->latent, z->ld_row,
                          w->keys_t + op->nope * z->ld_keys, z->ld_keys);
    job->lanes->mul_nt(op->v_dim, n_keys, op->latent, w->v_up, z->ld_latent, w->block, z->ld_row,
                       w->values, 1, z->ld_value);
}

// How many of the block's keys a query sees, listed in keys[] (relative to the block) if it
// selects.
static int selected_keys(const struct lp_visible *v, int64_t query, int64_t *cursor,
                         int64_t first_key, int n_keys, int32_t *keys) {
    const int32_t *ids = v->ids + query * v->k;
    int n = 0;
    for (; *cursor < v->counts[query] && ids[*cursor] < first_key + n_keys; (*cursor)++)
        keys[n++] = (int32_t)(ids[*cursor] - first_key);
    return n;
}

// n queries of the tile that see the whole block attend it with 16-bit products.
static void attend_fixed(const struct expanded_job *job, struct worker_scratch *w, int first,
                         int n) {
    const struct lp_op_mla_expanded *op = job->op;
    const struct sizes *z = &job->sizes;
    const struct fixed_scratch *f = &w->fixed;
    struct lp_cpu_softmax *state = &w->state;
    const int width = op->nope + op->rope;
    float *acc = state->acc + first * state->ld;
    job->fixed->multiply(n, LP_CPU_KEY_BLOCK, width, f->queries + (int64_t)first * width, width,
                         f->query_scale + first, f->keys, LP_CPU_KEY_BLOCK, f->key_scale, w->scores,
                         z->ld_keys, false);
    for (int i = 0; i < n; i++) {
        float *s = w->scores + i * z->ld_keys;
        if (isnan(f->query_scale[first + i])) // could not be rounded
            job->lanes->mul_nn(1, LP_CPU_KEY_BLOCK, width, w->queries + (first + i) * z->ld_query,
                               z->ld_query, w->keys_t, z->ld_keys, s, z->ld_keys, false);
        float rescale = job->lanes->softmax_step(s, LP_CPU_KEY_BLOCK, op->scale,
                                                 &state->max[first + i], &state->sum[first + i]);
        if (rescale != 1.0f) job->lanes->scale(acc + i * state->ld, (size_t)op->v_dim, rescale);
    }
    if (!job->fixed->round_rows(w->scores, z->ld_keys, n, LP_CPU_KEY_BLOCK, f->weights,
                                LP_CPU_KEY_BLOCK, f->weight_scale))
        for (int i = 0; i < n; i++) // NaN, which the sum keeps; those that vanish are 0 already
            if (isnan(f->weight_scale[i])) f->weight_scale[i] = 0;
    job->fixed->multiply(n, op->v_dim, LP_CPU_KEY_BLOCK, f->weights, LP_CPU_KEY_BLOCK,
                         f->weight_scale, f->values, op->v_dim, f->value_scale, acc, state->ld,
                         true);
}

// The queries first..first + n - 1 of the tile (tile_query is the call's number of the tile's
// first) attend a block.
static void attend_group(const struct expanded_job *job, struct worker_scratch *w,
                         int64_t tile_query, int first, int n, int64_t first_key, int n_keys) {
    const struct lp_op_mla_expanded *op = job->op;
    const struct sizes *z = &job->sizes;
    const struct lp_visible *v = &op->visible;
    int32_t n_visible[GROUP], keys[LP_CPU_KEY_BLOCK];
    float chosen[LP_CPU_KEY_BLOCK];
    job->lanes->mul_nn(n, n_keys, op->nope + op->rope, w->queries + first * z->ld_query,
                       z->ld_query, w->keys_t, z->ld_keys, w->scores, z->ld_keys, false);
    for (int i = 0; i < n; i++) {
        int64_t query = tile_query + first + i;
        if (!v->ids) {
            int64_t seen = v->first_pos + query + 1 - first_key;
            n_visible[i] = seen < 0 ? 0 : seen < n_keys ? (int32_t)seen : n_keys;
            continue;
        }
        n_visible[i] = selected_keys(v, query, &w->cursor[first + i], first_key, n_keys, keys);
        if (n_visible[i] == 0 || keys[n_visible[i] - 1] == n_visible[i] - 1)
            continue; // 0, 1, 2, ...
        for (int k = 0; k < n_visible[i]; k++) chosen[k] = w->scores[i * z->ld_keys + keys[k]];
        lp_cpu_softmax_keys(job->lanes, &w->state, first + i, keys, n_visible[i], chosen, op->scale,
                            w->values, z->ld_value, op->v_dim);
        n_visible[i] = 0; // done
    }
    lp_cpu_softmax_block(job->lanes, &w->state, first, n, w->scores, z->ld_keys, n_visible,
                         op->scale, w->values, z->ld_value, op->v_dim);
}

// Does any of n queries select a key below `end` that it has not taken yet?
static bool block_wanted(const struct lp_visible *v, int64_t query, int64_t n,
                         const int64_t *cursor, int64_t end) {
    if (!v->ids) return true;
    for (int64_t i = 0; i < n; i++)
        if (cursor[i] < v->counts[query + i] && v->ids[(query + i) * v->k + cursor[i]] < end)
            return true;
    return false;
}

static void run_task(const struct expanded_job *job, struct worker_scratch *w, int64_t head,
                     int64_t tile_query, int64_t n_queries) {
    const struct lp_op_mla_expanded *op = job->op;
    const struct sizes *z = &job->sizes;
    const struct lp_visible *v = &op->visible;
    int64_t n_keys_all = v->first_pos + tile_query + n_queries, width = op->nope + op->rope;
    if (job->fixed)
        load_fixed_head(job, w, head);
    else
        load_head(job, w, head);
    for (int64_t i = 0; i < n_queries; i++)
        memcpy(w->queries + i * z->ld_query, op->q + (tile_query + i) * op->q_stride + head * width,
               (size_t)width * sizeof(float));
    if (job->fixed)
        job->fixed->round_rows(w->queries, z->ld_query, (int)n_queries, (int)width,
                               w->fixed.queries, width, w->fixed.query_scale);
    memset(w->cursor, 0, (size_t)n_queries * sizeof *w->cursor);
    lp_cpu_softmax_reset(&w->state, n_queries, op->v_dim);
    for (int64_t key = 0; key < n_keys_all; key += LP_CPU_KEY_BLOCK) {
        int n_keys =
            n_keys_all - key < LP_CPU_KEY_BLOCK ? (int)(n_keys_all - key) : LP_CPU_KEY_BLOCK;
        if (!block_wanted(v, tile_query, n_queries, w->cursor, key + n_keys)) continue;
        expand_block(job, w, key, n_keys);
        for (int64_t first = 0; first < n_queries; first += GROUP) {
            int n = n_queries - first < GROUP ? (int)(n_queries - first) : GROUP;
            if (v->first_pos + tile_query + first + n <= key) continue; // all before the block
            int64_t before = key + LP_CPU_KEY_BLOCK - 1 - v->first_pos - tile_query - first;
            int partly = before <= 0 ? 0 : before < n ? (int)before : n; // see a part of the block
            if (!job->fixed || !w->fixed.usual) partly = n;
            if (partly) attend_group(job, w, tile_query, (int)first, partly, key, n_keys);
            if (partly < n) attend_fixed(job, w, (int)first + partly, n - partly);
        }
    }
    for (int64_t i = 0; i < n_queries; i++)
        lp_cpu_softmax_finish(w->state.acc + i * w->state.ld, w->state.sum[i],
                              op->out + (tile_query + i) * op->out_stride + head * op->v_dim,
                              op->v_dim);
}

static void run_tasks(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct expanded_job *job = job_;
    struct worker_scratch w;
    cut_worker(&w, job->scratch + (size_t)worker * job->worker_bytes, &job->sizes);
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);) {
        // The last tile sees the most keys: longest tasks first.
        int64_t tile = job->n_tiles - 1 - (int64_t)task / job->op->n_heads;
        int64_t first = tile * job->sizes.tile, left = job->op->visible.n_queries - first;
        run_task(job, &w, (int64_t)task % job->op->n_heads, first,
                 left < job->sizes.tile ? left : job->sizes.tile);
    }
}

static const struct fixed_row {
    uint32_t needs;
    const struct lp_cpu_fixed16 *fixed;
} fixed_rows[] = {
#if defined(__x86_64__)
    {LP_CPU_LEVEL_AMX, &lp_cpu_fixed16_amx},
    {LP_CPU_LEVEL_VNNI, &lp_cpu_fixed16_vnni},
#endif
    {0, NULL},
};

// The first that the CPU has, and whose sizes fit if op is given
static const struct lp_cpu_fixed16 *find_fixed(const struct lp_cpu_device *dev,
                                               const struct lp_op_mla_expanded *op) {
    const struct fixed_row *row = fixed_rows;
    while (row->fixed && ((row->needs & ~dev->features) != 0 || (op && !sizes_fit(row->fixed, op))))
        row++;
    return row->fixed;
}

// 16-bit products are for rows that are rounded anyhow (to float16, bfloat16 or 8 bits) and matrices whose
// kernels may round. (A bfloat16 row so large that squares leave float32 becomes NaN.)
static bool may_be_fixed(lp_type cache, lp_type weights) {
    return cache != LP_TYPE_F32 && lp_weight_may_round(weights);
}

const struct lp_cpu_fixed16 *lp_cpu_mla_fixed(const struct lp_cpu_device *dev, lp_type cache,
                                              lp_type weights) {
    return may_be_fixed(cache, weights) ? find_fixed(dev, NULL) : NULL;
}

static const struct lp_cpu_fixed16 *fixed_of(const struct lp_cpu_device *dev,
                                             const struct lp_op_mla_expanded *op) {
    if (op->visible.ids || !may_be_fixed(op->cache->type, op->v_up->type) ||
        !may_be_fixed(op->cache->type, op->k_up->type))
        return NULL;
    return find_fixed(dev, op);
}

void lp_cpu_mla_expanded(struct lp_device *device, const struct lp_op_mla_expanded *op) {
    struct lp_cpu_device *dev = lp_cpu_device(device);
    struct worker_scratch w;
    struct expanded_job job = {.op = op, .lanes = dev->lanes, .scratch = (char *)dev->attn_scratch};
    int64_t n_queries = op->visible.n_queries, tile = n_queries < MAX_TILE ? n_queries : MAX_TILE;
    if (n_queries == 0) return;
    // With fewer heads than workers, shorter tiles keep all of them busy.
    while (tile > GROUP && (n_queries + tile - 1) / tile * op->n_heads < dev->n_workers)
        tile = (tile + 1) / 2;
    job.fixed = fixed_of(dev, op);
    job.sizes = sizes_of(op->latent, op->rope, op->nope, op->v_dim, tile, job.fixed != NULL);
    job.worker_bytes = cut_worker(&w, NULL, &job.sizes);
    assert((size_t)dev->n_workers * job.worker_bytes <= dev->attn_scratch_bytes);
    job.n_tiles = (n_queries + tile - 1) / tile;
    job.n_tasks = (size_t)(job.n_tiles * op->n_heads);
    int64_t n_ops =
        (op->visible.first_pos + n_queries) * op->n_heads * op->latent * (op->nope + op->v_dim);
    lp_cpu_run(dev, n_ops, run_tasks, &job);
}
