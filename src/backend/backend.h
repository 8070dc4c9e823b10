// The backend interface: one device's memory and the operations a layer is made of.
//
// A backend (ref, cpu, cuda) fills one struct lp_backend. Model code allocates every activation,
// index and cache buffer with `alloc`, moves data with `write` and `read`, and never looks into a
// buffer itself, so that the same layer functions run on every device.
//
// What holds for every operation of every backend (tests/kernels/check_*.c):
//   B1. Activations are float32, row-major; strides count floats, from one row (token) to the next.
//   B2. A row's result depends on that row alone: not on how many rows are in the call, where it lies
//       among them, how many threads run, or how the pages of a cache are placed. Bit for bit. (Where a
//       backend has fix_results, products and attention may depend on what else is in the call while it
//       is off.)
//   B3. ref/ is the definition: plain C, sums in double. Other backends agree with it within the bound
//       that the operation's test states. Kernels for block-quantised weights may round the activation
//       row to 8 bits per block of 32 (docs/numerics.md); those for floats (F32, F16, BF16, F8_E4M3) may
//       not (lp_weight_may_round), but while results are not fixed to float16. Attention over F16, BF16, Q8_0 and F8_E4M3 caches may multiply whole numbers or
//       bfloat16; by how much it rounds, lp_backend.kernel tells.
//   B4. NaN and infinity go through: a non-finite input gives a non-finite output in that row.
//   B5. Operations do not fail: sizes and types were checked when the plan was made (supports). No
//       operation allocates; scratch comes from the device, sized by lp_backend.reserve. A device that
//       is not the host's own may break while they run: lp_backend.failed tells, after the step.
// One thread at a time calls a device.
#ifndef LP_BACKEND_BACKEND_H
#define LP_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/bytes.h"
#include "base/topology.h"
#include "quant/quant.h"

// A weight: n_mats matrices [n_out, n_in], rows contiguous blocks of `type` (as in the GGUF file).
// Matrix m begins at lp_weight_mat, its row r at + r * row_bytes. What a product with matrix m gives
// is multiplied by scales[m] (the factor that NVFP4 files keep beside a tensor), before bias and
// accumulation; an embedding's rows too.
struct lp_weight {
    const void *data; // device memory (host backends: the mapped file); NULL where there are mats
    const uint8_t *const *mats; // NULL, or [n_mats]: matrices that do not lie in one piece
    size_t mats_offset;         // of the first row in each of mats
    const float *scales;        // NULL (all 1), or [n_mats]; device memory
    lp_type type;
    int64_t n_in, n_out, n_mats;
    size_t row_bytes, mat_bytes;
    // NULL, or the matrices once more in the order in which products read them fastest
    // (lp_backend.pack): matrix m at packed + m * packed_mat_bytes.
    const uint8_t *packed;
    size_t packed_mat_bytes;
    struct lp_str name; // for messages and traces: a view of the file's directory
};

static inline const uint8_t *lp_weight_mat(const struct lp_weight *w, int64_t m) {
    return w->mats ? w->mats[m] + w->mats_offset
                   : (const uint8_t *)w->data + (size_t)m * w->mat_bytes;
}
static inline float lp_weight_scale(const struct lp_weight *w, int64_t m) {
    return w->scales ? w->scales[m] : 1.0f;
}
static inline bool lp_weight_may_round(lp_type type) { // B3
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    return info->block_values > 1 && type != LP_TYPE_F8_E4M3;
}
// Rows first_row ... + n_out - 1 of matrices first_mat ... + n_mats - 1, as a weight of its own.
static inline struct lp_weight lp_weight_part(const struct lp_weight *w, int64_t first_mat,
                                              int64_t n_mats, int64_t first_row, int64_t n_out) {
    struct lp_weight part = *w;
    size_t skip = (size_t)first_row * w->row_bytes;
    part.n_mats = n_mats;
    part.n_out = n_out;
    bool whole = first_row == 0 && n_out == w->n_out; // packed rows cannot be told apart
    part.packed = w->packed && whole ? w->packed + (size_t)first_mat * w->packed_mat_bytes : NULL;
    if (w->scales) part.scales = w->scales + first_mat;
    if (w->mats) {
        part.mats = w->mats + first_mat;
        part.mats_offset = w->mats_offset + skip;
    } else
        part.data = lp_weight_mat(w, first_mat) + skip;
    return part;
}

