// Inside engine: what the options of a model say, read and checked once, for opening it (api.c) and
// for planning (memory_plan.c).
#ifndef LP_ENGINE_OPEN_OPTIONS_H
#define LP_ENGINE_OPEN_OPTIONS_H

#include "limpid.h"
#include "model/model.h"

enum lp_huge_pages { LP_HUGE_PAGES_AUTO, LP_HUGE_PAGES_OFF, LP_HUGE_PAGES_ALL };

struct lp_open_options {
    enum lp_repack repack;
    bool dummy;          // lp_load
    bool divides;        // routed experts may be on the CPU, the rest is on a GPU
    uint64_t vram_bytes; // with it: of the GPU's memory; 0: none for routed experts
    enum lp_huge_pages huge_pages;
    enum lp_shard_experts shard_experts;
    enum lp_attention_parallel attention;
};

// Errors: INVALID (names the option, or two that exclude one another), UNSUPPORTED (what a folder
// cannot do).
lp_status lp_open_options_read(struct lp_open_options *out, const limpid_model_options *options,
                               bool is_folder, struct lp_err *err);
// As many as they say, or this process's share of the cores.
int lp_open_options_threads(const limpid_model_options *options);
// Opens the device that they ask for. Errors: INVALID (names the option), those of opening it.
lp_status lp_open_options_device(const struct lp_open_options *read,
                                 const limpid_model_options *options, struct lp_device **out,
                                 struct lp_err *err);
// The one of the CPU for the experts that a division leaves there; NULL without a division.
lp_status lp_open_options_experts(const struct lp_open_options *read,
                                  const limpid_model_options *options, struct lp_device **out,
                                  struct lp_err *err);

#endif
