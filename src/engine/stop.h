// Stop texts in a stream: matched on the bytes of the decoded text, so across token borders. What
// may still become a stop text is held back; everything else is given out exactly once, in order.
#ifndef LP_ENGINE_STOP_H
#define LP_ENGINE_STOP_H

#include "base/bytes.h"
#include "base/status.h"

struct lp_stop {
    char **texts; // [n], copies
    size_t *lens;
    size_t n;
    struct lp_bytes held; // decoded and not given out
};

// Errors: INVALID for an empty stop text, MEMORY.
lp_status lp_stop_init(struct lp_stop *stop, const char *const *texts, size_t n,
                       struct lp_err *err);
void lp_stop_release(struct lp_stop *stop);

// Adds text and appends to out what can be given out. Returns the index of the stop text that was
// met (the earliest match; the longest of those that begin there) or -1; after a match only what
// stood before it is given out. *ok is false when out of memory.
int lp_stop_push(struct lp_stop *stop, struct lp_str text, struct lp_bytes *out, bool *ok);
bool lp_stop_flush(struct lp_stop *stop,
                   struct lp_bytes *out); // at the end: gives out what was held

#endif
