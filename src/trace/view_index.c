// The first pass over a trace.
#include "trace/view_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

const char *lp_view_word(struct lp_view_index *index, const char *text) {
    struct lp_str key = lp_str_from(text);
    uint32_t at = lp_map_get(&index->words, key);
    if (at != LP_MAP_NONE) return index->word_list[at];
    char *copy =
        index->n_words < LP_MAP_NONE ? lp_arena_strndup(&index->arena, text, key.len) : NULL;
    if (!copy || !LP_GROW(index->word_list, index->max_words, index->n_words + 1) ||
        !lp_map_add(&index->words, (struct lp_str){copy, key.len}, (uint32_t)index->n_words, NULL))
        return NULL;
    index->word_list[index->n_words++] = copy;
    return copy;
}

static bool tally(struct lp_view_index *index, struct lp_view_tallies *to, const char *what,
                  const char *with, const char *why, int64_t n) {
    struct lp_view_tally row = {lp_view_word(index, what), lp_view_word(index, with),
                                lp_view_word(index, why), n};
    if (!row.what || !row.with || !row.why) return false;
    for (size_t i = 0; i < to->n; i++)
        if (to->rows[i].what == row.what && to->rows[i].with == row.with &&
            to->rows[i].why == row.why) {
            lp_view_add(&to->rows[i].n, n);
            return true;
        }
    if (to->n == LP_VIEW_MOST_TALLIES) {
        lp_view_add(&to->n_others, n);
        return true;
    }
    if (!LP_GROW(to->rows, to->max, to->n + 1)) return false;
    to->rows[to->n++] = row;
    return true;
}

// ---- sequences ----

static struct lp_str key_of(const int64_t *number) {
    return (struct lp_str){(const char *)number, sizeof *number};
}

static struct lp_view_seq *find_seq(const struct lp_view_index *index, int64_t number) {
    uint32_t at = lp_map_get(&index->by_number, key_of(&number));
    return at == LP_MAP_NONE ? NULL : index->seqs[at];
}

static struct lp_view_seq *obtain_seq(struct lp_view_index *index, int64_t number,
                                      int64_t time_us) {
    struct lp_view_seq *seq = find_seq(index, number);
    if (seq || index->n_seqs >= LP_MAP_NONE) return seq;
    seq = lp_arena_alloc(&index->arena, 1, sizeof *seq);
    if (!seq || !LP_GROW(index->seqs, index->max_seqs, index->n_seqs + 1)) return NULL;
    *seq = (struct lp_view_seq){.number = number,
                                .id = "",
                                .what = "",
                                .why = "",
                                .choice = -1,
                                .n_prompt = -1,
                                .n_cached = -1,
                                .n_from_disk = -1,
                                .first_us = time_us,
                                .admitted_us = -1};
    if (!lp_map_add(&index->by_number, key_of(&seq->number), (uint32_t)index->n_seqs, NULL))
        return NULL;
    return index->seqs[index->n_seqs++] = seq;
}

static bool add_step(struct lp_view_seq *seq, int64_t step) {
    struct lp_view_range *last = seq->n_ranges ? &seq->steps[seq->n_ranges - 1] : NULL;
    if (last && step >= last->first && step <= last->last) return true;
    if (last && step == last->last + 1) {
        last->last = step;
        return true;
    }
    if (!LP_GROW(seq->steps, seq->max_ranges, seq->n_ranges + 1)) return false;
    seq->steps[seq->n_ranges++] = (struct lp_view_range){step, step};
    return true;
}

