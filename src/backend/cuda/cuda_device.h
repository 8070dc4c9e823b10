// Inside the cuda backend: one GPU, its stream, its scratch, and what went wrong on it.
//
// Every operation is one or a few kernels on one stream, so that they run in the order of the calls.
// A launch that fails, or a kernel that faults, is kept as the device's error (the first one stays):
// operations do nothing from then on, reads give NaN, and lp_backend.failed tells the sentence.
// Plain C, so that the device's logic is compiled as everything else is; kernels are in *.cu.
#ifndef LP_BACKEND_CUDA_CUDA_DEVICE_H
#define LP_BACKEND_CUDA_CUDA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/backend.h"
#include "backend/kernels.h"

// What a device has, for the rows of the kernel registry (backend/kernels.h)
#define LP_CUDA_SM80 1u        // asynchronous copies, integer products on the tensor cores
#define LP_CUDA_SM90A 2u       // asynchronous products of a warpgroup
#define LP_CUDA_SHARED_227K 4u // of shared memory for a block: sm_90, sm_100; not 80, 89, 120

// The codebooks of the IQ and FP4 formats in device memory, as quant/codebooks.h has them.
struct lp_cuda_tables {
    uint64_t iq2xxs[256], iq2xs[512], iq2s[1024], iq1s[2048];
    uint32_t iq3xxs[256], iq3s[512];
    uint8_t signs[128];
    int8_t iq4_nl[16], fp4[16];
};

struct lp_cuda_scratch { // device memory, sized by reserve
    float *latents;      // [n_context, latent + rope]: rows of a cache as float32
    float *keys;         // [head_group, n_context, nope]
    float *values;       // [head_group, n_context, v_dim]
    float *scores;       // [score_rows, n_context]: of the indexer
    // The same of its fast kernels (cuda_index.cuh).
    int32_t *candidates, *index_bins, *index_state, *index_above;
    uint16_t *keys_16;   // [head_group_16, n_context, nope]: keys and values in the cache's type
    uint16_t *values_16; // [head_group_16, n_context, v_dim]
    uint16_t *up_16;     // [head_group_16, max(nope, v_dim), latent]: what makes them
    float *up_unscale;   // [head_group_16, max(nope, v_dim)]
    float *partial;      // [partial_slots, 64, 512]: attention over segments (cuda_latent.h)
    float *partial_sums; // [partial_slots, 64, 2]
    float *hidden;       // [n_rows * n_used + 1, expert_width]: a shared expert's behind
    float *expert_out;   // [n_rows * n_used + 1, n_embd]
    int32_t *pairs;      // [n_rows * n_used]: (row, choice) pairs, sorted by expert
    int32_t *pair_begin; // [n_experts + 1]
    int32_t *tiles;      // of the experts' pairs, cuda_q8.h; the number of them first
    uint8_t *act;        // activations rounded to 8 bits (cuda_q8.h) or to float16 (cuda_wide.h)
    uint8_t *zero;       // a row of zeros, rounded to 8 bits
    uint8_t *hidden_act; // [n_rows * n_used + 1] rounded rows of hidden
    float *unscale;      // [max(n_rows * n_heads, n_rows * n_used)]: of rows in float16
    size_t act_bytes;
    int64_t max_tiles, head_group, head_group_16, score_rows, partial_slots;
    size_t bytes;
};

// What lies in scratch.act: rows of x in one of the kernels' forms. x NULL: nothing known.
enum { LP_CUDA_ACT_HALF = 16 }; // beside enum lp_cuda_act_layout
struct lp_cuda_act {
    const float *x;
    int64_t x_row, x_head, n_rows, n_heads, n_in;
    int layout;
};

// Processes whose GPUs sum together (cuda_group.c).
struct lp_cuda_group;

#define LP_CUDA_SCAN_PIECES 32768 // of the rows of a launch, at most

#define LP_CUDA_GRAPHS 64
struct lp_cuda_graph {        // cuda_replay.c
    struct lp_replay_key key; // owner NULL: free; its parts are the graph's own
    cudaGraphExec_t exec;     // NULL: the key came seldom yet
    uint64_t used;            // when it came last
    int n_seen;               // how often it came
};

