// Answers that must match a grammar, through limpid.h on a real model: whatever the sampling, the
// drafts and the schedule, each answer matches, and the same seed gives the same text.
//
//     constrained MODEL N_SEEDS
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "limpid.h"

#define MAX_ANSWER 4096
#define N_CHOICES 3

static void stop_with(const char *what, const char *detail) {
    fprintf(stderr, "constrained: error: %s: %s\n", what, detail);
    exit(1);
}

// ---- what must hold for each answer, found without our grammars ----

static json_t *parse(const char *text) {
    return json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
}

static bool is_object(const char *text) {
    json_t *json = parse(text);
    bool ok = json_is_object(json);
    json_decref(json);
    return ok;
}

static bool is_person(const char *text) {
    json_t *json = parse(text), *name = json_object_get(json, "name"),
           *age = json_object_get(json, "age"), *tags = json_object_get(json, "tags"), *tag;
    size_t i;
    bool ok = json_object_size(json) == 3 && json_is_string(name) &&
              json_string_length(name) <= 48 && json_is_integer(age) &&
              json_integer_value(age) >= 0 && json_integer_value(age) <= 150 &&
              json_is_array(tags) && json_array_size(tags) <= 3;
    json_array_foreach(tags, i, tag) {
        const char *value = json_string_value(tag);
        ok = ok && value && (!strcmp(value, "red") || !strcmp(value, "green"));
    }
    json_decref(json);
    return ok;
}

static bool is_plate(const char *text) { // [A-Z]{2,3}-[0-9]{4}
    size_t letters = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return letters >= 2 && letters <= 3 && text[letters] == '-' && strlen(text + letters) == 5 &&
           strspn(text + letters + 1, "0123456789") == 4;
}

static bool is_colour(const char *text) {
    return !strcmp(text, "ultramarine") || !strcmp(text, "ultra") || !strcmp(text, "caf\xC3\xA9");
}

static bool is_nested(const char *text) { // s ::= "(" s ")" s | ""; then "." and at most 40 of them
    int depth = 0;
    size_t i = 0;
    for (; text[i] == '(' || text[i] == ')'; i++)
        if ((depth += text[i] == '(' ? 1 : -1) < 0) return false;
    return depth == 0 && strcmp(text + i, ".") == 0;
}

static const struct grammar_case {
    const char *kind, *source;
    bool (*is_right)(const char *text);
} CASES[] = {
    {"json", "", is_object},
    {"json_schema",
     "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 12},"
     " \"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 150},"
     " \"tags\": {\"type\": \"array\", \"items\": {\"enum\": [\"red\", \"green\"]}, \"maxItems\": "
     "3}},"
     " \"required\": [\"name\", \"age\", \"tags\"], \"additionalProperties\": false}",
     is_person},
    {"regex", "[A-Z]{2,3}-[0-9]{4}", is_plate},
    {"choice", "[\"ultramarine\", \"ultra\", \"caf\xC3\xA9\"]", is_colour},
    {"gbnf", "root ::= s \".\"\ns ::= (\"(\" s \")\" s)?", is_nested},
};
enum { N_CASES = sizeof CASES / sizeof *CASES };

// ---- answers ----

struct answer {
    char text[MAX_ANSWER];
    size_t len;
    char finish[8];
};

struct job { // a request and what came of it
    limpid_request *request;
    const struct grammar_case *grammar;
    struct answer answers[N_CHOICES];
    int32_t n;
};

static void add_text(struct answer *answer, const limpid_event *event) {
    if (answer->len + event->text_len >= MAX_ANSWER) stop_with("too much text", answer->text);
    memcpy(answer->text + answer->len, event->text, event->text_len);
    answer->len += event->text_len;
}

static void check_logprobs(const limpid_event *event) {
    if (event->kind != LIMPID_EVENT_TOKEN || !event->has_logprob) return;
    bool finite = isfinite(event->logprob);
    for (int32_t i = 0; i < event->n_top; i++) finite = finite && isfinite(event->top_logprobs[i]);
    if (!finite) stop_with("a log-probability is not finite", "");
}

static void finish(struct job *job) {
    limpid_error err;
    limpid_event event = {.kind = LIMPID_EVENT_NONE};
    while (!event.last) {
        if (limpid_request_next(job->request, &event, &err))
            stop_with(job->grammar ? job->grammar->kind : "free", err.text);
        struct answer *answer = &job->answers[event.choice];
        add_text(answer, &event);
        check_logprobs(&event);
        if (event.kind == LIMPID_EVENT_DONE)
            snprintf(answer->finish, sizeof answer->finish, "%s", event.finish_reason);
    }
    limpid_request_free(job->request);
}

static const int32_t *prompt_ids(limpid_model *model, const char *text, size_t *n) {
    limpid_error err;
    int32_t *ids;
    if (limpid_tokenize(model, text, strlen(text), LIMPID_SPECIAL, &ids, n, &err))
        stop_with("tokenize", err.text);
    return ids;
}

