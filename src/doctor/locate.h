// Where a model goes wrong when no remedy is known: which part of which layer it is better off
// without, and at what depth the obvious stops becoming more probable.
#ifndef LP_DOCTOR_LOCATE_H
#define LP_DOCTOR_LOCATE_H

#include "doctor/remedies.h"

struct lp_location { // one half of a layer, left out
    int32_t layer;
    enum lp_part part;
    struct lp_gain gain; // of the quick texts
    bool tried;
};
// Leaves each half of each layer out in turn until the trial's time is up. out: [2 * n_layers], the
// best first; those that were not reached last. Errors: as a reading's.
lp_status lp_locate_by_skipping(struct lp_trial *trial, struct lp_location *out,
                                struct lp_err *err);

#endif
