// The golden outputs are dumps of another engine (transformers): on the right model they agree, and
// a weight that is changed is named by layer and operation.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lp_test.h"

#include "doctor/against.h"
#include "doctor/exam.h"
#include "model/probe_shape.h"

#define GOLDEN "tests/golden/"

struct fixture {
    struct lp_exam exam;
    struct lp_doctor_options options;
};

static void open_exam(struct fixture *f, const char *model, const char *dump) {
    struct lp_err err;
    char path[256];
    memset(f, 0, sizeof *f);
    snprintf(path, sizeof path, GOLDEN "%s.gguf", model);
    struct lp_device_options options = {.n_threads = 2, .cpu_level = "auto"};
    f->options.against = dump;
    f->exam.options = &f->options;
    f->exam.report = lp_report_new(path, false);
    assert_non_null(f->exam.report);
    assert_int_equal(lp_model_file_open(&f->exam.file, path, 1, &err), LP_OK);
    f->exam.gguf = f->exam.file.gguf;
    assert_int_equal(lp_hparams_read(&f->exam.h, f->exam.gguf, &err), LP_OK);
    assert_int_equal(lp_backend_cpu.open(&f->exam.fast, &options, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&f->exam.ref, &options, &err), LP_OK);
    assert_int_equal(
        lp_lab_new(&f->exam.fast_lab, f->exam.gguf, f->exam.fast, 2, 256, 32, LP_TYPE_F32, &err),
        LP_OK);
    assert_int_equal(
        lp_lab_new(&f->exam.ref_lab, f->exam.gguf, f->exam.ref, 2, 256, 32, LP_TYPE_F32, &err),
        LP_OK);
}

static void close_exam(struct fixture *f) {
    lp_lab_free(f->exam.fast_lab);
    lp_lab_free(f->exam.ref_lab);
    f->exam.fast->backend->close(f->exam.fast);
    f->exam.ref->backend->close(f->exam.ref);
    lp_model_file_close(&f->exam.file);
    lp_report_free(f->exam.report);
}

static void check(struct fixture *f) {
    struct lp_err err;
    assert_int_equal(lp_check_against(&f->exam, &err), LP_OK);
    assert_int_equal(lp_report_close(f->exam.report, &err), LP_OK);
}

static const struct lp_check *find_check(const struct fixture *f, const char *name) {
    for (size_t i = 0; i < f->exam.report->n_checks; i++)
        if (strcmp(f->exam.report->checks[i].name, name) == 0) return &f->exam.report->checks[i];
    return NULL;
}

static void goldens_agree(void **state) {
    (void)state;
    const char *models[] = {"dsa_dense", "dsa_sparse", "dsa_shared", "dsa_full_dims",
                            "ds3",       "ds32",       "ds2_lite",   "glm47_flash",
                            "glm45",     "llama",      "qwen2",      "qwen3"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct fixture f;
        char dump[256];
        snprintf(dump, sizeof dump, GOLDEN "%s.safetensors", models[i]);
        open_exam(&f, models[i], dump);
        check(&f);
        for (size_t k = 0; k < f.exam.report->n_faults; k++)
            print_message("%s: %s\n", models[i], f.exam.report->faults[k].advice);
        assert_true(lp_report_healthy(f.exam.report));
        const struct lp_check *stream = find_check(&f, "residual stream");
        assert_non_null(stream);
        assert_true(stream->value < 1e-4);
        assert_non_null(find_check(&f, "logits"));
        assert_int_equal(f.exam.report->n_series, 1);
        assert_int_equal((int)f.exam.report->series[0].n, f.exam.h.n_layers + 1);
        close_exam(&f);
    }
}

// Changes the weights of both labs alike, as a wrong file would, or of the fast one alone, as a
// wrong kernel would.
typedef void (*spoil_fn)(struct lp_layer *layers);

