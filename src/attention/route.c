// The cost model behind "auto": multiply-adds per head, for n queries that see T keys (the selected
// ones, V <= T, enter the attention itself):
//
//   expanded   T * latent * (nope + v)            make keys and values
//            + n * V * (nope + rope + v)          attend
//   absorbed   n * latent * (nope + v)            into and out of the latent space
//            + n * V * (2 * latent + rope)        attend
//
// Few queries leave the expanded form's matrix products without work to share, so it is not
// considered below MIN_EXPANDED_QUERIES.
#include "attention/route.h"

#include <string.h>

#define MIN_EXPANDED_QUERIES 4

static const char *const force_names[LP_ROUTE_N_FORCES] = {"auto", "expanded", "absorbed", "dense"};

bool lp_route_force_parse(const char *name, enum lp_route_force *out) {
    for (int i = 0; i < LP_ROUTE_N_FORCES; i++)
        if (strcmp(name, force_names[i]) == 0) {
            *out = (enum lp_route_force)i;
            return true;
        }
    return false;
}

static bool expanded_is_cheaper(const struct lp_route_work *w, double visible) {
    double n = (double)w->n_query, keys = (double)w->n_kv;
    double per_token = (double)w->latent * (w->nope + w->v_dim);
    double expanded = keys * per_token + n * visible * (w->nope + w->rope + w->v_dim);
    double absorbed = n * per_token + n * visible * (2.0 * w->latent + w->rope);
    return expanded < absorbed;
}

static bool decide_form(const struct lp_route_work *w, bool select, const char **reason) {
    if (w->force == LP_ROUTE_EXPANDED || w->force == LP_ROUTE_ABSORBED) {
        *reason = "forced by --route";
        return w->force == LP_ROUTE_EXPANDED;
    }
    if (w->deterministic) {
        *reason = "deterministic: one formulation for every split";
        return false;
    }
    if (w->n_query < MIN_EXPANDED_QUERIES) {
        *reason = "few queries: each latent row is read once for all heads";
        return false;
    }
    if (select && w->selects_latents) {
        *reason = "selected keys: on this backend each query gathers latents";
        return false;
    }
    // On average a query of the step sees half of its own tokens.
    double visible = (double)w->n_kv - 0.5 * (double)(w->n_query - 1);
    if (select && visible > w->top_k) visible = w->top_k;
    if (expanded_is_cheaper(w, visible)) {
        *reason = "many queries share the keys: expanding them costs fewer multiply-adds";
        return true;
    }
    *reason =
        select ? "selected keys are few: attending in latent space costs fewer multiply-adds"
               : "long context for the queries: expanding all keys would cost more multiply-adds";
    return false;
}

// [all keys, selected ones, all in spite of an indexer][absorbed, expanded]
static const char *const names[3][2] = {
    {"absorbed", "expanded"}, {"sparse", "expanded-sparse"}, {"dense-absorbed", "dense-expanded"}};

struct lp_route lp_route_choose(const struct lp_route_work *w) {
    struct lp_route route = {0};
    bool dense = w->force == LP_ROUTE_DENSE && w->top_k > 0;
    route.select = w->top_k > 0 && w->n_kv > w->top_k && !dense;
    route.expanded = decide_form(w, route.select, &route.reason);
    route.name = names[dense ? 2 : route.select][route.expanded];
    return route;
}

const char *lp_route_find_name(const char *name) {
    for (int i = 0; i < 6; i++)
        if (strcmp(names[i / 2][i % 2], name) == 0) return names[i / 2][i % 2];
    return strcmp(name, LP_ROUTE_GQA) == 0 ? LP_ROUTE_GQA : NULL;
}
