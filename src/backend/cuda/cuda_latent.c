// Launches of attention over cached latents: which operations the kernels take, and how queries become
// runs and blocks.
#include "backend/cuda/cuda_latent.h"

static bool multiple(uintptr_t a, size_t b, size_t c, uintptr_t of) {
    return a % of == 0 && b % of == 0 && c % of == 0;
}

// Keys that no query sees more of.
static int64_t last_seen(const struct lp_visible *v) {
    return v->batch ? v->batch->most_keys : v->first_pos + v->n_queries;
}

bool lp_cuda_latent_fits(const struct lp_op_mla_absorbed *op) {
    const struct lp_cache_view *cache = op->cache;
    return (cache->type == LP_TYPE_BF16 || cache->type == LP_TYPE_F16 ||
            cache->type == LP_TYPE_F8_E4M3) &&
           op->latent == LP_CUDA_LATENT && op->rope == LP_CUDA_ROPE &&
           cache->width == LP_CUDA_LATENT + LP_CUDA_ROPE &&
           multiple((uintptr_t)cache->base, cache->row_bytes, cache->page_bytes, 4) &&
           last_seen(&op->visible) < INT32_MAX / 2;
}

static int32_t ceil_div(int64_t n, int64_t each) {
    return (int32_t)((n + each - 1) / each);
}
static int32_t least(int64_t a, int64_t b) {
    return (int32_t)(a < b ? a : b);
}

static void begin(struct lp_cuda_latent_launch *l, const struct lp_op_mla_absorbed *op,
                  struct lp_cuda_segments segments) {
    const struct lp_cache_view *cache = op->cache;
    l->base = cache->base;
    l->row_bytes = cache->row_bytes;
    l->page_bytes = cache->page_bytes;
    l->page_tokens = cache->page_tokens;
    l->slot_offset = cache->slot_offset;
    l->q_latent_stride = op->q_latent_stride;
    l->q_rope_stride = op->q_rope_stride;
    l->q_rope_head_stride = op->q_rope_head_stride;
    l->out_stride = op->out_stride;
    l->n_heads = op->n_heads;
    l->head_blocks = ceil_div(op->n_heads, LP_CUDA_LATENT_ROWS);
    l->scale = op->scale;
    l->whole_chunks = multiple((uintptr_t)cache->base, cache->row_bytes, cache->page_bytes, 16);
    l->segments = segments;
}

// Queries that can share a block: those of one list of keys, cut into the same segments (L1).
static int32_t queries_together(const struct lp_op_mla_absorbed *op, int64_t first, int64_t n,
                                struct lp_cuda_segments segments) {
    const int32_t seen = (int32_t)(op->visible.first_pos + first) + 1, last = seen + (int32_t)n - 1;
    if (op->visible.ids || op->visible.batch || op->n_heads > LP_CUDA_LATENT_ROWS / 2) return 1;
    if (lp_cuda_segment_keys(segments, seen) != lp_cuda_segment_keys(segments, last)) return 1;
    return least(LP_CUDA_LATENT_ROWS / op->n_heads, n);
}

static int32_t longest(const struct lp_visible *v) { // list
    const int64_t seen = last_seen(v);
    return least(v->ids ? least(v->k, seen) : seen, INT32_MAX);
}

// A list may be of any length up to the longest, and each must have its blocks.
static int32_t most_segments(const struct lp_visible *v, struct lp_cuda_segments segments) {
    return least(ceil_div(longest(v), segments.keys), segments.most);
}

// The cost of a choice, in tiles that one multiprocessor works through. A segment's end costs about one,
// a block's begin and end three, the second kernel three and what it reads (measured on an H200, where a
// tile takes 3 us).
static double walk_cost(int64_t rows, int32_t n_segments, int32_t walk, int tiles, int n_sms) {
    const int64_t rounds = ceil_div(rows * ceil_div(n_segments, walk), n_sms);
    const double blocks = (double)rounds * (walk * (tiles + 1.0) + 3.0);
    return walk == n_segments ? blocks
                              : blocks + 3.0 + 0.025 * (double)(rows * (n_segments - walk));
}

// The cheapest walk of a cut, and what it costs
static int32_t best_walk(const struct lp_op_mla_absorbed *op, struct lp_cuda_segments segments,
                         int n_like, int n_multiprocessors, double *least_cost) {
    const struct lp_visible *v = &op->visible;
    const int32_t keys = lp_cuda_segment_keys(segments, longest(v)),
                  n_segments = ceil_div(longest(v), keys), tiles = keys / LP_CUDA_LATENT_KEYS,
                  together = queries_together(op, 0, v->n_queries, segments);
    const int64_t rows = (int64_t)n_like * ceil_div(v->n_queries, together) *
                         ceil_div(op->n_heads, LP_CUDA_LATENT_ROWS);
    const int32_t of_one = ceil_div(longest(v), LP_CUDA_LATENT_KEYS);
    int32_t best = segments.most; // all, however long the segments of a shorter list are
    *least_cost =
        walk_cost(rows, n_segments, n_segments, tiles < of_one ? tiles : of_one, n_multiprocessors);
    for (int32_t walk = 1; walk < n_segments; walk++) {
        const double cost = walk_cost(rows, n_segments, walk, tiles, n_multiprocessors);
        if (cost < *least_cost) {
            *least_cost = cost;
            best = walk;
        }
    }
    return best;
}

