// The pass: pieces of rows are handed out to the workers, each piece is decoded a row at a time,
// and what it adds up to is merged under a lock.
#include "doctor/weight_stats.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/progress.h"
#include "base/workers.h"
#include "quant/blocks.h"

#define PIECE_BYTES ((uint64_t)1 << 20)
#define DECODE_VALUES 4096 // at a time; a multiple of every block and of LP_GROUP_VALUES

#define MIN_HOLE 64         // zero groups on end
#define DAMAGE_EXPONENTS 10 // a group 1000 times as large as the middle one ...
#define DAMAGE_GROUPS 3     // ... is damage if there are some,
#define ABSURD_EXPONENTS 15 // or if it is 30000 times as large

struct piece {
    uint64_t tensor, matrix, first_row, n_rows; // n_rows: of those looked at, row_step apart
};

struct pass {
    struct lp_weight_stats *stats;
    const struct piece *pieces;
    uint64_t n_pieces;
    _Atomic uint64_t next, done_bytes;
    pthread_mutex_t lock; // of the stats
    struct lp_progress bar;
};

// ---- one row

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Largest size (as bits, which order like the sizes; NaN and infinity come last) and squares of one
// group; whether a value differs from `first`.
static uint32_t scan_group(const float *x, size_t n, uint32_t first, double *sum, uint32_t *differ,
                           uint32_t *nonzero) {
    uint32_t largest = 0, diff = 0, some = 0;
    float squares[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++) {
            uint32_t b = bits_of(x[i + j]), size = b & 0x7fffffffu;
            largest = size > largest ? size : largest;
            diff |= b ^ first;
            some += size != 0;
            squares[j] += x[i + j] * x[i + j];
        }
    for (; i < n; i++) {
        uint32_t b = bits_of(x[i]), size = b & 0x7fffffffu;
        largest = size > largest ? size : largest;
        diff |= b ^ first;
        some += size != 0;
        squares[0] += x[i] * x[i];
    }
    for (size_t j = 0; j < 8; j++) *sum += squares[j];
    *differ |= diff;
    *nonzero += some;
    return largest;
}

struct hole { // the run of zero groups that a piece is in
    uint64_t groups;
    struct lp_value_place start;
};

static void end_hole(struct lp_tensor_stats *s, struct hole *hole, bool at_row_start) {
    bool part = hole->start.column != 0 || !at_row_start;
    if (hole->groups >= MIN_HOLE && part && hole->groups > s->hole_groups) {
        s->hole_groups = hole->groups;
        s->hole = hole->start;
    }
    hole->groups = 0;
}

static void note_group(struct lp_tensor_stats *s, uint32_t largest, struct lp_value_place place,
                       struct hole *hole) {
    if (largest == 0 && hole->groups++ == 0) hole->start = place;
    if (largest != 0 && hole->groups) end_hole(s, hole, place.column == 0);
    s->n_groups++;
    s->exponents[largest >> 23]++;
    if (largest >= 0x7f800000u) {
        if (s->n_nonfinite++ == 0) s->nonfinite = place;
    } else if (largest > s->largest_bits) {
        s->largest_bits = largest;
        s->largest = place;
    }
}

// Whether a row has one value only.
static bool scan_row(struct lp_tensor_stats *s, struct lp_matrix_stats *m, struct hole *hole,
                     const uint8_t *row, struct lp_value_place place) {
    const struct lp_gguf_tensor *t = s->tensor;
    const struct lp_type_info *type = lp_type_info(t->type);
    float values[DECODE_VALUES];
    uint32_t first = 0, differ = 0;
    for (uint64_t c = 0; c < t->ne[0]; c += DECODE_VALUES) {
        size_t n = t->ne[0] - c < DECODE_VALUES ? (size_t)(t->ne[0] - c) : DECODE_VALUES;
        type->dequant(row + c / type->block_values * type->block_bytes, values, n);
        if (c == 0) first = bits_of(values[0]);
        for (size_t i = 0; i < n; i += LP_GROUP_VALUES) {
            size_t k = n - i < LP_GROUP_VALUES ? n - i : LP_GROUP_VALUES;
            uint32_t nonzero = 0;
            double sum = 0;
            place.column = c + i;
            uint32_t largest = scan_group(values + i, k, first, &sum, &differ, &nonzero);
            note_group(s, largest, place, hole);
            m->n_nonzero += nonzero;
            if (largest < 0x7f800000u && isfinite(sum)) m->sum_squares += sum;
        }
    }
    float value;
    memcpy(&value, &first, sizeof value);
    if (differ || (m->n_values && bits_of(m->first) != first)) m->has_spread = true;
    m->first = value;
    m->n_values += t->ne[0];
    return !differ;
}

