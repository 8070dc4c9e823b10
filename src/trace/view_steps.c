#include "trace/view_steps.h"

#include <math.h>
#include <string.h>

#include "base/clean.h"
#include "base/grow.h"

#define LOOK_BACK 256    // steps: threads may write a little out of order
#define MOST_LAYERS 1024 // of a step, runs of layers that attend alike

// Mostly the last one. *step NULL: too far from its place. False without memory.
static bool obtain(struct lp_view_steps *steps, int64_t number, int64_t time_us,
                   struct lp_view_seq_step **step) {
    size_t at = steps->n, end = at > LOOK_BACK ? at - LOOK_BACK : 0;
    while (at > end && steps->rows[at - 1].step > number) at--;
    *step = at > 0 && steps->rows[at - 1].step == number ? &steps->rows[at - 1] : NULL;
    if (*step || (at == end && end > 0)) return true;
    if (!LP_GROW(steps->rows, steps->max, steps->n + 1)) return false;
    memmove(&steps->rows[at + 1], &steps->rows[at], (steps->n - at) * sizeof *steps->rows);
    steps->rows[at] = (struct lp_view_seq_step){.step = number,
                                                .time_us = time_us,
                                                .n_sequences = -1,
                                                .duration_us = -1,
                                                .first_token = steps->n_tokens};
    steps->n++;
    *step = &steps->rows[at];
    return true;
}

// ---- events ----

typedef bool (*taker)(struct lp_view_steps *steps, struct lp_view_index *index,
                      struct lp_view_seq_step *step, const struct lp_view_event *event);

static bool take_chunk(struct lp_view_steps *steps, struct lp_view_index *index,
                       struct lp_view_seq_step *step, const struct lp_view_event *event) {
    (void)steps, (void)index;
    step->has_chunk = true;
    step->n_prompt = lp_view_int(event, "n_prompt", 0);
    step->n_answer = lp_view_int(event, "n_answer", 0);
    step->n_draft = lp_view_int(event, "n_draft", 0);
    step->n_past = lp_view_int(event, "n_past", 0);
    return true;
}

static bool take_draft(struct lp_view_steps *steps, struct lp_view_index *index,
                       struct lp_view_seq_step *step, const struct lp_view_event *event) {
    (void)steps, (void)index;
    step->n_accepted = lp_view_int(event, "n_accepted", 0);
    return true;
}

static bool take_step(struct lp_view_steps *steps, struct lp_view_index *index,
                      struct lp_view_seq_step *step, const struct lp_view_event *event) {
    (void)steps, (void)index;
    step->n_sequences = lp_view_int(event, "n_sequences", -1);
    step->duration_us = lp_view_int(event, "duration_us", -1);
    return true;
}

static bool take_load(struct lp_view_steps *steps, struct lp_view_index *index,
                      struct lp_view_seq_step *step, const struct lp_view_event *event) {
    (void)steps, (void)index;
    step->n_hit = lp_view_int(event, "n_hit", 0);
    step->most_layer = lp_view_int(event, "most_layer", 0);
    step->most_expert = lp_view_int(event, "most_expert", 0);
    step->n_most = lp_view_int(event, "n_most", 0);
    return true;
}

static const char *how_of(struct lp_view_index *index, const struct lp_view_event *event) {
    char text[1024], clean[1024];
    const char *indexer = lp_view_text(event, "indexer"), *reason = lp_view_text(event, "reason"),
               *kernel = lp_view_text(event, "kernel");
    int64_t top_k = lp_view_int(event, "top_k", 0);
    int n = snprintf(text, sizeof text, "%.64s", lp_view_text(event, "route"));
    if (reason[0]) n += snprintf(text + n, sizeof text - (size_t)n, " (%.400s)", reason);
    if (kernel[0]) n += snprintf(text + n, sizeof text - (size_t)n, ", %.64s", kernel);
    if (top_k > 0)
        snprintf(text + n, sizeof text - (size_t)n, "; indexer %.32s, top %lld", indexer,
                 (long long)top_k);
    return lp_view_word(index, lp_clean_text(clean, sizeof clean, lp_str_from(text)));
}

