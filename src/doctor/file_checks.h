// Inside the file stage: its parts, in the order in which they run. Each notes its checks and
// accuses; whether what it found hinders later parts is its result.
#ifndef LP_DOCTOR_FILE_CHECKS_H
#define LP_DOCTOR_FILE_CHECKS_H

#include "doctor/exam.h"

// check_sizes.c: the sizes in the metadata against the shapes of the tensors, without a reader of
// either: a key is wrong where all tensors that it sizes agree on another value. Needs exam->gguf
// alone. Returns the number of keys accused: then the file's hyperparameters and shapes follow.
int32_t lp_check_sizes(struct lp_exam *exam, const struct lp_arch *arch);

// check_binding.c: every tensor bound or ignored for a reason, and its Hugging Face name. Sets
// exam->bound. Errors: MEMORY.
lp_status lp_check_binding(struct lp_exam *exam, struct lp_err *err);

// check_metadata.c: which value comes from where, and what cannot be. check_published.c: the values
// of published models of this very shape. Both need exam->h.
void lp_check_metadata(struct lp_exam *exam);
void lp_check_published(struct lp_exam *exam);
// The keys of the file, before anything is read from them: another architecture's, unknown ones.
// Returns the number of keys accused.
int32_t lp_check_keys(struct lp_exam *exam, const struct lp_arch *arch);
// Which layers say they have an indexer, against which have one. Before binding. Returns whether the
// key is wrong: then the tensors cannot be bound by it.
bool lp_check_schedule(struct lp_exam *exam);

#endif
