// The binding table: which tensors a model has, tensor name -> slot, with the shape in terms of the
// hyperparameters and the condition under which a block needs it. One row a tensor; binding.c binds
// by it, binding_expected.c lists by it.
#ifndef LP_MODEL_BINDING_TABLE_H
#define LP_MODEL_BINDING_TABLE_H

#include "model/binding.h"

enum lp_dim { // the sizes that shapes are made of
    LP_DIM_NONE,
    LP_DIM_EMBD,
    LP_DIM_EMBD2,
    LP_DIM_VOCAB,
    LP_DIM_FF,
    LP_DIM_Q_RANK,
    LP_DIM_Q_ROWS,
    LP_DIM_KV_ROW,
    LP_DIM_LATENT,
    LP_DIM_NOPE,
    LP_DIM_V,
    LP_DIM_HEADS,
    LP_DIM_KV_B_ROWS,
    LP_DIM_OUT_IN,
    LP_DIM_KV_HEADS_K,
    LP_DIM_KV_HEADS_V,
    LP_DIM_HEAD,
    LP_DIM_INDEX_Q,
    LP_DIM_INDEX,
    LP_DIM_INDEX_HEADS,
    LP_DIM_EXPERTS,
    LP_DIM_EXPERT_FF,
    LP_DIM_EXPERT_FF2,
    LP_DIM_SHARED_FF,
    LP_DIM_ROPE_HALF,
};

enum lp_need { LP_NEED_NO, LP_NEED_OPTIONAL, LP_NEED_YES };

struct lp_binding_row {
    enum lp_slot slot;
    const char *name, *suffix;
    bool block;
    enum lp_dim dims[3]; // fastest first, as in the file
    bool vector;         // converted to float32 at load: F32, F16 or BF16 only
    enum lp_need (*need)(const struct lp_hparams *, int32_t);
};

#define LP_BINDING_ROWS 47
extern const struct lp_binding_row lp_binding_table[LP_BINDING_ROWS];

// block: of a size that differs between blocks.
int64_t lp_binding_dim(const struct lp_hparams *h, int32_t block, enum lp_dim dim);
// "blk.3.attn_norm.weight"; block: of a row with `block`.
void lp_binding_name(char *out, size_t bytes, const struct lp_binding_row *row, int32_t block);

#endif
