// Invariant 4: every tensor is bound, or ignored with a reason; what is missing is named.
#include "lp_test.h"

#include "model/binding.h"

static bool any_weight(const struct lp_device *dev, lp_type type) {
    (void)dev;
    return lp_type_info(type)->is_weight;
}
static bool no_q8_0(const struct lp_device *dev, lp_type type) {
    (void)dev;
    return type != LP_TYPE_Q8_0;
}

static void every_tensor_of_every_golden_model_is_accounted_for(void **state) {
    (void)state;
    static const char *const names[] = {"dsa_dense", "dsa_sparse", "dsa_shared", "dsa_full_dims",
                                        "ds3",       "ds32",       "ds2_lite",   "glm47_flash",
                                        "glm45",     "llama",      "qwen2",      "qwen3"};
    static struct lp_hparams h;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        struct lp_gguf *gguf;
        struct lp_binding binding;
        struct lp_err err;
        snprintf(path, sizeof path, "tests/golden/%s.gguf", names[i]);
        assert_int_equal(lp_gguf_open(&gguf, path, &err), LP_OK);
        assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
        assert_int_equal(lp_binding_make(&binding, &h, gguf, any_weight, NULL, &err), LP_OK);
        assert_int_equal(binding.n_bound + binding.n_ignored, lp_gguf_n_tensors(gguf));
        for (uint64_t k = 0; k < binding.n_ignored; k++) assert_non_null(binding.ignored[k].reason);
        lp_binding_release(&binding);
        lp_gguf_close(gguf);
    }
}

static void the_mini_model_leaves_only_its_mtp_layer_out(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_gguf *gguf;
    struct lp_binding binding;
    struct lp_err err;
    assert_int_equal(lp_gguf_open(&gguf, "models/mini-glm-dsa.gguf", &err), LP_OK);
    assert_int_equal(lp_hparams_read(&h, gguf, &err), LP_OK);
    assert_int_equal(lp_binding_make(&binding, &h, gguf, any_weight, NULL, &err), LP_OK);
    // 3 global, a dense layer of 18, MoE layers of 23, an MTP layer of 27 (spec of the
    // architecture)
    assert_int_equal(binding.n_bound, 3 + 18 + 4 * 23);
    assert_int_equal(binding.n_ignored, 27);
    for (uint64_t k = 0; k < binding.n_ignored; k++)
        assert_memory_equal(binding.ignored[k].tensor->name.data, "blk.5.", 6);
    lp_binding_release(&binding);
    // a backend without a kernel for a type: named before anything runs
    assert_int_equal(lp_binding_make(&binding, &h, gguf, no_q8_0, NULL, &err),
                     LP_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "token_embd.weight"));
    assert_non_null(strstr(err.text, "Q8_0"));
    // other sizes: the first misshapen tensor is named with both shapes
    h.n_embd = 320;
    assert_int_equal(lp_binding_make(&binding, &h, gguf, any_weight, NULL, &err), LP_STATUS_FORMAT);
    assert_non_null(
        strstr(err.text, "token_embd.weight has shape [256, 3584], expected [320, 3584]"));
    lp_gguf_close(gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_of_every_golden_model_is_accounted_for),
        cmocka_unit_test(the_mini_model_leaves_only_its_mtp_layer_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