static bool add_layers(struct lp_view_seq_step *step, struct lp_view_layers layers) {
    size_t at = step->n_layers;
    while (at > 0 && step->layers[at - 1].first > layers.first) at--;
    struct lp_view_layers *before = at > 0 ? &step->layers[at - 1] : NULL;
    if (before && before->how == layers.how && layers.first <= before->last + 1) {
        if (layers.last > before->last) before->last = layers.last;
        return true;
    }
    if (step->n_layers == MOST_LAYERS) return true;
    if (!LP_GROW(step->layers, step->max_layers, step->n_layers + 1)) return false;
    memmove(&step->layers[at + 1], &step->layers[at], (step->n_layers - at) * sizeof *step->layers);
    step->layers[at] = layers;
    step->n_layers++;
    return true;
}

static bool take_attention(struct lp_view_steps *steps, struct lp_view_index *index,
                           struct lp_view_seq_step *step, const struct lp_view_event *event) {
    (void)steps;
    int64_t layer = lp_view_int(event, "layer", 0), n_kv = lp_view_int(event, "n_kv", 0);
    struct lp_view_layers layers = {layer, lp_view_int(event, "last_layer", layer),
                                    how_of(index, event)};
    if (n_kv > step->n_kv) step->n_kv = n_kv;
    if (layers.last < layers.first) layers.last = layers.first;
    return layers.how && add_layers(step, layers);
}

static bool take_token(struct lp_view_steps *steps, struct lp_view_index *index,
                       struct lp_view_seq_step *step, const struct lp_view_event *event) {
    (void)index;
    if (!LP_GROW(steps->tokens, steps->max_tokens, steps->n_tokens + 1)) return false;
    if (step->n_given == 0) step->first_token = steps->n_tokens;
    if (step->first_token + step->n_given != steps->n_tokens) { // another step's are between
        steps->n_stray++;
        return true;
    }
    step->n_given++;
    steps->tokens[steps->n_tokens++] =
        (struct lp_view_token){.position = lp_view_int(event, "position", -1),
                               .id = lp_view_int(event, "token", -1),
                               .rank = lp_view_int(event, "rank", -1),
                               .logprob = lp_view_real(event, "logprob", NAN)};
    return true;
}

static const struct {
    const char *name;
    taker take;
} kinds[] = {{"chunk", take_chunk}, {"attention", take_attention}, {"token", take_token},
             {"step", take_step},   {"expert_load", take_load},    {"draft", take_draft}};

static taker taker_of(const struct lp_view_event *event) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (lp_view_is(event, kinds[i].name)) return kinds[i].take;
    return NULL;
}

bool lp_view_steps_take(struct lp_view_steps *steps, struct lp_view_index *index,
                        const struct lp_view_event *event) {
    int64_t number = lp_view_int(event, "step", -1);
    taker take = taker_of(event);
    struct lp_view_seq_step *step;
    if (number < 0 || !take) return true;
    if (!obtain(steps, number, event->time_us, &step)) return false;
    if (!step) {
        steps->n_stray++;
        return true;
    }
    if (event->time_us < step->time_us) step->time_us = event->time_us;
    return take(steps, index, step, event);
}

bool lp_view_steps_alike(const struct lp_view_seq_step *a, const struct lp_view_seq_step *b) {
    if (a->has_chunk != b->has_chunk || a->n_prompt != b->n_prompt || a->n_answer != b->n_answer ||
        a->n_layers != b->n_layers)
        return false;
    for (size_t i = 0; i < a->n_layers; i++)
        if (a->layers[i].first != b->layers[i].first || a->layers[i].last != b->layers[i].last ||
            a->layers[i].how != b->layers[i].how)
            return false;
    return true;
}

void lp_view_steps_release(struct lp_view_steps *steps) {
    for (size_t i = 0; i < steps->n; i++) lp_free(steps->rows[i].layers);
    lp_free(steps->rows);
    lp_free(steps->tokens);
    *steps = (struct lp_view_steps){0};
}
