#include "engine/constraint.h"

#include "base/alloc.h"

struct lp_constraint {
    struct lp_constraint_params params;
    struct lp_matcher *matcher;
    bool is_active; // the grammar holds: its marker has come
    size_t n_words;
    uint32_t bits[]; // [n_words], what lp_constraint_next found
};

static void clear_ends(struct lp_constraint *c) {
    const struct lp_constraint_params *p = &c->params;
    for (size_t i = 0; i < p->n_ends; i++)
        c->bits[p->ends[i] / 32] &= ~((uint32_t)1 << p->ends[i] % 32);
}

// Before the marker: anything but the end.
static void allow_all(struct lp_constraint *c) {
    for (int32_t id = 0; id < c->params.n_vocab; id++)
        c->bits[id / 32] |= (uint32_t)!c->params.never[id] << id % 32;
    clear_ends(c);
}

lp_status lp_constraint_new(struct lp_constraint **out, const struct lp_constraint_params *params,
                            struct lp_err *err) {
    size_t n_words = ((size_t)params->n_vocab + 31) / 32;
    size_t bytes = sizeof(struct lp_constraint) + n_words * sizeof(uint32_t);
    struct lp_constraint *c = lp_alloc(1, bytes);
    if (!c) return lp_err_memory(err, bytes, "a choice's grammar");
    c->params = *params;
    c->n_words = n_words;
    c->is_active = params->after < 0;
    if (!c->is_active) allow_all(c);
    lp_status status = lp_matcher_new(&c->matcher, params->grammar, err);
    if (status)
        lp_constraint_free(c);
    else
        *out = c;
    return status;
}

void lp_constraint_free(struct lp_constraint *c) {
    if (!c) return;
    lp_matcher_free(c->matcher);
    lp_free(c);
}

static void allow_finals(struct lp_constraint *c) {
    const struct lp_constraint_params *p = &c->params;
    for (size_t i = 0; i < p->n_finals; i++)
        if (!p->never[p->ends[i]]) c->bits[p->ends[i] / 32] |= (uint32_t)1 << p->ends[i] % 32;
}

static bool is_empty(const struct lp_constraint *c) {
    for (size_t i = 0; i < c->n_words; i++)
        if (c->bits[i]) return false;
    return true;
}

static lp_status cannot_go_on(const struct lp_constraint *c, struct lp_err *err) {
    const char *why = lp_matcher_failure(c->matcher);
    return lp_err_set(err, LP_STATUS_INVALID, "the answer cannot go on as its grammar asks: %s",
                      why[0] ? why : "only stop tokens of the request would follow");
}

lp_status lp_constraint_next(struct lp_constraint *c, bool *is_over, struct lp_err *err) {
    *is_over = false;
    if (!c->is_active) return is_empty(c) ? cannot_go_on(c, err) : LP_OK;
    const uint32_t *mask = lp_matcher_mask(c->matcher);
    if (!mask) return cannot_go_on(c, err);
    memcpy(c->bits, mask, c->n_words * sizeof *c->bits);
    clear_ends(c);
    bool can_end = lp_matcher_can_end(c->matcher);
    if (can_end) allow_finals(c);
    if (!is_empty(c)) return LP_OK;
    *is_over = can_end;
    return can_end ? LP_OK : cannot_go_on(c, err);
}

const uint32_t *lp_constraint_allowed(const struct lp_constraint *c) {
    return c->bits;
}

lp_status lp_constraint_accept(struct lp_constraint *c, int32_t id, struct lp_err *err) {
    for (size_t i = 0; i < c->params.n_ends; i++)
        if (c->params.ends[i] == id) return LP_OK;
    if (!c->is_active) {
        c->is_active = id == c->params.after;
        return LP_OK;
    }
    return lp_matcher_accept(c->matcher, id) ? LP_OK : cannot_go_on(c, err);
}