// One kind of cached state of one sequence and layer: rows of `width` values of `type` (F32, F16,
// BF16, Q8_0 or F8_E4M3), in pages of page_tokens rows. Position p has slot s = p + slot_offset, whose row is
// base + page_bytes * pages[s / page_tokens] + row_bytes * (s % page_tokens). A row:
//
//   F32, F16, BF16, Q8_0   values, or blocks of 32
//   F8_E4M3                | d0 | 128 codes | d1 | 128 codes | ... | n_tail values as BF16 |
//                          a latent row of 512 + 64: 4 x (4 + 128) + 64 x 2 = 656 bytes
struct lp_cache_view {
    void *base;
    lp_type type;
    int32_t width, page_tokens;
    // Of F8_E4M3: the values at the end of a row that are BF16, behind whole blocks: the rotated part of a latent
    // row, and all of an indexer key that is no whole blocks. Else 0.
    int32_t n_tail;
    int32_t slot_offset; // 0; 1 for the MTP layer, whose state belongs to the token behind
    size_t row_bytes, page_bytes;
    // Where in a page its rows lie once more in the backend's own form (lp_backend.index_page_extra);
    // 0: nowhere. cache_write keeps both.
    size_t extra_offset;
    const int32_t *pages; // device memory
};

// Whether the operations take a cache of this type and width. F32, F16, BF16: any width. Q8_0: whole
// blocks of 32. F8_E4M3: of 128. Ask for every run of values that an operation takes from a row by itself: the row
// (without a tail), and for grouped-query attention head_dim and v_dim too.
bool lp_cache_type_fits(lp_type type, int32_t width);
// Bytes of a row; false for one that does not fit.
bool lp_cache_row_bytes(lp_type type, int32_t width, int32_t n_tail, size_t *bytes);
// Where value i of a row begins; of blocks, i is the first of one.
static inline size_t lp_cache_offset(const struct lp_cache_view *cache, int32_t i) {
    const struct lp_type_info *type = lp_type_info((uint32_t)cache->type);
    const int32_t n = cache->width - cache->n_tail, blocks = i < n ? i : n;
    return (size_t)blocks / type->block_values * type->block_bytes +
           (size_t)(i - blocks) * sizeof(uint16_t);
}
// A row in host memory as float32 values [width], and back (the type's quantiser; the same bytes in
// every backend, except for the payload of a NaN).
void lp_cache_row_read(const struct lp_cache_view *cache, const void *row, float *out);
void lp_cache_row_write(const struct lp_cache_view *cache, const float *x, void *row);

// Rows of several sequences in one operation (device memory): row i is the token at positions[i] of the
// sequence whose pages are pages[i]. Only where lp_backend.batches.
struct lp_op_batch {
    const int32_t *positions;    // [n_rows]
    const int32_t *const *pages; // [n_rows]
    int64_t most_keys;           // no row sees more than that: what a launch is sized by
};

enum lp_rope_pairing {
    LP_ROPE_ADJACENT, // pair i = elements 2i, 2i+1      (GPT-J; "interleaved")
    LP_ROPE_HALF,     // pair i = elements i, i + width/2 (NeoX; "half-split")
};

// out[t] = row ids[t] of table, as float32
struct lp_op_embed {
    const struct lp_weight *table; // n_mats 1
    const int32_t *ids;            // [n_rows], each in 0..n_out-1
    float *out;
    int64_t out_stride, n_rows;
};