static int by_first(const void *a, const void *b) {
    const struct lp_view_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static void join_ranges(struct lp_view_seq *seq) {
    size_t n = 0;
    if (seq->n_ranges) qsort(seq->steps, seq->n_ranges, sizeof *seq->steps, by_first);
    for (size_t i = 0; i < seq->n_ranges; i++) {
        struct lp_view_range *next = &seq->steps[i], *last = n ? &seq->steps[n - 1] : NULL;
        if (!last || next->first > last->last + 1)
            seq->steps[n++] = *next;
        else if (next->last > last->last)
            last->last = next->last;
    }
    seq->n_ranges = n;
}

bool lp_view_seq_has_step(const struct lp_view_seq *seq, int64_t step) {
    size_t low = 0, high = seq->n_ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (step > seq->steps[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < seq->n_ranges && step >= seq->steps[low].first;
}

// ---- events ----

static void keep(int64_t *to, const struct lp_view_event *event, const char *field) {
    *to = lp_view_int(event, field, *to);
}

static bool keep_word(struct lp_view_index *index, const char **to,
                      const struct lp_view_event *event, const char *field) {
    const char *text = lp_view_text(event, field);
    const char *word = text[0] ? lp_view_word(index, text) : *to;
    if (word) *to = word;
    return word || !text[0];
}

const char *const lp_view_ends[LP_VIEW_N_ENDS] = {"ended", "failed", "cancelled"};

static bool is_end(const char *what) {
    for (size_t i = 0; i < LP_VIEW_N_ENDS; i++)
        if (strcmp(what, lp_view_ends[i]) == 0) return true;
    return false;
}

static bool take_refusal(struct lp_view_index *index, const struct lp_view_event *event) {
    struct lp_view_refusal refusal = {"", event->time_us, lp_view_int(event, "n_prompt", 0), false};
    if (!keep_word(index, &refusal.id, event, "id") ||
        !LP_GROW(index->refusals, index->max_refusals, index->n_refusals + 1))
        return false;
    index->refusals[index->n_refusals++] = refusal;
    return true;
}

static bool take_request(struct lp_view_index *index, struct lp_view_seq *seq,
                         const struct lp_view_event *event) {
    const char *what = lp_view_text(event, "what");
    if (!seq) return strcmp(what, "rejected") != 0 || take_refusal(index, event);
    if (strcmp(what, "admitted") == 0 && seq->admitted_us < 0) seq->admitted_us = event->time_us;
    if (strcmp(what, "pre-empted") == 0) seq->n_preempted++;
    seq->ended |= is_end(what);
    keep(&seq->choice, event, "choice");
    keep(&seq->n_prompt, event, "n_prompt");
    keep(&seq->n_tokens, event, "n_tokens");
    keep(&seq->n_cached, event, "n_cached");
    return keep_word(index, &seq->what, event, "what");
}

typedef bool (*taker)(struct lp_view_index *index, struct lp_view_seq *seq,
                      const struct lp_view_event *event); // seq NULL: the event names none

static bool take_step(struct lp_view_index *index, struct lp_view_seq *seq,
                      const struct lp_view_event *event) {
    struct lp_view_step step = {lp_view_int(event, "step", -1), lp_view_int(event, "n_tokens", 0),
                                lp_view_int(event, "n_sequences", 0),
                                lp_view_int(event, "duration_us", 0)};
    (void)seq;
    if (step.step > index->ended_step) index->ended_step = step.step;
    index->n_steps++;
    lp_view_add(&index->n_step_tokens, step.n_tokens);
    lp_view_add(&index->step_us, step.duration_us);
    for (size_t i = 0; i < LP_VIEW_SLOW_STEPS; i++)
        if (step.duration_us > index->slow[i].duration_us) {
            struct lp_view_step slower = index->slow[i];
            index->slow[i] = step;
            step = slower;
        }
    return true;
}

static bool take_model(struct lp_view_index *index, struct lp_view_seq *seq,
                       const struct lp_view_event *event) {
    (void)seq;
    keep(&index->n_layers, event, "n_layers");
    keep(&index->n_threads, event, "n_threads");
    return keep_word(index, &index->architecture, event, "architecture") &&
           keep_word(index, &index->path, event, "path") &&
           keep_word(index, &index->backend, event, "backend");
}

static bool take_process(struct lp_view_index *index, struct lp_view_seq *seq,
                         const struct lp_view_event *event) {
    (void)seq;
    lp_view_process_take(&index->process, event);
    return true;
}

static bool take_kernel(struct lp_view_index *index, struct lp_view_seq *seq,
                        const struct lp_view_event *event) {
    (void)seq;
    return tally(index, &index->kernels, lp_view_text(event, "operation"),
                 lp_view_text(event, "kernel"), lp_view_text(event, "type"), 1);
}

static bool take_operation(struct lp_view_index *index, struct lp_view_seq *seq,
                           const struct lp_view_event *event) {
    int64_t ns = lp_view_int(event, "duration_ns", 0);
    (void)seq;
    return tally(index, &index->operations, lp_view_text(event, "operation"), "", "",
                 ns > 0 ? ns : 0);
}

static bool take_crash(struct lp_view_index *index, struct lp_view_seq *seq,
                       const struct lp_view_event *event) {
    (void)seq;
    keep(&index->n_overwritten, event, "n_overwritten");
    return keep_word(index, &index->signal, event, "signal") &&
           keep_word(index, &index->address, event, "address");
}

static bool take_attention(struct lp_view_index *index, struct lp_view_seq *seq,
                           const struct lp_view_event *event) {
    int64_t layer = lp_view_int(event, "layer", 0),
            n = lp_view_int(event, "last_layer", layer) - layer + 1;
    (void)seq;
    return tally(index, &index->routes, lp_view_text(event, "route"), lp_view_text(event, "kernel"),
                 lp_view_text(event, "reason"), n > 0 && n < 10000 ? n : 1);
}

static bool take_failure(struct lp_view_index *index, struct lp_view_seq *seq,
                         const struct lp_view_event *event) {
    return !seq || keep_word(index, &seq->why, event, "message");
}

static void most(int64_t *to, const struct lp_view_event *event, const char *field) {
    int64_t value = lp_view_int(event, field, *to);
    if (value > *to) *to = value;
}

static bool take_schedule(struct lp_view_index *index, struct lp_view_seq *seq,
                          const struct lp_view_event *event) {
    (void)seq;
    most(&index->most_running, event, "n_running");
    most(&index->most_waiting, event, "n_waiting");
    return true;
}

static bool take_chunk(struct lp_view_index *index, struct lp_view_seq *seq,
                       const struct lp_view_event *event) {
    most(&index->begun_step, event, "step");
    if (seq) lp_view_add(&seq->n_drafted, lp_view_int(event, "n_draft", 0));
    return true;
}

static bool take_draft(struct lp_view_index *index, struct lp_view_seq *seq,
                       const struct lp_view_event *event) {
    (void)index;
    if (seq) lp_view_add(&seq->n_accepted, lp_view_int(event, "n_accepted", 0));
    return true;
}

static bool take_experts(struct lp_view_index *index, struct lp_view_seq *seq,
                         const struct lp_view_event *event) {
    (void)seq;
    most(&index->most_load, event, "n_most");
    return true;
}

static bool take_token(struct lp_view_index *index, struct lp_view_seq *seq,
                       const struct lp_view_event *event) {
    (void)index, (void)event;
    if (seq) seq->n_given++;
    return true;
}

static bool take_cache(struct lp_view_index *index, struct lp_view_seq *seq,
                       const struct lp_view_event *event) {
    (void)index;
    if (seq) keep(&seq->n_from_disk, event, "n_from_disk");
    return true;
}

static const struct {
    const char *name;
    taker take;
} kinds[] = {{"model", take_model},     {"kernel", take_kernel}, {"request", take_request},
             {"failure", take_failure}, {"cache", take_cache},   {"schedule", take_schedule},
             {"chunk", take_chunk},     {"draft", take_draft},   {"attention", take_attention},
             {"experts", take_experts}, {"step", take_step},     {"expert_load", take_experts},
             {"token", take_token},     {"crash", take_crash},   {"operation", take_operation},
             {"process", take_process}};

static bool take_kind(struct lp_view_index *index, struct lp_view_seq *seq,
                      const struct lp_view_event *event) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (lp_view_is(event, kinds[i].name)) return kinds[i].take(index, seq, event);
    return tally(index, &index->events, event->name, "", "", 1);
}

static bool take(struct lp_view_index *index, const struct lp_view_event *event) {
    int64_t number = lp_view_int(event, "sequence", -1), step = lp_view_int(event, "step", -1);
    struct lp_view_seq *seq = NULL;
    if (index->first_us < 0 || event->time_us < index->first_us) index->first_us = event->time_us;
    if (event->time_us > index->last_us) index->last_us = event->time_us;
    if (number >= 0) {
        if (!(seq = obtain_seq(index, number, event->time_us))) return false;
        if (event->time_us < seq->first_us) seq->first_us = event->time_us;
        if (event->time_us > seq->last_us) seq->last_us = event->time_us;
        if (step >= 0 && !add_step(seq, step)) return false;
        if (!keep_word(index, &seq->id, event, "id")) return false;
    }
    return take_kind(index, seq, event);
}

lp_status lp_view_index_build(struct lp_view_index *index, struct lp_str trace,
                              struct lp_view_notes *notes, struct lp_err *err) {
    struct lp_view_lines lines;
    struct lp_view_event event;
    *index = (struct lp_view_index){
        .first_us = -1, .begun_step = -1, .ended_step = -1, .process = lp_view_process_untold};
    lp_view_lines_init(&lines, trace, notes);
    while (lp_view_lines_next(&lines, &event))
        if (!take(index, &event)) {
            lp_view_lines_release(&lines);
            return lp_err_memory(err, 0, "the sequences of a trace");
        }
    for (size_t i = 0; i < index->n_seqs; i++) join_ranges(index->seqs[i]);
    return LP_OK;
}

void lp_view_index_release(struct lp_view_index *index) {
    for (size_t i = 0; i < index->n_seqs; i++) lp_free(index->seqs[i]->steps);
    lp_free(index->seqs);
    lp_free(index->selected);
    lp_free(index->refusals);
    lp_free(index->word_list);
    lp_free(index->routes.rows);
    lp_free(index->kernels.rows);
    lp_free(index->events.rows);
    lp_free(index->operations.rows);
    lp_map_release(&index->words);
    lp_map_release(&index->by_number);
    lp_arena_release(&index->arena);
    *index = (struct lp_view_index){0};
}

// ---- of one request ----

// An id longer than the trace keeps is known by its beginning.
static bool is_id(const char *kept, const char *asked) {
    size_t n = strlen(kept);
    return n > 0 && (strcmp(kept, asked) == 0 ||
                     (n == LP_VIEW_KEPT_ID_BYTES && strncmp(kept, asked, n) == 0));
}

static bool is_number(const struct lp_view_seq *seq, const char *asked) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)seq->number);
    return strcmp(digits, asked) == 0;
}

