// The table of links, and the sampling: of a side's vectors some dozens are read, spread over the
// matrix in runs, so that a block is decoded for all its values.
#include "doctor/weight_links.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "doctor/weight_read.h"

#define RUN 32 // vectors next to each other; of UNITS at least a block
#define MIN_WIDTH 8

// ---- the table

enum space {
    SPACE_QUERY_HEAD,
    SPACE_VALUE_HEAD,
    SPACE_LATENT_K,
    SPACE_LATENT_V,
    SPACE_Q_LATENT,
    SPACE_Q_LATENT_INDEX,
    SPACE_Q_LATENT_READERS,
    SPACE_INPUT_Q_KV,
    SPACE_INPUT_Q_INDEX,
    SPACE_INPUT_KV_INDEX,
    SPACE_INPUT_Q_K,
    SPACE_INPUT_Q_V,
    SPACE_INPUT_K_V,
    SPACE_HEAD_Q_K,
    SPACE_HEAD_V,
    SPACE_UNITS, // three for each of dense, experts, shared expert
};

static const char *const spaces[] = {
    "the unrotated part of a head's query",
    "a head's output",
    "the key-value latent",
    "the key-value latent",
    "the query latent",
    "the query latent",
    "the query latent",
    "the layer's input",
    "the layer's input",
    "the layer's input",
    "the layer's input",
    "the layer's input",
    "the layer's input",
    "a head's query and key",
    "a head's output",
};

const char *lp_link_space(int32_t id) {
    return id < SPACE_UNITS ? spaces[id] : "the units of the FFN";
}

struct builder {
    const struct lp_gguf *gguf;
    int32_t layer, n;
    struct lp_link *links;
};

static const struct lp_gguf_tensor *find(const struct builder *b, const char *name) {
    return lp_weight_find(b->gguf, b->layer, name);
}

// Whether the side lies within its tensor.
static bool is_inside(const struct lp_link_side *s, uint64_t n_parts) {
    uint64_t have = s->by_row ? s->tensor->ne[1] : s->tensor->ne[0];
    uint64_t parts = s->by_matrix ? 1 : n_parts;
    if (s->by_matrix && s->tensor->ne[2] < n_parts) return false;
    return s->width >= MIN_WIDTH && s->first + (parts - 1) * s->step + s->width <= have;
}

static void add(struct builder *b, int32_t id, enum lp_fit_kind kind, uint64_t n_parts,
                struct lp_link_side x, struct lp_link_side y) {
    if (!x.tensor || !y.tensor || n_parts == 0 || x.width != y.width || b->n == LP_MAX_LINKS)
        return;
    if (!is_inside(&x, n_parts) || !is_inside(&y, n_parts)) return;
    b->links[b->n++] = (struct lp_link){id, kind, x, y, (uint32_t)n_parts};
}

static struct lp_link_side rows(const struct lp_gguf_tensor *t, uint64_t step, uint64_t width) {
    return (struct lp_link_side){t, true, false, 0, step, width};
}
static struct lp_link_side columns(const struct lp_gguf_tensor *t, uint64_t step, uint64_t width) {
    return (struct lp_link_side){t, false, false, 0, step, width};
}
static struct lp_link_side stack(const struct lp_gguf_tensor *t, bool by_row, uint64_t width) {
    return (struct lp_link_side){t, by_row, true, 0, 0, width};
}

static void add_mla(struct builder *b, const struct lp_hparams *h) {
    const struct lp_gguf_tensor *k_b = find(b, "attn_k_b"), *v_b = find(b, "attn_v_b");
    const struct lp_gguf_tensor *kv_a = find(b, "attn_kv_a_mqa"), *q_a = find(b, "attn_q_a");
    const struct lp_gguf_tensor *q = find(b, h->q_rank ? "attn_q_b" : "attn_q");
    const struct lp_gguf_tensor *index_q = find(b, "indexer.attn_q_b");
    const struct lp_gguf_tensor *index_k = find(b, "indexer.attn_k");
    const struct lp_gguf_tensor *out = find(b, "attn_output");
    uint64_t n = (uint64_t)h->n_heads, nope = (uint64_t)h->nope, v = (uint64_t)h->v_dim;
    uint64_t latent = (uint64_t)h->latent, rank = (uint64_t)h->q_rank, embd = (uint64_t)h->n_embd;
    add(b, SPACE_QUERY_HEAD, LP_FIT_OVERLAP, n, stack(k_b, false, nope),
        rows(q, nope + (uint64_t)h->rope_dim, nope));
    add(b, SPACE_VALUE_HEAD, LP_FIT_OVERLAP, n, stack(v_b, true, v), columns(out, v, v));
    add(b, SPACE_LATENT_K, LP_FIT_OVERLAP, n, stack(k_b, true, latent), rows(kv_a, 0, latent));
    add(b, SPACE_LATENT_V, LP_FIT_OVERLAP, n, stack(v_b, false, latent), rows(kv_a, 0, latent));
    add(b, SPACE_Q_LATENT, LP_FIT_OVERLAP, 1, rows(q_a, 0, rank), columns(q, 0, rank));
    add(b, SPACE_Q_LATENT_INDEX, LP_FIT_OVERLAP, 1, rows(q_a, 0, rank), columns(index_q, 0, rank));
    add(b, SPACE_Q_LATENT_READERS, LP_FIT_OVERLAP, 1, columns(q, 0, rank),
        columns(index_q, 0, rank));
    const struct lp_gguf_tensor *reader = q_a ? q_a : q;
    add(b, SPACE_INPUT_Q_KV, LP_FIT_OVERLAP, 1, columns(reader, 0, embd), columns(kv_a, 0, embd));
    add(b, SPACE_INPUT_Q_INDEX, LP_FIT_OVERLAP, 1, columns(reader, 0, embd),
        columns(index_k, 0, embd));
    add(b, SPACE_INPUT_KV_INDEX, LP_FIT_OVERLAP, 1, columns(kv_a, 0, embd),
        columns(index_k, 0, embd));
}

