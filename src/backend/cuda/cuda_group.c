// Sums and exchanges over the GPUs of several processes, by NCCL. Its library is looked for when a group is made: a build needs
// the header alone, and runs where there is none.
//
// NCCL sums in an order of its own. Here it only carries, and numbers are added in the order of ranks, as over MPI
// (R2 of dist/comm.h): the same bits on every rank, whatever way they took. Up to SMALL_FLOATS everyone sends all to
// all; beyond, each adds a share, which all others then take. All else is sends and receives, together in one call of
// NCCL's; of nothing there are none.
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#define SMALL_FLOATS 65536
#define MAX_SIZE 1024    // ranks
#define LOOK_NS 20000000 // between two looks at whether a wait is to be given up
#define SPINS 2000       // looks at the stream before the core is offered to others
#define NAP_US 50

_Static_assert(sizeof(ncclUniqueId) <= LP_DEVICE_GROUP_ID_BYTES, "an id fits");

struct lp_cuda_group { // stands for struct lp_device_group outside
    ncclComm_t comm;   // NULL: given up
    struct lp_cuda_group *next;
    struct lp_device_seat seat;
    float *room; // device memory, for what others send
    size_t room_floats;
};

// ---- the library

static struct {
    pthread_once_t once;
    char missing[256]; // why it is not there; "": it is
    ncclResult_t (*get_version)(int *);
    ncclResult_t (*get_unique_id)(ncclUniqueId *);
    ncclResult_t (*init_rank)(ncclComm_t *, int, ncclUniqueId, int);
    ncclResult_t (*async_error)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*abort)(ncclComm_t);
    ncclResult_t (*destroy)(ncclComm_t);
    ncclResult_t (*all_gather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                               cudaStream_t);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    const char *(*error_string)(ncclResult_t);
} nccl = {.once = PTHREAD_ONCE_INIT};

static void load(void) {
    static const struct {
        const char *name;
        void *to;
    } calls[] = {
        {"ncclGetVersion", &nccl.get_version}, {"ncclGetUniqueId", &nccl.get_unique_id},
        {"ncclCommInitRank", &nccl.init_rank}, {"ncclCommGetAsyncError", &nccl.async_error},
        {"ncclCommAbort", &nccl.abort},        {"ncclCommDestroy", &nccl.destroy},
        {"ncclAllGather", &nccl.all_gather},   {"ncclSend", &nccl.send},
        {"ncclRecv", &nccl.receive},           {"ncclGroupStart", &nccl.group_start},
        {"ncclGroupEnd", &nccl.group_end},     {"ncclGetErrorString", &nccl.error_string}};
    // Sums in the switch (NVLink multicast) fail on some machines, and nothing here would use them.
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(nccl.missing, sizeof nccl.missing, "%s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *call = dlsym(library, calls[i].name);
        if (!call) {
            snprintf(nccl.missing, sizeof nccl.missing,
                     "libnccl.so.2 has no %s; install a newer one", calls[i].name);
            return;
        }
        memcpy(calls[i].to, &call, sizeof call);
    }
}

static lp_status find_library(struct lp_err *err) {
    pthread_once(&nccl.once, load);
    if (!nccl.missing[0]) return LP_OK;
    return lp_err_set(err, LP_STATUS_UNSUPPORTED, "NCCL is not there: %s", nccl.missing);
}

static bool refused(ncclResult_t result, const char *what, struct lp_err *err) {
    if (result == ncclSuccess) return false;
    lp_err_set(err, LP_STATUS_IO, "NCCL failed in %s: %s", what, nccl.error_string(result));
    return true;
}

lp_status lp_cuda_group_id(struct lp_device *device, uint8_t id[LP_DEVICE_GROUP_ID_BYTES],
                           struct lp_err *err) {
    ncclUniqueId made;
    (void)device;
    const lp_status status = find_library(err);
    if (status) return status;
    if (refused(nccl.get_unique_id(&made), "making a group", err)) return LP_STATUS_IO;
    memset(id, 0, LP_DEVICE_GROUP_ID_BYTES);
    memcpy(id, &made, sizeof made);
    return LP_OK;
}

