// Remedies for the mixture of experts: gating, weights, number and choice of experts.
#include <math.h>
#include <stdio.h>

#include "doctor/remedies.h"

#define KEY_REPAIR "correct the key in the file (or convert the model again from its config.json)"

static const char *const gating_names[] = {"", "softmax", "sigmoid", "softmax over the chosen"};

static void set_gating(struct lp_trial *t, const struct lp_remedy *r) {
    enum lp_gating gating = (enum lp_gating)r->a;
    bool normalise = r->b != 0;
    lp_patch_set(&t->patch, &t->model->h.gating, &gating, sizeof gating);
    lp_patch_set(&t->patch, &t->model->h.normalise, &normalise, sizeof normalise);
}

static void list_gating(struct lp_trial *t) {
    const struct lp_hparams *h = &t->model->h;
    for (int a = LP_GATING_SOFTMAX; a <= LP_GATING_SOFTMAX_SELECTED; a++)
        for (int b = 0; b < 2; b++) {
            bool same_gating = a == (int)h->gating, same_norm = b == (int)h->normalise;
            if (same_gating && same_norm) continue;
            if (a == LP_GATING_SOFTMAX_SELECTED && b) continue; // they add up to one already
            struct lp_remedy *r = lp_trial_add(t, set_gating);
            r->a = a;
            r->b = b;
            const char *key = same_gating ? "expert_weights_norm" : "expert_gating_func";
            snprintf(r->what, sizeof r->what, "%s.%s", h->arch->name, key);
            snprintf(r->cause, sizeof r->cause,
                     "experts are weighed by %s%s, which the weights contradict (%s.%s)",
                     gating_names[h->gating], h->normalise ? ", normalised" : ", not normalised",
                     h->arch->name, key);
            snprintf(r->change, sizeof r->change, "by %s%s", gating_names[a],
                     b ? ", normalised" : ", not normalised");
            snprintf(r->repair, sizeof r->repair, KEY_REPAIR);
        }
}

static void set_expert_scale(struct lp_trial *t, const struct lp_remedy *r) {
    float scale = (float)r->x;
    lp_patch_set(&t->patch, &t->model->h.expert_scale, &scale, sizeof scale);
}

static void list_expert_scale(struct lp_trial *t) {
    static const double published[] = {1, 1.8, 2.5, 2.827, 16};
    const struct lp_hparams *h = &t->model->h;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        if (fabs(published[i] / h->expert_scale - 1) < 1e-3) continue;
        struct lp_remedy *r = lp_trial_add(t, set_expert_scale);
        r->x = published[i];
        r->needed = LP_NEEDED_NUMBER;
        snprintf(r->what, sizeof r->what, "%s.expert_weights_scale", h->arch->name);
        snprintf(r->cause, sizeof r->cause,
                 "%s.expert_weights_scale is %g, which the weights contradict", h->arch->name,
                 (double)h->expert_scale);
        snprintf(r->change, sizeof r->change, "with %g", published[i]);
        snprintf(r->repair, sizeof r->repair, KEY_REPAIR);
    }
}

static void set_n_used(struct lp_trial *t, const struct lp_remedy *r) {
    lp_patch_set(&t->patch, &t->model->h.n_used, &r->a, sizeof r->a);
}

static void list_n_used(struct lp_trial *t) {
    const struct lp_hparams *h = &t->model->h;
    const int32_t counts[] = {h->n_used - 1, h->n_used + 1, 2 * h->n_used, h->n_used / 2, 4, 6, 8,
                              h->n_experts};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        bool seen = counts[i] == h->n_used || counts[i] < 1 || counts[i] > h->n_experts ||
                    (h->n_groups > 1 && counts[i] > h->n_experts / h->n_groups * h->n_groups_used);
        for (size_t k = 0; k < i; k++) seen = seen || counts[k] == counts[i];
        if (seen) continue;
        struct lp_remedy *r = lp_trial_add(t, set_n_used);
        r->a = counts[i];
        snprintf(r->what, sizeof r->what, "%s.expert_used_count", h->arch->name);
        snprintf(r->cause, sizeof r->cause,
                 "%s.expert_used_count is %d, which the weights contradict", h->arch->name,
                 h->n_used);
        snprintf(r->change, sizeof r->change, "with %d", counts[i]);
        snprintf(r->repair, sizeof r->repair, KEY_REPAIR);
    }
}

