// For the tests of the doctor's weights stage: a copy of the mini model in memory whose tensors may
// be changed, and an examination of it. Values go through the format's definition (Q8_0 and F32).
#ifndef LP_TEST_WEIGHT_CASE_H
#define LP_TEST_WEIGHT_CASE_H

#include "lp_test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "doctor/exam.h"

#define CASE_MINI "models/mini-glm-dsa.gguf"

static char *case_image;
static size_t case_bytes;
static struct lp_exam case_exam;
static struct lp_doctor_options case_options;

static inline void case_open(const char *path) {
    struct lp_err err = {0};
    assert_int_equal(lp_file_read(path, (size_t)1 << 28, &case_image, &case_bytes, &err), LP_OK);
    memset(&case_exam, 0, sizeof case_exam);
    case_options = (struct lp_doctor_options){.path = path, .n_threads = 2};
    case_exam.options = &case_options;
    case_exam.report = lp_report_new(path, false);
    assert_non_null(case_exam.report);
    assert_int_equal(
        lp_gguf_parse(&case_exam.file.own, (uint8_t *)case_image, case_bytes, "image", &err),
        LP_OK);
    case_exam.gguf = case_exam.file.own;
    assert_int_equal(lp_hparams_read(&case_exam.h, case_exam.gguf, &err), LP_OK);
    case_exam.has_hparams = true;
}

static inline void case_close(void) {
    lp_report_free(case_exam.report);
    lp_model_file_close(&case_exam.file);
    lp_free(case_image);
}

static inline const struct lp_gguf_tensor *case_tensor(const char *name) {
    const struct lp_gguf_tensor *t = lp_gguf_find_tensor(case_exam.gguf, lp_str_from(name));
    assert_non_null(t);
    return t;
}

static inline uint8_t *case_data(const char *name) { // the image is the test's own
    return (uint8_t *)case_image + (case_tensor(name)->data - (uint8_t *)case_image);
}

static inline size_t case_count(const char *name) {
    const struct lp_gguf_tensor *t = case_tensor(name);
    return (size_t)(t->ne[0] * t->ne[1] * t->ne[2]);
}

static inline float *case_values(const char *name) { // to be freed
    const struct lp_gguf_tensor *t = case_tensor(name);
    float *values = lp_alloc(case_count(name), sizeof *values);
    assert_non_null(values);
    lp_type_info(t->type)->dequant(t->data, values, case_count(name));
    return values;
}

static inline void case_store(const char *name, float *values) { // frees them
    lp_type_info(case_tensor(name)->type)->quantize(values, case_data(name), case_count(name));
    lp_free(values);
}

// Every matrix of the tensor: the bytes of its transpose under the same shape.
static inline void case_transpose(const char *name) {
    const struct lp_gguf_tensor *t = case_tensor(name);
    size_t n = t->ne[0], m = t->ne[1];
    float *old = case_values(name), *values = case_values(name);
    for (size_t k = 0; k < t->ne[2]; k++)
        for (size_t r = 0; r < m; r++)
            for (size_t c = 0; c < n; c++)
                values[k * n * m + c * m + r] = old[k * n * m + r * n + c];
    lp_free(old);
    case_store(name, values);
}

static inline void case_swap_bytes(uint8_t *a, uint8_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

static inline const struct lp_fault *case_fault(const char *what) { // or NULL
    for (size_t i = 0; i < case_exam.report->n_faults; i++)
        if (strcmp(case_exam.report->faults[i].what, what) == 0)
            return &case_exam.report->faults[i];
    return NULL;
}

static inline const struct lp_suspect *case_only_suspect(enum lp_suspect_kind kind,
                                                         const char *name) {
    assert_int_equal(case_exam.n_suspects, 1);
    const struct lp_suspect *s = &case_exam.suspects[0];
    assert_int_equal(s->kind, kind);
    assert_true(lp_str_is(s->tensor->name, name));
    assert_int_equal(s->layer, lp_exam_layer_of(s->tensor));
    return s;
}

#endif
