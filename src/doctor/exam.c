// The order of the examination, and what the stages share.
#include "doctor/exam.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/workers.h"
#include "engine/follow.h"

#define READ_BYTES_S 1.5e8 // of the weights stage, a thread
#define QUICK_READ_BYTES 4e8
#define QUICK_RUNS_S 25.0
#define FULL_RUNS_S 150.0
#define SMALL_BYTES 1e9

#define LAB_ROWS 128
#define LAB_CONTEXT 1024

void lp_exam_suspect(struct lp_exam *exam, const struct lp_suspect *suspect) {
    if (exam->n_suspects < LP_MAX_SUSPECTS) exam->suspects[exam->n_suspects++] = *suspect;
}

int32_t lp_exam_layer_of(const struct lp_gguf_tensor *tensor) {
    int32_t layer = 0;
    size_t i = 4;
    if (tensor->name.len < 6 || memcmp(tensor->name.data, "blk.", 4) != 0) return -1;
    for (; i < tensor->name.len && tensor->name.data[i] >= '0' && tensor->name.data[i] <= '9';
         i++) {
        layer = layer * 10 + (tensor->name.data[i] - '0');
        if (layer > LP_MAX_LAYERS) return -1;
    }
    return i > 4 && i < tensor->name.len && tensor->name.data[i] == '.' ? layer : -1;
}

lp_status lp_exam_open_devices(struct lp_exam *exam, struct lp_err *err) {
    const struct lp_doctor_options *o = exam->options;
    const struct lp_backend *fast;
    lp_status status = lp_backend_choose(&fast, o->backend, err);
    if (status) return status;
    struct lp_device_options options = {.n_threads = o->n_threads,
                                        .cpu_level = o->cpu_level ? o->cpu_level : "auto"};
    if (o->ranks) {
        options.number = lp_comm_local_rank(o->ranks->comm);
        options.pin = LP_PIN_NONE; // others may take the same cores
    }
    status = fast->open(&exam->fast, &options, err);
    return status ? status : lp_backend_ref.open(&exam->ref, &options, err);
}

// Both labs, where the file may be run at all. What hinders that has been said by the file stage or
// the weights stage; if not, it is said here.
lp_status lp_exam_open_labs(struct lp_exam *exam, struct lp_err *err) {
    struct lp_err why = {0};
    if (!exam->bound || exam->weights_bad) return LP_OK;
    int64_t context = exam->h.n_context < LAB_CONTEXT ? exam->h.n_context : LAB_CONTEXT;
    lp_status status = lp_lab_new(&exam->fast_lab, exam->gguf, exam->fast, exam->options->n_threads,
                                  context, LAB_ROWS, LP_TYPE_F32, &why);
    if (!status)
        status = lp_lab_new(&exam->ref_lab, exam->gguf, exam->ref, exam->options->n_threads,
                            context, LAB_ROWS, LP_TYPE_F32, &why);
    if (!status) return LP_OK;
    if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
    if (!lp_report_explained(exam->report, LP_STAGE_OUTPUT))
        lp_report_fault(exam->report, LP_STAGE_WEIGHTS, "model loads", -1, "load", "%s", why.text);
    lp_report_check(exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_WEIGHTS,
                                            .outcome = LP_CHECK_FAULT,
                                            .name = "model loads",
                                            .figure = "no",
                                            .bound = "yes",
                                            .value = NAN,
                                            .limit = NAN},
                    "%s", why.text);
    return LP_OK;
}

// What the whole examination may take: reading the weights, and what the stages that run the model
// allow themselves (their budgets in check_*.c), less where the model is small.
static double expected_s(const struct lp_exam *exam) {
    const struct lp_doctor_options *o = exam->options;
    double bytes = (double)lp_gguf_file_bytes(exam->gguf), threads = o->n_threads;
    if (threads < 1) threads = lp_cpu_count();
    double read = o->quick && bytes > QUICK_READ_BYTES ? QUICK_READ_BYTES : bytes;
    double runs = exam->bound ? (o->quick ? QUICK_RUNS_S : FULL_RUNS_S) : 0;
    double small = bytes / SMALL_BYTES; // of a file of a few megabytes most stages end early
    return read / (READ_BYTES_S * threads) + runs * (small < 1 ? 0.3 + 0.7 * small : 1);
}

