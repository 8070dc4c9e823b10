// The matrices of a checkpoint: two bytes n, n bytes of config.json, then a .safetensors file.
// Every array's name, with and without its endings, is looked up as a matrix; what is found can be
// read whole in every way, and what is refused has a sentence.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "hf/hf_values.h"

#define MAX_VALUES (1 << 16) // of a matrix that is read

static void read_whole(const struct lp_hf_matrix *m) {
    if (m->n_mats < 1 || m->n_out < 1 || m->n_in < 1) abort();
    if (m->n_in > MAX_VALUES || m->n_out > MAX_VALUES / m->n_in) return;
    float *out = lp_alloc((size_t)m->n_in, sizeof *out);
    for (int64_t e = 0; e < m->n_mats && e < 4 && out; e++)
        for (int64_t r = 0; r < m->n_out; r++) {
            lp_hf_matrix_rows(m, e, r, 1, out);
            for (int for_file = 0; for_file < 2; for_file++) {
                uint64_t n_bytes;
                lp_type type = lp_hf_matrix_type(m, for_file);
                if (!lp_type_row_bytes(type, (uint64_t)m->n_in, &n_bytes)) abort();
                uint8_t *packed = lp_alloc(n_bytes, 1); // of this very size: ASan looks past it
                if (packed) lp_hf_matrix_pack(m, for_file, e, r, 1, packed);
                lp_free(packed);
            }
            volatile float keep = lp_hf_matrix_factor(m, e) + out[m->n_in - 1];
            (void)keep;
        }
    lp_free(out);
}

static void look_up(const struct lp_hf_folder *folder, const char *name, size_t len) {
    struct lp_hf_matrix m;
    struct lp_err err = {0};
    bool found = false;
    char *copy = lp_strndup(name, len);
    if (!copy) return;
    lp_status status = lp_hf_matrix_find(&m, &found, folder, copy, &err);
    lp_free(copy);
    if (status && (!err.text[0] || err.status != status)) abort();
    if (!status && found) read_whole(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2) return 0;
    size_t n_config = data[0] | (size_t)data[1] << 8;
    if (n_config > n - 2) return 0;
    struct lp_hf_folder folder = {
        .config = json_loadb((const char *)data + 2, n_config, JSON_REJECT_DUPLICATES, NULL)};
    lp_status status =
        lp_safetensors_parse(&folder.weights, data + 2 + n_config, n - 2 - n_config, "input", NULL);
    static const char *const endings[] = {"", ".weight", "_packed", ".weight_packed"};
    for (uint64_t i = 0; !status && i < lp_safetensors_count(folder.weights) && i < 16; i++) {
        const char *name = lp_safetensors_at(folder.weights, i)->name;
        for (size_t k = 0; k < 4; k++) {
            size_t len = strlen(name), cut = strlen(endings[k]);
            if (len >= cut && strcmp(name + len - cut, endings[k]) == 0)
                look_up(&folder, name, len - cut);
        }
    }
    lp_hf_folder_release(&folder);
    return 0;
}
