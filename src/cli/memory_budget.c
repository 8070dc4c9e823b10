#include "cli/memory_budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/byte_size.h"
#include "engine/engine.h"
#include "engine/model_file.h"

static bool is_percentage(const char *text, double *percent) {
    char *end;
    size_t n = strlen(text);
    if (n < 2 || text[n - 1] != '%' || !strchr("0123456789", text[0])) return false;
    *percent = strtod(text, &end);
    return end == text + n - 1 && isfinite(*percent) && *percent > 0 && *percent <= 100;
}

limpid_status lp_memory_budget_parse(const char *option, const char *text, const char *path,
                                     uint64_t *bytes, limpid_error *err) {
    double percent;
    struct lp_model_file file;
    if (lp_byte_size_parse(text, bytes)) return LIMPID_OK;
    if (!is_percentage(text, &percent))
        return lp_public(lp_err_set(lp_err_of(err), LP_STATUS_INVALID,
                                    "%s is '%s', expected a size such as 20G, 4800M, "
                                    "or a part of the file such as 40%%",
                                    option, text));
    lp_status status = lp_model_file_describe(&file, path, lp_err_of(err));
    if (!status) *bytes = (uint64_t)((double)lp_gguf_file_bytes(file.gguf) * (percent / 100));
    lp_model_file_close(&file);
    return lp_public(status);
}
