/* Preloaded into a job: while the file named by CLOCK_BEHIND exists, the wall clock is an hour behind. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static time_t behind(void) {
    const char *file = getenv("CLOCK_BEHIND");
    return file && access(file, F_OK) == 0 ? 3600 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec -= behind();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

/* A deadline by this clock lies in the kernel's past: without this, waits of librdkafka return at once, and it spins.
   Deadlines by the monotonic clock are small numbers. */
static struct timespec by_kernel(const struct timespec *deadline) {
    struct timespec real = *deadline;
    if (real.tv_sec > 1000000000) real.tv_sec += behind();
    return real;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    /* Without its version, glibc may return the function for condition variables of before 2.3.2. */
    if (!wait) wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!wait) wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec real = by_kernel(deadline);
    return wait(condition, mutex, &real);
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *deadline) {
    static int (*wait)(cnd_t *, mtx_t *, const struct timespec *);
    if (!wait) wait = dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec real = by_kernel(deadline);
    return wait(condition, mutex, &real);
}
