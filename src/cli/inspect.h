// What `limpid inspect` knows of a file, how it becomes one JSON object, and how that is printed.
// The object is the one source: the text shows nothing that the JSON lacks. Its keys are documented
// in docs/cli.md.
#ifndef LP_CLI_INSPECT_H
#define LP_CLI_INSPECT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "model/expert_layout.h"
#include "model/plan.h"
#include "model/rank_plan.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct lp_hf_plan;
struct lp_inspect {
    const struct lp_gguf *gguf;
    const struct lp_hf_plan *folder;  // of a Hugging Face folder, or NULL
    bool list_tensors, list_metadata; // --tensors, --metadata
    // Each part is there or the sentence why not (an empty text: not reached).
    bool has_hparams, is_bound, is_planned;
    struct lp_hparams h;
    struct lp_binding binding;
    struct lp_plan plan;
    uint64_t packed_bytes; // of the weights, copied for the kernels
    uint64_t budget_bytes; // --memory-budget, of each rank; 0: none
    bool is_limited;       // by it, in one process
    int32_t n_slots;       // experts that fit into it
    struct lp_expert_layout experts;
    lp_type kv_type;
    int64_t n_sequences, n_context, n_kv_tokens; // that the plan is for
    int64_t n_ranks;                             // --ranks; 0: not asked for
    struct lp_rank_plan *ranks;                  // [n_ranks], where they can be
    struct lp_err model_error, plan_error, tokenizer_error, template_error;
    struct lp_device *dev; // or NULL
    struct lp_tokenizer *tokenizer;
    bool has_template;
    struct lp_jinja *chat_template;
};

// NULL when out of memory.
json_t *lp_inspect_report(const struct lp_inspect *in);

// sections_only: the container and the lists that were asked for.
void lp_inspect_print(const json_t *report, bool sections_only, FILE *to);

#endif