typedef lp_status (*stage_fn)(struct lp_exam *, struct lp_err *);

static const struct {
    enum lp_stage stage;
    stage_fn run;
} stages[] = {
    {LP_STAGE_FILE, lp_check_file},        {LP_STAGE_WEIGHTS, lp_check_weights},
    {LP_STAGE_WEIGHTS, lp_exam_open_labs}, {LP_STAGE_KERNELS, lp_check_kernels},
    {LP_STAGE_TOKENS, lp_check_tokens},    {LP_STAGE_LAYERS, lp_check_layers},
    {LP_STAGE_ROUTES, lp_check_routes},    {LP_STAGE_CACHE, lp_check_cache},
    {LP_STAGE_RANKS, lp_check_ranks},      {LP_STAGE_SPARSE, lp_check_sparse},
    {LP_STAGE_OUTPUT, lp_check_output},    {LP_STAGE_AGAINST, lp_check_against},
};

static lp_status examine(struct lp_exam *exam, struct lp_err *err) {
    lp_status status = lp_exam_open_devices(exam, err);
    for (size_t i = 0; i < sizeof stages / sizeof stages[0] && !status; i++) {
        if (stages[i].stage == LP_STAGE_AGAINST && !exam->options->against) continue;
        if (stages[i].stage == LP_STAGE_RANKS && !exam->options->ranks) continue;
        if (i > 0 && !exam->gguf) break; // nothing that could be read
        if (exam->options->n_stages && (int)stages[i].stage >= exam->options->n_stages) continue;
        status = stages[i].run(exam, err);
        if (stages[i].stage == LP_STAGE_RANKS && lp_comm_failed(exam->options->ranks->comm, NULL))
            break; // the process ends soon: what is known is to be reported now
        if (stages[i].stage == LP_STAGE_OUTPUT && !status) lp_sparse_accuse(exam);
        if (stages[i].stage != LP_STAGE_FILE || status || !exam->gguf) continue;
        if (exam->options->on_stage)
            exam->options->on_stage(exam->options->user, LP_N_STAGES, expected_s(exam));
    }
    return status;
}

void lp_exam_free(struct lp_exam *exam) {
    lp_lab_free(exam->fast_lab);
    lp_lab_free(exam->ref_lab);
    lp_tokenizer_free(exam->tokenizer);
    if (exam->fast) exam->fast->backend->close(exam->fast);
    if (exam->ref) exam->ref->backend->close(exam->ref);
    lp_model_file_close(&exam->file);
    lp_free(exam);
}

lp_status lp_doctor_run(struct lp_report **out, const struct lp_doctor_options *options,
                        struct lp_err *err) {
    struct stat info;
    if (stat(options->path, &info))
        return lp_err_set(err, LP_STATUS_IO, "cannot open %s: %s", options->path, strerror(errno));
    uint64_t start = lp_clock_ns();
    struct lp_exam *exam = lp_alloc(1, sizeof *exam);
    struct lp_report *report = lp_report_new(options->path, options->quick);
    if (!exam || !report) {
        lp_free(exam);
        lp_report_free(report);
        return lp_err_memory(err, sizeof *exam, "the examination");
    }
    exam->options = options;
    exam->report = report;
    report->on_check = options->on_check;
    report->user = options->user;
    report->n_stages = options->n_stages;
    lp_status status = examine(exam, err);
    if (!status) status = lp_report_close(report, err);
    report->seconds = (double)(lp_clock_ns() - start) * 1e-9;
    lp_exam_free(exam);
    if (status)
        lp_report_free(report);
    else
        *out = report;
    return status;
}
