// One reading of the quick texts for each half of a layer.
#include "doctor/locate.h"

#include <stdlib.h>

static int by_gain(const void *a, const void *b) {
    const struct lp_location *x = a, *y = b;
    if (x->tried != y->tried) return (int)y->tried - (int)x->tried;
    return (x->gain.mean < y->gain.mean) - (x->gain.mean > y->gain.mean);
}

lp_status lp_locate_by_skipping(struct lp_trial *t, struct lp_location *out, struct lp_err *err) {
    struct lp_read_set *set = &t->quick;
    int32_t n = 2 * t->model->h.n_layers;
    lp_status status = LP_OK;
    for (int32_t i = 0; i < n && !status; i++) {
        out[i] =
            (struct lp_location){.layer = i / 2, .part = i % 2 ? LP_PART_FFN : LP_PART_ATTENTION};
        if (lp_trial_time_is_up(t)) continue;
        struct lp_reading_run run = {
            .from_layer = out[i].layer, .skip = out[i].part, .skip_layer = out[i].layer};
        status = lp_reading_run(set->reading, &run, &set->now, err);
        out[i].tried = true;
        out[i].gain = lp_health_gain(&set->passages, set->base.logprob, set->now.logprob);
    }
    if (!status) qsort(out, (size_t)n, sizeof *out, by_gain);
    return status;
}