static void submit(struct job *job, limpid_engine *engine, const limpid_request_options *options) {
    limpid_error err;
    job->n = options->n;
    if (limpid_request_new(&job->request, engine, options, &err))
        stop_with("a request is refused", err.text);
}

static limpid_request_options options_of(const struct grammar_case *g, const int32_t *ids,
                                         size_t n_ids) {
    limpid_request_options o = limpid_request_default_options();
    o.tokens = ids;
    o.n_tokens = n_ids;
    o.max_tokens = 120;
    if (!g) return o;
    o.grammar_kind = g->kind;
    o.grammar = g->source;
    o.grammar_len = strlen(g->source);
    return o;
}

static void check(const struct job *job, int *n_whole) {
    for (int32_t i = 0; i < job->n; i++) {
        const struct answer *a = &job->answers[i];
        if (strcmp(a->finish, "stop") != 0) continue; // cut by max_tokens
        ++*n_whole;
        if (!job->grammar->is_right(a->text)) stop_with(job->grammar->kind, a->text);
    }
}

// ---- the same requests on several engines ----

// All cases at once, greedy and hot, three choices each.
static void run_all(limpid_model *model, limpid_engine *engine, uint64_t seed, struct job *jobs) {
    static const char *const prompts[] = {"[gMASK]<sop><|user|>706 + 31<|assistant|></think>",
                                          "The capital of"};
    for (int i = 0; i < 2 * N_CASES; i++) {
        size_t n_ids;
        const int32_t *ids = prompt_ids(model, prompts[seed % 2], &n_ids);
        limpid_request_options o = options_of(&CASES[i % N_CASES], ids, n_ids);
        o.n = N_CHOICES;
        o.seed = seed;
        o.temperature = i < N_CASES ? 0 : 1.5f;
        o.n_logprobs = i % 3 - 1;
        o.min_tokens = i % 4 == 3 ? 20 : 0;
        jobs[i] = (struct job){.grammar = &CASES[i % N_CASES]};
        submit(&jobs[i], engine, &o);
        limpid_free((void *)ids);
    }
    for (int i = 0; i < 2 * N_CASES; i++) finish(&jobs[i]);
}

static limpid_engine *engine_of(limpid_model *model, int64_t n_kv_tokens, int32_t speculate) {
    limpid_error err;
    limpid_engine *engine;
    limpid_engine_options o = limpid_engine_default_options();
    o.n_context = 512;
    o.n_kv_tokens = n_kv_tokens;
    o.speculate = speculate;
    o.deterministic = true;
    if (limpid_engine_new(&engine, model, &o, &err)) stop_with("engine", err.text);
    return engine;
}

static void close_engine(limpid_engine *engine) {
    limpid_error err;
    if (limpid_engine_free(engine, &err)) stop_with("engine", err.text);
}

static void compare(const struct job *a, const struct job *b, const char *what) {
    for (int i = 0; i < 2 * N_CASES; i++)
        for (int32_t j = 0; j < a[i].n; j++)
            if (strcmp(a[i].answers[j].text, b[i].answers[j].text) ||
                strcmp(a[i].answers[j].finish, b[i].answers[j].finish)) {
                fprintf(stderr, "%s\n%s\n", a[i].answers[j].text, b[i].answers[j].text);
                stop_with(what, a[i].grammar->kind);
            }
}

static void check_schedules(limpid_model *model, uint64_t n_seeds) {
    static struct job plain[2 * N_CASES], again[2 * N_CASES];
    bool has_drafts = limpid_model_get_info(model).n_draft_layers > 0;
    limpid_engine *first = engine_of(model, 8192, 0), *few_pages = engine_of(model, 1024, 0);
    limpid_engine *drafting = has_drafts ? engine_of(model, 8192, 3) : NULL;
    int n_whole = 0, n_all = 0;
    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        run_all(model, first, seed, plain);
        for (int i = 0; i < 2 * N_CASES; i++, n_all += N_CHOICES) check(&plain[i], &n_whole);
        run_all(model, few_pages, seed, again);
        compare(plain, again, "other text with few pages");
        if (!drafting) continue;
        run_all(model, drafting, seed, again);
        compare(plain, again, "other text with drafts");
    }
    limpid_engine_stats few = limpid_engine_get_stats(few_pages);
    limpid_engine_stats drafts = drafting ? limpid_engine_get_stats(drafting) : few;
    printf("%d of %d answers whole; %llu pre-emptions; %llu of %llu drafts taken\n", n_whole, n_all,
           (unsigned long long)few.preemptions, (unsigned long long)drafts.accepted_tokens,
           (unsigned long long)drafts.draft_tokens);
    if (few.preemptions == 0) stop_with("nothing was pre-empted", "give it fewer pages");
    if (drafting && drafts.draft_tokens == 0) stop_with("nothing was drafted", "");
    if (2 * n_whole < n_all) stop_with("too few answers came to an end", "");
    close_engine(first);
    close_engine(few_pages);
    if (drafting) close_engine(drafting);
}

