// Arrays of another engine: the first byte says which format the rest is (0: safetensors, else npy).
// What is accepted can be read whole and its sizes agree; what is refused has a sentence.
#include <stdlib.h>
#include <string.h>

#include "doctor/dump_read.h"

static void read_all(const struct lp_dump *dump) {
    for (size_t i = 0; i < lp_dump_count(dump); i++) {
        const struct lp_dump_array *a = lp_dump_at(dump, i);
        int64_t n = 1;
        double sum = 0;
        for (int32_t k = 0; k < a->n_dims; k++) {
            if (a->dims[k] < 0) abort();
            if (a->type != LP_DUMP_OTHER) n *= a->dims[k];
        }
        if (!a->name || (a->type != LP_DUMP_OTHER && n != a->n_values)) abort();
        for (int64_t k = 0; k < a->n_values && a->type != LP_DUMP_OTHER; k++) {
            float f = 0;
            if (lp_dump_is_float(a))
                lp_dump_floats(a, k, 1, &f);
            else
                sum += (double)lp_dump_int(a, k);
            sum += (double)f;
        }
        volatile double keep = sum;
        (void)keep;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct lp_dump *dump = NULL;
    struct lp_err err = {0};
    if (n == 0) return 0;
    lp_status status = data[0] == 0
                           ? lp_dump_read_safetensors(&dump, data + 1, n - 1, "input", &err)
                           : lp_dump_read_npy(&dump, "x", data + 1, n - 1, "input", &err);
    if (status) {
        if (!err.text[0] || err.status != status) abort();
        return 0;
    }
    read_all(dump);
    lp_dump_free(dump);
    return 0;
}
