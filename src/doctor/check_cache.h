// Inside the stage "cache": what its ways of running a prompt share.
#ifndef LP_DOCTOR_CHECK_CACHE_H
#define LP_DOCTOR_CHECK_CACHE_H

#include "model/cache_state.h"
#include "doctor/exam.h"
#include "doctor/thin.h"
#include "engine/engine.h"

struct lp_cache_exam {
    struct lp_exam *exam;
    struct lp_thin *thin;
    struct limpid_model model; // the thin one, put together of what the examination has
    limpid_engine *engine;
    int32_t *prompt; // [n + spare]
    int64_t n;
    float *expected, *got; // [n_vocab]: logits of the last token
    // [n_layers, n_embd]: the last token's residual stream behind each layer
    float *expected_hidden, *hidden;
    struct lp_cache_state state; // of the whole run
    int64_t row;                 // the last token's row in the step that runs
    uint64_t deadline_ns;        // no more ways are tried behind it
    char left_out[400];          // the ways that were not
    bool accused;                // a way differs: the ones behind it are built on it, and follow
};

// A way that must agree bit for bit.
struct lp_cache_way {
    const char *check; // "in chunks"
    const char *what;  // whom a difference accuses: "prefix cache"
    const char *how;   // "behind a cached prefix of 63 tokens"
    int64_t cached;    // leading positions that were not computed
};

// Whether there is time for one more; else it is noted as left out.
bool lp_cache_has_time(struct lp_cache_exam *c, const char *check);
// The logits in c->got and the state behind `table` against the whole run: accuses where they
// differ. *same: they do not.
lp_status lp_cache_compare(struct lp_cache_exam *c, limpid_engine *e,
                           const struct lp_page_table *table, const struct lp_cache_way *way,
                           bool *same, struct lp_err *err);
// prompt[from .. n) in chunks behind what the table holds, which grows chunk by chunk.
lp_status lp_cache_run(struct lp_cache_exam *c, limpid_engine *e, struct lp_page_table *table,
                       const int32_t *tokens, int64_t from, int64_t n, int64_t chunk,
                       struct lp_err *err);
// Overwrites the free pages, so that what an earlier way left there helps none.
lp_status lp_cache_scrub(limpid_engine *e, struct lp_err *err);
// A way differs: the check, and the accusation if it is the first.
struct lp_cache_fault {
    const char *check, *what, *figure;
    int32_t layer;
    const char *text; // what is wrong, a clause
    const char *advice;
};
void lp_cache_accuse(struct lp_cache_exam *c, const struct lp_cache_fault *fault);
void lp_cache_ok(struct lp_cache_exam *c, const char *check, const char *text);

// cache_prefix.c: behind cached prefixes, restored after pre-emption, from disk.
lp_status lp_cache_check_prefix(struct lp_cache_exam *c, struct lp_err *err);
lp_status lp_cache_check_disk(struct lp_cache_exam *c, struct lp_err *err);
// cache_requests.c: the same request alone, again and among others, through the scheduler.
lp_status lp_cache_check_requests(struct lp_cache_exam *c, struct lp_err *err);
// An engine over the same model, with this directory (or NULL).
lp_status lp_cache_engine(limpid_engine **out, struct lp_cache_exam *c, const char *dir,
                          struct lp_err *err);

#endif
