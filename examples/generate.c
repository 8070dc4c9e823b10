// Text behind a prompt, printed as it comes: a model, an engine, one request.
//
//     cc generate.c -o generate $(pkg-config --cflags --libs limpid)
//     ./generate MODEL.gguf "The capital of France is" [MAX_TOKENS]
#include <limpid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Events until the last one. Neither a thread nor we make steps: limpid_request_next does.
static limpid_status print_events(limpid_request *request, limpid_error *err) {
    limpid_event event;
    limpid_status status;
    do {
        status = limpid_request_next(request, &event, err);
        if (status) return status;
        fwrite(event.text, 1, event.text_len,
               stdout); // whole characters; of DONE what was held back
        fflush(stdout);
    } while (event.kind != LIMPID_EVENT_DONE);
    fprintf(stderr, "\n%lld + %lld tokens, %s\n", (long long)event.n_prompt,
            (long long)event.n_generated, event.finish_reason);
    return LIMPID_OK;
}

static limpid_status generate(limpid_engine *engine, const int32_t *ids, size_t n_ids,
                              int64_t max_tokens, limpid_error *err) {
    limpid_request *request;
    limpid_request_options options = limpid_request_default_options();
    options.tokens = ids; // copied by limpid_request_new
    options.n_tokens = n_ids;
    options.max_tokens = max_tokens;
    options.temperature = 0; // always the most probable token
    limpid_status status = limpid_request_new(&request, engine, &options, err);
    if (status) return status;
    status = print_events(request, err);
    limpid_request_free(request);
    return status;
}

int main(int argc, char **argv) {
    limpid_error err = {0};
    limpid_model *model = NULL;
    limpid_engine *engine = NULL;
    int32_t *ids = NULL;
    size_t n_ids;
    if (argc < 3) {
        fprintf(stderr, "usage: generate MODEL.gguf TEXT [MAX_TOKENS]\n");
        return 2;
    }
    limpid_status status = limpid_model_open(&model, argv[1], NULL, &err);
    if (!status) status = limpid_engine_new(&engine, model, NULL, &err);
    if (!status)
        status = limpid_tokenize(model, argv[2], strlen(argv[2]), LIMPID_SPECIAL | LIMPID_BOS, &ids,
                                 &n_ids, &err);
    if (!status) status = generate(engine, ids, n_ids, argc > 3 ? atoll(argv[3]) : 16, &err);
    if (status) fprintf(stderr, "generate: error: %s\n", err.text);
    limpid_free(ids);
    limpid_engine_free(engine, NULL); // the model after its engines
    limpid_model_close(model);
    return status ? 1 : 0;
}
