// Writing a quantised model: the tensors of a plan in pieces of a few MB, each read, quantised and
// written by one thread. Rows are quantised one by one, so the bytes do not depend on the number of
// threads.
#ifndef LP_FILES_QUANTIZE_FILE_H
#define LP_FILES_QUANTIZE_FILE_H

#include "files/quantize_plan.h"

#define LP_QUANTIZE_PIECE_VALUES ((uint64_t)1 << 20)

// Memory that it takes beside the plan: buffers of a piece for each thread.
uint64_t lp_quantize_buffer_bytes(const struct lp_quant_plan *plan, int n_threads);

// n_threads 0 = all CPUs of the process. overwrite: `path` may exist. Draws progress on standard
// error. Errors: NUMERIC (a value of the source that is NaN or infinite: names tensor, row and
// column), and those of lp_new_file. Nothing is left behind on failure.
lp_status lp_quantize_file(const struct lp_quant_plan *plan, const char *path, int n_threads,
                           bool overwrite, struct lp_err *err);

#endif