// ---- waiting

static struct lp_cuda_group *group_of(struct lp_device_group *group) {
    return (struct lp_cuda_group *)group;
}

// What the group's kernels wait for will not come: they end now, and what they should have made means nothing.
static void give_up(struct lp_cuda_device *dev, struct lp_cuda_group *group) {
    if (group->comm) nccl.abort(group->comm);
    group->comm = NULL;
    lp_cuda_note(dev, cudaErrorUnknown, "an exchange of ranks (NCCL)");
}

// Looks at all groups, as any may be the one that is waited for.
static bool is_lost(struct lp_cuda_device *dev, double waited_s) {
    bool lost = false;
    for (struct lp_cuda_group *g = dev->groups; g; g = g->next) {
        ncclResult_t result = ncclSuccess;
        if (!g->comm) continue;
        const bool broken = nccl.async_error(g->comm, &result) != ncclSuccess ||
                            (result != ncclSuccess && result != ncclInProgress);
        if (!broken && !g->seat.give_up(g->seat.user, waited_s)) continue;
        if (broken) lp_log(LP_LOG_ERROR, "NCCL failed: %s", nccl.error_string(result));
        give_up(dev, g);
        lost = true;
    }
    return lost;
}

bool lp_cuda_wait(struct lp_cuda_device *dev, const char *where) {
    if (!dev->groups) return lp_cuda_note(dev, cudaStreamSynchronize(dev->stream), where);
    const uint64_t began = lp_clock_ns();
    uint64_t looked = began;
    for (uint64_t n = 0;; n++) {
        const cudaError_t error = cudaStreamQuery(dev->stream);
        if (error != cudaErrorNotReady) return lp_cuda_note(dev, error, where);
        if (n < SPINS) continue;
        const uint64_t now = lp_clock_ns();
        if (now - looked > LOOK_NS) {
            if (is_lost(dev, (double)(now - began) * 1e-9)) return false;
            looked = now;
        }
        usleep(NAP_US);
    }
}

// ---- joining

// NCCL's own joining waits for the others however long that is. It runs in a thread, which is left alone where it is
// given up: the process then ends soon.
struct joining {
    struct lp_cuda_group *group;
    ncclUniqueId id;
    int device;
    ncclResult_t result;
    atomic_bool done;
};

static void *join(void *joining_) {
    struct joining *j = joining_;
    const struct lp_device_seat *seat = &j->group->seat;
    j->result = cudaSetDevice(j->device) == cudaSuccess
                    ? nccl.init_rank(&j->group->comm, seat->size, j->id, seat->rank)
                    : ncclUnhandledCudaError;
    j->done = true;
    return NULL;
}

static lp_status await_joining(struct joining *j, struct lp_err *err) {
    const struct lp_device_seat *seat = &j->group->seat;
    const uint64_t began = lp_clock_ns();
    while (!j->done) {
        usleep(1000);
        if (!j->done && seat->give_up(seat->user, (double)(lp_clock_ns() - began) * 1e-9))
            return lp_err_set(err, LP_STATUS_IO, "not all ranks joined the group of GPUs");
    }
    return refused(j->result, "joining the group of GPUs", err) ? LP_STATUS_IO : LP_OK;
}

static void free_group(struct lp_cuda_group *group) {
    cudaFree(group->room);
    lp_free(group);
}

