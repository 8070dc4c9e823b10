// A Hugging Face folder as a GGUF: opened in place, or as a list of tensors for a file.
//
// Both go through one plan: for each tensor of the GGUF its name, shape and the matrices of the
// checkpoint that it is made of (the table of hf_names.c read in the other direction).
#ifndef LP_HF_HF_H
#define LP_HF_HF_H

#include "gguf/gguf_assemble.h"
#include "hf/hf_config.h"
#include "hf/hf_values.h"

// ---- in place

// Opens a folder for running: plain matrices stay where they are mapped (stacks of experts as
// lists of matrices), kv_b_proj stays fused (attn_kv_b); FP8, NVFP4 and INT4 are rearranged in
// memory in their own precision; vectors and small tensors are converted to float32. Close with
// lp_hf_close. *gguf lives as long. Errors: IO, FORMAT, UNSUPPORTED, LIMIT, MEMORY.
struct lp_hf;
lp_status lp_hf_open(struct lp_hf **out, const char *path, int n_threads, struct lp_err *err);
void lp_hf_close(struct lp_hf *hf); // NULL is allowed
const struct lp_gguf *lp_hf_gguf(const struct lp_hf *hf);

// ---- for a file

struct lp_hf_plan_options {
    bool fused;       // as lp_hf_open
    bool for_file;    // types that files can have
    bool without_mtp; // leaves the MTP layers out
};

// How the matrices of the checkpoint make up a tensor.
enum lp_hf_make {
    LP_HF_MAKE_COPY,    // one after the other: a matrix, a stack [E], gate and up concatenated
    LP_HF_MAKE_K_B,     // rows h * (nope + v) ... + nope of kv_b_proj, transposed per head
    LP_HF_MAKE_V_B,     // rows h * (nope + v) + nope ... of kv_b_proj
    LP_HF_MAKE_PERMUTE, // llama: the rows of a head (i, j) -> (j, i), i < 2, j < head_dim / 2
    LP_HF_MAKE_HALF,    // one half of the rows of each matrix of a stack (gate_up_proj)
    LP_HF_MAKE_FACTORS, // the float32 factors of another tensor's NVFP4 matrices: NAME.scale
    LP_HF_MAKE_VALUES,  // computed from the config, no parts: rope_freqs
};

struct lp_hf_tensor {
    char name[64]; // in the GGUF
    uint32_t n_dims;
    uint64_t ne[4];      // fastest first
    lp_type source_type; // holds the values exactly (or FP8 rounded to BF16, for_file)
    bool keep_f32;       // vectors, the router and indexer.proj: always F32
    enum lp_hf_make make;
    int64_t first_row;          // LP_HF_MAKE_HALF
    struct lp_hf_matrix *parts; // [n_parts], in order
    int64_t n_parts;
    lp_type *types;      // [n_parts], lp_hf_matrix_type of each
    bool same_type;      // all of them are source_type, and rows are whole rows of the checkpoint
    bool has_factors;    // the next tensor is NAME.scale
    const float *values; // LP_HF_MAKE_VALUES: [ne[0]], of the model
};

struct lp_hf_ignored {
    const char *name;   // of the array
    const char *reason; // static text
};

struct lp_hf_plan {
    struct lp_hf_folder folder;
    struct lp_hf_model model;
    struct lp_gguf_writer *writer; // has the metadata; no tensors yet
    struct lp_hf_tensor *tensors;
    uint64_t n_tensors;
    struct lp_hf_ignored *ignored; // arrays that no tensor is made of
    uint64_t n_ignored;
    bool for_file;
};

// Every array of the folder is in a tensor or ignored with a reason; a missing one, one too many or
// of a wrong shape is an error that names it. Release in any case.
lp_status lp_hf_plan_make(struct lp_hf_plan *out, const char *path,
                          const struct lp_hf_plan_options *options, struct lp_err *err);
void lp_hf_plan_release(struct lp_hf_plan *plan);

// What lp_hf_open would give with a plan of options fused, without any data: every tensor points at
// one byte that is not its own. The plan must outlive *out, and have no tensors in its writer yet.
lp_status lp_hf_describe(struct lp_gguf **out, struct lp_hf_plan *plan, struct lp_err *err);

// Values of rows first .. first + n - 1 (rows of ne[0] values, counted through all matrices) as
// float32. with_factor: the weights themselves; without: what is multiplied by the factors of
// NAME.scale, where there is one. LP_HF_MAKE_K_B is fastest in multiples of ne[1] rows. Threads may
// call. Errors: MEMORY.
lp_status lp_hf_tensor_rows(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                            int64_t first, int64_t n, bool with_factor, float *out,
                            struct lp_err *err);
// The same rows, without the factor, as blocks of source_type (or F32 where keep_f32).
lp_status lp_hf_tensor_pack(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                            int64_t first, int64_t n, void *out, struct lp_err *err);
// The mapped pages of its arrays need not stay in this process's memory: whoever reads them again
// gets them again.
void lp_hf_tensor_forget(const struct lp_hf_tensor *t);

#endif
