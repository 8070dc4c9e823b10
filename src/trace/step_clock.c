#include "trace/step_clock.h"

#include "base/clock.h"

static const char *const names[LP_STEP_N_PARTS] = {
#define X(name, text, meaning) text,
    LP_STEP_PARTS(X)
#undef X
};

static const char *const meanings[LP_STEP_N_PARTS] = {
#define X(name, text, meaning) meaning,
    LP_STEP_PARTS(X)
#undef X
};

const char *lp_step_part_name(enum lp_step_part part) {
    return names[part];
}

const char *lp_step_part_meaning(enum lp_step_part part) {
    return meanings[part];
}

void lp_step_clock_start(struct lp_step_clock *clock) {
    if (clock) clock->last_ns = lp_clock_ns();
}

void lp_step_clock_take(struct lp_step_clock *clock, enum lp_step_part part) {
    uint64_t now_ns = lp_clock_ns();
    clock->ns[part] += now_ns - clock->last_ns;
    clock->calls[part]++;
    clock->last_ns = now_ns;
}

void lp_step_clock_move(struct lp_step_clock *clock, enum lp_step_part from, enum lp_step_part to,
                        uint64_t ns) {
    if (!clock) return;
    if (ns > clock->ns[from]) ns = clock->ns[from];
    if (ns == 0) return;
    clock->ns[from] -= ns;
    clock->ns[to] += ns;
    clock->calls[to]++;
}

void lp_step_clock_difference(struct lp_step_clock *out, const struct lp_step_clock *a,
                              const struct lp_step_clock *b) {
    for (int i = 0; i < LP_STEP_N_PARTS; i++) {
        out->ns[i] = a->ns[i] - b->ns[i];
        out->calls[i] = a->calls[i] - b->calls[i];
    }
    out->last_ns = a->last_ns;
}