// y = w * x / sqrt(mean(x^2) + eps) over `width` values of each row. w NULL = ones. y may be x.
struct lp_op_rms_norm {
    const float *x;
    int64_t x_stride;
    const float *w; // [width]
    float eps;
    float *y;
    int64_t y_stride, n_rows;
    int32_t width;
    // NULL, or a weight that y is multiplied with next: what a backend makes of rows for that it may make here.
    const struct lp_weight *next;
    int32_t next_used; // 0, or next is of experts, of which a row takes so many
};

// y = (x - mean) / sqrt(var + eps) * w + b, biased variance. y may be x.
struct lp_op_layer_norm {
    const float *x;
    int64_t x_stride;
    const float *w, *b; // [width]
    float eps;
    float *y;
    int64_t y_stride, n_rows;
    int32_t width;
};

// Rotates, in place, the first `width` values at x + t * token_stride + h * head_stride: pair i by
// the angle float(pos[t]) * inv_freq[i] (product in float32, then reduced exactly: spec of the
// reference implementations), cos and sin times `magnitude`.
struct lp_op_rope {
    float *x;
    int64_t token_stride, head_stride, n_tokens;
    int32_t n_heads, width;
    enum lp_rope_pairing pairing;
    const int32_t *positions; // [n_tokens]
    const float *inv_freq;    // [width / 2]
    float magnitude;
};

// y[t] = W x[t] (+ bias) (+ y[t] if accumulate), t < n_rows. x and y do not overlap.
struct lp_op_matmul {
    const struct lp_weight *w; // matrix 0
    const float *x;            // [n_rows, n_in]
    int64_t x_stride;
    const float *bias; // [n_out] or NULL
    float *y;          // [n_rows, n_out]
    int64_t y_stride, n_rows;
    bool accumulate;
    // The rows of x are those of the last matmul, gate_up or experts, or y of the last rms_norm, unchanged: what a
    // backend made of them may serve again.
    bool same_x;
};

// y[t] = silu(gate x[t]) * (up x[t]), the numbers of two matmuls and silu_mul.
struct lp_op_gate_up {
    const struct lp_weight *gate, *up; // matrix 0
    const float *x;                    // [n_rows, n_in]
    int64_t x_stride;
    float *y; // [n_rows, n_out], contiguous
    int64_t n_rows;
    bool same_x; // of lp_op_matmul
};

// What rows need behind a product, of several buffers at once: no part touches the values of another. A part
// without a cache is a rope alone. One with a cache takes cache->width values of a row, of which rope.x is
// number rope_first: the first norm_width are normed, then some rotated (n_heads 1), then all go into the
// cache; bit for bit what rms_norm (layer_norm where there is norm_b), rope and cache_write make of them.
#define LP_READY_PARTS 4
struct lp_op_ready_part {
    struct lp_op_rope rope;
    int32_t rope_first;
    const struct lp_cache_view *cache; // or NULL
    const float *norm_w, *norm_b;
    float eps;
    int32_t norm_width;
};
struct lp_op_ready_rows {
    const struct lp_op_ready_part *parts; // [n_parts], at most LP_READY_PARTS
    int32_t n_parts;
    int64_t n_rows;
    const struct lp_op_batch *batch; // not NULL
};

// One matrix per head. Plain: y[t][h] = W[h] x[t][h] (n_in -> n_out).
// Transposed: y[t][h] = W[h]^T x[t][h] (n_out -> n_in), y[j] = sum_d W[h][d][j] x[d].
struct lp_op_head_matmul {
    const struct lp_weight *w; // n_mats = heads
    bool transposed;
    const float *x;
    int64_t x_row_stride, x_head_stride; // head stride 0: all heads share the input
    float *y;
    int64_t y_row_stride, y_head_stride, n_rows;
};

// What the host wants to know of rows before it reads them, if it then reads them at all.
struct lp_op_scan_rows {
    const float *x; // [n_rows, width]
    int64_t x_stride, n_rows;
    int64_t width;
    const uint8_t *skip; // [width], or NULL: values that are not looked at for `largest`
    int32_t
        *largest; // [n_rows], or NULL: where the largest value stands; of equal ones the first; -1
                  // where none is left
    int32_t *bad; // [n_rows]: 1 where any value is NaN or infinite, else 0
};

