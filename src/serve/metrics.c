// One row per number of the engine: its name, kind, place in limpid_engine_stats and meaning.
#include "serve/metrics.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum value_kind { VALUE_I64, VALUE_U64, VALUE_F64, VALUE_BOOL };

struct row {
    const char *name, *label; // rows of one name follow each other; label "" = none
    const char *type;
    enum value_kind kind;
    size_t at;
    const char *help;
};

#define GAUGE(name, label, kind, member, help)                                                     \
    { name, label, "gauge", VALUE_##kind, offsetof(limpid_engine_stats, member), help }
#define COUNTER(name, label, member, help)                                                         \
    { name, label, "counter", VALUE_U64, offsetof(limpid_engine_stats, member), help }

static const struct row rows[] = {
    GAUGE("limpid_sequences_running", "", I64, n_running, "Sequences that steps take tokens of"),
    GAUGE("limpid_sequences_waiting", "", I64, n_waiting, "Sequences in the queue"),
    GAUGE("limpid_kv_pages", "", I64, pages, "Pages of the KV cache"),
    GAUGE("limpid_kv_pages_free", "", I64, pages_free, "Pages that hold nothing"),
    GAUGE("limpid_kv_pages_cached", "", I64, pages_cached,
          "Pages that the prefix cache alone holds; they are given up when needed"),
    GAUGE("limpid_kv_page_tokens", "", I64, page_tokens, "Tokens of a page"),
    GAUGE("limpid_last_step_age_seconds", "", F64, last_step_age_s,
          "Time since a step ended, while there is work"),
    COUNTER("limpid_steps_total", "", steps, "Steps made"),
    COUNTER("limpid_requests_total", "", requests, "Generations submitted to the engine"),
    COUNTER("limpid_finished_total", "reason=\"stop\"", finished_stop,
            "Choices that ended, by finish_reason"),
    COUNTER("limpid_finished_total", "reason=\"length\"", finished_length, ""),
    COUNTER("limpid_failed_total", "", failed, "Generations that ended with an error"),
    COUNTER("limpid_cancelled_total", "", cancelled, "Generations that were cancelled"),
    COUNTER("limpid_rejected_total", "", rejected, "Generations refused, the queue being full"),
    COUNTER("limpid_prompt_tokens_total", "", prompt_tokens, "Prompt tokens, cached ones included"),
    COUNTER("limpid_prompt_tokens_cached_total", "", cached_tokens,
            "Prompt tokens that were not computed, as the prefix cache had them"),
    COUNTER("limpid_prompt_tokens_cached_disk_total", "", cached_disk_tokens,
            "Those of them that were read from disk"),
    COUNTER("limpid_generated_tokens_total", "", generated_tokens, "Tokens generated"),
    COUNTER("limpid_preemptions_total", "", preemptions,
            "Running sequences that were put back into the queue for lack of pages"),
    COUNTER("limpid_draft_tokens_total", "", draft_tokens, "Tokens drafted by speculation"),
    COUNTER("limpid_draft_tokens_accepted_total", "", accepted_tokens,
            "Drafted tokens that were accepted"),
    COUNTER("limpid_draft_switches_total", "", draft_switches,
            "Times that drafting was turned on or off by its own measure"),
    GAUGE("limpid_drafting", "", BOOL, drafting, "1 while speculation drafts"),
    COUNTER("limpid_attention_spans_total", "route=\"expanded\"", route_expanded,
            "Spans of tokens through a layer's attention, by route"),
    COUNTER("limpid_attention_spans_total", "route=\"absorbed\"", route_absorbed, ""),
    COUNTER("limpid_attention_spans_total", "route=\"sparse\"", route_sparse, ""),
    COUNTER("limpid_attention_spans_total", "route=\"dense\"", route_dense, ""),
    COUNTER("limpid_attention_spans_total", "route=\"gqa\"", route_gqa, ""),
    GAUGE("limpid_disk_cache_pages", "", U64, disk_pages, "Pages in the cache directory"),
    GAUGE("limpid_disk_cache_bytes", "", U64, disk_bytes, "Bytes in the cache directory"),
    COUNTER("limpid_disk_cache_reads_total", "", disk_reads, "Pages read from disk"),
    COUNTER("limpid_disk_cache_writes_total", "", disk_writes, "Pages written to disk"),
    COUNTER("limpid_disk_cache_damaged_total", "", disk_damaged,
            "Pages on disk that failed their check and were not used"),
    COUNTER("limpid_disk_cache_dropped_total", "", disk_dropped,
            "Pages that were not written, or were deleted for space"),
    GAUGE("limpid_expert_slots", "", U64, expert_slots,
          "Routed experts that fit into the memory budget; 0 without one"),
    COUNTER("limpid_experts_needed_total", "where=\"memory\"", expert_hits,
            "Experts that a layer of a step needed, by where they were"),
    COUNTER("limpid_experts_needed_total", "where=\"ahead\"", expert_ahead, ""),
    COUNTER("limpid_experts_needed_total", "where=\"disk\"", expert_misses, ""),
    COUNTER("limpid_expert_reads_total", "", expert_reads, "Experts read from disk"),
    COUNTER("limpid_expert_read_bytes_total", "", expert_read_bytes,
            "Bytes of experts read from disk"),
    {"limpid_expert_wait_seconds_total", "", "counter", VALUE_F64,
     offsetof(limpid_engine_stats, expert_wait_s),
     "Time that computation waited for experts from disk"},
};

static const struct {
    const char *name;
    size_t at;
    const char *help;
} histograms[] = {
    {"limpid_batch_tokens", offsetof(limpid_engine_stats, batch_tokens), "Tokens of a step"},
    {"limpid_batch_sequences", offsetof(limpid_engine_stats, batch_sequences),
     "Sequences of a step"},
    {"limpid_step_seconds", offsetof(limpid_engine_stats, step_s), "Duration of a step"},
    {"limpid_time_to_first_token_seconds", offsetof(limpid_engine_stats, ttft_s),
     "From submission to the first token of an answer"},
    {"limpid_time_per_output_token_seconds", offsetof(limpid_engine_stats, token_s),
     "From one token of an answer to the next"},
    {"limpid_queue_seconds", offsetof(limpid_engine_stats, queue_s),
     "From submission to the first step with the sequence"},
};

static const int statuses[LP_METRICS_N_STATUSES] = {
    200, 204, 400, 401, 403, 404, 405, 408, 411, 413, 415, 429, 431, 499, 500, 501, 503, 504, 0};

void lp_http_counts_add(struct lp_http_counts *c, int route, int status) {
    int at = 0;
    while (statuses[at] && statuses[at] != status) at++;
    if (route < 0 || route >= c->n_routes) route = c->n_routes - 1;
    pthread_mutex_lock(&c->lock);
    c->count[route][at]++;
    pthread_mutex_unlock(&c->lock);
}

static void put_head(struct lp_bytes *out, const char *name, const char *type, const char *help) {
    lp_bytes_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

// %.17g would print 0.1 as 0.10000000000000001.
static void put_number(struct lp_bytes *out, double value) {
    if (isnan(value))
        lp_bytes_puts(out, "NaN");
    else if (isinf(value))
        lp_bytes_puts(out, value > 0 ? "+Inf" : "-Inf");
    else
        lp_bytes_printf(out, "%.12g", value);
}

static void put_real(struct lp_bytes *out, const char *name, double value) {
    lp_bytes_printf(out, "%s ", name);
    put_number(out, value);
    lp_bytes_puts(out, "\n");
}

static void put_row(struct lp_bytes *out, const struct row *row, const limpid_engine_stats *stats) {
    const char *at = (const char *)stats + row->at;
    lp_bytes_printf(out, row->label[0] ? "%s{%s} " : "%s%s ", row->name, row->label);
    switch (row->kind) {
    case VALUE_I64:
        lp_bytes_printf(out, "%lld\n", (long long)*(const int64_t *)at);
        break;
    case VALUE_U64:
        lp_bytes_printf(out, "%llu\n", (unsigned long long)*(const uint64_t *)at);
        break;
    case VALUE_F64:
        put_number(out, *(const double *)at);
        lp_bytes_puts(out, "\n");
        break;
    case VALUE_BOOL:
        lp_bytes_printf(out, "%d\n", *(const bool *)at ? 1 : 0);
        break;
    }
}

// By place in a step, as far as there were any.
static void put_drafts_at(struct lp_bytes *out, const limpid_engine_stats *stats) {
    const struct {
        const char *name, *help;
        const uint64_t *at;
    } series[] = {{"limpid_draft_position_tokens_total", "Drafted tokens, by place in their step",
                   stats->drafted_at},
                  {"limpid_draft_position_accepted_total", "Those of them that were accepted",
                   stats->accepted_at}};
    for (size_t s = 0; s < sizeof series / sizeof series[0]; s++) {
        put_head(out, series[s].name, "counter", series[s].help);
        for (int i = 0; i < LIMPID_MAX_DRAFT && (i == 0 || stats->drafted_at[i]); i++)
            lp_bytes_printf(out, "%s{position=\"%d\"} %llu\n", series[s].name, i + 1,
                            (unsigned long long)series[s].at[i]);
    }
}

// Prometheus' buckets are cumulative, and the last one is +Inf whatever the engine's is.
static void put_histogram(struct lp_bytes *out, const char *name, const char *help,
                          const limpid_histogram *h) {
    uint64_t sum = 0;
    put_head(out, name, "histogram", help);
    for (int32_t i = 0; i < h->n_buckets; i++) {
        sum += h->count[i];
        if (isinf(h->bound[i])) continue;
        lp_bytes_printf(out, "%s_bucket{le=\"", name);
        put_number(out, h->bound[i]);
        lp_bytes_printf(out, "\"} %llu\n", (unsigned long long)sum);
    }
    lp_bytes_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum ", name, (unsigned long long)sum,
                    name);
    put_number(out, h->sum);
    lp_bytes_printf(out, "\n%s_count %llu\n", name, (unsigned long long)sum);
}

// One series a rank.
static const struct rank_series {
    const char *name, *type, *help;
    const char *labels; // beside rank and host, or ""
    size_t at;          // of the number in limpid_rank_info
    bool is_double;     // or 64 bits
} rank_series[] = {
#define RANK(name, labels, type, field, is_double, help)                                           \
    { name, type, help, labels, offsetof(limpid_rank_info, field), is_double }
    RANK("limpid_rank_step_seconds_total", "", "counter", step_s, true, "Time of a rank in steps"),
    RANK("limpid_rank_wait_seconds_total", "", "counter", wait_s, true,
         "Time of a rank in exchanges with the others"),
    RANK("limpid_rank_memory_bytes", "", "gauge", memory_bytes, false,
         "The most memory that a rank has had"),
    RANK("limpid_rank_kv_pages", "", "gauge", kv_pages, false, "Pages of a rank's KV cache"),
    RANK("limpid_rank_kv_pages_free", "", "gauge", kv_pages_free, false,
         "Of those, pages that hold nothing"),
    RANK("limpid_rank_expert_slots", "", "gauge", expert_slots, false,
         "Routed experts that fit into a rank's memory budget; 0 without one"),
    RANK("limpid_rank_experts_needed_total", ",where=\"memory\"", "counter", expert_hits, false,
         "Routed experts that a rank needed in a step, by where they were"),
    RANK("limpid_rank_experts_needed_total", ",where=\"ahead\"", "counter", expert_ahead, false,
         NULL),
    RANK("limpid_rank_experts_needed_total", ",where=\"disk\"", "counter", expert_misses, false,
         NULL),
    RANK("limpid_rank_expert_reads_total", "", "counter", expert_reads, false,
         "Experts that a rank read from disk"),
    RANK("limpid_rank_expert_read_bytes_total", "", "counter", expert_read_bytes, false,
         "Bytes that a rank read from disk for them"),
    RANK("limpid_rank_expert_wait_seconds_total", "", "counter", expert_wait_s, true,
         "Time in which computation of a rank waited for the disk"),
#undef RANK
};

// help: NULL where the series goes on with other labels.
static void put_ranks(struct lp_bytes *out, const struct rank_series *s,
                      const limpid_rank_info *ranks, size_t n) {
    if (s->help) put_head(out, s->name, s->type, s->help);
    for (size_t i = 0; i < n; i++) {
        double value;
        uint64_t whole;
        memcpy(&value, (const char *)&ranks[i] + s->at, sizeof value);
        memcpy(&whole, (const char *)&ranks[i] + s->at, sizeof whole);
        lp_bytes_printf(out, "%s{rank=\"%zu\",host=\"%s\"%s} ", s->name, i, ranks[i].host,
                        s->labels);
        if (s->is_double)
            put_number(out, value);
        else
            lp_bytes_printf(out, "%llu", (unsigned long long)whole);
        lp_bytes_puts(out, "\n");
    }
}

bool lp_metrics_write_ranks(struct lp_bytes *out, const limpid_engine *engine) {
    const size_t n = limpid_engine_get_ranks(engine, NULL, 0);
    if (n == 0) return !out->failed;
    limpid_rank_info *ranks = lp_alloc(n, sizeof *ranks);
    if (!ranks) return false;
    limpid_engine_get_ranks(engine, ranks, n);
    for (size_t i = 0; i < sizeof rank_series / sizeof *rank_series; i++)
        put_ranks(out, &rank_series[i], ranks, n);
    lp_free(ranks);
    return !out->failed;
}

static double ratio(uint64_t part, uint64_t of) {
    return of ? (double)part / (double)of : 0;
}

static void put_counts(struct lp_bytes *out, struct lp_http_counts *c) {
    put_head(out, "limpid_http_requests_total", "counter",
             "HTTP requests answered; 499: the client left first");
    pthread_mutex_lock(&c->lock);
    for (int r = 0; r < c->n_routes; r++)
        for (int i = 0; i < LP_METRICS_N_STATUSES; i++) {
            if (!c->count[r][i]) continue;
            char status[16] = "other";
            if (statuses[i]) snprintf(status, sizeof status, "%d", statuses[i]);
            lp_bytes_printf(out, "limpid_http_requests_total{route=\"%s\",status=\"%s\"} %llu\n",
                            c->routes[r], status, (unsigned long long)c->count[r][i]);
        }
    pthread_mutex_unlock(&c->lock);
}

// A label's value: backslash, quote and line feed are escaped.
static void put_label(struct lp_bytes *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\n')
            lp_bytes_puts(out, "\\n");
        else {
            if (*text == '\\' || *text == '"') lp_bytes_puts(out, "\\");
            lp_bytes_append(out, text, 1);
        }
    }
}

