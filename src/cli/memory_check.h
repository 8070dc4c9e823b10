// The memory plan of a command that runs a model, held against what there is before any weight is
// read: nobody waits for a load that cannot end well.
#ifndef LP_CLI_MEMORY_CHECK_H
#define LP_CLI_MEMORY_CHECK_H

#include "cli/args.h"

enum lp_memory_verdict {
    LP_MEMORY_FITS,
    LP_MEMORY_PAGES,   // what must be in memory fits; mapped weights do not, and page from disk
    LP_MEMORY_REFUSED, // what must be in memory does not fit
};

struct lp_memory_judgement {
    enum lp_memory_verdict verdict;
    char text[1024]; // what is too large, beside what, and the remedy; "" where it fits
};

// smaller: how this command's cache and buffers are made smaller, as "lower --ctx".
void lp_memory_judge(struct lp_memory_judgement *out, const limpid_memory_plan *plan,
                     const limpid_model_options *model, bool is_folder, const char *smaller);

// One line: weights, cache, buffers, and what is available.
void lp_memory_plan_text(char *out, size_t n_bytes, const limpid_memory_plan *plan);

// Plans, warns, refuses (prints why; LP_EXIT_FAILURE), notes in *model what the engine will take.
// The plan goes to standard error where `print`, else to the log as information.
int lp_memory_check(const char *path, limpid_model_options *model,
                    const limpid_engine_options *engine, const char *smaller, bool print);

// For commands with the common options alone: checks, then opens.
int lp_memory_check_and_open(const struct lp_common *common, const char *path,
                             const limpid_engine_options *engine, limpid_model **model);

#endif
