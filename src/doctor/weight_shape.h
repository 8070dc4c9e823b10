// Matrices that do not fit their neighbours as they are stored but would, transposed or in another
// place; rotated rows in the order of the other pairing; and whether the weights show any trace of
// training at all.
#ifndef LP_DOCTOR_WEIGHT_SHAPE_H
#define LP_DOCTOR_WEIGHT_SHAPE_H

#include "doctor/exam.h"
#include "doctor/weight_links.h"

struct lp_stray { // a part (head or expert) that fits another place
    uint32_t part, better;
    double own, there;
};
#define LP_MAX_STRAYS 8

struct lp_fit { // one link of one layer
    struct lp_link link;
    double stored;    // mean over the parts
    double turned[2]; // with a, with b read as its transpose
    double usual;     // of the parts as stored
    struct lp_stray strays[LP_MAX_STRAYS];
    int32_t n_strays;
};

struct lp_layer_fits {
    int32_t layer;
    struct lp_fit fits[LP_MAX_LINKS];
    int32_t n;
    bool failed; // out of memory
};

// Measures all links of a layer. turned[] is measured where `stored` alone leaves a doubt, else 0.
void lp_layer_fits_measure(struct lp_layer_fits *out, const struct lp_gguf *gguf,
                           const struct lp_hparams *h, int32_t layer,
                           const struct lp_link_sample *sample);

// Fills exam->weights_random and suspects, and notes "matrices fit together". Without h nothing can
// be said. Errors: MEMORY.
lp_status lp_weight_shape_check(struct lp_exam *exam, struct lp_err *err);

// weight_pairs.c: notes "rotated rows in pairs" and suspects of kind PERMUTED. Errors: MEMORY.
lp_status lp_weight_pairs_check(struct lp_exam *exam, struct lp_err *err);

#endif
