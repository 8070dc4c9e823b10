// Text after text from one engine: what `limpid run` was told, and what it counts.
#ifndef LP_CLI_GENERATOR_H
#define LP_CLI_GENERATOR_H

#include <stdio.h>

#include "cli/sample_options.h"

struct lp_generated { // of one text, or of all
    uint64_t prefill_ns, decode_ns;
    int64_t n_prompt, n_cached;    // tokens; cached: of the prompt's, not computed again
    int64_t n_generated, n_decode; // decode: without each text's first, which the prefill gives
    int64_t n_drafted, n_accepted;
};

enum lp_ending { LP_ENDED_STOP, LP_ENDED_LENGTH, LP_ENDED_INTERRUPT };

#define LP_MAX_SHOWN 32

struct lp_generator {
    limpid_model *model;
    limpid_engine *engine;
    struct lp_sampling sampling;
    const char *stop; // NULL = none
    bool ignore_eos;
    const char *grammar_kind; // limpid.h's, with its source in grammar; NULL = none
    char *grammar;            // from lp_alloc
    size_t grammar_len;
    int32_t grammar_after;           // a token; -1: from the start
    int32_t shown_ids[LP_MAX_SHOWN]; // control tokens whose text is given out
    size_t n_shown_ids;
    int64_t speculate;
    uint64_t load_ns;
    struct lp_generated last, total;
    enum lp_ending ending; // of the last text
};

// Takes the next bytes, whole characters. False ends the text (LP_ENDED_INTERRUPT).
typedef bool (*lp_generator_sink)(void *user, const char *text, size_t n_bytes);

// Generates what follows the text (flags: limpid_tokenize's) until it ends or is interrupted
// (cli/interrupt.h). Failures have been printed; returns the exit status.
int lp_generator_run(struct lp_generator *g, const char *text, size_t n_bytes, unsigned flags,
                     lp_generator_sink sink, void *user);

void lp_generator_print_stats(const struct lp_generator *g, FILE *to);

#endif