struct lp_cuda_segments lp_cuda_latent_cut(const struct lp_op_mla_absorbed *op,
                                           int n_multiprocessors) {
    struct lp_cuda_segments best = {.keys = LP_CUDA_LATENT_SHORTEST, .most = 1}; // one segment
    double least_cost;
    best_walk(op, best, 1, n_multiprocessors, &least_cost);
    for (int32_t keys = LP_CUDA_LATENT_SHORTEST; keys < longest(&op->visible); keys *= 2) {
        const struct lp_cuda_segments cut = {.keys = keys, .most = LP_CUDA_LATENT_SEGMENTS};
        double cost;
        best_walk(op, cut, 1, n_multiprocessors, &cost);
        if (cost >= least_cost) continue;
        least_cost = cost;
        best = cut;
    }
    return best;
}

int32_t lp_cuda_latent_walk(const struct lp_op_mla_absorbed *op, struct lp_cuda_segments segments,
                            int n_like, int n_multiprocessors) {
    double cost;
    return best_walk(op, segments, n_like, n_multiprocessors, &cost);
}

bool lp_cuda_latent_few_fits(const struct lp_op_mla_absorbed *op, int n_multiprocessors) {
    const struct lp_visible *v = &op->visible;
    const int64_t n_segments = ceil_div(longest(v), LP_CUDA_LATENT_FEW_KEYS),
                  of_query = n_segments * ceil_div(op->n_heads, LP_CUDA_LATENT_ROWS) *
                             lp_cuda_latent_few_parts(op->n_heads);
    return (v->ids || v->batch || v->n_queries == 1) && n_segments <= LP_CUDA_LATENT_SEGMENTS &&
           v->n_queries <= n_multiprocessors && v->n_queries * of_query <= n_multiprocessors;
}

void lp_cuda_latent_look_ahead(struct lp_cuda_latent_launch *launch,
                               const struct lp_op_mla_absorbed *op) {
    size_t left = LP_CUDA_LATENT_AHEAD_BYTES;
    for (int i = 0; i < LP_CUDA_LATENT_AHEAD; i++) {
        const struct lp_weight *w = op->ahead && i < op->n_ahead ? op->ahead[i] : NULL;
        const size_t n_bytes = w ? (size_t)w->n_mats * w->mat_bytes : 0;
        launch->ahead[i] = (struct lp_cuda_ahead){w ? (const uint8_t *)w->data : NULL,
                                                  n_bytes < left ? n_bytes : left};
        left -= launch->ahead[i].n_bytes;
    }
}

int64_t lp_cuda_latent_add(struct lp_cuda_latent_launch *l, const struct lp_op_mla_absorbed *op,
                           int64_t first, struct lp_cuda_segments segments, int32_t walk,
                           int32_t most_slots) {
    const struct lp_visible *v = &op->visible;
    const int64_t left = v->n_queries - first;
    if (l->n_runs == 0) begin(l, op, segments);
    if (l->n_runs == LP_CUDA_LATENT_RUNS || left <= 0) return 0;
    const int32_t n_segments = most_segments(v, segments),
                  together = queries_together(op, first, left, segments);
    const int32_t slots = n_segments <= walk ? 0 : n_segments * l->head_blocks,
                  room = most_slots - l->n_slots;
    const int64_t n =
        slots == 0 ? left : least((int64_t)(room < 0 ? 0 : room / slots) * together, left);
    if (n == 0) return 0;
    const int32_t groups = ceil_div(n, together);
    l->runs[l->n_runs++] = (struct lp_cuda_latent_run){
        .pages = op->cache->pages,
        .positions = v->batch ? v->batch->positions + first : NULL,
        .pages_of = v->batch ? v->batch->pages + first : NULL,
        .q_latent = op->q_latent + first * op->q_latent_stride,
        .q_rope = op->q_rope + first * op->q_rope_stride,
        .ids = v->ids ? v->ids + first * v->k : NULL,
        .counts = v->ids ? v->counts + first : NULL,
        .out = op->out + first * op->out_stride,
        .first_pos = (int32_t)(v->first_pos + first),
        .n_queries = (int32_t)n,
        .k = v->k,
        .together = together,
        .n_segments = n_segments,
        .walk = least(walk, n_segments),
        .first_block = l->n_blocks,
        .first_row = l->n_rows,
        .first_slot = l->n_slots,
    };
    l->n_blocks += groups * ceil_div(n_segments, walk) * l->head_blocks;
    l->n_slots += groups * slots;
    l->n_rows += (int32_t)n * op->n_heads;
    return n;
}
