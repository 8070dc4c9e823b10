#include "dist/order.h"

#include "dist/comm_parts.h"

#include <string.h>
#include <xxhash.h>

#define ORDER_MAGIC 0x6c704f52u
#define FIRST_BYTES 8192 // that the first broadcast holds: most orders are shorter

struct header {
    uint32_t magic;
    int32_t kind, owner;
    uint32_t unused;
    uint64_t number, hash, n_bytes;
};

void lp_order_give(struct lp_comm *world, struct lp_order *order) {
    char first[FIRST_BYTES] = {0};
    const size_t room = sizeof first - sizeof(struct header), n = order->bytes.len;
    order->number = ++world->n_orders;
    order->hash = XXH3_64bits(order->bytes.data ? order->bytes.data : "", n);
    const struct header header = {.magic = ORDER_MAGIC,
                                  .kind = order->kind,
                                  .owner = order->owner,
                                  .number = order->number,
                                  .hash = order->hash,
                                  .n_bytes = n};
    memcpy(first, &header, sizeof header);
    if (n) memcpy(first + sizeof header, order->bytes.data, n < room ? n : room);
    lp_comm_await(world, first, sizeof first);
    if (n > room) lp_comm_share(world, order->bytes.data + room, n - room);
}

lp_status lp_order_take(struct lp_comm *world, struct lp_order *order, struct lp_err *err) {
    char first[FIRST_BYTES];
    struct header header = {0};
    const size_t room = sizeof first - sizeof header;
    lp_comm_await(world, first, sizeof first);
    lp_status status = lp_comm_failed(world, err);
    if (status) return status;
    memcpy(&header, first, sizeof header);
    if (header.magic != ORDER_MAGIC || header.kind < 0 || header.kind >= LP_ORDER_N_KINDS)
        return lp_err_set(err, LP_STATUS_IO,
                          "rank %d took something from rank 0 that is no order: the ranks are not "
                          "in step, or they run different builds of limpid",
                          lp_comm_rank(world));
    if (header.number != world->n_orders + 1)
        return lp_err_set(
            err, LP_STATUS_IO,
            "rank %d took order %llu of rank 0 and expected %llu: the ranks are not in "
            "step",
            lp_comm_rank(world), (unsigned long long)header.number,
            (unsigned long long)world->n_orders + 1);
    const size_t n = (size_t)header.n_bytes, n_first = n < room ? n : room;
    lp_bytes_clear(&order->bytes);
    lp_bytes_append(&order->bytes, first + sizeof header, n_first);
    for (size_t at = n_first; at < n && !order->bytes.failed; at += sizeof first)
        lp_bytes_append(&order->bytes, first, n - at < sizeof first ? n - at : sizeof first);
    if (order->bytes.failed) return lp_err_memory(err, n, "an order of rank 0");
    if (n > n_first) lp_comm_share(world, order->bytes.data + n_first, n - n_first);
    order->kind = (enum lp_order_kind)header.kind;
    order->owner = header.owner;
    order->number = world->n_orders = header.number;
    order->hash = XXH3_64bits(order->bytes.data ? order->bytes.data : "", n);
    status = lp_comm_failed(world, err);
    if (!status && order->hash != header.hash)
        status = lp_err_set(err, LP_STATUS_IO,
                            "rank %d took order %llu of rank 0 with another checksum than it was "
                            "sent with: the network or its memory changes bytes",
                            lp_comm_rank(world), (unsigned long long)header.number);
    return status;
}

bool lp_order_put(struct lp_order *order, const void *data, size_t n_bytes) {
    return lp_bytes_append(&order->bytes, data, n_bytes);
}

const uint8_t *lp_order_skip(struct lp_order_reader *from, size_t n_bytes) {
    if (from->failed || n_bytes > from->n - from->at) {
        from->failed = true;
        return NULL;
    }
    from->at += n_bytes;
    return from->data + from->at - n_bytes;
}

void lp_order_get(struct lp_order_reader *from, void *to, size_t n_bytes) {
    const uint8_t *data = lp_order_skip(from, n_bytes);
    if (data)
        memcpy(to, data, n_bytes);
    else
        memset(to, 0, n_bytes);
}
