// Some layers of a model as a model of its own: every kind of layer there is, for questions that
// are asked of each operation and would take too long through all layers. Weights, device and
// binding are the whole model's; what is changed in the copy (device, number of selected keys)
// leaves it as it is.
#ifndef LP_DOCTOR_THIN_H
#define LP_DOCTOR_THIN_H

#include "model/model.h"

struct lp_thin {
    struct lp_model model;          // never lp_model_free
    int32_t numbers[LP_MAX_LAYERS]; // of its layers in the whole model
    int32_t n_whole;
    bool brief; // even so a step takes long: few tokens only
};

// quick: of a file too large for seconds a few layers; else all. Release with lp_thin_free; the
// whole model must outlive it.
lp_status lp_thin_new(struct lp_thin **out, const struct lp_model *whole, bool quick,
                      struct lp_err *err);
void lp_thin_free(struct lp_thin *thin); // NULL is allowed
// A figure of each of its layers as a series over those of the whole model: NaN where there is
// none. Free with lp_free; NULL without memory.
double *lp_thin_spread(const struct lp_thin *thin, const double *values);

#endif