// The scales that no quantiser makes negative, by type: where they lie in a block.
static const struct {
    lp_type type;
    uint8_t n, at[2];
} positive[] = {
    {LP_TYPE_Q4_1, 1, {0}},      {LP_TYPE_Q5_1, 1, {0}},    {LP_TYPE_Q8_0, 1, {0}},
    {LP_TYPE_Q2_K, 2, {80, 82}}, {LP_TYPE_Q4_K, 2, {0, 2}}, {LP_TYPE_Q5_K, 2, {0, 2}},
    {LP_TYPE_IQ2_XXS, 1, {0}},   {LP_TYPE_IQ2_XS, 1, {0}},  {LP_TYPE_IQ2_S, 1, {0}},
    {LP_TYPE_IQ3_XXS, 1, {0}},   {LP_TYPE_IQ3_S, 1, {0}},   {LP_TYPE_IQ1_S, 1, {0}},
    {LP_TYPE_TQ1_0, 1, {52}},    {LP_TYPE_TQ2_0, 1, {64}},
};

static bool odd_block(const uint8_t *block, size_t kind) {
    for (int i = 0; i < positive[kind].n; i++) {
        const uint8_t *d = block + positive[kind].at[i];
        if (d[1] & 0x80 && (d[0] || d[1] & 0x7f)) return true;
    }
    return false;
}

static void scan_scales(struct lp_tensor_stats *s, const uint8_t *row,
                        struct lp_value_place place) {
    const struct lp_type_info *type = lp_type_info(s->tensor->type);
    uint64_t n_blocks = s->tensor->ne[0] / type->block_values;
    size_t kind = 0, n_kinds = sizeof positive / sizeof positive[0];
    while (kind < n_kinds && positive[kind].type != type->id) kind++;
    bool nvfp4 = type->id == LP_TYPE_NVFP4; // four unsigned scales: their top bit is clear
    if (kind == n_kinds && !nvfp4) return;
    s->n_blocks += n_blocks;
    for (uint64_t b = 0; b < n_blocks; b++) {
        const uint8_t *block = row + b * type->block_bytes;
        bool odd =
            nvfp4 ? (block[0] | block[1] | block[2] | block[3]) & 0x80 : odd_block(block, kind);
        if (!odd) continue;
        place.column = b * type->block_values;
        if (s->n_odd_scales++ == 0) s->odd_scale = place;
    }
}

// ---- digests

static uint64_t mix(uint64_t a) {
    a = (a ^ (a >> 31)) * 0x9e3779b97f4a7c15u;
    return a ^ (a >> 29);
}

// Four lanes, so that the multiplications overlap.
static uint64_t digest(const uint8_t *bytes, uint64_t n) {
    uint64_t lane[4] = {1, 2, 3, 4}, word[4];
    uint64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        memcpy(word, bytes + i, 32);
        for (int j = 0; j < 4; j++) lane[j] = (lane[j] ^ word[j]) * 0xff51afd7ed558ccdu;
        for (int j = 0; j < 4; j++) lane[j] ^= lane[j] >> 32;
    }
    memset(word, 0, sizeof word);
    memcpy(word, bytes + i, (size_t)(n - i));
    for (int j = 0; j < 4; j++) lane[j] = mix(lane[j] ^ word[j]);
    return mix(lane[0] ^ mix(lane[1] ^ mix(lane[2] ^ mix(lane[3]))));
}

// ---- one piece

static void merge_matrix(struct lp_matrix_stats *into, const struct lp_matrix_stats *m) {
    if (into->n_values && bits_of(into->first) != bits_of(m->first)) into->has_spread = true;
    into->has_spread |= m->has_spread;
    into->first = m->first;
    into->n_values += m->n_values;
    into->n_nonzero += m->n_nonzero;
    into->sum_squares += m->sum_squares;
    into->digest += m->digest; // any order of the pieces
}

static uint64_t place_number(const struct lp_tensor_stats *s, struct lp_value_place p) {
    return (p.matrix * s->n_rows + p.row) * s->tensor->ne[0] + p.column;
}

