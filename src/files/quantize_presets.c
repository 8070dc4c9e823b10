#include "files/quantize_presets.h"

#include <strings.h>

// Which layers a row is for; MTP layers are in EVERY alone.
enum where {
    EVERY,
    FIRST_EIGHTH,
    FIRST_FOUR,
    MORE_BITS, // the first and the last eighth, and every third layer between
    EDGES,     // the first layers with experts and the last ones: one in 25 at each end, at least 1
    LAST,      // the last of these
};

struct row { // the first that fits
    unsigned roles;
    enum where where;
    lp_type type;
    bool (*when)(const struct lp_quant_shape *); // or NULL: always
};

#define MAX_ROWS 6
struct lp_quant_preset {
    const char *name, *summary;
    lp_type base;
    uint32_t file_type; // numbers that readers of general.file_type know
    bool needs_experts;
    struct row rows[MAX_ROWS]; // ends with roles 0
};

#define DOWN (LP_ROLE_FFN_DOWN | LP_ROLE_SHARED_DOWN | LP_ROLE_EXPERTS_DOWN)

static bool shares_values(const struct lp_quant_shape *s) {
    return s->shares_values;
}
static bool no_importance(const struct lp_quant_shape *s) {
    return !s->has_importance;
}

static const struct lp_quant_preset presets[] = {
    {"F32", "every matrix F32", LP_TYPE_F32, 0, false, {{0}}},
    {"F16", "every matrix F16", LP_TYPE_F16, 1, false, {{0}}},
    {"BF16", "every matrix BF16", LP_TYPE_BF16, 32, false, {{0}}},
    {"Q8_0", "every matrix Q8_0", LP_TYPE_Q8_0, 7, false, {{0}}},
    {"Q6_K", "every matrix Q6_K", LP_TYPE_Q6_K, 18, false, {{0}}},
    {"Q5_K_M",
     "Q5_K; values and down of the outer layers and every third, and output, Q6_K",
     LP_TYPE_Q5_K,
     17,
     false,
     {{LP_ROLE_OUTPUT, EVERY, LP_TYPE_Q6_K, NULL},
      {LP_ROLE_VALUES | DOWN, MORE_BITS, LP_TYPE_Q6_K, NULL}}},
    {"Q5_K_S",
     "Q5_K; output Q6_K",
     LP_TYPE_Q5_K,
     16,
     false,
     {{LP_ROLE_OUTPUT, EVERY, LP_TYPE_Q6_K, NULL}}},
    {"Q5_0",
     "Q5_0; output Q6_K",
     LP_TYPE_Q5_0,
     8,
     false,
     {{LP_ROLE_OUTPUT, EVERY, LP_TYPE_Q6_K, NULL}}},
    {"Q4_K_M",
     "Q4_K; values and down of the outer layers and every third, and output, Q6_K",
     LP_TYPE_Q4_K,
     15,
     false,
     {{LP_ROLE_OUTPUT, EVERY, LP_TYPE_Q6_K, NULL},
      {LP_ROLE_VALUES | DOWN, MORE_BITS, LP_TYPE_Q6_K, NULL}}},
    {"Q4_K_S",
     "Q4_K; values of the first four layers and down of the first eighth Q5_K; output Q6_K",
     LP_TYPE_Q4_K,
     14,
     false,
     {{LP_ROLE_OUTPUT, EVERY, LP_TYPE_Q6_K, NULL},
      {LP_ROLE_VALUES, FIRST_FOUR, LP_TYPE_Q5_K, NULL},
      {DOWN, FIRST_EIGHTH, LP_TYPE_Q5_K, NULL}}},
    {"Q4_0",
     "Q4_0; output Q6_K",
     LP_TYPE_Q4_0,
     2,
     false,
     {{LP_ROLE_OUTPUT, EVERY, LP_TYPE_Q6_K, NULL}}},
    {"IQ4_NL",
     "IQ4_NL; shared values, and without importances down of the first eighth, Q5_K; output Q6_K",
     LP_TYPE_IQ4_NL,
     25,
     false,
     {{LP_ROLE_OUTPUT, EVERY, LP_TYPE_Q6_K, NULL},
      {LP_ROLE_VALUES, EVERY, LP_TYPE_Q5_K, shares_values},
      {DOWN, FIRST_EIGHTH, LP_TYPE_Q5_K, no_importance}}},
    {"IQ4_XS",
     "IQ4_XS; shared values, and without importances down of the first eighth, Q5_K; output Q6_K",
     LP_TYPE_IQ4_XS,
     30,
     false,
     {{LP_ROLE_OUTPUT, EVERY, LP_TYPE_Q6_K, NULL},
      {LP_ROLE_VALUES, EVERY, LP_TYPE_Q5_K, shares_values},
      {DOWN, FIRST_EIGHTH, LP_TYPE_Q5_K, no_importance}}},
    {"DYN-Q5",
     "routed experts Q5_K, down Q6_K, more at the first and last layers; the rest Q8_0",
     LP_TYPE_Q8_0,
     17,
     true,
     {{LP_ROLE_EXPERTS_DOWN, EDGES, LP_TYPE_Q8_0, NULL},
      {LP_ROLE_EXPERTS_DOWN, EVERY, LP_TYPE_Q6_K, NULL},
      {LP_ROLE_EXPERTS_IN, EDGES, LP_TYPE_Q6_K, NULL},
      {LP_ROLE_EXPERTS_IN, EVERY, LP_TYPE_Q5_K, NULL}}},
    {"DYN-Q4",
     "routed experts Q4_K, down Q5_K, more at the first and last layers; the rest Q8_0",
     LP_TYPE_Q8_0,
     15,
     true,
     {{LP_ROLE_EXPERTS_DOWN, EDGES, LP_TYPE_Q6_K, NULL},
      {LP_ROLE_EXPERTS_DOWN, EVERY, LP_TYPE_Q5_K, NULL},
      {LP_ROLE_EXPERTS_IN, LAST, LP_TYPE_Q4_K, NULL},
      {LP_ROLE_EXPERTS_IN, EDGES, LP_TYPE_Q5_K, NULL},
      {LP_ROLE_EXPERTS_IN, EVERY, LP_TYPE_Q4_K, NULL}}},
    {"DYN-IQ4",
     "routed experts IQ4_XS, more at the first and last layers; attention and the rest Q8_0",
     LP_TYPE_Q8_0,
     30,
     true,
     {{LP_ROLE_EXPERTS_DOWN, EDGES, LP_TYPE_Q5_K, NULL},
      {LP_ROLE_EXPERTS_IN, LAST, LP_TYPE_IQ4_XS, NULL},
      {LP_ROLE_EXPERTS_IN, EDGES, LP_TYPE_Q4_K, NULL},
      {LP_ROLE_EXPERTS_IN | LP_ROLE_EXPERTS_DOWN, EVERY, LP_TYPE_IQ4_XS, NULL}}},
};
#define N_PRESETS (sizeof presets / sizeof presets[0])

