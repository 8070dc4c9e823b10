// The metrics text against a strict reader of Prometheus' text format 0.0.4: every sample belongs to
// a family that was announced once with HELP and TYPE and stands together, names and labels are well
// formed, no series comes twice, histograms are cumulative and end with +Inf = _count.
#include "lp_test.h"

#include <math.h>

#include "serve/metrics.h"

struct sample {
    char series[256]; // name and labels as written
    char name[128];
    double value, le; // le NAN: no such label
};

struct family {
    char name[128], type[16];
};

static struct sample samples[1024];
static size_t n_samples;
static struct family families[256];
static size_t n_families;

static size_t name_length(const char *at, bool colon) {
    size_t n = 0;
    while ((at[n] >= 'a' && at[n] <= 'z') || (at[n] >= 'A' && at[n] <= 'Z') || at[n] == '_' ||
           (colon && at[n] == ':') || (n && at[n] >= '0' && at[n] <= '9'))
        n++;
    return n;
}

static double read_number(const char *at, const char **end) {
    if (strncmp(at, "+Inf", 4) == 0) {
        *end = at + 4;
        return INFINITY;
    }
    char *stop;
    double value = strtod(at, &stop);
    assert_true(stop > at);
    *end = stop;
    return value;
}

// {name="value",...}; gives what is behind.
static const char *read_labels(const char *at, double *le) {
    *le = NAN;
    if (*at != '{') return at;
    do {
        at++;
        size_t n = name_length(at, false);
        assert_true(n > 0);
        bool is_le = n == 2 && memcmp(at, "le", 2) == 0;
        at += n;
        assert_memory_equal(at, "=\"", 2);
        at += 2;
        if (is_le) {
            const char *end;
            *le = read_number(at, &end);
            assert_int_equal(*end, '"');
        }
        for (; *at != '"'; at++) {
            assert_true(*at && *at != '\n');
            if (*at == '\\') {
                at++;
                assert_true(*at == '\\' || *at == '"' || *at == 'n');
            }
        }
        at++;
    } while (*at == ',');
    assert_int_equal(*at, '}');
    return at + 1;
}

static bool belongs(const char *name, const struct family *f) {
    size_t n = strlen(f->name);
    if (strcmp(name, f->name) == 0) return strcmp(f->type, "histogram") != 0;
    return strcmp(f->type, "histogram") == 0 && strncmp(name, f->name, n) == 0 &&
           (strcmp(name + n, "_bucket") == 0 || strcmp(name + n, "_sum") == 0 ||
            strcmp(name + n, "_count") == 0);
}

static void read_sample(const char *line) {
    struct sample *s = &samples[n_samples++];
    size_t n = name_length(line, true);
    assert_true(n > 0 && n < sizeof s->name && n_families > 0);
    memcpy(s->name, line, n);
    s->name[n] = 0;
    assert_true(belongs(s->name, &families[n_families - 1])); // families stand together
    const char *at = read_labels(line + n, &s->le);
    assert_true((size_t)(at - line) < sizeof s->series);
    memcpy(s->series, line, (size_t)(at - line));
    s->series[at - line] = 0;
    for (size_t i = 0; i + 1 < n_samples; i++)
        assert_string_not_equal(samples[i].series, s->series);
    assert_int_equal(*at, ' ');
    s->value = read_number(at + 1, &at);
    assert_int_equal(*at, 0);
}

static void read_head(const char *line) {
    static char help_of[128];
    const char *name = line + 7;
    size_t n = name_length(name, true);
    assert_true(n > 0 && n < sizeof help_of && name[n] == ' ' && name[n + 1]);
    if (strncmp(line, "# HELP ", 7) == 0) {
        memcpy(help_of, name, n);
        help_of[n] = 0;
        return;
    }
    assert_int_equal(strncmp(line, "# TYPE ", 7), 0);
    struct family *f = &families[n_families++];
    memcpy(f->name, name, n);
    f->name[n] = 0;
    assert_string_equal(f->name, help_of);
    snprintf(f->type, sizeof f->type, "%s", name + n + 1);
    assert_true(strcmp(f->type, "counter") == 0 || strcmp(f->type, "gauge") == 0 ||
                strcmp(f->type, "histogram") == 0);
    bool is_total = n > 6 && strcmp(f->name + n - 6, "_total") == 0;
    assert_int_equal(is_total, strcmp(f->type, "counter") == 0);
    for (size_t i = 0; i + 1 < n_families; i++) assert_string_not_equal(families[i].name, f->name);
}

static void check_histogram(const struct family *f) {
    char bucket[160], sum[160], count[160];
    double last = -INFINITY, total = 0;
    bool has_sum = false, has_count = false;
    snprintf(bucket, sizeof bucket, "%s_bucket", f->name);
    snprintf(sum, sizeof sum, "%s_sum", f->name);
    snprintf(count, sizeof count, "%s_count", f->name);
    for (size_t i = 0; i < n_samples; i++) {
        const struct sample *s = &samples[i];
        if (strcmp(s->name, bucket) == 0) {
            assert_true(s->le > last && s->value >= total);
            last = s->le;
            total = s->value;
        }
        has_sum |= strcmp(s->name, sum) == 0;
        if (strcmp(s->name, count) == 0) {
            has_count = true;
            assert_true(s->value == total);
        }
    }
    assert_true(isinf(last) && has_sum && has_count);
}

