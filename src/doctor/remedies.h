// Which single change makes the text probable? Each remedy changes one thing of the loaded model,
// lets it read the known texts again, and changes it back. The one that repairs the model names
// what is wrong with it.
//
// Remedies are made by listers (remedy_*.c) in the order: what earlier stages suspect; settings of
// the mathematics; one change in all layers; one change in one layer. They are first tried on the
// short texts, and where that helps on all of them.
#ifndef LP_DOCTOR_REMEDIES_H
#define LP_DOCTOR_REMEDIES_H

#include "doctor/exam.h"
#include "doctor/health.h"
#include "doctor/patch.h"

struct lp_trial;

// The fall of doubt that accuses, by the kind of change. On two healthy models (the built-in one and
// SmolLM2-135M) no structural change (a transpose, an order, a swap) gains more than 0.01, more experts
// than trained with gain 0.05, and other numbers 0.02; but a rotary base of 1e4 for 1e5 makes SmolLM2
// surer of short texts than the base that it was trained with, by 0.42.
#define LP_NEEDED_STRUCTURE 0.15
#define LP_NEEDED_NUMBER 0.3
#define LP_NEEDED_BASE 1.0
#define LP_NEEDED_ILL 0.25 // any change to a model that speaks badly
// And of an ill model's missing log-probability a remedy gives back at least this share: what gives
// less only dampens what another thing spoils.
#define LP_NEEDED_SHARE 0.4

struct lp_remedy {
    // Changes trial->model through trial->patch, or trial->run. What cannot be done sets
    // trial->patch.failed.
    void (*apply)(struct lp_trial *trial, const struct lp_remedy *remedy);
    int32_t layer;      // that is accused; -1: none in particular
    bool per_layer;     // it can be made in one layer alone
    int32_t from_layer; // layers before it are not changed
    enum lp_slot slot;  // arguments of apply
    int32_t a, b;
    double x;
    int32_t suspect;  // number of the exam's suspect that it confirms, or -1
    char what[96];    // tensor, key or operation that is accused
    char cause[384];  // "blk.3.attn_k_b.weight looks transposed"
    char change[96];  // "with it transposed"
    char repair[224]; // what to do

    double needed;              // fall of doubt that accuses where the model speaks well
    struct lp_gain quick, full; // measured; full: all zero where it was not tried
    double after;               // mean log-probability of all texts
    bool tried, tried_fully;
};

struct lp_read_set { // texts, their reading, and what the model as it is says to them
    struct lp_passages passages;
    struct lp_reading *reading;
    struct lp_scores base, now;
};

struct lp_trial {
    struct lp_exam *exam;
    struct lp_model *model;
    struct lp_patch patch;
    struct lp_read_set quick, full;
    struct lp_reading_run run; // as the remedy at hand changes it
    struct lp_remedy *list;
    size_t n, capacity;
    int64_t max_text_tokens, max_all; // longer texts, and more tokens, are left out
    bool failed;                      // out of memory
    bool speaks_badly;                // health is below its bound
    bool ill;                         // or not far above: then a remedy must repair much of it
    double base_logprob;              // mean over all texts, of the model as it is
    size_t n_left;                    // not tried before time was up
    uint64_t end_ns, end_cpu_ns;
};

// Encodes and reads the texts, of at most max_all tokens together (0 = no limit). `full` false: the
// quick texts stand for all. Errors: MEMORY; INVALID (the vocabulary can take no text).
lp_status lp_trial_init(struct lp_trial *trial, struct lp_exam *exam, bool full, int64_t max_all,
                        struct lp_err *err);
void lp_trial_release(struct lp_trial *trial);

// A remedy with its texts still empty, at the end of the list; never NULL (a scratch one when out of
// memory).
struct lp_remedy *lp_trial_add(struct lp_trial *trial,
                               void (*apply)(struct lp_trial *, const struct lp_remedy *));
// Time for what follows: limit_s of all threads' work, so that a busy machine does not change the
// verdict; but at most five times as long by the clock.
void lp_trial_set_time(struct lp_trial *trial, double limit_s);
bool lp_trial_time_is_up(const struct lp_trial *trial);

// Tries remedies from number `first` on until time is up. Returns how many were not reached.
size_t lp_trial_try(struct lp_trial *trial, size_t first, struct lp_err *err, lp_status *status);
// remedy_tokens.c: reads the texts as other pre-tokenizers and prefixes encode them, until
// time is up; what came of it is added to the list. Errors: MEMORY.
lp_status lp_trial_try_encodings(struct lp_trial *trial, struct lp_err *err);
// Whether what was measured accuses: enough of a fall of doubt, and beyond chance.
bool lp_trial_convinces(const struct lp_trial *trial, const struct lp_remedy *remedy);
double lp_trial_needed(const struct lp_trial *trial, const struct lp_remedy *remedy);
// The best of those that convince; if there is none, of all tried fully; or NULL. *rival: the next
// that accuses something else, or NULL.
struct lp_remedy *lp_trial_best(struct lp_trial *trial, struct lp_remedy **rival);

// Listers.
void lp_remedies_of_suspects(struct lp_trial *trial);              // remedy_suspects.c
void lp_remedies_of_settings(struct lp_trial *trial);              // remedy_settings.c
void lp_remedies_of_router(struct lp_trial *trial);                // remedy_router.c
void lp_remedies_of_tokens(struct lp_trial *trial);                // remedy_tokens.c
void lp_remedies_of_layer(struct lp_trial *trial, int32_t layer);  // remedy_tensors.c; -1: all
void lp_remedies_of_orders(struct lp_trial *trial, int32_t layer); // remedy_tensors.c: rotated rows
void lp_remedies_of_sequence(struct lp_trial *trial);              // remedy_tensors.c: layers

// remedy_tensors.c: any two experts of a layer, in the router or in one stack.
void lp_remedies_of_experts(struct lp_trial *trial, int32_t layer);

// remedy_tensors.c: the weight that a slot of a layer is, NULL where it has none; its name.
struct lp_weight *lp_remedy_weight(struct lp_model *model, int32_t layer, enum lp_slot slot);
// Reorders the rotated rows of a slot's weight from split halves to adjacent pairs, or back. Does
// nothing where the layer has no such weight.
void lp_remedy_reorder(struct lp_patch *patch, struct lp_model *model, int32_t layer,
                       enum lp_slot slot, bool to_halves);
void lp_remedy_name(const struct lp_model *model, int32_t layer, enum lp_slot slot, char *out,
                    size_t n);

#endif
