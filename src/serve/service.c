#include "serve/service.h"

#include "base/log.h"

enum lp_health lp_service_health(struct lp_service *service, double *age_s) {
    limpid_engine_stats stats = limpid_engine_get_stats(service->engine);
    double age = stats.last_step_age_s;
    bool stalled = age > service->stall_s;
    if (age_s) *age_s = age;
    if (atomic_exchange(&service->stalled, stalled) != stalled) {
        if (stalled) {
            lp_log(LP_LOG_ERROR, "the engine has made no step for %.3g s; health says 'stalled'",
                   age);
            lp_stall_dump_begin(&service->stall, service->engine);
        } else {
            lp_log(LP_LOG_WARN, "the engine makes steps again");
        }
    }
    if (stats.device_failed) return LP_HEALTH_FAILED;
    if (stalled) return LP_HEALTH_STALLED;
    return atomic_load(&service->draining) ? LP_HEALTH_DRAINING : LP_HEALTH_OK;
}

void lp_tree_room_init(struct lp_tree_room *room, size_t n_bytes) {
    pthread_mutex_init(&room->lock, NULL); // cannot fail on Linux without attributes
    pthread_cond_init(&room->freed, NULL);
    room->n_free = n_bytes;
}

void lp_tree_room_release(struct lp_tree_room *room) {
    pthread_cond_destroy(&room->freed);
    pthread_mutex_destroy(&room->lock);
}

void lp_tree_room_take(struct lp_tree_room *room, size_t n_bytes) {
    pthread_mutex_lock(&room->lock);
    while (room->n_free < n_bytes) pthread_cond_wait(&room->freed, &room->lock);
    room->n_free -= n_bytes;
    pthread_mutex_unlock(&room->lock);
}

void lp_tree_room_give(struct lp_tree_room *room, size_t n_bytes) {
    pthread_mutex_lock(&room->lock);
    room->n_free += n_bytes;
    pthread_cond_broadcast(&room->freed);
    pthread_mutex_unlock(&room->lock);
}
