// What of a layer is on this rank (dist/sharding.h), and weights cut to it. Rows and matrices may be cut
// anywhere, columns of quantised types between blocks alone.
#ifndef LP_MODEL_SHARD_H
#define LP_MODEL_SHARD_H

#include "model/model.h"

// A model whose `part` is all zeros is here as a whole.
// Layers of the stage; of the last one the MTP layer too.
struct lp_range lp_shard_layers(const struct lp_model *model); // without it
bool lp_shard_has_layer(const struct lp_model *model, int32_t layer);
bool lp_shard_is_first_stage(const struct lp_model *model);
bool lp_shard_is_last_stage(const struct lp_model *model);
// The embedding is needed: by the first stage, and where it is the output matrix or the MTP layer's too.
bool lp_shard_embeds(const struct lp_model *model);
bool lp_shard_is_cut(const struct lp_model *model); // there are several ranks in a stage
// Parts that the cache of all sequences has, each on a rank of its own: 1, but with data-parallel attention.
int32_t lp_shard_cache_parts(const struct lp_model *model);

// What attention is cut by: MLA's query heads, key/value heads with their queries of grouped-query attention.
struct lp_head_units {
    int64_t n, width; // width: columns of attn_output of each
};
struct lp_head_units lp_shard_head_units(const struct lp_hparams *h);
// Those of a layer that are here: so many at a time that the columns of attn_output are whole blocks.
struct lp_range lp_shard_heads(const struct lp_model *model, int32_t layer);
// Rows of gate and up, and columns of down, of a FFN of that width
struct lp_range lp_shard_width(const struct lp_model *model, int64_t width,
                               const struct lp_gguf_tensor *down);
// The same of a layer's shared expert: all of it where rows are not gathered.
struct lp_range lp_shard_shared_width(const struct lp_model *model,
                                      const struct lp_gguf_tensor *down);
struct lp_range lp_shard_experts(const struct lp_model *model);
// Of another rank of the stage, where they are whole.
struct lp_range lp_shard_experts_of(const struct lp_model *model, int32_t tensor);
struct lp_range lp_shard_vocab(const struct lp_model *model);
// Of another rank of the last stage.
struct lp_range lp_shard_vocab_of(const struct lp_model *model, int32_t tensor);

// Sets model->part, of a model whose binding is made. Errors: those of lp_sharding_make; UNSUPPORTED (whole
// experts, and the backend cannot; data-parallel attention in a pipeline).
lp_status lp_shard_divide(struct lp_model *model, int32_t rank, int32_t n_ranks, int32_t n_stages,
                          enum lp_shard_experts experts, enum lp_attention_parallel attention,
                          struct lp_err *err);

// What the division of experts becomes where they stay on disk (--memory-budget): an expert is read whole, so "auto" is
// whole. Errors: UNSUPPORTED (split, and a stage has several ranks).
lp_status lp_shard_experts_on_disk(enum lp_shard_experts *experts, int32_t n_ranks,
                                   int32_t n_stages, struct lp_err *err);

enum lp_cut_kind { LP_CUT_NOTHING, LP_CUT_ROWS, LP_CUT_COLUMNS, LP_CUT_MATRICES };
struct lp_cut {
    enum lp_cut_kind kind;
    struct lp_range range;
};
// A view of the part. Rows of a view of columns do not lie one behind the other.
struct lp_weight lp_weight_cut(const struct lp_weight *w, struct lp_cut cut);

#endif
