// Scratch of the matrix operations: one block, cut by the largest sizes that were announced.
#include "backend/cpu/cpu_wide.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/huge_pages.h"

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// A cursor over the block: first with base NULL to add up the sizes, then to hand out the parts.
struct cutter {
    unsigned char *base;
    size_t used;
    bool overflow;
};

static void *cut(struct cutter *c, int64_t n, int64_t m, size_t size) {
    size_t bytes;
    uint64_t end;
    if (n < 0 || m < 0 || !lp_mul_size((size_t)n, (size_t)m, &bytes) ||
        !lp_mul_size(bytes, size, &bytes) || !lp_add_u64(c->used, bytes, &end) ||
        !lp_align_u64(end, 64, &end)) {
        c->overflow = true;
        return NULL;
    }
    void *part = c->base ? c->base + c->used : NULL;
    c->used = (size_t)end;
    return part;
}

static void cut_all(struct lp_cpu_mat_scratch *s, const struct lp_cpu_device *dev,
                    const struct lp_reserve *need, struct cutter *c) {
    const int64_t n_used = need->n_used, expert_width = need->expert_width;
    const int64_t n_embd = need->n_embd ? need->n_embd : need->max_width;
    const size_t tile_quad = LP_QUAD_VALUES * sizeof(uint16_t);
    s->act = cut(c, s->act_quads, 1, dev->wide ? tile_quad : sizeof(struct lp_act_quad));
    s->act_tiles = (uint16_t *)s->act;
    for (int i = 0; i < dev->n_workers; i++) {
        struct lp_cpu_mat_worker *w = &s->workers[i];
        w->panel = cut(c, LP_MAT_ROWS, LP_MAT_PANEL_F32, sizeof(float));
        w->tile = cut(c, LP_MAT_MAX_X, LP_MAT_ROWS, sizeof(float));
        w->tile2 = cut(c, LP_MAT_MAX_X, LP_MAT_ROWS, sizeof(float));
        w->pairs = cut(c, n_used > 0 ? s->max_pairs : 0, LP_MAT_ROWS, sizeof(float));
        w->run =
            cut(c, dev->wide ? LP_WIDE_RUN_BLOCKS * LP_MAT_MAX_X : 0, LP_MAT_ROWS, sizeof(float));
        w->gathered = cut(c, s->wide_pairs > 0 ? LP_WIDE_GATHERED : 0, n_embd, sizeof(uint16_t));
    }
    s->hidden = cut(c, s->max_pairs, expert_width, sizeof(float));
    s->hidden_act = cut(c, s->max_pairs, lp_cpu_quads(expert_width), sizeof(struct lp_act_quad));
    s->begins = cut(c, s->max_experts + 1, 1, sizeof(int32_t));
    s->active = cut(c, s->max_experts, 1, sizeof(int32_t));
    const int64_t pairs = max64(s->max_pairs, s->wide_pairs);
    s->order = cut(c, pairs, 1, sizeof(int32_t));
    s->rows = cut(c, pairs, 1, sizeof(int32_t));
    s->places = cut(c, pairs, 1, sizeof(int32_t));
    s->hidden_tiles = cut(c, s->n_hidden_tiles * LP_WIDE_SIDE, expert_width, sizeof(uint16_t));
    s->tile_begins = cut(c, s->wide_pairs > 0 ? s->max_experts : 0, 1, sizeof(int32_t));
}

lp_status lp_cpu_mat_reserve(struct lp_cpu_device *dev, const struct lp_reserve *need,
                             struct lp_err *err) {
    struct lp_cpu_mat_scratch *s = lp_alloc(1, sizeof *s);
    struct lp_cpu_mat_worker *workers = lp_alloc((size_t)dev->n_workers, sizeof *workers);
    if (!s || !workers) {
        lp_free(s);
        lp_free(workers);
        return lp_err_memory(err, sizeof *s, "matrix scratch");
    }
    s->workers = workers;
    int64_t slice = need->n_rows < 1              ? 1
                    : need->n_rows < LP_MAT_MAX_X ? need->n_rows
                                                  : LP_MAT_MAX_X;
    if (dev->wide) slice = lp_cpu_wide_tiles(slice) * LP_WIDE_SIDE;
    int64_t head_width = max64(max64(need->latent, need->v_dim), need->nope + need->rope);
    int64_t row_quads =
        max64(lp_cpu_quads(need->max_width), need->n_heads * lp_cpu_quads(head_width));
    uint64_t quads = 0, pairs = 0, hidden = 0;
    bool ok = need->max_width >= 0 && need->n_used >= 0 && need->expert_width >= 0 &&
              need->n_experts >= 0 && lp_mul_u64((uint64_t)slice, (uint64_t)row_quads, &quads) &&
              lp_mul_u64((uint64_t)slice, (uint64_t)need->n_used, &pairs) &&
              lp_mul_u64(pairs, (uint64_t)need->expert_width, &hidden) && pairs <= INT32_MAX &&
              hidden <= INT64_MAX && quads <= INT64_MAX;
    s->act_quads = (int64_t)quads;
    s->max_pairs = (int64_t)pairs;
    s->max_hidden = (int64_t)hidden;
    s->max_experts = need->n_experts;
    if (ok && dev->wide) {
        s->wide_pairs =
            need->n_used * (need->n_rows < LP_WIDE_MAX_X ? need->n_rows : LP_WIDE_MAX_X);
        if (s->wide_pairs > 0)
            s->n_hidden_tiles = lp_cpu_wide_tiles(s->wide_pairs) + need->n_experts;
    }
    struct cutter c = {0};
    if (ok) cut_all(s, dev, need, &c);
    if (ok && !c.overflow) s->block = lp_huge_alloc(c.used, 1, dev->huge_pages);
    if (!s->block) {
        size_t bytes = ok && !c.overflow ? c.used : SIZE_MAX;
        lp_free(workers);
        lp_free(s);
        return lp_err_memory(err, bytes, "matrix scratch");
    }
    s->bytes = c.used;
    c = (struct cutter){.base = s->block};
    cut_all(s, dev, need, &c);
    lp_cpu_mat_release(dev);
    dev->mat_scratch = s;
    return LP_OK;
}

void lp_cpu_mat_release(struct lp_cpu_device *dev) {
    if (!dev->mat_scratch) return;
    lp_free(dev->mat_scratch->block);
    lp_free(dev->mat_scratch->workers);
    lp_free(dev->mat_scratch);
    dev->mat_scratch = NULL;
}