// ---- single requests ----

static struct job run_one(limpid_model *model, limpid_engine *engine, const char *prompt,
                          limpid_request_options o, const struct grammar_case *grammar) {
    struct job job = {.grammar = grammar};
    size_t n_ids;
    const int32_t *ids = prompt_ids(model, prompt, &n_ids);
    o.tokens = ids;
    o.n_tokens = n_ids;
    submit(&job, engine, &o);
    limpid_free((void *)ids);
    finish(&job);
    return job;
}

// The reasoning is free, what comes behind it is not; and no end comes before.
static void check_marker(limpid_model *model, limpid_engine *engine) {
    static const struct grammar_case sum = {"regex", "sum: [0-9]{1,6}", NULL};
    limpid_request_options o = options_of(&sum, NULL, 0);
    o.temperature = 0;
    o.skip_special = false;
    o.grammar_after = limpid_token_find(model, "</think>", 8);
    struct job job =
        run_one(model, engine, "[gMASK]<sop><|user|>719+594<|assistant|><think>", o, &sum);
    const char *behind = strstr(job.answers[0].text, "</think>");
    if (!behind || strncmp(behind, "</think>sum: ", 13) || strspn(behind + 13, "0123456789") < 1)
        stop_with("grammar_after", job.answers[0].text);
}

// Without end tokens a choice ends where nothing more may come; a stop text cuts as ever.
static void check_ends(limpid_model *model, limpid_engine *engine) {
    const struct grammar_case *plate = &CASES[2];
    limpid_request_options o = options_of(plate, NULL, 0);
    o.ignore_eos = true;
    struct job job = run_one(model, engine, "A", o, plate);
    if (strcmp(job.answers[0].finish, "stop") || !is_plate(job.answers[0].text))
        stop_with("ignore_eos", job.answers[0].text);
    const char *stop = "-";
    o.stop = &stop;
    o.n_stop = 1;
    job = run_one(model, engine, "A", o, plate);
    if (strcmp(job.answers[0].finish, "stop") ||
        strspn(job.answers[0].text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != job.answers[0].len)
        stop_with("a stop text", job.answers[0].text);
    static const struct grammar_case empty = {"choice", "[\"\"]", NULL};
    o = options_of(&empty, NULL, 0);
    for (int i = 0; i < 2; i++, o.ignore_eos = true, o.n_stop = 0) {
        job = run_one(model, engine, "A", o, &empty);
        if (job.answers[0].len || strcmp(job.answers[0].finish, "stop"))
            stop_with("an empty answer", "");
    }
}

static void refuse(limpid_engine *engine, limpid_request_options o, limpid_status status,
                   const char *part) {
    limpid_error err;
    limpid_request *request;
    int32_t id = 1;
    o.tokens = &id;
    o.n_tokens = 1;
    if (limpid_request_new(&request, engine, &o, &err) != status || !strstr(err.text, part))
        stop_with("not refused as it should be", err.text);
}

static void check_refusals(limpid_engine *engine) {
    limpid_request_options o = limpid_request_default_options();
    o.grammar_kind = "yaml";
    refuse(engine, o, LIMPID_INVALID, "'yaml'");
    o.grammar_kind = "gbnf";
    o.grammar = "root ::= root \"a\"";
    o.grammar_len = strlen(o.grammar);
    refuse(engine, o, LIMPID_INVALID, "left-recursive");
    o.grammar = "root ::= <think>";
    o.grammar_len = strlen(o.grammar);
    refuse(engine, o, LIMPID_UNSUPPORTED, "tokens");
    o.grammar = "root ::= \"a\"{100000}";
    o.grammar_len = strlen(o.grammar);
    refuse(engine, o, LIMPID_INVALID, "100000");
    o.grammar = "root ::= \"a\"";
    o.grammar_len = strlen(o.grammar);
    o.grammar_after = 1 << 30;
    refuse(engine, o, LIMPID_INVALID, "grammar_after");
    o.grammar_after = -1;
    int32_t id = -4;
    o.shown_ids = &id;
    o.n_shown_ids = 1;
    refuse(engine, o, LIMPID_INVALID, "shown_ids");
}

int main(int argc, char **argv) {
    limpid_error err;
    limpid_model *model;
    if (argc != 3) stop_with("usage", "constrained MODEL N_SEEDS");
    if (limpid_model_open(&model, argv[1], NULL, &err)) stop_with("model", err.text);
    limpid_engine *engine = engine_of(model, 0, 0);
    check_refusals(engine);
    check_ends(model, engine);
    check_marker(model, engine);
    close_engine(engine);
    check_schedules(model, strtoull(argv[2], NULL, 10));
    limpid_model_close(model);
    return 0;
}