static void add_gqa(struct builder *b, const struct lp_hparams *h) {
    const struct lp_gguf_tensor *q = find(b, "attn_q"), *k = find(b, "attn_k");
    const struct lp_gguf_tensor *v = find(b, "attn_v"), *out = find(b, "attn_output");
    uint64_t n = (uint64_t)h->n_kv_heads, embd = (uint64_t)h->n_embd;
    uint64_t group = n ? (uint64_t)h->n_heads / n : 0;
    uint64_t width = (uint64_t)h->head_dim, v_width = (uint64_t)h->v_dim;
    add(b, SPACE_INPUT_Q_K, LP_FIT_OVERLAP, 1, columns(q, 0, embd), columns(k, 0, embd));
    add(b, SPACE_INPUT_Q_V, LP_FIT_OVERLAP, 1, columns(q, 0, embd), columns(v, 0, embd));
    add(b, SPACE_INPUT_K_V, LP_FIT_OVERLAP, 1, columns(k, 0, embd), columns(v, 0, embd));
    add(b, SPACE_HEAD_Q_K, LP_FIT_OVERLAP, n, rows(k, width, width), rows(q, group * width, width));
    add(b, SPACE_HEAD_V, LP_FIT_OVERLAP, n, rows(v, v_width, v_width),
        columns(out, group * v_width, v_width));
}

static void add_ffn(struct builder *b, int32_t id, uint64_t n, uint64_t width,
                    const char *const names[3]) {
    const struct lp_gguf_tensor *gate = find(b, names[0]), *up = find(b, names[1]);
    const struct lp_gguf_tensor *down = find(b, names[2]);
    add(b, id, LP_FIT_UNITS, n, stack(gate, true, width), stack(up, true, width));
    add(b, id + 1, LP_FIT_UNITS, n, stack(gate, true, width), stack(down, false, width));
    add(b, id + 2, LP_FIT_UNITS, n, stack(up, true, width), stack(down, false, width));
}