static void put_server(struct lp_bytes *out, const struct lp_metrics_now *now) {
    put_head(out, "limpid_info", "gauge", "1; version and model are labels");
    lp_bytes_printf(out, "limpid_info{version=\"%s\",model=\"", limpid_version());
    put_label(out, now->model_id);
    lp_bytes_puts(out, "\"} 1\n");
    put_head(
        out, "limpid_healthy", "gauge",
        "0 while the engine makes no steps although it has work, and once its device has failed");
    put_real(out, "limpid_healthy", now->healthy);
    put_head(out, "limpid_draining", "gauge", "1 once the server takes no more requests");
    put_real(out, "limpid_draining", now->draining);
    put_head(out, "limpid_http_connections", "gauge", "Open connections");
    put_real(out, "limpid_http_connections", (double)now->n_connections);
    put_head(out, "limpid_reply_repairs_total", "counter",
             "Slips of the model in tool calls and reasoning that were mended");
    put_real(out, "limpid_reply_repairs_total", (double)now->n_repairs);
    put_head(out, "limpid_http_generating", "gauge", "HTTP requests that generate or wait for it");
    put_real(out, "limpid_http_generating", (double)now->n_generating);
    put_head(out, "limpid_http_open", "gauge",
             "HTTP requests that have come and are not yet answered whole, with this one");
    put_real(out, "limpid_http_open", (double)now->n_open);
}

bool lp_metrics_write(struct lp_bytes *out, const limpid_engine_stats *stats,
                      struct lp_http_counts *counts, const struct lp_metrics_now *now) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0)
            put_head(out, rows[i].name, rows[i].type, rows[i].help);
        put_row(out, &rows[i], stats);
    }
    put_head(out, "limpid_prefix_cache_hit_ratio", "gauge",
             "Cached part of all prompt tokens since the start");
    put_real(out, "limpid_prefix_cache_hit_ratio",
             ratio(stats->cached_tokens, stats->prompt_tokens));
    put_head(out, "limpid_draft_acceptance_ratio", "gauge",
             "Accepted part of all drafted tokens since the start");
    put_real(out, "limpid_draft_acceptance_ratio",
             ratio(stats->accepted_tokens, stats->draft_tokens));
    put_drafts_at(out, stats);
    for (size_t i = 0; i < sizeof histograms / sizeof histograms[0]; i++)
        put_histogram(out, histograms[i].name, histograms[i].help,
                      (const limpid_histogram *)((const char *)stats + histograms[i].at));
    put_server(out, now);
    put_counts(out, counts);
    return !out->failed;
}