lp_status lp_view_index_select(struct lp_view_index *index, const char *request, bool *found,
                               struct lp_err *err) {
    index->selected = lp_alloc(index->n_seqs, sizeof(struct lp_view_seq *));
    if (!index->selected || !(index->asked = lp_view_word(index, request)))
        return lp_err_memory(err, 0, "the sequences of a request");
    *found = false;
    for (size_t i = 0; i < index->n_refusals; i++)
        *found |= index->refusals[i].selected = is_id(index->refusals[i].id, request);
    for (size_t i = 0; i < index->n_seqs; i++)
        if (is_id(index->seqs[i]->id, request))
            index->selected[index->n_selected++] = index->seqs[i];
    *found |= index->n_selected > 0;
    for (size_t i = 0; i < index->n_seqs && !*found; i++)
        if (is_number(index->seqs[i], request)) {
            index->selected[index->n_selected++] = index->seqs[i];
            *found = true;
        }
    for (size_t i = 0; i < index->n_selected; i++) index->selected[i]->selected = i + 1;
    return LP_OK;
}

struct lp_view_seq *lp_view_index_seq(const struct lp_view_index *index,
                                      const struct lp_view_event *event) {
    int64_t number = lp_view_int(event, "sequence", -1);
    return number < 0 ? NULL : find_seq(index, number);
}

bool lp_view_index_wants(const struct lp_view_index *index, const struct lp_view_event *event) {
    const struct lp_view_seq *seq = lp_view_index_seq(index, event);
    int64_t step = lp_view_int(event, "step", -1);
    const char *id = lp_view_text(event, "id");
    if (seq) return seq->selected > 0;
    if (id[0]) return index->asked && is_id(id, index->asked);
    if (step < 0) return true;
    for (size_t i = 0; i < index->n_selected; i++)
        if (lp_view_seq_has_step(index->selected[i], step)) return true;
    return false;
}
