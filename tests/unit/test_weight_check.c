// NaN and infinity in weights are found and named: in every tensor, or in what a sample sees.
#include "lp_test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "model/model.h"

#define MINI "models/mini-glm-dsa.gguf"

static char *image; // of the mini model, changed and mended by the tests
static size_t image_bytes;

static int read_image(void **state) {
    (void)state;
    return lp_file_read(MINI, 1 << 28, &image, &image_bytes, NULL) ? -1 : 0;
}
static int free_image(void **state) {
    (void)state;
    lp_free(image);
    return 0;
}

// Checks the model with the f16 scale (or float) at `offset` in a tensor's data set to infinity.
static lp_status check_with(const char *name, uint64_t offset, bool f32, uint64_t whole_bytes,
                            struct lp_err *err) {
    struct lp_gguf *gguf;
    const uint8_t inf16[2] = {0, 0x7c}, nan32[4] = {0, 0, 0xc0, 0x7f};
    uint8_t old[4];
    assert_int_equal(lp_gguf_parse(&gguf, (uint8_t *)image, image_bytes, "image", err), LP_OK);
    const struct lp_gguf_tensor *t = lp_gguf_find_tensor(gguf, lp_str_from(name));
    uint8_t *at = (uint8_t *)image + (t->data - (uint8_t *)image) + offset;
    memcpy(old, at, 4);
    memcpy(at, f32 ? nan32 : inf16, f32 ? 4 : 2);
    lp_status status = lp_model_check_weights(gguf, whole_bytes, 2, err);
    memcpy(at, old, 4);
    lp_gguf_close(gguf);
    return status;
}

static void a_sound_model_passes(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_gguf *gguf;
    assert_int_equal(lp_gguf_parse(&gguf, (uint8_t *)image, image_bytes, "image", &err), LP_OK);
    assert_int_equal(lp_model_check_weights(gguf, UINT64_MAX, 1, &err), LP_OK);
    assert_int_equal(lp_model_check_weights(gguf, 0, 3, &err), LP_OK);
    lp_gguf_close(gguf);
}

static void a_bad_scale_or_value_is_named(void **state) {
    (void)state;
    struct lp_err err;
    // a row of attn_output is 1024 values: 32 blocks of 34 bytes; row 7, block 3
    assert_int_equal(
        check_with("blk.2.attn_output.weight", (7 * 32 + 3) * 34, false, UINT64_MAX, &err),
        LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "blk.2.attn_output.weight"));
    assert_non_null(strstr(err.text, "row 7, column 96"));
    assert_int_equal(check_with("blk.4.ffn_gate_inp.weight", 4 * 300, true, UINT64_MAX, &err),
                     LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "blk.4.ffn_gate_inp.weight"));
    assert_non_null(strstr(err.text, "row 1, column 44"));
}

static void a_sample_reads_small_tensors_whole(void **state) {
    (void)state;
    struct lp_err err;
    assert_int_equal(check_with("blk.1.attn_norm.weight", 4 * 100, true, 0, &err),
                     LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "blk.1.attn_norm.weight"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sound_model_passes),
                                       cmocka_unit_test(a_bad_scale_or_value_is_named),
                                       cmocka_unit_test(a_sample_reads_small_tensors_whole)};
    return cmocka_run_group_tests(tests, read_image, free_image);
}