int32_t lp_weight_links(const struct lp_gguf *gguf, const struct lp_hparams *h, int32_t layer,
                        struct lp_link out[LP_MAX_LINKS]) {
    static const char *const dense[] = {"ffn_gate", "ffn_up", "ffn_down"};
    static const char *const experts[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    static const char *const shared[] = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    struct builder b = {gguf, layer, 0, out};
    if (h->arch->attention == LP_ATTENTION_MLA)
        add_mla(&b, h);
    else
        add_gqa(&b, h);
    add_ffn(&b, SPACE_UNITS, 1, (uint64_t)h->n_ff[layer], dense);
    add_ffn(&b, SPACE_UNITS + 3, (uint64_t)h->n_experts, (uint64_t)h->expert_ff, experts);
    add_ffn(&b, SPACE_UNITS + 6, 1, (uint64_t)h->shared_ff, shared);
    return b.n;
}

// ---- reading

struct runs { // a side's vectors
    uint64_t available;
    uint32_t n, n_runs, run;
};

static struct runs runs_of(const struct lp_link *link, const struct lp_link_side *s,
                           const struct lp_link_sample *sample) {
    uint64_t have = s->by_row ? s->tensor->ne[0] : s->tensor->ne[1];
    uint32_t want = link->kind == LP_FIT_UNITS ? sample->n_units : sample->n_vectors;
    uint32_t block = lp_type_info(s->tensor->type)->block_values;
    uint32_t run = link->kind == LP_FIT_UNITS && block > RUN ? block : RUN;
    if (have <= want) return (struct runs){have, (uint32_t)have, 1, (uint32_t)have};
    if (run > want) run = want;
    return (struct runs){have, want / run * run, want / run, run};
}

static uint64_t run_start(const struct runs *s, uint32_t run) {
    return s->n_runs > 1 ? (s->available - s->run) * run / (s->n_runs - 1) : 0;
}

// One part's vectors: [n_vectors, width]. `run_values`: [runs->run].
static void read_part(const struct lp_link_side *s, const struct runs *runs, uint64_t part,
                      bool turned, float *run_values, float *out) {
    const struct lp_gguf_tensor *t = s->tensor;
    uint64_t n_rows = t->ne[1], n_columns = t->ne[0];
    uint64_t base = s->by_matrix ? part * n_rows * n_columns : 0;
    uint64_t first = s->first + (s->by_matrix ? 0 : part * s->step);
    uint64_t line = turned ? n_rows : n_columns; // values from one line of the file to the next
    for (uint32_t r = 0, v = 0; r < runs->n_runs; r++, v += runs->run) {
        uint64_t start = run_start(runs, r);
        if (s->by_row != turned) { // a vector is spread over the lines
            for (uint64_t i = 0; i < s->width; i++) {
                lp_weight_read(t, base + (first + i) * line + start, runs->run, run_values);
                for (uint32_t j = 0; j < runs->run; j++)
                    out[(v + j) * s->width + i] = run_values[j];
            }
        } else {
            for (uint32_t j = 0; j < runs->run; j++)
                lp_weight_read(t, base + (start + j) * line + first, (size_t)s->width,
                               out + (v + j) * s->width);
        }
    }
}

// Log norms of the coordinates, without their mean.
static void unit_sizes(const float *vectors, uint32_t n_vectors, uint64_t width, float *out) {
    double mean = 0;
    for (uint64_t i = 0; i < width; i++) {
        double sum = 0;
        for (uint32_t v = 0; v < n_vectors; v++)
            sum += (double)vectors[v * width + i] * vectors[v * width + i];
        out[i] = (float)(0.5 * log(sum + 1e-30));
        mean += out[i];
    }
    for (uint64_t i = 0; i < width; i++) out[i] -= (float)(mean / (double)width);
}

bool lp_link_read(const struct lp_link *link, const struct lp_link_side *side, bool turned,
                  const struct lp_link_sample *sample, struct lp_link_values *out) {
    struct runs s = runs_of(link, side, sample);
    uint32_t step = sample->part_step < link->n_parts ? sample->part_step : link->n_parts;
    bool units = link->kind == LP_FIT_UNITS;
    uint32_t n = (link->n_parts + step - 1) / step;
    size_t part_values = (size_t)s.n * side->width;
    float *run_values = lp_alloc(s.run, sizeof *run_values);
    float *vectors = units ? lp_alloc(part_values, sizeof *vectors) : NULL;
    *out = (struct lp_link_values){.n_parts = n, .n_vectors = s.n, .width = side->width};
    out->values = lp_alloc((units ? (size_t)side->width : part_values) * n, sizeof *out->values);
    bool ok = run_values && out->values && (vectors || !units);
    for (uint32_t p = 0; ok && p < n; p++) {
        float *into = units ? vectors : out->values + p * part_values;
        read_part(side, &s, (uint64_t)p * step, turned, run_values, into);
        if (units) unit_sizes(vectors, s.n, side->width, out->values + p * side->width);
    }
    lp_free(run_values);
    lp_free(vectors);
    if (!ok) lp_link_release(out);
    return ok;
}

void lp_link_release(struct lp_link_values *values) {
    lp_free(values->values);
    *values = (struct lp_link_values){0};
}

// ---- the fit

static double dot(const float *a, const float *b, uint64_t n) {
    float sum[8] = {0};
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) sum[j] += a[i + j] * b[i + j];
    double total = 0;
    for (; i < n; i++) total += (double)a[i] * b[i];
    for (int j = 0; j < 8; j++) total += sum[j];
    return total;
}

static double squares(const float *x, uint64_t n_vectors, uint64_t width) {
    double sum = 0;
    for (uint64_t v = 0; v < n_vectors; v++) sum += dot(x + v * width, x + v * width, width);
    return sum;
}

static double overlap(const float *a, uint32_t n_a, const float *b, uint32_t n_b, uint64_t width) {
    double sum = 0, scale = squares(a, n_a, width) * squares(b, n_b, width);
    for (uint32_t i = 0; i < n_a; i++)
        for (uint32_t j = 0; j < n_b; j++) {
            double d = dot(a + i * width, b + j * width, width);
            sum += d * d;
        }
    return scale > 0 && sum > 0 ? log(sum * (double)width / scale) : 0;
}

static double correlation(const float *a, const float *b, uint64_t n) {
    double scale = sqrt(dot(a, a, n) * dot(b, b, n));
    return scale > 0 ? dot(a, b, n) / scale : 0;
}

double lp_link_fit(const struct lp_link *link, const struct lp_link_values *a, uint32_t i,
                   const struct lp_link_values *b, uint32_t j) {
    double fit;
    if (link->kind == LP_FIT_UNITS)
        fit = correlation(a->values + i * a->width, b->values + j * b->width, a->width);
    else
        fit = overlap(a->values + i * a->width * a->n_vectors, a->n_vectors,
                      b->values + j * b->width * b->n_vectors, b->n_vectors, a->width);
    return isfinite(fit) ? fit : 0;
}