// x: the bias times x; 0 leaves it out.
static void scale_bias(struct lp_trial *t, const struct lp_remedy *r) {
    const float *none = NULL;
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        struct lp_layer *layer = &t->model->layers[l];
        if ((r->layer >= 0 && l != r->layer) || !layer->router_bias) continue;
        if (r->x == 0)
            lp_patch_set(&t->patch, &layer->router_bias, &none, sizeof none);
        else
            lp_patch_vector(&t->patch, &layer->router_bias, (size_t)t->model->h.n_experts,
                            (float)r->x, 0);
    }
}

static void list_bias(struct lp_trial *t) {
    bool any = false;
    for (int32_t l = 0; l < t->model->h.n_layers; l++) any = any || t->model->layers[l].router_bias;
    for (int x = -1; x <= 0 && any; x++) {
        struct lp_remedy *r = lp_trial_add(t, scale_bias);
        r->x = x;
        snprintf(r->what, sizeof r->what, "exp_probs_b.bias");
        snprintf(r->cause, sizeof r->cause, "the routing biases of all layers are %s",
                 x ? "of the wrong sign" : "not this model's");
        snprintf(r->change, sizeof r->change, x ? "with their signs turned" : "without them");
        snprintf(r->repair, sizeof r->repair, "convert the model again");
    }
}

static void set_groups(struct lp_trial *t, const struct lp_remedy *r) {
    int32_t one = 1;
    enum lp_group_score score = (enum lp_group_score)r->b;
    lp_patch_set(&t->patch, &t->model->h.group_score, &score, sizeof score);
    if (!r->a) return;
    lp_patch_set(&t->patch, &t->model->h.n_groups, &one, sizeof one);
    lp_patch_set(&t->patch, &t->model->h.n_groups_used, &one, sizeof one);
}

static void list_groups(struct lp_trial *t) {
    const struct lp_hparams *h = &t->model->h;
    for (int a = 0; a < 2 && h->n_groups > 1; a++) {
        struct lp_remedy *r = lp_trial_add(t, set_groups);
        r->a = a;
        r->b = a                                ? (int32_t)h->group_score
               : h->group_score == LP_GROUP_MAX ? LP_GROUP_TOP2_SUM
                                                : LP_GROUP_MAX;
        snprintf(r->what, sizeof r->what, "%s.%s", h->arch->name,
                 a ? "expert_group_count" : "router");
        snprintf(r->cause, sizeof r->cause, "experts are chosen from %d of %d groups",
                 h->n_groups_used, h->n_groups);
        snprintf(r->change, sizeof r->change,
                 a ? "without groups" : "with the other score of a group");
        snprintf(r->repair, sizeof r->repair, KEY_REPAIR);
    }
}

static void drop_shared(struct lp_trial *t, const struct lp_remedy *r) {
    bool none = false;
    (void)r;
    for (int32_t l = 0; l < t->model->h.n_layers; l++)
        lp_patch_set(&t->patch, &t->model->layers[l].has_shared, &none, sizeof none);
}

void lp_remedies_of_router(struct lp_trial *t) {
    const struct lp_hparams *h = &t->model->h;
    if (h->n_experts == 0) return;
    list_gating(t);
    list_expert_scale(t);
    list_n_used(t);
    list_bias(t);
    list_groups(t);
    if (h->n_shared == 0) return;
    struct lp_remedy *r = lp_trial_add(t, drop_shared);
    snprintf(r->what, sizeof r->what, "ffn_down_shexp.weight");
    snprintf(r->cause, sizeof r->cause, "the shared experts are not this model's");
    snprintf(r->change, sizeof r->change, "without them");
    snprintf(r->repair, sizeof r->repair, "convert the model again");
}
