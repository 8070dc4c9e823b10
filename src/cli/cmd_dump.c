// limpid dump: runs exactly these tokens and writes what the model computed, as NumPy arrays:
// logits [n_tokens, n_vocab], hidden [n_layers + 1, n_tokens, n_embd] (embeddings, then the
// residual stream after each layer), topk int32 [n_layers, n_tokens, k], k = min(top_k, n_tokens)
// (the keys that each position attended to, ascending, -1 where none); with --probe any named
// intermediate of any layer into a folder (docs/probes.md). The KV cache is float32
// unless --kv says otherwise, so that the arrays show the weights and kernels and not the cache's
// rounding.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "cli/ids.h"
#include "cli/npy.h"
#include "cli/output_file.h"
#include "cli/probe_dir.h"
#include "engine/model_file.h"

struct dump {
    limpid_model_info info;
    int64_t n_tokens, k;
    struct lp_npy logits, hidden, topk;
    int32_t *row;                // [k]
    struct lp_probe_dir *probes; // or NULL
};

// "1,2,3", or @FILE of such text.
static int parse_tokens(const char *text, int32_t **out, int64_t *n_out) {
    char *owned = NULL;
    size_t len, n = 0;
    limpid_error err;
    if (text[0] == '@') {
        if (lp_file_read(text + 1, 1 << 30, &owned, &len, (struct lp_err *)&err))
            return lp_fail(&err);
        if (strlen(owned) != len) {
            lp_free(owned);
            return lp_fail_text("--tokens: the file holds a NUL byte");
        }
        text = owned;
    }
    int status = lp_ids_parse(text, "--tokens", out, &n);
    lp_free(owned);
    if (status == LP_EXIT_OK && n == 0) {
        lp_free(*out);
        *out = NULL;
        status = lp_fail_text("--tokens: the list is empty");
    }
    *n_out = (int64_t)n;
    return status;
}

static void on_logits(void *user, int64_t first, int64_t n, const float *logits) {
    struct dump *d = user;
    lp_npy_put(&d->logits, first * d->info.n_vocab, logits, n * d->info.n_vocab);
}

static void on_hidden(void *user, int32_t layer, int64_t first, int64_t n, const float *hidden) {
    struct dump *d = user;
    lp_npy_put(&d->hidden, ((layer + 1) * d->n_tokens + first) * d->info.n_embd, hidden,
               n * d->info.n_embd);
}

static void on_selected(void *user, int32_t layer, int64_t first, int64_t n, const int32_t *ids,
                        const int32_t *counts, int64_t stride) {
    struct dump *d = user;
    for (int64_t i = 0; i < n; i++) {
        int64_t count = ids ? counts[i] : first + i + 1;
        for (int64_t j = 0; j < d->k; j++)
            d->row[j] = j >= count ? -1 : ids ? ids[i * stride + j] : (int32_t)j;
        lp_npy_put(&d->topk, (layer * d->n_tokens + first + i) * d->k, d->row, d->k);
    }
}

static void on_probed(void *user, size_t i, int64_t first, int64_t n, const void *values) {
    struct dump *d = user;
    lp_probe_dir_put(d->probes, i, first, n, values);
}

static int open_outputs(struct dump *d, const char *logits, const char *hidden, const char *topk) {
    int64_t logits_shape[] = {d->n_tokens, d->info.n_vocab};
    int64_t hidden_shape[] = {d->info.n_layers + 1, d->n_tokens, d->info.n_embd};
    int64_t topk_shape[] = {d->info.n_layers, d->n_tokens, d->k};
    const char *failed = NULL;
    if (logits && !lp_npy_open(&d->logits, logits, "<f4", logits_shape, 2)) failed = logits;
    if (!failed && hidden && !lp_npy_open(&d->hidden, hidden, "<f4", hidden_shape, 3))
        failed = hidden;
    if (!failed && topk && !lp_npy_open(&d->topk, topk, "<i4", topk_shape, 3)) failed = topk;
    if (failed) return lp_fail_text("cannot write %s: %s", failed, strerror(errno));
    d->row = lp_alloc((size_t)d->k + 1, sizeof *d->row);
    if (!d->row) return lp_fail_text("out of memory: %lld selected positions", (long long)d->k);
    for (int64_t j = 0; j < d->k; j++) d->row[j] = -1;
    for (int64_t i = 0; topk && i < d->info.n_layers * d->n_tokens;
         i++) // where nothing is selected
        lp_npy_put(&d->topk, i * d->k, d->row, d->k);
    return LP_EXIT_OK;
}