#define LP_TOP_VALUES 1024
struct lp_top_row {
    double sum; // of exp((value - largest) * scale) over all values that are looked at
    int32_t n;  // LP_TOP_VALUES, or how many there are
    int32_t ids[LP_TOP_VALUES]; // places of the n largest values, ascending
    float values[LP_TOP_VALUES];
};

// What may be drawn from rows of which the host need not see all: the largest values of each, of equal ones
// the first. Values are finite, or a row's result means nothing.
struct lp_op_top_rows {
    const float *x; // [n_rows, width]
    int64_t x_stride, n_rows;
    int64_t width;
    const uint8_t *skip;     // [width], or NULL: values that are not looked at
    const double *scales;    // [n_rows]; 0: nothing is wanted of the row
    struct lp_top_row *rows; // [n_rows]
};

// y += x
struct lp_op_add {
    float *y;
    const float *x;
    int64_t y_stride, x_stride, n_rows;
    int32_t width;
};

// y = silu(gate) * up, silu(a) = a / (1 + exp(-a)). y may be gate.
struct lp_op_silu_mul {
    const float *gate, *up;
    float *y;
    int64_t stride, n_rows; // of all three
    int32_t width;
};

// Cache rows first_pos .. first_pos + n_rows - 1 = x, rounded as lp_cache_row_write does: the same bytes in
// every backend, except for the payload of a NaN.
// batch: NULL, or where each row goes; cache->pages and first_pos then say nothing.
struct lp_op_cache_write {
    const struct lp_cache_view *cache;
    const float *x; // [n_rows, width]
    int64_t x_stride, first_pos, n_rows;
    const struct lp_op_batch *batch;
};

// The keys that each query of a call may see.
// Query i stands at position first_pos + i. Without selection it sees 0 .. first_pos + i. With
// selection it sees ids[i * k .. i * k + counts[i] - 1], ascending. batch: NULL, or whose query i is and
// where it stands (the pages of the cache views and first_pos then say nothing); not of mla_expanded.
struct lp_visible {
    int64_t first_pos, n_queries;
    const struct lp_op_batch *batch;
    const int32_t *ids;    // [n_queries, k] or NULL
    const int32_t *counts; // [n_queries]
    int32_t k;
};

// Grouped-query attention: head h uses key/value head h / (n_heads / n_kv_heads);
// out[i][h] = sum_s softmax_s(scale * q[i][h] . k[s][h']) v[s][h'], softmax in float32 or better.
struct lp_op_gqa {
    const float *q; // [n_queries, n_heads, head_dim]
    int64_t q_stride;
    const struct lp_cache_view *k, *v; // width = n_kv_heads * head_dim, n_kv_heads * v_dim
    struct lp_visible visible;         // without selection
    int32_t n_heads, n_kv_heads, head_dim, v_dim;
    float scale;
    float *out; // [n_queries, n_heads, v_dim]
    int64_t out_stride;
};

// Absorbed MLA (MQA over latents): cache rows are [latent, rope].
// out[i][h] = sum_s softmax_s(scale * (q_latent[i][h] . c[s] + q_rope[i][h] . k_pe[s])) c[s]
// With a selection that lists every visible key the result is bit-equal to that without one.
struct lp_op_mla_absorbed {
    const float *q_latent; // [n_queries, n_heads, latent]
    int64_t q_latent_stride;
    const float *q_rope; // [n_queries, n_heads] rows of `rope` values
    int64_t q_rope_stride, q_rope_head_stride;
    const struct lp_cache_view *cache; // width = latent + rope
    struct lp_visible visible;
    int32_t n_heads, latent, rope;
    float scale;
    float *out; // [n_queries, n_heads, latent]
    int64_t out_stride;
    // Weights that are read next, in this order, or NULL: attention leaves memory idle, so a backend
    // may bring them nearer meanwhile.
    const struct lp_weight *const *ahead;
    int32_t n_ahead;
};