static void expect_fault(const char *model, const char *dump, spoil_fn spoil, bool both,
                         int32_t layer, const char *what, const char *words) {
    struct fixture f;
    open_exam(&f, model, dump);
    spoil(lp_lab_model(f.exam.fast_lab)->layers);
    if (both) spoil(lp_lab_model(f.exam.ref_lab)->layers);
    check(&f);
    assert_int_equal((int)f.exam.report->n_faults, 1);
    const struct lp_fault *fault = &f.exam.report->faults[0];
    if (fault->layer != layer || strcmp(fault->what, what) != 0 || !strstr(fault->advice, words))
        print_message("layer %d, %s: %s\n", fault->layer, fault->what, fault->advice);
    assert_int_equal(fault->layer, layer);
    assert_string_equal(fault->what, what);
    assert_non_null(strstr(fault->advice, words));
    close_exam(&f);
}

static void nothing(struct lp_layer *layers) {
    (void)layers;
}
static void swap_output(struct lp_layer *layers) {
    layers[2].attn_output = layers[3].attn_output;
}
static void swap_down(struct lp_layer *layers) {
    layers[1].experts.down = layers[2].experts.down;
}
static void swap_q(struct lp_layer *layers) {
    layers[3].mla.q_b = layers[2].mla.q_b;
}
static void swap_router(struct lp_layer *layers) {
    layers[2].router = layers[3].router;
}
static void wrong_scale(struct lp_layer *layers) {
    layers[4].mla.scale *= 1.5f;
}
static void no_bias(struct lp_layer *layers) {
    layers[3].router_bias = NULL;
}
static void other_pairs(struct lp_layer *layers) {
    layers[1].mla.rope.pairing = LP_ROPE_HALF;
}

static void a_changed_weight_is_named_by_layer(void **state) {
    (void)state;
    const char *dump = GOLDEN "dsa_sparse.safetensors";
    expect_fault("dsa_sparse", dump, swap_output, true, 2, "layer.out", "not a kernel");
    expect_fault("dsa_sparse", dump, swap_output, false, 2, "layer.out", "a kernel of the fast");
    expect_fault("dsa_sparse", dump, swap_down, true, 1, "layer.out", "hidden.2");
    expect_fault("dsa_sparse", dump, swap_q, true, 3, "layer.out", "hidden.4");
    expect_fault("dsa_sparse", dump, swap_router, true, 2, "layer.out", "hidden.3");
    expect_fault("dsa_sparse", dump, wrong_scale, true, 4, "layer.out", "hidden.5");
    expect_fault("dsa_sparse", dump, no_bias, true, 3, "layer.out", "hidden.4");
    expect_fault("dsa_sparse", dump, other_pairs, true, 1, "layer.out", "hidden.2");
}

// ---- dumps of our own, with probes ----

struct dumper { // writes what a healthy model computes as a folder of .npy
    char folder[64];
    struct lp_device *dev;
    const struct lp_hparams *h;
    bool halves; // attn.q_rope with its pairs as halves
    int64_t
        wrong_from; // residual streams of layers 2 and on are wrong from this position on; 0: right
};