static const struct {
    const char *alias, *name;
} aliases[] = {{"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

// Types that can be written, each with the one that stands in where rows are no multiple of its
// block.
static const struct {
    lp_type type, instead;
} types[] = {
    {LP_TYPE_F32, LP_TYPE_F32},    {LP_TYPE_F16, LP_TYPE_F16},      {LP_TYPE_BF16, LP_TYPE_BF16},
    {LP_TYPE_Q8_0, LP_TYPE_F16},   {LP_TYPE_Q6_K, LP_TYPE_Q8_0},    {LP_TYPE_Q5_K, LP_TYPE_Q8_0},
    {LP_TYPE_Q4_K, LP_TYPE_Q5_0},  {LP_TYPE_Q5_0, LP_TYPE_F16},     {LP_TYPE_Q4_0, LP_TYPE_F16},
    {LP_TYPE_IQ4_NL, LP_TYPE_F16}, {LP_TYPE_IQ4_XS, LP_TYPE_IQ4_NL}};

const struct lp_quant_preset *lp_quant_preset_at(size_t i) {
    return i < N_PRESETS ? &presets[i] : NULL;
}

const struct lp_quant_preset *lp_quant_preset_find(const char *name) {
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcasecmp(name, aliases[i].alias) == 0) name = aliases[i].name;
    for (size_t i = 0; i < N_PRESETS; i++)
        if (strcasecmp(name, presets[i].name) == 0) return &presets[i];
    return NULL;
}

const char *lp_quant_preset_list(void) {
    return "DYN-Q5, DYN-Q4, DYN-IQ4, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_0, Q4_K_M, Q4_K_S, Q4_0, "
           "IQ4_NL, IQ4_XS, F16, BF16, F32";
}

const char *lp_quant_preset_name(const struct lp_quant_preset *p) {
    return p->name;
}
const char *lp_quant_preset_summary(const struct lp_quant_preset *p) {
    return p->summary;
}
lp_type lp_quant_preset_base(const struct lp_quant_preset *p) {
    return p->base;
}
uint32_t lp_quant_preset_file_type(const struct lp_quant_preset *p) {
    return p->file_type;
}
bool lp_quant_preset_needs_experts(const struct lp_quant_preset *p) {
    return p->needs_experts;
}

static bool is_edge(const struct lp_quant_shape *s, int32_t block, bool last_only) {
    if (s->first_moe < 0) return false;
    int32_t n_moe = s->n_layers - s->first_moe, n = n_moe / 25 > 1 ? n_moe / 25 : 1;
    bool first = block >= s->first_moe && block < s->first_moe + n && !last_only;
    return first || block >= s->n_layers - n;
}

static bool is_there(enum where where, const struct lp_quant_shape *s, int32_t block) {
    if (where == EVERY) return true;
    if (block < 0 || block >= s->n_layers) return false;
    int32_t n = s->n_layers, eighth = n / 8;
    switch (where) {
    case FIRST_EIGHTH:
        return block < eighth;
    case FIRST_FOUR:
        return block < 4;
    case MORE_BITS:
        return block < eighth || block >= 7 * n / 8 || (block - eighth) % 3 == 2;
    case EDGES:
    case LAST:
        return is_edge(s, block, where == LAST);
    default:
        return true;
    }
}

lp_type lp_quant_preset_type(const struct lp_quant_preset *p, const struct lp_quant_shape *shape,
                             enum lp_quant_role role, int32_t block) {
    if (role == LP_ROLE_EMBED && !shape->has_output) role = LP_ROLE_OUTPUT;
    for (const struct row *row = p->rows; row < p->rows + MAX_ROWS && row->roles; row++)
        if ((row->roles & (unsigned)role) && is_there(row->where, shape, block) &&
            (!row->when || row->when(shape)))
            return row->type;
    return p->base;
}

lp_type lp_quant_fallback(lp_type type, uint64_t n_in) {
    for (int steps = 0; steps < 4 && n_in % lp_type_info((uint32_t)type)->block_values; steps++)
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
            if (types[i].type == type) {
                type = types[i].instead;
                break;
            }
    return type;
}

bool lp_quant_type_parse(struct lp_str name, lp_type *out) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const char *known = lp_type_info((uint32_t)types[i].type)->name;
        if (strlen(known) != name.len || strncasecmp(known, name.data, name.len) != 0) continue;
        *out = types[i].type;
        return true;
    }
    return false;
}

const char *lp_quant_type_list(void) {
    return "F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, Q5_0, Q4_0, IQ4_NL, IQ4_XS";
}