static int greedy(const limpid_model *model, limpid_sequence *sequence, float *logits, int64_t n) {
    limpid_error err;
    printf("[");
    for (int64_t i = 0; i < n; i++) {
        int32_t id = limpid_argmax(model, logits);
        printf(i ? ", %d" : "%d", id);
        if (i + 1 < n && limpid_sequence_append(sequence, &id, 1, NULL, logits, &err)) {
            printf("\n");
            return lp_fail(&err);
        }
    }
    printf("]\n");
    return LP_EXIT_OK;
}

static int run_tokens(struct dump *d, limpid_model *model, limpid_engine *engine,
                      const int32_t *tokens, int64_t n_greedy) {
    limpid_error err;
    limpid_sequence *sequence = NULL;
    float *last = lp_alloc((size_t)d->info.n_vocab, sizeof *last);
    if (!last) return lp_fail_text("out of memory: logits");
    limpid_watch watch = {.user = d,
                          .logits = d->logits.file ? on_logits : NULL,
                          .hidden = d->hidden.file ? on_hidden : NULL,
                          .selected = d->topk.file ? on_selected : NULL,
                          .probes = d->probes ? lp_probe_dir_probes(d->probes) : NULL,
                          .probed = on_probed};
    int status = LP_EXIT_OK;
    if (limpid_sequence_new(&sequence, engine, &err) ||
        limpid_sequence_append(sequence, tokens, (size_t)d->n_tokens, &watch, last, &err))
        status = lp_fail(&err);
    if (d->probes) { // of a run that failed, all that came before
        int written = lp_probe_dir_close(d->probes, status ? err.text : NULL);
        if (!status) status = written;
    }
    if (status == LP_EXIT_OK && n_greedy > 0) status = greedy(model, sequence, last, n_greedy);
    limpid_sequence_free(sequence);
    lp_free(last);
    return status;
}

struct settings {
    struct lp_common common;
    const char *path, *tokens, *logits, *hidden, *topk, *probe_dir;
    struct lp_texts probes;
    int64_t n_greedy;
};

static int check_settings(const struct settings *s) {
    if (!s->path || !s->tokens) return lp_usage(&lp_cmd_dump, "MODEL and --tokens are needed");
    if (s->n_greedy > INT32_MAX)
        return lp_usage(&lp_cmd_dump, "--greedy is %lld, expected at most %d",
                        (long long)s->n_greedy, INT32_MAX);
    if (s->probes.n && !s->probe_dir)
        return lp_usage(&lp_cmd_dump, "--probe needs --probe-dir, the folder to write into");
    if (s->probe_dir && !s->probes.n)
        return lp_usage(&lp_cmd_dump,
                        "--probe-dir needs --probe, for example --probe layer=0,op=attn.q");
    return LP_EXIT_OK;
}

static int open_probes(struct dump *d, const struct settings *s, const char *found,
                       const limpid_model *model, const int32_t *tokens) {
    if (!s->probes.n) return LP_EXIT_OK;
    return lp_probe_dir_open(&d->probes, model,
                             &(struct lp_probe_dir_options){.folder = s->probe_dir,
                                                            .specs = &s->probes,
                                                            .model_path = found,
                                                            .common = &s->common,
                                                            .tokens = tokens,
                                                            .n_tokens = d->n_tokens});
}

