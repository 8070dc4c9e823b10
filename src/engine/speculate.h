// When drafting pays: speculation with the model's own MTP layer, and its switch.
//
// A step with drafts verifies them in one go, so its text is the same as without. Whether it is
// faster depends on the model, the text and the batch, so it is measured: every CALIBRATE-th step
// runs plain, and those without prompt tokens count. When drafting gave less than WORTH times the
// tokens per second of the plain steps around it, it is turned off for a while, and says so.
#ifndef LP_ENGINE_SPECULATE_H
#define LP_ENGINE_SPECULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "limpid.h"

struct lp_speculation {
    int32_t n_draft; // 0 = never
    bool on;
    uint64_t n_steps;             // while it is on, in this window
    uint64_t off_steps;           // since it was turned off
    double draft_s, draft_tokens; // of drafting steps in this window
    double plain_s, plain_tokens; // of calibrating steps
    int32_t n_plain, n_drafting;  // how many steps these are
    uint64_t n_drafted, n_accepted, n_switches;
    uint64_t drafted_at[LIMPID_MAX_DRAFT], accepted_at[LIMPID_MAX_DRAFT]; // by place in a step
    bool has_warned;                                                      // of the first place
};

void lp_speculation_init(struct lp_speculation *s, int32_t n_draft);
// Whether the next step of answers shall verify drafts. *calibrate: it could, but runs plain.
bool lp_speculation_wants(struct lp_speculation *s, bool *calibrate);
// What became of a sequence's n_draft drafts: the first n_accepted came true. Warns once when the very
// first ones seldom do: then the MTP layer does not know what the model says, whatever its speed.
void lp_speculation_count(struct lp_speculation *s, int32_t n_draft, int32_t n_accepted);
// What a step of answers alone (no prompt tokens) took. tokens: that it gave; draft_s: the part of
// step_s that made the next drafts.
void lp_speculation_note(struct lp_speculation *s, bool drafted, double tokens, double step_s,
                         double draft_s);

#endif
