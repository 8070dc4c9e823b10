// The points of a probe (backend/probe.h) on a model: which of its layers have them, and how large
// their rows are there.
#ifndef LP_MODEL_PROBE_SHAPE_H
#define LP_MODEL_PROBE_SHAPE_H

#include "backend/probe.h"
#include "model/hparams.h"

#define LP_PROBE_N_KEYS (-1) // as many as there are keys

// The dimensions of a row on a layer (-1: the point lies outside the layers). Returns how many.
// *dims: LP_PROBE_N_KEYS for n_keys and for n_selected, which is at most top_k.
int32_t lp_probe_dims(const struct lp_hparams *h, enum lp_probe_point point, int32_t layer,
                      int64_t dims[2]);
// Whether a layer can have the point at all, whatever route it takes.
bool lp_probe_layer_has(const struct lp_hparams *h, enum lp_probe_point point, int32_t layer);
// How many layers have it; outside the layers 1.
int32_t lp_probe_count_layers(const struct lp_hparams *h, enum lp_probe_point point);

#endif