lp_status lp_cuda_group_join(struct lp_device_group **out, struct lp_device *device,
                             const struct lp_device_seat *seat, struct lp_err *err) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    pthread_t thread;
    int version = 0;
    lp_status status = find_library(err);
    if (status) return status;
    if (seat->size > MAX_SIZE)
        return lp_err_set(err, LP_STATUS_LIMIT, "a group of %d GPUs, at most %d sum together",
                          seat->size, MAX_SIZE);
    struct lp_cuda_group *group = lp_alloc(1, sizeof *group);
    struct joining *j = lp_alloc(1, sizeof *j);
    if (group && j) {
        group->seat = *seat;
        j->group = group;
        j->device = dev->number;
        memcpy(&j->id, seat->id, sizeof j->id);
        if (pthread_create(&thread, NULL, join, j) == 0) {
            status = await_joining(j, err);
            if (!j->done) { // it may still write to both
                pthread_detach(thread);
                return status;
            }
            pthread_join(thread, NULL);
        } else {
            status = lp_err_set(err, LP_STATUS_MEMORY, "no thread can be started");
        }
    } else {
        status = lp_err_memory(err, sizeof *group, "a group of GPUs");
    }
    lp_free(j);
    if (status) {
        lp_free(group);
        return status;
    }
    nccl.get_version(&version);
    lp_log(LP_LOG_INFO, "GPU %d of %d of a stage sums by NCCL %d.%d.%d", seat->rank, seat->size,
           version / 10000, version / 100 % 100, version % 100);
    group->next = dev->groups;
    dev->groups = group;
    *out = (struct lp_device_group *)group;
    return LP_OK;
}

void lp_cuda_group_leave(struct lp_device *device, struct lp_device_group *outside) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct lp_cuda_group *group = group_of(outside);
    if (!group) return;
    lp_cuda_wait(dev, "the operations of a step");
    lp_cuda_drop_graphs(dev); // they have its kernels
    for (struct lp_cuda_group **at = &dev->groups; *at; at = &(*at)->next)
        if (*at == group) {
            *at = group->next;
            break;
        }
    // After a failure the others may not come to destroy it too.
    if (group->comm && dev->error) nccl.abort(group->comm);
    if (group->comm && !dev->error) nccl.destroy(group->comm);
    free_group(group);
}

static bool make_room(struct lp_cuda_device *dev, struct lp_cuda_group *group, size_t n) {
    void *room = NULL;
    if (n <= group->room_floats) return true;
    if (dev->recording) // the calls before were as large: no memory can be had now
        return lp_cuda_note(dev, cudaErrorStreamCaptureUnsupported, "a sum over ranks");
    if (!lp_cuda_wait(dev, "the operations of a step")) return false;
    lp_cuda_drop_graphs(dev); // they have the address of what goes now
    cudaFree(group->room);
    group->room = NULL;
    group->room_floats = 0;
    if (!lp_cuda_note(dev, cudaMalloc(&room, n * sizeof(float)), "memory for sums over ranks"))
        return false;
    group->room = room;
    group->room_floats = n;
    return true;
}

static void note(struct lp_cuda_device *dev, ncclResult_t result) {
    if (result == ncclSuccess) return;
    if (!dev->error) lp_log(LP_LOG_ERROR, "NCCL failed: %s", nccl.error_string(result));
    lp_cuda_note(dev, cudaErrorUnknown, "an exchange of ranks (NCCL)");
}

// ---- exchanges

static void send(struct lp_cuda_device *dev, struct lp_cuda_group *group, int32_t to,
                 const float *data, size_t n) {
    if (n) note(dev, nccl.send(data, n, ncclFloat, to, group->comm, dev->stream));
}

static void receive(struct lp_cuda_device *dev, struct lp_cuda_group *group, int32_t from,
                    float *data, size_t n) {
    if (n) note(dev, nccl.receive(data, n, ncclFloat, from, group->comm, dev->stream));
}

struct runs { // run i is first[i] ... first[i + 1] - 1
    size_t first[MAX_SIZE + 1];
};

static size_t run_of(const struct runs *runs, int32_t i) {
    return runs->first[i + 1] - runs->first[i];
}

static void lay_out(struct runs *out, const size_t *n_floats, int32_t size) {
    out->first[0] = 0;
    for (int32_t i = 0; i < size; i++) out->first[i + 1] = out->first[i] + n_floats[i];
}

static void share_evenly(struct runs *out, size_t n, int32_t size) {
    for (int32_t i = 0; i <= size; i++) out->first[i] = n * (size_t)i / (size_t)size;
}

