// Inside engine: a set of probes (limpid_probes) while a sequence runs.
#ifndef LP_ENGINE_PROBES_H
#define LP_ENGINE_PROBES_H

#include "backend/probe.h"
#include "limpid.h"

// Where the values go while a step runs; NULL: nowhere. The probe to give to the step; it belongs to
// the set.
struct lp_probe *lp_probes_begin(limpid_probes *probes, struct lp_device *dev,
                                 const limpid_watch *watch);
// Whether a step must make logits of this position for them.
bool lp_probes_wants_logits(const limpid_probes *probes, int64_t position);

#endif