// Expanded MLA (MHA): keys and values of each head are made from the latents,
// k[s][h] = [W_UK[h] c[s], k_pe[s]], v[s][h] = W_UV[h] c[s];
// out[i][h] = sum_s softmax_s(scale * q[i][h] . k[s][h]) v[s][h].
struct lp_op_mla_expanded {
    const float *q; // [n_queries, n_heads, nope + rope], nope first
    int64_t q_stride;
    const struct lp_cache_view *cache; // width = latent + rope
    const struct lp_weight *k_up; // [heads][nope][latent], or [heads][latent][nope] if k_transposed
    bool k_transposed;
    const struct lp_weight *v_up; // [heads][v][latent]
    struct lp_visible visible;
    int32_t n_heads, nope, rope, latent, v_dim;
    float scale;
    float *out; // [n_queries, n_heads, v_dim]
    int64_t out_stride;
};

// The lightning indexer: score(i, s) = scale * sum_h w[i][h] * max(0, q[i][h] . k[s]) for the
// visible s <= first_pos + i; keeps the min(top_k, visible) best, higher score first, then lower
// position; writes their positions ascending, and -1 behind them. A NaN score ranks above all
// others, so that it reaches the logits and is reported.
struct lp_op_index_select {
    const float *q; // [n_queries, n_heads, width]
    int64_t q_stride;
    const float *w; // [n_queries, n_heads]
    int64_t w_stride;
    const struct lp_cache_view *keys; // width
    int64_t first_pos, n_queries;
    const struct lp_op_batch *batch; // as of lp_visible
    int32_t n_heads, width, top_k;
    float scale;
    int32_t *ids; // [n_queries, ids_stride], ids_stride >= min(top_k, first_pos + n_queries)
    int64_t ids_stride;
    int32_t *counts; // [n_queries]
};

enum lp_gating { LP_GATING_SOFTMAX = 1, LP_GATING_SIGMOID = 2, LP_GATING_SOFTMAX_SELECTED = 3 };
enum lp_group_score { LP_GROUP_MAX, LP_GROUP_TOP2_SUM };

// Expert choice per row from router logits z. s = softmax(z) or sigmoid(z) (SOFTMAX_SELECTED: s =
// z); c = s + bias. With n_groups > 1 the experts form n_groups equal runs; only the n_groups_used
// best groups stay (score: largest c, or sum of the two largest c; ties: lower group). The n_used
// experts with the largest c (ties: lower index; NaN first) are chosen; their weights are s
// (SOFTMAX_SELECTED: softmax over the chosen z), divided by (sum + 1e-20) if normalise, times
// scale. ids ascending by rank (best first).
struct lp_op_router {
    const float *logits; // [n_rows, n_experts]
    int64_t logits_stride, n_rows;
    const float *bias; // [n_experts] or NULL
    int32_t n_experts, n_used, n_groups, n_groups_used;
    enum lp_gating gating;
    enum lp_group_score group_score;
    bool normalise;
    float scale;
    int32_t *ids;   // [n_rows, n_used]
    float *weights; // [n_rows, n_used]
};

// y[t] += sum_j weights[t][j] * down[e] (silu(gate[e] x[t]) * (up[e] x[t])), e = ids[t][j]. The sum
// over j runs in the order of j for every row. gate and up may be two views of one stacked tensor.
// Expert e is matrix e - first_expert; those of which there is none are left out of the sum
// (first_expert: 0, unless lp_backend.expert_range).
struct lp_op_experts {
    const struct lp_weight *gate, *up, *down; // n_mats: experts; types may differ
    int32_t first_expert, n_experts;          // n_experts: of all ids; 0: n_mats
    const float *x;
    int64_t x_stride, n_rows;
    const int32_t *ids;
    const float *weights;
    int32_t n_used;
    bool same_x; // of lp_op_matmul
    float *y;
    int64_t y_stride;
    const struct lp_expert_source *source; // NULL: every expert's weights are there
};

// An expert that every row has besides, with weight 1.
struct lp_shared_expert {
    const struct lp_weight *gate, *up, *down;
};

