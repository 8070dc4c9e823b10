// What a file of an architecture holds, from the hyperparameters alone.
#include "base/alloc.h"
#include "model/binding_table.h"

// Rows of the table, for the model and then for n_blocks blocks: all that may be there, or what is
// written.
struct choice {
    size_t n_blocks;
    bool all, untied, qk_norm;
};

// Of the tensors that may be there: those that converters write.
static bool is_written(const struct lp_hparams *h, enum lp_slot slot, struct choice choice) {
    switch (slot) {
    case LP_SLOT_OUTPUT:
        return choice.untied;
    case LP_SLOT_Q_NORM:
    case LP_SLOT_K_NORM:
        return choice.qk_norm;
    case LP_SLOT_ROUTER_BIAS:
        return h->gating == LP_GATING_SIGMOID;
    case LP_SLOT_K_B:
    case LP_SLOT_V_B:
    case LP_SLOT_GATE_EXPS:
    case LP_SLOT_UP_EXPS:
    case LP_SLOT_NEXTN_HEAD_NORM:
        return true;
    default:
        return false;
    }
}

static void expect(struct lp_expected *e, const struct lp_binding_row *row,
                   const struct lp_hparams *h, int32_t block) {
    *e = (struct lp_expected){.slot = row->slot, .block = row->block ? block : -1};
    e->needed = row->need(h, block) == LP_NEED_YES;
    lp_binding_name(e->name, sizeof e->name, row, block);
    e->vector = row->vector || row->slot == LP_SLOT_ROUTER || row->slot == LP_SLOT_INDEX_PROJ;
    for (int d = 0; d < 4; d++) {
        enum lp_dim dim = d < 3 ? row->dims[d] : LP_DIM_NONE;
        e->ne[d] = (uint64_t)lp_binding_dim(h, block, dim);
        if (dim != LP_DIM_NONE) e->n_dims++;
    }
}

static lp_status choose(struct lp_expected **out, size_t *n, const struct lp_hparams *h,
                        struct choice choice, struct lp_err *err) {
    size_t most = LP_BINDING_ROWS * (choice.n_blocks + 1);
    *n = 0;
    if (!(*out = lp_alloc(most, sizeof **out)))
        return lp_err_memory(err, most * sizeof **out, "the tensors of a model");
    for (size_t turn = 0; turn <= choice.n_blocks; turn++) // turn 0: what is outside the blocks
        for (size_t i = 0; i < LP_BINDING_ROWS; i++) {
            const struct lp_binding_row *row = &lp_binding_table[i];
            int32_t b = turn ? (int32_t)turn - 1 : 0;
            if (row->block != (turn > 0)) continue;
            enum lp_need need = row->need(h, b);
            if (need == LP_NEED_YES ||
                (need == LP_NEED_OPTIONAL && (choice.all || is_written(h, row->slot, choice))))
                expect(&(*out)[(*n)++], row, h, b);
        }
    return LP_OK;
}

lp_status lp_binding_expected(struct lp_expected **out, size_t *n, const struct lp_hparams *h,
                              bool untied, bool qk_norm, struct lp_err *err) {
    struct choice choice = {(size_t)h->n_layers + (h->n_nextn > 0), false, untied, qk_norm};
    return choose(out, n, h, choice, err);
}

lp_status lp_binding_possible(struct lp_expected **out, size_t *n, const struct lp_hparams *h,
                              struct lp_err *err) {
    return choose(out, n, h, (struct choice){(size_t)h->n_blocks, true, false, false}, err);
}
