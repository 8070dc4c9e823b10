#include "engine/speculate.h"

#include "base/log.h"

#define CALIBRATE 32    // every so many steps that could draft, one runs plain
#define MIN_PLAIN 4     // plain steps before a judgement
#define MIN_DRAFTING 64 // and drafting ones
#define OFF_STEPS 4096  // steps until drafting is tried again
#define WORTH 1.02      // drafting must give so many times the tokens per second
#define MIN_FIRST 200   // first drafts before they are judged
#define POOR_PERCENT 40 // of them

void lp_speculation_init(struct lp_speculation *s, int32_t n_draft) {
    *s = (struct lp_speculation){.n_draft = n_draft, .on = n_draft > 0};
}

static void start_window(struct lp_speculation *s) {
    s->n_steps = 0;
    s->n_plain = s->n_drafting = 0;
    s->draft_s = s->draft_tokens = s->plain_s = s->plain_tokens = 0;
}

bool lp_speculation_wants(struct lp_speculation *s, bool *calibrate) {
    *calibrate = false;
    if (s->n_draft == 0) return false;
    if (!s->on && ++s->off_steps >= OFF_STEPS) {
        s->on = true;
        s->n_switches++;
        start_window(s);
        lp_log(LP_LOG_INFO, "speculation: drafting is tried again");
    }
    *calibrate = s->on && ++s->n_steps % CALIBRATE == 0;
    return s->on && !*calibrate;
}

void lp_speculation_count(struct lp_speculation *s, int32_t n_draft, int32_t n_accepted) {
    s->n_drafted += (uint64_t)n_draft;
    s->n_accepted += (uint64_t)n_accepted;
    for (int32_t i = 0; i < n_draft; i++) s->drafted_at[i]++;
    for (int32_t i = 0; i < n_accepted; i++) s->accepted_at[i]++;
    const uint64_t drafted = s->drafted_at[0], accepted = s->accepted_at[0];
    if (s->has_warned || drafted < MIN_FIRST || accepted * 100 >= drafted * POOR_PERCENT) return;
    s->has_warned = true;
    lp_log(
        LP_LOG_WARN,
        "speculation: of the first drafts of a step only %llu of %llu were accepted; the MTP layer "
        "is too coarse (limpid inspect says how many bits it has), does not belong to this model, "
        "or the requests sample at a high temperature",
        (unsigned long long)accepted, (unsigned long long)drafted);
}

void lp_speculation_note(struct lp_speculation *s, bool drafted, double tokens, double step_s,
                         double draft_s) {
    if (!s->on) return;
    if (drafted) {
        s->draft_tokens += tokens;
        s->draft_s += step_s;
        s->n_drafting++;
    } else if (s->n_drafting > 0) { // else there is nothing around it to compare with
        // Without drafting, the drafts for the next step would not have been made.
        s->plain_tokens += tokens;
        s->plain_s += step_s - draft_s;
        s->n_plain++;
    }
    if (s->n_plain < MIN_PLAIN || s->n_drafting < MIN_DRAFTING || s->draft_s <= 0 ||
        s->plain_s <= 0)
        return;
    double with = s->draft_tokens / s->draft_s, without = s->plain_tokens / s->plain_s;
    if (with < WORTH * without) {
        s->on = false;
        s->off_steps = 0;
        s->n_switches++;
        lp_log(LP_LOG_WARN,
               "speculation: drafting gave %.2f times the tokens per second of plain steps and is "
               "off for the next %d steps; %llu of %llu drafts were accepted",
               with / without, OFF_STEPS, (unsigned long long)s->n_accepted,
               (unsigned long long)s->n_drafted);
    }
    start_window(s);
}