// Experts that are not all in memory. A backend asks `resident` while it plans, takes experts that
// are there first, and calls `wait` before it reads the weights of one that was not. A weight's place
// (lp_weight_mat) stays the same while the operation runs. Both may be called by any worker, several
// at once.
struct lp_expert_source {
    void *user;
    bool (*resident)(void *user, int32_t expert); // does not block
    void (*wait)(void *user, int32_t expert);     // returns when gate, up and down are there
};

// Scratch that a device must hold before the first operation: the largest values that any call will
// use. Zero = not used.
struct lp_reserve {
    int64_t n_rows;    // rows of a call
    int64_t n_context; // visible keys
    int64_t max_width; // n_in or n_out of any matrix
    int64_t n_experts, n_used, expert_width;
    int64_t n_embd; // n_out of the experts' down matrices; 0 = as max_width
    int32_t n_heads, latent, rope, nope, v_dim; // MLA
    int32_t index_heads, index_width;
};

// The larger of each field: what a device must hold that several callers reserved for.
struct lp_reserve lp_reserve_merge(struct lp_reserve a, const struct lp_reserve *b);

struct lp_device;

struct lp_device_options {
    int n_threads;      // 0 = lp_cpu_count()
    enum lp_pin pin;    // whether threads are bound to cores (base/topology.h)
    bool no_huge_pages; // large buffers on ordinary pages
    int number; // of several devices of a kind the one to take; past the last from the first on
    const char *cpu_level; // "auto", or the highest ISA to use: cpu/cpu_features.h
};

// Operations that run again and again with the same arguments, whatever is in device memory.
struct lp_replay_key { // two calls with equal keys make the same operations
    const void *owner; // of the buffers
    int64_t n_rows, most_keys;
    int64_t settings;
    const size_t
        *parts; // [n_parts]: what other numbers tell, copied where they are kept; NULL: nothing
    int32_t n_parts;
};
enum lp_replay {
    LP_REPLAY_CALL,   // call them
    LP_REPLAY_RECORD, // call them and then replay_end; nothing has run before
    LP_REPLAY_DONE,   // they run as they were recorded
};

struct lp_device_rates { // measured
    double copy_bytes_s; // read and written, of a buffer far larger than the caches
    double madds_s;      // multiply-adds of 16-bit floats, summed in float32
};

// Devices of several processes that exchange numbers without their hosts.
struct lp_device_group;
#define LP_DEVICE_GROUP_ID_BYTES 128
#define LP_DEVICE_NAME_BYTES 64
struct lp_device_seat { // of a device in a group
    const uint8_t *id;  // [LP_DEVICE_GROUP_ID_BYTES]
    int32_t rank, size;
    // Asked now and then while the device waits for others: whether to give up. It fails then.
    bool (*give_up)(void *user, double waited_s);
    void *user;
};

struct lp_attention_kernel {
    const char *name;
    // How far results may be from the definition beyond float32's own rounding, relative to the largest
    // of their row: 0, or of products in whole numbers or bfloat16.
    double rounding;
};

struct lp_backend {
    const char *name; // "ref", "cpu", "cuda"
    // options: NULL for the defaults, all of them 0.
    lp_status (*open)(struct lp_device **out, const struct lp_device_options *options,
                      struct lp_err *err);
    void (*close)(struct lp_device *dev); // NULL is allowed
    // Allocates scratch for the given sizes and all that were given before; on failure what was
    // there stays.
    lp_status (*reserve)(struct lp_device *dev, const struct lp_reserve *need, struct lp_err *err);
    size_t (*scratch_bytes)(const struct lp_device *dev);

