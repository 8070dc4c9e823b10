// Inside doctor: what all stages share while a model is examined, and the stages.
#ifndef LP_DOCTOR_EXAM_H
#define LP_DOCTOR_EXAM_H

#include "backend/backend.h"
#include "doctor/doctor.h"
#include "doctor/lab.h"
#include "engine/model_file.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "text/tokenizer.h"

// Something that looks wrong in the numbers alone, which an experiment may confirm or clear: the
// weights stage notes it, the output stage tries the remedy.
enum lp_suspect_kind {
    LP_SUSPECT_TRANSPOSED, // `tensor` is stored transposed (each head's or expert's matrix)
    LP_SUSPECT_SWAPPED,    // `tensor` and `other` have changed places
    LP_SUSPECT_PERMUTED,   // the rotated rows of `tensor` are in the order of the other pairing
    LP_SUSPECT_SCALE,      // all of `tensor` is too large or small, by about `factor`
    LP_SUSPECT_SIGN,       // `tensor` is negated
};
struct lp_suspect {
    enum lp_suspect_kind kind;
    int32_t layer;
    const struct lp_gguf_tensor *tensor, *other; // other: SWAPPED alone
    int32_t expert, other_expert;                // SWAPPED within a stack; else -1
    double factor;
    double score;   // how far out, in its own units (z-score or ratio)
    bool certain;   // the numbers alone are proof enough
    char text[400]; // the advice: what looks wrong, by which figure, and what to do
};
#define LP_MAX_SUSPECTS 64

struct lp_exam {
    const struct lp_doctor_options *options;
    struct lp_report *report;
    struct lp_model_file file;
    const struct lp_gguf *gguf; // NULL: it could not be opened (the file stage says why)
    bool has_hparams;           // h can be used
    bool bound;                 // every tensor is bound
    struct lp_hparams h;
    struct lp_tokenizer *tokenizer;    // or NULL (the tokens stage says why)
    struct lp_device *fast, *ref;      // devices of both backends
    struct lp_lab *fast_lab, *ref_lab; // NULL: the model cannot run (an earlier stage says why)
    struct lp_suspect suspects[LP_MAX_SUSPECTS];
    int32_t n_suspects;
    bool weights_random; // no structure of training in the weights: what it says cannot be judged
    bool weights_bad;    // NaN or infinity somewhere: nothing can be run
    bool
        blind; // the indexer of blind_layer finds nothing, and no change to it helps: its own fault,
    int32_t blind_layer; // unless the output stage finds what disturbs the attention itself
};

// Beyond LP_MAX_SUSPECTS they are dropped: so many are one cause, which the first ones show.
void lp_exam_suspect(struct lp_exam *exam, const struct lp_suspect *suspect);
// The layer of a tensor's name, or -1.
int32_t lp_exam_layer_of(const struct lp_gguf_tensor *tensor);

// The devices; once the file stage has run, the labs on them, where the file may be run at all. Freeing of all
// that it has.
lp_status lp_exam_open_devices(struct lp_exam *exam, struct lp_err *err);
lp_status lp_exam_open_labs(struct lp_exam *exam, struct lp_err *err);
void lp_exam_free(struct lp_exam *exam);

// The stages. Each notes its checks and faults; an error is one of the examination itself.
lp_status lp_check_file(struct lp_exam *exam, struct lp_err *err);    // opens gguf, h, bound
lp_status lp_check_weights(struct lp_exam *exam, struct lp_err *err); // suspects, weights_*
lp_status lp_check_kernels(struct lp_exam *exam, struct lp_err *err);
lp_status lp_check_tokens(struct lp_exam *exam, struct lp_err *err); // makes tokenizer
lp_status lp_check_layers(struct lp_exam *exam, struct lp_err *err);
lp_status lp_check_routes(struct lp_exam *exam, struct lp_err *err);
lp_status lp_check_cache(struct lp_exam *exam, struct lp_err *err);
lp_status lp_check_ranks(struct lp_exam *exam, struct lp_err *err); // with options->ranks
lp_status lp_check_sparse(struct lp_exam *exam, struct lp_err *err);
lp_status lp_check_output(struct lp_exam *exam, struct lp_err *err); // resolves the suspects
void lp_sparse_accuse(struct lp_exam *exam); // behind the output stage: `blind`
lp_status lp_check_against(struct lp_exam *exam, struct lp_err *err);

#endif