struct lp_cuda_device {
    struct lp_device base;
    int number; // as CUDA counts them
    cudaStream_t stream;
    const struct lp_cuda_tables *tables; // device memory
    void *staging[2];                    // pinned
    uint64_t *found;                     // [LP_CUDA_SCAN_PIECES, 2], device memory, of scan_rows
    cudaEvent_t staged[2];               // a staging buffer has been read
    struct lp_reserve sizes;
    struct lp_cuda_scratch scratch;
    cudaError_t error; // the first one; cudaSuccess: none
    const char *error_where;
    struct lp_cuda_group *groups; // that it is in
    char name[64];
    char uuid[LP_DEVICE_NAME_BYTES];
    int major, minor; // compute capability
    int n_multiprocessors;
    size_t shared_bytes;                           // of a block, at most
    const struct lp_kernel *matmul[LP_TYPE_COUNT]; // the registry's choice for each weight type
    const struct lp_kernel *wide[LP_TYPE_COUNT];   // for many rows (cuda_wide.h); NULL: none
    struct lp_cuda_act act;                        // for lp_op_matmul.same_x
    struct lp_cuda_graph graphs[LP_CUDA_GRAPHS];
    struct lp_cuda_graph *recording; // the stream is; or NULL
    uint64_t n_replays;
    bool no_graphs;   // one could not be recorded
    bool start_early; // it can start a kernel before the one before has ended (sm_90 on)
    uint64_t n_noted; // calls of lp_cuda_note
    uint64_t
        open_at; // n_noted behind the last product that lets the next kernel start once its own input is there
    int code; // the architecture for which the kernels that run here were built: 80, 90, ...
    bool
        may_vary; // lp_backend.fix_results is off: `wide`, and attention's cut for a call, may be used
    int64_t wide_rows;   // least rows of a product
    int64_t wide_pairs;  // least mean pairs of an expert
    int64_t wide_blocks; // least blocks of a product: with fewer most of the chip would be idle
};

static inline struct lp_cuda_device *lp_cuda_of(struct lp_device *dev) {
    return (struct lp_cuda_device *)dev;
}

// Keeps an error, if it is one and the first. False if the device has one. Every kernel's start is noted.
bool lp_cuda_note(struct lp_cuda_device *dev, cudaError_t error, const char *where);

// Notes what will lie in scratch.act; true where it does already and may be used again. Operations with
// other rows than the last one's must set dev->act.x to NULL first: a product that needs no such form
// notes nothing.
bool lp_cuda_act_is_there(struct lp_cuda_device *dev, const struct lp_cuda_act *act, bool same_x);

// Whether a product of rows that the last product had too (`same_x`) need not wait for the kernel in front of it:
// that is a product of the same rows, which began when they were there.
static inline bool lp_cuda_may_go_beside(const struct lp_cuda_device *dev, bool same_x) {
    return same_x && dev->start_early && dev->open_at == dev->n_noted;
}

// Chooses dev->matmul and dev->wide from the registry (cuda_kernels.c).
void lp_cuda_choose_kernels(struct lp_cuda_device *dev);

// Recorded operations (cuda_replay.c).
enum lp_replay lp_cuda_replay(struct lp_device *dev, const struct lp_replay_key *key);
bool lp_cuda_replay_end(struct lp_device *dev);
void lp_cuda_replay_forget(struct lp_device *dev, const void *owner);
void lp_cuda_drop_graphs(struct lp_cuda_device *dev); // of no operation that still runs

#if defined(LP_CUDA_NCCL) // cuda_group.c
lp_status lp_cuda_group_id(struct lp_device *dev, uint8_t id[LP_DEVICE_GROUP_ID_BYTES],
                           struct lp_err *err);
lp_status lp_cuda_group_join(struct lp_device_group **out, struct lp_device *dev,
                             const struct lp_device_seat *seat, struct lp_err *err);
void lp_cuda_group_leave(struct lp_device *dev, struct lp_device_group *group);
void lp_cuda_group_sum(struct lp_device *dev, struct lp_device_group *group, float *x, size_t n);
void lp_cuda_group_gather(struct lp_device *dev, struct lp_device_group *group, float *x,
                          const size_t *n_floats);
void lp_cuda_group_sum_parts(struct lp_device *dev, struct lp_device_group *group, float *x,
                             const size_t *n_floats);
