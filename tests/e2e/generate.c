// Many greedy texts from one load of a model, for the tests: reads JSON lines
// {"prompt": TEXT, "max_new": N} and writes JSON lines {"text": TEXT, "n_prompt": N}, through limpid.h
// alone. Control tokens in a prompt are parsed, nothing is added to it, and shown ones stay in the text.
//
//     generate MODEL [kv=f32] [route=dense] [chunk=64] [backend=ref] [threads=1] < requests.jsonl
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "limpid.h"

static int fail(const char *what) {
    fprintf(stderr, "generate: error: %s\n", what);
    return 1;
}

static int generate(limpid_engine *engine, const int32_t *ids, size_t n_ids, int64_t max_new) {
    limpid_error err;
    limpid_request *request;
    limpid_request_options options = limpid_request_default_options();
    options.tokens = ids;
    options.n_tokens = n_ids;
    options.max_tokens = max_new;
    options.temperature = 0;
    options.skip_special = false;
    if (limpid_request_new(&request, engine, &options, &err)) return fail(err.text);
    json_t *text = json_string("");
    limpid_event event = {.kind = LIMPID_EVENT_TOKEN};
    int status = 0;
    while (status == 0 && event.kind != LIMPID_EVENT_DONE) {
        if (limpid_request_next(request, &event, &err))
            status = fail(err.text);
        else if (event.text_len) {
            json_t *more = json_pack("s+%", json_string_value(text), event.text, event.text_len);
            json_decref(text);
            text = more;
            if (!text) status = fail("the text is not UTF-8");
        }
    }
    if (status == 0) {
        json_t *line = json_pack("{s:O, s:I}", "text", text, "n_prompt", (json_int_t)n_ids);
        if (!line || json_dumpf(line, stdout, JSON_COMPACT) || putchar('\n') == EOF ||
            fflush(stdout))
            status = fail("cannot write");
        json_decref(line);
    }
    json_decref(text);
    limpid_request_free(request);
    return status;
}

static int answer(limpid_model *model, limpid_engine *engine, const char *line) {
    limpid_error err;
    json_error_t where;
    const char *prompt;
    size_t prompt_bytes, n_ids;
    json_int_t max_new;
    int32_t *ids;
    json_t *request = json_loads(line, 0, &where);
    if (!request || json_unpack_ex(request, &where, 0, "{s:s%, s:I}", "prompt", &prompt,
                                   &prompt_bytes, "max_new", &max_new)) {
        json_decref(request);
        return fail(where.text);
    }
    int status = limpid_tokenize(model, prompt, prompt_bytes, LIMPID_SPECIAL, &ids, &n_ids, &err)
                     ? fail(err.text)
                     : 0;
    if (status == 0) {
        status = generate(engine, ids, n_ids, max_new);
        limpid_free(ids);
    }
    json_decref(request);
    return status;
}

// One NAME=VALUE argument.
static bool set_option(const char *text, limpid_model_options *model,
                       limpid_engine_options *engine) {
    const char *value = strchr(text, '=');
    if (!value) return false;
    size_t n = (size_t)(value++ - text);
    if (n == 2 && !strncmp(text, "kv", n))
        engine->kv_type = value;
    else if (n == 5 && !strncmp(text, "route", n))
        engine->route = value;
    else if (n == 5 && !strncmp(text, "chunk", n))
        engine->chunk = atoll(value);
    else if (n == 7 && !strncmp(text, "backend", n))
        model->backend = value;
    else if (n == 7 && !strncmp(text, "threads", n))
        model->n_threads = atoi(value);
    else
        return false;
    return true;
}

int main(int argc, char **argv) {
    limpid_error err;
    limpid_model *model;
    limpid_engine *engine;
    limpid_model_options model_options = limpid_model_default_options();
    limpid_engine_options engine_options = limpid_engine_default_options();
    if (argc < 2) return fail("usage: generate MODEL [NAME=VALUE]... < requests.jsonl");
    for (int i = 2; i < argc; i++)
        if (!set_option(argv[i], &model_options, &engine_options)) return fail(argv[i]);
    if (limpid_model_open(&model, argv[1], &model_options, &err)) return fail(err.text);
    if (limpid_engine_new(&engine, model, &engine_options, &err)) {
        limpid_model_close(model);
        return fail(err.text);
    }
    char *line = NULL;
    size_t room = 0;
    int status = 0;
    while (status == 0 && getline(&line, &room, stdin) >= 0) status = answer(model, engine, line);
    free(line);
    if (limpid_engine_free(engine, &err) && status == 0) status = fail(err.text);
    limpid_model_close(model);
    return status;
}