static void read_text(const struct lp_bytes *text) {
    char line[512];
    n_samples = n_families = 0;
    assert_true(text->len && text->data[text->len - 1] == '\n');
    for (const char *at = text->data, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_true((size_t)(end - at) < sizeof line);
        memcpy(line, at, (size_t)(end - at));
        line[end - at] = 0;
        if (line[0] == '#')
            read_head(line);
        else
            read_sample(line);
    }
    for (size_t i = 0; i < n_families; i++)
        if (strcmp(families[i].type, "histogram") == 0) check_histogram(&families[i]);
}

static double value_of(const char *series) {
    for (size_t i = 0; i < n_samples; i++)
        if (strcmp(samples[i].series, series) == 0) return samples[i].value;
    fail_msg("there is no %s", series);
    return 0;
}

static struct lp_http_counts counts = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                       .routes = {"/health", "/v1/completions", "other"},
                                       .n_routes = 3};

static void write_and_read(const limpid_engine_stats *stats, const struct lp_metrics_now *now) {
    struct lp_bytes text = {0};
    assert_true(lp_metrics_write(&text, stats, &counts, now));
    read_text(&text);
    lp_bytes_release(&text);
}

static void an_engine_that_did_nothing_is_well_formed(void **state) {
    (void)state;
    limpid_engine_stats stats = {0};
    struct lp_metrics_now now = {.healthy = true, .model_id = "m"};
    write_and_read(&stats, &now);
    assert_true(value_of("limpid_healthy") == 1);
    assert_true(value_of("limpid_prefix_cache_hit_ratio") == 0);
    assert_true(value_of("limpid_time_to_first_token_seconds_bucket{le=\"+Inf\"}") == 0);
}

static void values_arrive_and_buckets_add_up(void **state) {
    (void)state;
    limpid_engine_stats stats = {.n_running = 3,
                                 .n_waiting = 2,
                                 .pages = 100,
                                 .pages_free = 40,
                                 .prompt_tokens = 400,
                                 .cached_tokens = 100,
                                 .generated_tokens = (uint64_t)1 << 60,
                                 .draft_tokens = 8,
                                 .accepted_tokens = 6,
                                 .drafting = true,
                                 .finished_stop = 5,
                                 .finished_length = 7,
                                 .route_sparse = 11,
                                 .preemptions = 1,
                                 .last_step_age_s = 0.1};
    stats.ttft_s = (limpid_histogram){
        .bound = {0.1, 1, INFINITY}, .count = {2, 3, 4}, .n_buckets = 3, .sum = 12.5};
    // An engine whose last bound is finite still has a +Inf bucket.
    stats.batch_tokens =
        (limpid_histogram){.bound = {1, 512}, .count = {1, 2}, .n_buckets = 2, .sum = 700};
    struct lp_metrics_now now = {.n_connections = 4,
                                 .n_generating = 1,
                                 .n_open = 2,
                                 .draining = true,
                                 .model_id = "a\"b\\c\nd"};
    write_and_read(&stats, &now);
    assert_true(value_of("limpid_sequences_running") == 3);
    assert_true(value_of("limpid_sequences_waiting") == 2);
    assert_true(value_of("limpid_kv_pages") == 100);
    assert_true(value_of("limpid_kv_pages_free") == 40);
    assert_true(value_of("limpid_prefix_cache_hit_ratio") == 0.25);
    assert_true(value_of("limpid_draft_acceptance_ratio") == 0.75);
    assert_true(value_of("limpid_drafting") == 1);
    assert_true(value_of("limpid_generated_tokens_total") == 1152921504606846976.0);
    assert_true(value_of("limpid_finished_total{reason=\"stop\"}") == 5);
    assert_true(value_of("limpid_finished_total{reason=\"length\"}") == 7);
    assert_true(value_of("limpid_attention_spans_total{route=\"sparse\"}") == 11);
    assert_true(value_of("limpid_preemptions_total") == 1);
    assert_true(value_of("limpid_last_step_age_seconds") == 0.1);
    assert_true(value_of("limpid_time_to_first_token_seconds_bucket{le=\"0.1\"}") == 2);
    assert_true(value_of("limpid_time_to_first_token_seconds_bucket{le=\"1\"}") == 5);
    assert_true(value_of("limpid_time_to_first_token_seconds_count") == 9);
    assert_true(value_of("limpid_time_to_first_token_seconds_sum") == 12.5);
    assert_true(value_of("limpid_batch_tokens_bucket{le=\"+Inf\"}") == 3);
    assert_true(value_of("limpid_http_connections") == 4 && value_of("limpid_http_open") == 2);
    assert_true(value_of("limpid_draining") == 1 && value_of("limpid_healthy") == 0);
}

static void answers_are_counted_by_route_and_status(void **state) {
    (void)state;
    limpid_engine_stats stats = {0};
    struct lp_metrics_now now = {.model_id = "m"};
    for (int i = 0; i < 3; i++) lp_http_counts_add(&counts, 1, 200);
    lp_http_counts_add(&counts, 1, 429);
    lp_http_counts_add(&counts, -1, 404);
    lp_http_counts_add(&counts, 99, 418);
    write_and_read(&stats, &now);
    assert_true(value_of("limpid_http_requests_total{route=\"/v1/completions\",status=\"200\"}") ==
                3);
    assert_true(value_of("limpid_http_requests_total{route=\"/v1/completions\",status=\"429\"}") ==
                1);
    assert_true(value_of("limpid_http_requests_total{route=\"other\",status=\"404\"}") == 1);
    assert_true(value_of("limpid_http_requests_total{route=\"other\",status=\"other\"}") == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_engine_that_did_nothing_is_well_formed),
                                       cmocka_unit_test(values_arrive_and_buckets_add_up),
                                       cmocka_unit_test(answers_are_counted_by_route_and_status)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