    void *(*alloc)(struct lp_device *dev, size_t n_bytes); // NULL when out of memory; not zeroed
    void (*free)(struct lp_device *dev, void *block);
    void (*write)(struct lp_device *dev, void *to, const void *from_host, size_t n_bytes);
    void (*read)(struct lp_device *dev, void *to_host, const void *from, size_t n_bytes);
    // From device memory to device memory.
    void (*copy)(struct lp_device *dev, void *to, const void *from, size_t n_bytes);
    bool host_memory; // buffers may be read in place, weights used where the file is mapped
    // Bytes of the device's own memory that are free now, and all of it; 0 where that is not known. NULL
    // with host_memory.
    size_t (*memory)(struct lp_device *dev, size_t *total);
    // Waits for the operations that were called, and says whether the device still works (B5). Once it
    // has failed it stays so: operations do nothing, reads give NaN. Errors: IO. NULL: it cannot fail.
    lp_status (*failed)(struct lp_device *dev, struct lp_err *err);

    // Packing a weight: all its bytes once more, in an order that depends on the kernel, for products
    // of the same bits. packed_bytes: of one matrix; 0 for a type that is used as it lies. pack: all
    // matrices, to a 64-byte boundary, by all threads. Both NULL in a backend that packs nothing.
    size_t (*packed_bytes)(const struct lp_device *dev, const struct lp_weight *w);
    void (*pack)(struct lp_device *dev, const struct lp_weight *w, uint8_t *to);

    // Bytes behind the rows of a page of indexer keys, where cache_write and index_select keep what
    // these score with: a multiple of 64. NULL or 0: nothing.
    size_t (*index_page_extra)(const struct lp_device *dev, int32_t width, int32_t page_tokens);

    bool batches;      // takes lp_op_batch
    bool expert_range; // lp_op_experts may have some of the experts
    // Prompt tokens of a step that fill the device: the default of --chunk. 0: 512
    int32_t chunk;
    // mla_expanded with a selection is slow: queries that see different keys share none of its products.
    // Routes are chosen accordingly.
    bool selects_latents;
    // Recorded operations. replay: what to do now for the operations of this key; while they are
    // recorded there is no read, write or copy. replay_end: runs them; false where that cannot be, and they must be called
    // after all. replay_forget: what an owner recorded is dropped, before its buffers are. All NULL in
    // a backend that gains nothing by it.
    enum lp_replay (*replay)(struct lp_device *dev, const struct lp_replay_key *key);
    bool (*replay_end)(struct lp_device *dev);
    void (*replay_forget)(struct lp_device *dev, const void *owner);

    // What the devices of several processes say to one another without their hosts. device_name: the same for two processes on one device alone,
    // which cannot be in a group together. group_id: on one of them, for all. group_join: on all, at the same time.
    // Errors of both: UNSUPPORTED (no library for it), IO. The rest are operations like others, which all of a group
    // call in the same order, with the same numbers; send and take the two that they are between.
    //   group_sum        x[i] = the sum over ranks in their order, the same bits on all
    //   group_gather     x: [size] runs of n_floats[i] one behind the other; rank i's run i to all
    //   group_sum_parts  the same x, whole on every rank: rank i's run i = the sum, as group_sum makes it; the other
    //                    runs mean nothing afterwards
    //   group_send, group_take   n floats to a rank, from one; any values of 4 bytes
    // clear: zeros.
    // group_*: NULL in a backend, or a build, that has no groups; the other two with host_memory.
    void (*device_name)(const struct lp_device *dev, char out[LP_DEVICE_NAME_BYTES]);
    lp_status (*group_id)(struct lp_device *dev, uint8_t id[LP_DEVICE_GROUP_ID_BYTES],
                          struct lp_err *err);
    lp_status (*group_join)(struct lp_device_group **out, struct lp_device *dev,
                            const struct lp_device_seat *seat, struct lp_err *err);
    void (*group_leave)(struct lp_device *dev, struct lp_device_group *group); // NULL is allowed
    void (*group_sum)(struct lp_device *dev, struct lp_device_group *group, float *x, size_t n);
    void (*group_gather)(struct lp_device *dev, struct lp_device_group *group, float *x,
                         const size_t *n_floats);
    void (*group_sum_parts)(struct lp_device *dev, struct lp_device_group *group, float *x,
                            const size_t *n_floats);
    void (*group_send)(struct lp_device *dev, struct lp_device_group *group, int32_t to,
                       const float *data, size_t n);
    void (*group_take)(struct lp_device *dev, struct lp_device_group *group, int32_t from,
                       float *data, size_t n);
    void (*clear)(struct lp_device *dev, void *block, size_t n_bytes);

