// How `limpid run` samples: one table behind its command-line options and the chat's /set.
#ifndef LP_CLI_SAMPLE_OPTIONS_H
#define LP_CLI_SAMPLE_OPTIONS_H

#include <stdio.h>

#include "base/status.h"
#include "cli/args.h"

struct lp_sampling {
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k;
    int64_t max_tokens; // -1: to the end of the context
    int64_t seed;       // -1: not chosen yet
};
#define LP_N_SAMPLING 9

// Greedy; everything else off.
struct lp_sampling lp_sampling_defaults(void);
// The same, but what a model's file may suggest is not set: NAN, and top_k -1.
struct lp_sampling lp_sampling_unset(void);
// Sets what is not set: as the file suggests (which is said on standard error), else temperature to
// the given one and the rest off.
void lp_sampling_settle(struct lp_sampling *s, double temperature, const limpid_model *model);
// Fills LP_N_SAMPLING rows.
void lp_sampling_options(struct lp_sampling *s, struct lp_option *rows);
// Ranges, after parsing: LP_EXIT_OK, or LP_EXIT_USAGE after naming the option.
int lp_sampling_check(const struct lp_sampling *s, const struct lp_command *command);

// Sets one by its name in the HTTP API ("temperature"). INVALID says what is expected.
lp_status lp_sampling_set(struct lp_sampling *s, const char *name, const char *value,
                          struct lp_err *err);
void lp_sampling_print(const struct lp_sampling *s, FILE *to); // a line for each

// room: tokens that the context has left.
void lp_sampling_apply(const struct lp_sampling *s, int64_t room, limpid_request_options *o);

#endif
