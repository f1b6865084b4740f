/* Shared by the load generators: the clock, figures of the broker and the machine from /proc, and the JSON line. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000LL
#define MOST_SAMPLES (16u << 20)
#define MOST_OTHERS 8

/* Further processes of the measured system, such as other brokers of its cluster: their CPU is reported one by one. */
static int other_pids[MOST_OTHERS], other_count;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NS_PER_SECOND + t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

/* ---- figures from /proc ---- */

struct reading {
    int64_t at;
    double broker_user, broker_system, own, idle, steal; /* CPU seconds so far */
    double others[MOST_OTHERS];
    long broker_rss_kib;
};

static void read_broker(struct reading *r, int pid)
{
    char path[64], text[1024];
    double tick = sysconf(_SC_CLK_TCK);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        die("the broker has ended");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    /* The name in field 2 may hold spaces: count from the last bracket. Then utime is field 14, stime 15, rss 24. */
    unsigned long user, system;
    long pages;
    char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 2, "%*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu %*s %*s %*s %*s %*s %*s %*s %*s %ld",
                        &user, &system, &pages) != 3)
        die("cannot read the broker's /proc/PID/stat");
    r->broker_user = user / tick;
    r->broker_system = system / tick;
    r->broker_rss_kib = pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static inline void add_other(int pid)
{
    if (other_count == MOST_OTHERS)
        die("too many --other-pid");
    other_pids[other_count++] = pid;
}

/* Idle time is read instead of busy time: the kernel counts idle time exactly, but busy time only at ticks, and a process
 * that sleeps at every tick would not be counted. */
static void read_machine(struct reading *r)
{
    unsigned long idle, iowait, steal;
    double tick = sysconf(_SC_CLK_TCK);
    FILE *file = fopen("/proc/stat", "r");
    if (!file || fscanf(file, "cpu %*u %*u %*u %lu %lu %*u %*u %lu", &idle, &iowait, &steal) != 3)
        die("cannot read /proc/stat");
    fclose(file);
    r->idle = (idle + iowait) / tick;
    r->steal = steal / tick;
}

static struct reading take_reading(int broker_pid)
{
    struct reading r = {.at = now_ns()};
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    r.own = own.ru_utime.tv_sec + own.ru_stime.tv_sec + (own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
    read_machine(&r);
    for (int i = 0; i < other_count; i++) {
        read_broker(&r, other_pids[i]);
        r.others[i] = r.broker_user + r.broker_system;
    }
    r.broker_user = r.broker_system = 0;
    if (broker_pid)
        read_broker(&r, broker_pid);
    return r;
}

/* ---- counters, and their JSON line ---- */

struct tally {
    bool is_open; /* only then jobs count */
    uint64_t jobs, wrong;
    uint32_t *latencies_ns;
    size_t samples;
};

static void count_job(struct tally *t, int64_t latency_ns)
{
    if (!t->is_open)
        return;
    if (!t->latencies_ns && !(t->latencies_ns = malloc(MOST_SAMPLES * sizeof *t->latencies_ns)))
        die("no memory");
    t->jobs++;
    if (t->samples < MOST_SAMPLES)
        t->latencies_ns[t->samples++] = latency_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)latency_ns;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile_us(const struct tally *t, double share)
{
    return t->samples ? t->latencies_ns[(size_t)((t->samples - 1) * share)] / 1e3 : 0;
}

static void report(struct tally *t, const struct reading *a, const struct reading *b, int missing)
{
    double seconds = (b->at - a->at) / 1e9, us_per_job = 1e6 / (t->jobs ? t->jobs : 1);
    double user = b->broker_user - a->broker_user, system = b->broker_system - a->broker_system, own = b->own - a->own;
    double unused = b->idle - a->idle + b->steal - a->steal;
    double foreign = sysconf(_SC_NPROCESSORS_ONLN) * seconds - unused - own - user - system;
    for (int i = 0; i < other_count; i++)
        foreign -= b->others[i] - a->others[i];
    if (t->samples)
        qsort(t->latencies_ns, t->samples, sizeof *t->latencies_ns, by_size);
    printf("{\"jobs\": %llu, \"seconds\": %.3f, \"rate\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"broker_us\": %.3f, \"broker_user_us\": %.3f, \"broker_system_us\": %.3f, \"load_us\": %.3f, "
           "\"broker_rss_kib\": %ld, \"foreign_cores\": %.3f, \"steal_cores\": %.3f, \"wrong\": %llu, \"missing\": %d",
           (unsigned long long)t->jobs, seconds, t->jobs / seconds, percentile_us(t, 0.5), percentile_us(t, 0.99),
           (user + system) * us_per_job, user * us_per_job, system * us_per_job, own * us_per_job, b->broker_rss_kib,
           foreign / seconds, (b->steal - a->steal) / seconds,
           (unsigned long long)t->wrong, missing);
    for (int i = 0; i < other_count; i++)
        printf("%s%.3f", i ? ", " : ", \"others_us\": [", (b->others[i] - a->others[i]) * us_per_job);
    printf(other_count ? "]}\n" : "}\n");
}
