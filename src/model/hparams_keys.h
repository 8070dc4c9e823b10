// Inside hparams: the reader that hparams*.c share. The first failure stays; later calls do
// nothing.
#ifndef LP_MODEL_HPARAMS_KEYS_H
#define LP_MODEL_HPARAMS_KEYS_H

#include "model/hparams.h"

struct lp_hparams_reader {
    struct lp_hparams *h;
    const struct lp_gguf *gguf;
    struct lp_err *err;
    lp_status status;
    char key[160];
};

// The full name of the architecture's key; valid until the next call.
const char *lp_hparams_key(struct lp_hparams_reader *r, const char *suffix);
bool lp_hparams_has(struct lp_hparams_reader *r, const char *suffix);
void lp_hparams_fail(struct lp_hparams_reader *r, lp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void lp_hparams_fact(struct lp_hparams_reader *r, const char *name, const char *source,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

// Says (log level warn) that a value which changes the answers was not in the file.
void lp_hparams_guessed(struct lp_hparams_reader *r, const char *name, const char *value,
                        const char *rule);

// A value within [min, max]. rule NULL: the key must be there. Else a missing key means
// `otherwise`, and `rule` says why in the record.
int64_t lp_hparams_int(struct lp_hparams_reader *r, const char *suffix, int64_t min, int64_t max,
                       int64_t otherwise, const char *rule);
float lp_hparams_float(struct lp_hparams_reader *r, const char *suffix, double min, double max,
                       float otherwise, const char *rule);
bool lp_hparams_bool(struct lp_hparams_reader *r, const char *suffix, bool otherwise,
                     const char *rule);

void lp_hparams_read_router(struct lp_hparams_reader *r);  // hparams_router.c
void lp_hparams_read_rope(struct lp_hparams_reader *r);    // hparams_rope.c
void lp_hparams_read_indexer(struct lp_hparams_reader *r); // hparams_indexer.c

#endif