static void merge_tensor(struct lp_tensor_stats *into, const struct lp_tensor_stats *s) {
    if (s->n_nonfinite && (into->n_nonfinite == 0 ||
                           place_number(s, s->nonfinite) < place_number(into, into->nonfinite)))
        into->nonfinite = s->nonfinite;
    if (s->n_odd_scales && (into->n_odd_scales == 0 ||
                            place_number(s, s->odd_scale) < place_number(into, into->odd_scale)))
        into->odd_scale = s->odd_scale;
    if (s->largest_bits > into->largest_bits) {
        into->largest_bits = s->largest_bits;
        into->largest = s->largest;
    }
    if (s->run_rows > into->run_rows) {
        into->run_rows = s->run_rows;
        into->run_start = s->run_start;
    }
    if (s->hole_groups > into->hole_groups) {
        into->hole_groups = s->hole_groups;
        into->hole = s->hole;
    }
    into->n_rows_seen += s->n_rows_seen;
    into->n_constant_rows += s->n_constant_rows;
    into->n_equal_rows += s->n_equal_rows;
    into->n_nonfinite += s->n_nonfinite;
    into->n_groups += s->n_groups;
    into->n_blocks += s->n_blocks;
    into->n_odd_scales += s->n_odd_scales;
    for (int i = 0; i < 256; i++) into->exponents[i] += s->exponents[i];
}

static uint64_t scan_piece(struct pass *p, const struct piece *piece) {
    struct lp_tensor_stats *into = &p->stats->tensors[piece->tensor];
    struct lp_tensor_stats s = {.tensor = into->tensor, .n_rows = into->n_rows};
    struct lp_matrix_stats m = {0};
    struct hole hole = {0};
    uint64_t row_bytes = 0, run = 0, step = p->stats->row_step;
    lp_type_row_bytes(s.tensor->type, s.tensor->ne[0], &row_bytes); // checked by the reader
    const uint8_t *data = lp_gguf_tensor_mat(s.tensor, piece->matrix), *before = NULL;
    for (uint64_t i = 0; i < piece->n_rows; i++) {
        struct lp_value_place place = {piece->matrix, piece->first_row + i * step, 0};
        const uint8_t *row = data + place.row * row_bytes;
        if (step > 1) end_hole(&s, &hole, true); // the rows between were not seen
        bool constant = scan_row(&s, &m, &hole, row, place) && s.tensor->ne[0] > 1;
        bool equal = before && memcmp(before, row, row_bytes) == 0;
        scan_scales(&s, row, place);
        m.digest += mix(digest(row, row_bytes) + place.row);
        s.n_constant_rows += constant;
        s.n_equal_rows += equal;
        run = constant || equal ? run + 1 : 0;
        if (run > s.run_rows) {
            s.run_rows = run;
            s.run_start = place;
            s.run_start.row -= (run - 1) * step;
        }
        before = row;
    }
    end_hole(&s, &hole, true);
    s.n_rows_seen = piece->n_rows;
    pthread_mutex_lock(&p->lock);
    merge_tensor(into, &s);
    merge_matrix(&into->matrices[piece->matrix], &m);
    pthread_mutex_unlock(&p->lock);
    return piece->n_rows * row_bytes;
}

static void pass_worker(void *pass_, int worker, int n_workers) {
    (void)n_workers;
    struct pass *p = pass_;
    for (uint64_t i; (i = atomic_fetch_add(&p->next, 1)) < p->n_pieces;) {
        uint64_t bytes = scan_piece(p, &p->pieces[i]);
        uint64_t done = atomic_fetch_add(&p->done_bytes, bytes) + bytes;
        if (worker == 0) lp_progress_update(&p->bar, done);
    }
}

// ---- the plan of the pass

struct shape {
    uint64_t n_rows, n_matrices, row_bytes;
};

static struct shape shape_of(const struct lp_gguf_tensor *t) {
    struct shape s = {t->ne[1], t->ne[2] * t->ne[3], 0};
    lp_type_row_bytes(t->type, t->ne[0], &s.row_bytes);
    return s;
}

static bool can_read(const struct lp_gguf_tensor *t) {
    return lp_type_info(t->type)->is_weight && shape_of(t).row_bytes && t->ne[1];
}

// Pieces of all tensors, into `pieces` if that is not NULL; the number of them.
static uint64_t plan(const struct lp_weight_stats *stats, struct piece *pieces) {
    uint64_t n = 0;
    for (uint64_t t = 0; t < stats->n; t++) {
        if (!can_read(stats->tensors[t].tensor)) continue;
        struct shape s = shape_of(stats->tensors[t].tensor);
        uint64_t per_piece = PIECE_BYTES / s.row_bytes ? PIECE_BYTES / s.row_bytes : 1;
        for (uint64_t m = 0; m < s.n_matrices; m++) {
            uint64_t first = stats->row_step / 2 % s.n_rows; // the same in all: digests compare
            uint64_t rows = (s.n_rows - first + stats->row_step - 1) / stats->row_step;
            for (uint64_t r = 0; r < rows; r += per_piece, n++) {
                uint64_t take = rows - r < per_piece ? rows - r : per_piece;
                if (pieces) pieces[n] = (struct piece){t, m, first + r * stats->row_step, take};
            }
        }
    }
    return n;
}