static void write_npy(const char *folder, const char *name, const char *descr, const int64_t *dims,
                      int n_dims, const void *values, size_t n_bytes) {
    char path[256], header[192];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     descr);
    for (int i = 0; i < n_dims; i++)
        n += snprintf(header + n, sizeof header - (size_t)n, "%lld, ", (long long)dims[i]);
    n += snprintf(header + n, sizeof header - (size_t)n, "), }\n");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    unsigned char magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n, 0};
    assert_int_equal(fwrite(magic, 1, sizeof magic, file), sizeof magic);
    assert_int_equal(fwrite(header, 1, (size_t)n, file), (size_t)n);
    assert_int_equal(fwrite(values, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

static bool wants(void *user, enum lp_probe_point point, int32_t layer, int64_t first, int64_t n) {
    (void)user, (void)layer, (void)first, (void)n;
    int64_t dims[2];
    int32_t n_dims = lp_probe_dims(((struct dumper *)user)->h, point, layer < 0 ? 0 : layer, dims);
    return dims[n_dims - 1] != LP_PROBE_N_KEYS && point != LP_PROBE_ATTN_K &&
           point != LP_PROBE_ATTN_V;
}

// Pair i from (2i, 2i + 1) to (i, i + width / 2), in each of n rows.
static void to_halves(uint32_t *x, int64_t n, int64_t width) {
    uint32_t *old = malloc((size_t)width * sizeof *old);
    for (int64_t r = 0; r < n; r++, x += width) {
        memcpy(old, x, (size_t)width * sizeof *old);
        for (int64_t i = 0; i < width / 2; i++) {
            x[i] = old[2 * i];
            x[i + width / 2] = old[2 * i + 1];
        }
    }
    free(old);
}

static void take(void *user, const struct lp_probe_value *v) {
    struct dumper *d = user;
    char name[96];
    int64_t row = lp_probe_row_values(v), dims[2] = {v->n_rows, row};
    uint32_t *values = malloc((size_t)(v->n_rows * row) * 4);
    assert_true(lp_probe_read(d->dev, v, 0, v->n_rows, values));
    if (d->halves && v->point == LP_PROBE_ATTN_Q_ROPE)
        to_halves(values, v->n_rows * v->dims[0], v->dims[1]);
    if (d->wrong_from && v->point == LP_PROBE_LAYER_OUT && v->layer >= 2)
        for (int64_t i = d->wrong_from * row; i < v->n_rows * row; i++) values[i] ^= 0x80000000u;
    if (v->layer < 0)
        snprintf(name, sizeof name, "%s", lp_probe_name(v->point));
    else
        snprintf(name, sizeof name, "layer%d.%s", v->layer, lp_probe_name(v->point));
    if (v->point == LP_PROBE_EMBED) snprintf(name, sizeof name, "hidden.0");
    if (v->point == LP_PROBE_LAYER_OUT) snprintf(name, sizeof name, "hidden.%d", v->layer + 1);
    if (v->point == LP_PROBE_LAYER_OUT && v->layer == d->h->n_layers - 1) { // as transformers does
        free(values);
        return;
    }
    if (v->point == LP_PROBE_FINAL_NORM) snprintf(name, sizeof name, "hidden.%d", d->h->n_layers);
    write_npy(d->folder, name, v->is_int ? "<i4" : "<f4", dims, 2, values,
              (size_t)(v->n_rows * row) * 4);
    free(values);
}

#define N_TOKENS 24

static void write_dump(struct dumper *d, const char *model) {
    struct fixture f;
    struct lp_err err;
    struct lp_page_table table = {0};
    int32_t tokens[N_TOKENS], rows[N_TOKENS];
    int64_t n_tokens = N_TOKENS;
    bool bad[N_TOKENS];
    open_exam(&f, model, NULL);
    snprintf(d->folder, sizeof d->folder, "/tmp/limpid-against-XXXXXX");
    assert_non_null(mkdtemp(d->folder));
    for (int32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = (i * 37 + 11) % 300;
        rows[i] = i;
    }
    write_npy(d->folder, "tokens", "<i4", &n_tokens, 1, tokens, sizeof tokens);
    d->dev = f.exam.ref;
    d->h = &f.exam.h;
    struct lp_probe probe = {.wants = wants, .take = take, .user = d};
    assert_int_equal(lp_page_table_grow(&table, lp_lab_kv(f.exam.ref_lab), N_TOKENS, &err), LP_OK);
    struct lp_span span = {.pages = &table, .n_rows = N_TOKENS};
    float *logits = malloc((size_t)(N_TOKENS * f.exam.h.n_vocab) * sizeof *logits);
    struct lp_step step = {.tokens = tokens,
                           .spans = &span,
                           .n_spans = 1,
                           .n_rows = N_TOKENS,
                           .logit_rows = rows,
                           .n_logit_rows = N_TOKENS,
                           .logits = logits,
                           .bad = bad};
    struct lp_step_settings settings = {.probe = &probe};
    assert_int_equal(lp_runner_step(lp_lab_runner(f.exam.ref_lab), &step, &settings, &err), LP_OK);
    free(logits);
    lp_page_table_release(&table, lp_lab_kv(f.exam.ref_lab));
    close_exam(&f);
}

static void remove_dump(const struct dumper *d) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", d->folder);
    assert_int_equal(system(command), 0);
}

static void probes_name_the_operation(void **state) {
    (void)state;
    struct dumper d = {.folder = ""};
    struct fixture f;
    write_dump(&d, "dsa_sparse");
    open_exam(&f, "dsa_sparse", d.folder);
    check(&f);
    assert_true(lp_report_healthy(f.exam.report));
    assert_non_null(find_check(&f, "last hidden state"));
    close_exam(&f);
    expect_fault("dsa_sparse", d.folder, swap_output, true, 2, "attn.proj", "attn_output.weight");
    expect_fault("dsa_sparse", d.folder, swap_down, true, 1, "ffn.experts_out", "ffn_down_exps");
    expect_fault("dsa_sparse", d.folder, swap_q, true, 3, "attn.q_proj", "attn_q_b.weight");
    expect_fault("dsa_sparse", d.folder, swap_router, true, 2, "ffn.router_logits", "ffn_gate_inp");
    expect_fault("dsa_sparse", d.folder, other_pairs, true, 1, "attn.q",
                 "layer1.attn.kv_proj before it is right");
    expect_fault("dsa_sparse", d.folder, no_bias, true, 3, "ffn.expert_ids", "exp_probs_b.bias");
    remove_dump(&d);
}

static void an_order_of_pairs_is_no_fault(void **state) {
    (void)state;
    struct dumper d = {.halves = true};
    struct fixture f;
    write_dump(&d, "dsa_sparse");
    open_exam(&f, "dsa_sparse", d.folder);
    check(&f);
    assert_true(lp_report_healthy(f.exam.report));
    const struct lp_check *note = find_check(&f, "order of rotary pairs");
    assert_non_null(note);
    assert_int_equal(note->outcome, LP_CHECK_NOTE);
    close_exam(&f);
    remove_dump(&d);
}

static void says_from_which_position_on(void **state) {
    (void)state;
    struct dumper d = {.wrong_from = 19}; // of 24: less than a quarter
    write_dump(&d, "dsa_sparse");
    expect_fault("dsa_sparse", d.folder, nothing, true, 2, "layer.out",
                 "only positions from 19 on");
    remove_dump(&d);
}

static void expect_refusal(const char *model, const char *dump, const char *words) {
    struct fixture f;
    open_exam(&f, model, dump);
    check(&f);
    const struct lp_check *said = find_check(&f, "against");
    assert_non_null(said);
    assert_int_equal(said->outcome, LP_CHECK_SKIPPED);
    if (!strstr(said->text, words)) print_message("%s\n", said->text);
    assert_non_null(strstr(said->text, words));
    assert_true(lp_report_healthy(f.exam.report));
    close_exam(&f);
}

static void another_model_is_told(void **state) {
    (void)state;
    struct dumper d = {.folder = ""};
    expect_refusal("dsa_sparse", GOLDEN "dsa_shared.safetensors", "expected 6 x 96 x 64");
    expect_refusal("llama", GOLDEN "ds3.safetensors", "hidden of the dump has shape");
    write_dump(&d, "dsa_sparse");
    expect_refusal("dsa_dense", d.folder, "of the dump");
    int32_t tokens[N_TOKENS] = {0, 5000};
    int64_t n = N_TOKENS, fewer = N_TOKENS - 1;
    write_npy(d.folder, "tokens", "<i4", &n, 1, tokens, sizeof tokens);
    expect_refusal("dsa_sparse", d.folder, "id 5000");
    write_npy(d.folder, "tokens", "<i4", &fewer, 1, tokens, sizeof tokens - 4);
    tokens[1] = 0;
    write_npy(d.folder, "tokens", "<i4", &fewer, 1, tokens, sizeof tokens - 4);
    expect_refusal("dsa_sparse", d.folder, "tokens has 23 positions");
    float floats[N_TOKENS] = {0};
    write_npy(d.folder, "tokens", "<f4", &n, 1, floats, sizeof floats);
    expect_refusal("dsa_sparse", d.folder, "expected one list of int32");
    remove_dump(&d);
}

static void no_dump_is_an_error(void **state) {
    (void)state;
    struct lp_err err;
    struct fixture f;
    open_exam(&f, "qwen3", "/nowhere/at/all");
    assert_int_equal(lp_check_against(&f.exam, &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    close_exam(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_agree),
        cmocka_unit_test(a_changed_weight_is_named_by_layer),
        cmocka_unit_test(probes_name_the_operation),
        cmocka_unit_test(an_order_of_pairs_is_no_fault),
        cmocka_unit_test(says_from_which_position_on),
        cmocka_unit_test(another_model_is_told),
        cmocka_unit_test(no_dump_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