static int close_outputs(struct dump *d, const struct settings *s, int status) {
    const char *broken = lp_npy_close(&d->logits) ? NULL : s->logits;
    if (!lp_npy_close(&d->hidden)) broken = s->hidden;
    if (!lp_npy_close(&d->topk)) broken = s->topk;
    if (!status && broken)
        status = lp_fail_text("%s could not be written whole: %s", broken, strerror(errno));
    return status;
}

static int dump(struct dump *d, struct settings *s, limpid_model *model, const char *found,
                const int32_t *tokens) {
    limpid_engine *engine = NULL;
    limpid_error err;
    d->info = limpid_model_get_info(model);
    d->k = d->info.top_k < d->n_tokens ? d->info.top_k : d->n_tokens;
    if (!s->common.context) s->common.context = d->n_tokens + s->n_greedy;
    int status = lp_common_open_engine(&s->common, model, &engine);
    if (!status) status = open_probes(d, s, found, model, tokens);
    if (!status) {
        status = open_outputs(d, s->logits, s->hidden, s->topk);
        if (!status) status = run_tokens(d, model, engine, tokens, s->n_greedy);
        status = close_outputs(d, s, status);
    }
    if (limpid_engine_free(engine, &err) && !status) status = lp_fail(&err);
    lp_probe_dir_free(d->probes);
    return status;
}

#define N_OPTIONS 7

// Outputs that are the model itself would destroy it.
static int check_outputs(const struct settings *s, const char *model) {
    const char *const paths[] = {s->logits, s->hidden, s->topk};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i] && lp_model_file_holds(model, paths[i]))
            return lp_usage(&lp_cmd_dump, "'%s' is the model, and would be written over", paths[i]);
    return LP_EXIT_OK;
}

static int run(int argc, char **argv) {
    struct settings s = {.path = NULL};
    struct lp_option options[LP_N_COMMON + N_OPTIONS] = {
        {"--tokens", LP_OPT_TEXT, &s.tokens, "LIST", "token ids: 1,2,3 or @FILE"},
        {"--logits", LP_OPT_TEXT, &s.logits, "F.npy", "write logits [n_tokens, n_vocab]"},
        {"--hidden", LP_OPT_TEXT, &s.hidden, "F.npy",
         "write hidden states [n_layers + 1, n_tokens, n_embd]"},
        {"--topk", LP_OPT_TEXT, &s.topk, "F.npy",
         "write the indexer's selection [n_layers, n_tokens, k]"},
        {"--probe", LP_OPT_TEXTS, &s.probes, "SPEC",
         "look at an intermediate: layer=3,op=attn.scores,first=2; may be repeated; "
         "limpid probe list names them"},
        {"--probe-dir", LP_OPT_TEXT, &s.probe_dir, "DIR",
         "where to write them: layer3.attn.scores.npy ..., index.json"},
        {"--greedy", LP_OPT_INT, &s.n_greedy, "N", "print N further token ids as a JSON array"},
    };
    lp_common_options(&s.common, options + N_OPTIONS);
    s.common.kv = "f32";
    int status =
        lp_args_parse(argc, argv, &lp_cmd_dump, options, LP_N_COMMON + N_OPTIONS, &s.path, 1);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    struct dump d = {0};
    int32_t *tokens = NULL;
    char *found = NULL;
    limpid_model *model = NULL;
    status = check_settings(&s);
    if (!status) status = parse_tokens(s.tokens, &tokens, &d.n_tokens);
    if (!status) status = lp_find_model(&found, s.path, &lp_cmd_dump);
    if (!status) status = check_outputs(&s, found);
    if (!status) status = lp_common_open_model(&s.common, found, &model);
    if (!status) status = dump(&d, &s, model, found, tokens);
    limpid_model_close(model);
    lp_free(found);
    lp_free(d.row);
    lp_free(tokens);
    return status;
}

const struct lp_command lp_cmd_dump = {
    "dump",
    "MODEL --tokens LIST [--logits F.npy] [--hidden F.npy] [--topk F.npy] [--greedy N] "
    "[--probe SPEC ... --probe-dir DIR]",
    "runs exactly these tokens and writes what the model computed", run};
