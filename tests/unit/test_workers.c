#include "lp_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/workers.h"

struct job {
    struct lp_workers *workers;
    _Atomic int64_t sum;
    _Atomic int arrived;
    _Atomic int early; // workers that passed the barrier before all had arrived
};

static void add_range(void *job_, int worker, int n_workers) {
    struct job *job = job_;
    size_t begin, end;
    lp_worker_range(1001, 16, worker, n_workers, &begin, &end);
    for (size_t i = begin; i < end; i++) atomic_fetch_add(&job->sum, (int64_t)i);
    atomic_fetch_add(&job->arrived, 1);
    lp_workers_barrier(job->workers);
    if (atomic_load(&job->arrived) % n_workers) atomic_fetch_add(&job->early, 1);
    lp_workers_barrier(job->workers);
}

static void every_index_once_and_barriers_hold(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct job job = {0};
        assert_int_equal(lp_workers_new(&job.workers, n, NULL), LP_OK);
        assert_int_equal(lp_workers_count(job.workers), n);
        for (int round = 0; round < 200; round++) {
            if (round % 64 == 63) usleep(2000); // long enough for workers to go to sleep
            lp_workers_run(job.workers, add_range, &job);
        }
        assert_int_equal(job.sum, 200 * (1000 * 1001 / 2));
        assert_int_equal(job.early, 0);
        lp_workers_free(job.workers);
    }
}

// Jobs of two barriers and no work, by more workers than CPUs too: every way of waiting is taken.
static void many_short_jobs_end(void **state) {
    (void)state;
    for (int n = 2; n <= 16; n *= 2) {
        struct job job = {0};
        assert_int_equal(lp_workers_new(&job.workers, n, NULL), LP_OK);
        for (int round = 0; round < 1000; round++) lp_workers_run(job.workers, add_range, &job);
        assert_int_equal(job.sum, 1000 * (int64_t)(1000 * 1001 / 2));
        assert_int_equal(job.early, 0);
        lp_workers_free(job.workers);
    }
}

static double cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static void a_pool_without_jobs_takes_no_cpu_time(void **state) {
    (void)state;
    struct job job = {0};
    assert_int_equal(lp_workers_new(&job.workers, 4, NULL), LP_OK);
    lp_workers_run(job.workers, add_range, &job);
    usleep(20000); // after this all sleep
    double before = cpu_seconds();
    usleep(300000);
    assert_true(cpu_seconds() - before < 0.03); // four that spin would take 0.3 or more
    lp_workers_free(job.workers);
}

static void workers_are_bound_where_they_are_told(void **state) {
    (void)state;
    const int cpus[3] = {-1, -1, 100000}; // no machine has it: a warning, and the worker runs
    struct job job = {0};
    assert_int_equal(lp_workers_new_bound(&job.workers, 3, cpus, NULL), LP_OK);
    lp_workers_run(job.workers, add_range, &job);
    assert_int_equal(job.sum, 1000 * 1001 / 2);
    lp_workers_free(job.workers);
}

static void look_at_mask(void *job_, int worker, int n_workers) {
    sigset_t *masks = job_;
    (void)n_workers;
    pthread_sigmask(SIG_SETMASK, NULL, &masks[worker]);
}

// A worker leaves the program's signals to its own threads, but what it does wrong itself must reach
// the handler of crashes.
static void signals_of_faults_stay_open(void **state) {
    (void)state;
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    struct lp_workers *workers;
    sigset_t masks[2];
    assert_int_equal(lp_workers_new(&workers, 2, NULL), LP_OK);
    lp_workers_run(workers, look_at_mask, masks);
    assert_true(sigismember(&masks[1], SIGINT) && sigismember(&masks[1], SIGTERM));
    for (int i = 0; i < 5; i++) assert_false(sigismember(&masks[1], faults[i]));
    lp_workers_free(workers);
}

static void absurd_counts_are_refused(void **state) {
    (void)state;
    struct lp_workers *workers;
    struct lp_err err;
    assert_int_equal(lp_workers_new(&workers, -1, &err), LP_STATUS_INVALID);
    assert_int_equal(lp_workers_new(&workers, 100000, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "100000"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_index_once_and_barriers_hold),
                                       cmocka_unit_test(many_short_jobs_end),
                                       cmocka_unit_test(a_pool_without_jobs_takes_no_cpu_time),
                                       cmocka_unit_test(workers_are_bound_where_they_are_told),
                                       cmocka_unit_test(signals_of_faults_stay_open),
                                       cmocka_unit_test(absurd_counts_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
