// Where the routed experts lie on disk and in a slot of the cache, and how many slots a budget buys.
//
// An expert is the same matrix (number e) of two or three stacks: gate, up, down; or gate-and-up,
// down. A slot has room for the experts of any layer, each part behind the other from a page on,
// as direct reads bring it, the pages around it included:
//
//     slot: |. gate ..|. up ....|. down .......|      '.': bytes of neighbours in the file
//           ^ page    ^ page    ^ page
#ifndef LP_MODEL_EXPERT_LAYOUT_H
#define LP_MODEL_EXPERT_LAYOUT_H

#include "model/binding.h"

#define LP_EXPERT_MAX_PARTS 3

struct lp_expert_part {
    const struct lp_gguf_tensor *stack; // of the file
    size_t mat_bytes;
    size_t slot_at; // where its pages begin in a slot
};

struct lp_expert_layer {
    int32_t n_parts; // 0: no routed experts
    struct lp_expert_part parts[LP_EXPERT_MAX_PARTS];
};

struct lp_expert_layout {
    int32_t n_layers, n_experts, n_used; // n_layers: with the MTP layer, if it can be used
    int32_t first_expert, n_here;        // those that are here: all, unless ranks have some each
    struct lp_expert_layer *layers;      // [n_layers]
    int64_t n_items;                     // experts of all layers: n_layers * n_here at most
    uint64_t dense_bytes;                // all other tensors that the model uses
    uint64_t expert_bytes;               // of all experts
    size_t slot_bytes;                   // multiple of a page
};

// Release in any case. Errors: UNSUPPORTED (no routed experts; experts that are not in a file as
// they are used), MEMORY, LIMIT.
lp_status lp_expert_layout_make(struct lp_expert_layout *out, const struct lp_hparams *h,
                                const struct lp_binding *binding, const struct lp_gguf *gguf,
                                struct lp_err *err);
void lp_expert_layout_release(struct lp_expert_layout *layout);
// What of it a rank has, of which model->part says what is there: the experts of its stage's layers that are whole on
// it. There may be none.
struct lp_model;
void lp_expert_layout_divide(struct lp_expert_layout *layout, const struct lp_model *model);

// How many of a layer's experts a token uses here at most, which must be in memory at once.
int32_t lp_expert_layout_together(const struct lp_expert_layout *layout);
// The least budget that works: the dense part, and one token's experts of one layer.
uint64_t lp_expert_layout_least(const struct lp_expert_layout *layout);
// How many slots fit beside the dense part; at most one for each item. Errors: INVALID (too small a
// budget: says the least that works).
lp_status lp_expert_layout_slots(const struct lp_expert_layout *layout, uint64_t budget_bytes,
                                 int32_t *n_slots, struct lp_err *err);

#endif
