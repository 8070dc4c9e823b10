// Which single change makes the indexers find the keys that matter? Each is made in all layers at
// once; the layers that gain say where it was needed.
#ifndef LP_DOCTOR_SPARSE_REMEDIES_H
#define LP_DOCTOR_SPARSE_REMEDIES_H

#include "doctor/exam.h"
#include "doctor/recall.h"

// A change accuses where it raises a layer's skill (0 = random keys, 1 = the best) by this, to what an
// indexer that works has.
#define LP_SPARSE_REPAIRED 0.6
#define LP_SPARSE_GAIN 0.15
#define LP_SPARSE_GAIN_TEXT "0.15"

struct lp_sparse_remedy { // the best change
    int32_t layer;        // the only one that it helps, or the first of some; -1: nearly all
    int32_t n_layers;     // that it helps
    double gain;          // of skill, in the layer that gains most
    double before, after; // share of attention on the selected keys, there
    bool convinces;
    char what[96], change[128], repair[160];
};

// base: [n_layers], of the model as it is. Errors: MEMORY.
lp_status lp_sparse_remedies(struct lp_exam *exam, struct lp_recall *recall,
                             const struct lp_recall_layer *base, double limit_s,
                             struct lp_sparse_remedy *best, size_t *n_tried, struct lp_err *err);

#endif