void lp_cuda_group_send(struct lp_device *dev, struct lp_device_group *group, int32_t to,
                        const float *data, size_t n);
void lp_cuda_group_take(struct lp_device *dev, struct lp_device_group *group, int32_t from,
                        float *data, size_t n);
#endif
// Until all that was called is done; false where the device fails, or is in a group that is given up.
bool lp_cuda_wait(struct lp_cuda_device *dev, const char *where);
// x[i] = parts[0][i] + parts[1][i] + ..., n of them one behind the other (cuda_elementwise.cu)
void lp_cuda_add_parts(struct lp_cuda_device *dev, float *x, const float *parts, size_t n,
                       int32_t n_parts);

bool lp_cuda_rates(struct lp_device *dev, struct lp_device_rates *out); // cuda_rates.cu

// Whether this build has kernels for the current device, and for which architecture (90 ...) they were
// written (cuda_elementwise.cu).
cudaError_t lp_cuda_probe_kernels(int *architecture);

#define LP_CUDA_OP(name) void lp_cuda_##name(struct lp_device *dev, const struct lp_op_##name *op)
LP_CUDA_OP(embed);
LP_CUDA_OP(rms_norm);
LP_CUDA_OP(layer_norm);
LP_CUDA_OP(rope);
LP_CUDA_OP(matmul);
LP_CUDA_OP(head_matmul);
// The same without rounding the activations, whatever the registry has.
void lp_cuda_head_matmul_plain(struct lp_device *, const struct lp_op_head_matmul *);
LP_CUDA_OP(scan_rows);
LP_CUDA_OP(top_rows);
LP_CUDA_OP(add);
LP_CUDA_OP(silu_mul);
LP_CUDA_OP(cache_write);
LP_CUDA_OP(gqa);
LP_CUDA_OP(mla_absorbed);
LP_CUDA_OP(mla_expanded);
LP_CUDA_OP(index_select);
LP_CUDA_OP(router);
LP_CUDA_OP(experts);
#undef LP_CUDA_OP
bool lp_cuda_gate_up(struct lp_device *dev, const struct lp_op_gate_up *op);
bool lp_cuda_experts_and_shared(struct lp_device *dev, const struct lp_op_experts *op,
                                const struct lp_shared_expert *shared);
bool lp_cuda_ready_rows(struct lp_device *dev, const struct lp_op_ready_rows *op);

// Whether a product of so many rows with w (n_used: of lp_op_experts; 0: matmul) takes them rounded to 8 bits, all
// at once, and in which layout (enum lp_cuda_act_layout).
bool lp_cuda_matmul_rounds(const struct lp_cuda_device *dev, const struct lp_weight *w,
                           int64_t n_rows, int *layout);
bool lp_cuda_experts_round(const struct lp_cuda_device *dev, const struct lp_weight *w,
                           int32_t n_used, int64_t n_rows, int *layout);

// The plain kernels of operations that have others: every chip, shape and type.
void lp_cuda_mla_absorbed_plain(struct lp_device *dev, const struct lp_op_mla_absorbed *op);
void lp_cuda_index_select_plain(struct lp_device *dev, const struct lp_op_index_select *op);

// cuda_indexer_mma.cu: index_select by mma.sync, and which operations it takes. A call needs no more
// than the device's sizes; scratch for it is sized by the rows and the context.
void lp_cuda_index_select_mma(struct lp_device *dev, const struct lp_op_index_select *op);
bool lp_cuda_index_fits(const struct lp_op_index_select *op);
#define LP_CUDA_INDEX_CHUNK 1024 // fewest keys of a block that chooses
#define LP_CUDA_INDEX_BINS 4096

// cuda_attn_kernels.c: which kernels there are of the attention operations, and which is chosen on this
// device for a cache of this type (lp_backend.kernel).
struct lp_attention_kernel lp_cuda_attention_kernel(const struct lp_device *dev, const char *op,
                                                    lp_type cache, lp_type weights);
// Slots of the partial results that attention may leave (cuda_latent.h), for calls up to `need`.
int64_t lp_cuda_partial_slots(const struct lp_reserve *need);

#ifdef __cplusplus
}
#endif

#endif
