// Stands in for libnccl.so.2 in tests on a machine with one GPU, which NCCL itself refuses to give to two processes: the
// calls that backend/cuda/cuda_group.c makes, through memory that processes of one host share. What NCCL's own kernels
// do is a copy from the device, a function on the host that exchanges and waits, and a copy back: recorded into graphs as
// they are, and in the order of the stream. As slow as it sounds.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_RANKS 8
#define MOST_FLOATS ((size_t)1 << 20) // from one rank to another, in one exchange

struct shared {
    atomic_int n_here, n_waiting, turn;
    float boxes[MAX_RANKS][MAX_RANKS][MOST_FLOATS]; // [from][to]
};

struct ncclComm {
    struct shared *shared;
    int rank, size;
    atomic_bool aborted;
    float *out, *in; // pinned, [size][MOST_FLOATS]
};

struct
    exchange { // of one group of calls; kept for as long as a graph may repeat it, that is for good
    struct ncclComm *comm;
    size_t n_out[MAX_RANKS], n_in[MAX_RANKS];
};

static struct { // between ncclGroupStart and ncclGroupEnd
    struct exchange *exchange;
    void *to[MAX_RANKS];
    cudaStream_t stream;
    ncclResult_t result;
} group;

// ---- meeting

static void meet(struct ncclComm *comm) {
    struct shared *s = comm->shared;
    const int turn = s->turn;
    if (atomic_fetch_add(&s->n_waiting, 1) == comm->size - 1) {
        s->n_waiting = 0;
        s->turn = turn + 1;
        return;
    }
    while (s->turn == turn && !comm->aborted) sched_yield();
}

static void CUDART_CB run_exchange(void *exchange_) {
    const struct exchange *x = exchange_;
    struct ncclComm *c = x->comm;
    for (int i = 0; i < c->size; i++)
        memcpy(c->shared->boxes[c->rank][i], c->out + (size_t)i * MOST_FLOATS,
               x->n_out[i] * sizeof(float));
    meet(c);
    for (int i = 0; i < c->size; i++)
        memcpy(c->in + (size_t)i * MOST_FLOATS, c->shared->boxes[i][c->rank],
               x->n_in[i] * sizeof(float));
    meet(c);
}

// ---- the calls

ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : "the stand-in refuses";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static int n;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/limpid-stand-in-%d-%d", (int)getpid(), n++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank) {
    struct ncclComm *c = calloc(1, sizeof *c);
    if (size > MAX_RANKS || !c) return ncclInvalidArgument;
    const int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct shared))) return ncclSystemError;
    c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    c->rank = rank;
    c->size = size;
    const size_t bytes = (size_t)size * MOST_FLOATS * sizeof(float);
    if (c->shared == MAP_FAILED || cudaMallocHost((void **)&c->out, bytes) ||
        cudaMallocHost((void **)&c->in, bytes))
        return ncclSystemError;
    atomic_fetch_add(&c->shared->n_here, 1);
    while (c->shared->n_here < size) sched_yield();
    shm_unlink(id.internal);
    *out = c;
    fprintf(stderr, "stand-in for NCCL: rank %d of %d\n", rank, size);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
    (void)comm;
    *result = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->aborted = true;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    cudaFreeHost(comm->out);
    cudaFreeHost(comm->in);
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    group.exchange = NULL;
    group.result = ncclSuccess;
    return ncclSuccess;
}

static bool begin(struct ncclComm *comm, size_t n, int peer, ncclDataType_t type,
                  cudaStream_t stream) {
    if (!group.exchange) {
        group.exchange = calloc(1, sizeof *group.exchange);
        group.exchange->comm = comm;
        group.stream = stream;
        memset(group.to, 0, sizeof group.to);
    }
    const bool fits = n <= MOST_FLOATS && peer < comm->size && type == ncclFloat;
    if (!fits) group.result = ncclInvalidArgument;
    return fits;
}

ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (!begin(comm, n, peer, type, stream)) return ncclInvalidArgument;
    group.exchange->n_out[peer] = n;
    if (cudaMemcpyAsync(comm->out + (size_t)peer * MOST_FLOATS, data, n * sizeof(float),
                        cudaMemcpyDeviceToHost, stream))
        group.result = ncclUnhandledCudaError;
    return group.result;
}

ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (!begin(comm, n, peer, type, stream)) return ncclInvalidArgument;
    group.exchange->n_in[peer] = n;
    group.to[peer] = data;
    return group.result;
}

ncclResult_t ncclGroupEnd(void) {
    const struct exchange *x = group.exchange;
    if (!x || group.result) return group.result;
    if (cudaLaunchHostFunc(group.stream, run_exchange, group.exchange))
        return ncclUnhandledCudaError;
    for (int i = 0; i < x->comm->size; i++)
        if (group.to[i] &&
            cudaMemcpyAsync(group.to[i], x->comm->in + (size_t)i * MOST_FLOATS,
                            x->n_in[i] * sizeof(float), cudaMemcpyHostToDevice, group.stream))
            return ncclUnhandledCudaError;
    return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *data, void *all, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    ncclGroupStart();
    for (int i = 0; i < comm->size; i++) {
        ncclSend(data, n, type, i, comm, stream);
        ncclRecv((float *)all + (size_t)i * n, n, type, i, comm, stream);
    }
    return ncclGroupEnd();
}