    // Measures what the device can do, some 20 ms. False where it could not. NULL: the host's limits hold.
    bool (*rates)(struct lp_device *dev, struct lp_device_rates *out);

    // Whether a weight of this type can be used by matmul, head_matmul, experts, embed.
    bool (*supports)(const struct lp_device *dev, lp_type type);
    // Whether operations called from now on keep rule B2 to the letter: true when a device is opened.
    // While it is false, products with many rows and attention may take kernels of another rounding
    // (docs/numerics.md), and `kernel` tells of these. NULL in a backend that always keeps it.
    void (*fix_results)(struct lp_device *dev, bool fixed);
    // The kernel that a matmul with this weight type runs ("avx2_q4_k"), for traces and inspect.
    const char *(*matmul_kernel)(const struct lp_device *dev, lp_type type);
    // The same for an attention operation: "gqa", "mla_absorbed", "mla_expanded", "index_select",
    // with a cache and (mla_expanded; else any) up-projections of these types. name NULL for another.
    struct lp_attention_kernel (*kernel)(const struct lp_device *dev, const char *op, lp_type cache,
                                         lp_type weights);

    void (*embed)(struct lp_device *, const struct lp_op_embed *);
    void (*rms_norm)(struct lp_device *, const struct lp_op_rms_norm *);
    void (*layer_norm)(struct lp_device *, const struct lp_op_layer_norm *);
    void (*rope)(struct lp_device *, const struct lp_op_rope *);
    void (*matmul)(struct lp_device *, const struct lp_op_matmul *);
    void (*head_matmul)(struct lp_device *, const struct lp_op_head_matmul *);
    void (*scan_rows)(struct lp_device *,
                      const struct lp_op_scan_rows *); // NULL: the host reads rows
    void (*top_rows)(struct lp_device *,
                     const struct lp_op_top_rows *); // or NULL; only beside scan_rows
    void (*add)(struct lp_device *, const struct lp_op_add *);
    void (*silu_mul)(struct lp_device *, const struct lp_op_silu_mul *);
    // Several operations in one, where that is faster: NULL, or false for what it does not take.
    bool (*gate_up)(struct lp_device *, const struct lp_op_gate_up *);
    bool (*ready_rows)(struct lp_device *, const struct lp_op_ready_rows *);
    void (*cache_write)(struct lp_device *, const struct lp_op_cache_write *);
    void (*gqa)(struct lp_device *, const struct lp_op_gqa *);
    void (*mla_absorbed)(struct lp_device *, const struct lp_op_mla_absorbed *);
    void (*mla_expanded)(struct lp_device *, const struct lp_op_mla_expanded *);
    void (*index_select)(struct lp_device *, const struct lp_op_index_select *);
    void (*router)(struct lp_device *, const struct lp_op_router *);
    void (*experts)(struct lp_device *, const struct lp_op_experts *);
    // experts, and then what gate_up and an accumulating matmul would add for the shared one; the same bits. false: it
    // does not take this together, and has done nothing. NULL: it never does.
    bool (*experts_and_shared)(struct lp_device *, const struct lp_op_experts *,
                               const struct lp_shared_expert *);
};

struct lp_device { // every backend's device begins with this
    const struct lp_backend *backend;
};

extern const struct lp_backend lp_backend_ref;
extern const struct lp_backend lp_backend_cpu;
extern const struct lp_backend lp_backend_cuda; // in builds with LIMPID_CUDA

// "ref", "cpu", "cuda"; NULL for an unknown name and for a backend that this build has not.
const struct lp_backend *lp_backend_find(const char *name);
// The same, with a sentence. name NULL: "cpu". Errors: INVALID (no such backend), UNSUPPORTED (not in
// this build).
lp_status lp_backend_choose(const struct lp_backend **out, const char *name, struct lp_err *err);

#endif