static lp_status make_tables(struct lp_weight_stats *stats, const struct lp_gguf *gguf,
                             struct lp_err *err) {
    uint64_t n = lp_gguf_n_tensors(gguf);
    stats->tensors = lp_alloc(n, sizeof *stats->tensors);
    if (!stats->tensors) return lp_err_memory(err, n * sizeof *stats->tensors, "the statistics");
    stats->n = n;
    for (uint64_t i = 0; i < n; i++) {
        struct lp_tensor_stats *s = &stats->tensors[i];
        s->tensor = lp_gguf_tensor_at(gguf, i);
        struct shape shape = shape_of(s->tensor);
        s->n_rows = shape.n_rows;
        s->n_matrices = shape.n_matrices;
        s->matrices = lp_alloc(s->n_matrices, sizeof *s->matrices);
        if (!s->matrices)
            return lp_err_memory(err, s->n_matrices * sizeof *s->matrices, "the statistics");
        stats->total_bytes += s->tensor->n_bytes;
    }
    return LP_OK;
}

static lp_status run_pass(struct lp_weight_stats *stats, int n_threads, struct lp_err *err) {
    struct pass p = {.stats = stats, .n_pieces = plan(stats, NULL)};
    struct piece *pieces = lp_alloc(p.n_pieces, sizeof *pieces);
    if (!pieces) return lp_err_memory(err, p.n_pieces * sizeof *pieces, "the plan of the pass");
    plan(stats, pieces);
    p.pieces = pieces;
    struct lp_workers *workers;
    lp_status status = lp_workers_new(&workers, n_threads, err);
    if (!status) {
        pthread_mutex_init(&p.lock, NULL);
        lp_progress_init(&p.bar, "weights", stats->total_bytes / stats->row_step);
        lp_workers_run(workers, pass_worker, &p);
        lp_progress_finish(&p.bar);
        pthread_mutex_destroy(&p.lock);
        lp_workers_free(workers);
        stats->seen_bytes = atomic_load(&p.done_bytes);
    }
    lp_free(pieces);
    return status;
}

lp_status lp_weight_stats_make(struct lp_weight_stats *out, const struct lp_gguf *gguf,
                               uint64_t budget_bytes, int n_threads, struct lp_err *err) {
    *out = (struct lp_weight_stats){.row_step = 1};
    lp_status status = make_tables(out, gguf, err);
    if (budget_bytes && out->total_bytes > budget_bytes)
        out->row_step = (out->total_bytes + budget_bytes - 1) / budget_bytes;
    if (!status) status = run_pass(out, n_threads, err);
    if (status) lp_weight_stats_release(out);
    return status;
}

void lp_weight_stats_release(struct lp_weight_stats *stats) {
    for (uint64_t i = 0; i < stats->n; i++) lp_free(stats->tensors[i].matrices);
    lp_free(stats->tensors);
    *stats = (struct lp_weight_stats){0};
}

double lp_matrix_rms(const struct lp_matrix_stats *m) {
    return m->n_values ? sqrt(m->sum_squares / (double)m->n_values) : 0;
}

double lp_tensor_rms(const struct lp_tensor_stats *t) {
    double sum = 0;
    uint64_t n = 0;
    for (uint64_t i = 0; i < t->n_matrices; i++) {
        sum += t->matrices[i].sum_squares;
        n += t->matrices[i].n_values;
    }
    return n ? sqrt(sum / (double)n) : 0;
}

int lp_tensor_median_exponent(const struct lp_tensor_stats *t) {
    uint64_t n = 0, below = 0;
    for (int e = 1; e < 255; e++) n += t->exponents[e];
    for (int e = 1; e < 255; e++)
        if ((below += t->exponents[e]) * 2 >= n && n) return e;
    return -1;
}

bool lp_tensor_damage(const struct lp_tensor_stats *t, struct lp_damage *out) {
    int middle = lp_tensor_median_exponent(t);
    *out = (struct lp_damage){0};
    for (int e = middle + DAMAGE_EXPONENTS; middle >= 0 && e < 255; e++) {
        if (!t->exponents[e]) continue;
        out->n_groups += t->exponents[e];
        out->exponents = e - middle;
    }
    return out->n_groups * 100 < t->n_groups &&
           (out->n_groups >= DAMAGE_GROUPS || out->exponents >= ABSURD_EXPONENTS);
}