// Each has the sum of its run alone.
static void sum_runs(struct lp_cuda_device *dev, struct lp_cuda_group *group, float *x,
                     const struct runs *runs) {
    const int32_t size = group->seat.size, rank = group->seat.rank;
    const size_t own = run_of(runs, rank);
    note(dev, nccl.group_start());
    for (int32_t i = 0; i < size; i++) {
        send(dev, group, i, x + runs->first[i], run_of(runs, i));
        receive(dev, group, i, group->room + own * (size_t)i, own);
    }
    note(dev, nccl.group_end());
    if (own) lp_cuda_add_parts(dev, x + runs->first[rank], group->room, own, size);
}

// Each gives its run to all others.
static void gather_runs(struct lp_cuda_device *dev, struct lp_cuda_group *group, float *x,
                        const struct runs *runs) {
    const int32_t size = group->seat.size, rank = group->seat.rank;
    note(dev, nccl.group_start());
    for (int32_t i = 0; i < size; i++) {
        if (i == rank) continue;
        send(dev, group, i, x + runs->first[rank], run_of(runs, rank));
        receive(dev, group, i, x + runs->first[i], run_of(runs, i));
    }
    note(dev, nccl.group_end());
}

void lp_cuda_group_gather(struct lp_device *device, struct lp_device_group *outside, float *x,
                          const size_t *n_floats) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct lp_cuda_group *group = group_of(outside);
    struct runs runs;
    if (dev->error) return;
    lay_out(&runs, n_floats, group->seat.size);
    gather_runs(dev, group, x, &runs);
}

void lp_cuda_group_send(struct lp_device *device, struct lp_device_group *group, int32_t to,
                        const float *data, size_t n) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error) return;
    note(dev, nccl.group_start());
    send(dev, group_of(group), to, data, n);
    note(dev, nccl.group_end());
}

void lp_cuda_group_take(struct lp_device *device, struct lp_device_group *group, int32_t from,
                        float *data, size_t n) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error) return;
    note(dev, nccl.group_start());
    receive(dev, group_of(group), from, data, n);
    note(dev, nccl.group_end());
}

// ---- sums

static void sum_small(struct lp_cuda_device *dev, struct lp_cuda_group *group, float *x, size_t n) {
    note(dev, nccl.all_gather(x, group->room, n, ncclFloat, group->comm, dev->stream));
    lp_cuda_add_parts(dev, x, group->room, n, group->seat.size);
}

static void sum_large(struct lp_cuda_device *dev, struct lp_cuda_group *group, float *x, size_t n) {
    struct runs runs;
    share_evenly(&runs, n, group->seat.size);
    sum_runs(dev, group, x, &runs);
    gather_runs(dev, group, x, &runs);
}

void lp_cuda_group_sum(struct lp_device *device, struct lp_device_group *outside, float *x,
                       size_t n) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct lp_cuda_group *group = group_of(outside);
    const size_t size = (size_t)group->seat.size;
    const bool small = n <= SMALL_FLOATS;
    if (dev->error || n == 0 || !make_room(dev, group, small ? n * size : n + size)) return;
    if (small)
        sum_small(dev, group, x, n);
    else
        sum_large(dev, group, x, n);
}

// A rank with most of the rows would take them of all others, and add them alone: then all sum all.
void lp_cuda_group_sum_parts(struct lp_device *device, struct lp_device_group *outside, float *x,
                             const size_t *n_floats) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct lp_cuda_group *group = group_of(outside);
    const size_t size = (size_t)group->seat.size;
    struct runs runs;
    size_t most = 0;
    lay_out(&runs, n_floats, group->seat.size);
    for (size_t i = 0; i < size; i++) most = n_floats[i] > most ? n_floats[i] : most;
    const size_t n = runs.first[size];
    if (n > SMALL_FLOATS && most > 2 * (n / size)) {
        lp_cuda_group_sum(device, outside, x, n);
        return;
    }
    if (dev->error || n == 0 || !make_room(dev, group, most * size)) return;
    sum_runs(dev, group, x, &runs);
}
