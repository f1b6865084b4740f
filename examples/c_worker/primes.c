/* A worker in C that uses the native dialect (docs/dialects/native.md) with libzmq, and no code of Dragoman.
 *
 *   gcc -O2 -Wall -Wextra -o primes primes.c -lzmq -pthread      (Debian: apt-get install gcc libc6-dev libzmq3-dev)
 *   ./primes tcp://127.0.0.1:7400
 *   dragoman call primes 1000000 --connect tcp://127.0.0.1:7400  (in another terminal; prints 78498)
 *
 * One thread computes and the other communicates with the broker, so that heartbeats continue during long jobs. On
 * Ctrl-C or SIGTERM it returns the jobs it has not started, finishes the others, and leaves. If the broker is silent,
 * it ends. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

enum { WELCOME = 0x02, ERROR = 0x03, BYE = 0x06, JOB = 0x30, RECALL = 0x31 }; /* messages of the broker */
enum { TOKEN = 16, RECORD = 38 };                                             /* bytes: of a token, of a job's record */
enum { CAPACITY = 4, STOPPED = -1, NOT_A_NUMBER = -2 };                       /* one job runs, three are ready */

static struct job {
    char token[TOKEN], number[24];
    int is_held, is_answered;
    long long found;
    atomic_int has_begun, must_stop; /* both threads use these two at the same time */
} jobs[CAPACITY];
static void *broker, *thread;
static int is_leaving;
static double heartbeat = 2.5, lease = 10, last_said, last_heard; /* seconds; WELCOME has the broker's values */

/* ---- The work: count the primes up to a number. Replace it with your own. */

static long long count_primes(struct job *job) {
    char *end;
    long long found = 0, most = strtoll(job->number, &end, 10);
    if (end == job->number || *end) return NOT_A_NUMBER;
    for (long long n = 2; n <= most && !job->must_stop; n++) {
        long long divisor = 2;
        while (divisor * divisor <= n && n % divisor) divisor++;
        found += divisor * divisor > n;
    }
    return job->must_stop ? STOPPED : found;
}

static void *compute(void *main_thread) {
    struct job *job;
    while (zmq_recv(main_thread, &job, sizeof job, 0) >= 0) {
        job->has_begun = 1;
        fprintf(stderr, "counting primes up to %s\n", job->number);
        job->found = count_primes(job);
        zmq_send(main_thread, &job, sizeof job, 0);
    }
    return NULL;
}

/* ---- Outgoing messages: a head, which begins with the message type, and further frames. */

static double now(void) {
    struct timespec time;
    return clock_gettime(CLOCK_MONOTONIC, &time), time.tv_sec + time.tv_nsec / 1e9;
}

static void say(const void *frame, size_t size, int flags) {
    zmq_send(broker, frame, size, flags);
    last_said = now();
}

static void say_return(const char *token) { say("\x32", 1, ZMQ_SNDMORE), say(token, TOKEN, 0); }

static void answer(struct job *job) {
    char text[24], head[2 + TOKEN] = {0x21, 0x01};
    if (job->is_answered) return;
    if (job->found == STOPPED) {
        say_return(job->token);
    } else if (job->found == NOT_A_NUMBER) { /* FAILED, outcome, token; type, message, detail */
        memcpy(head + 2, job->token, TOKEN), say(head, 2 + TOKEN, ZMQ_SNDMORE), say("NotANumber", 10, ZMQ_SNDMORE);
        say(job->number, strlen(job->number), ZMQ_SNDMORE), say("", 0, 0);
    } else { /* RESULT, token; payload */
        head[0] = 0x20, memcpy(head + 1, job->token, TOKEN), say(head, 1 + TOKEN, ZMQ_SNDMORE);
        say(text, sprintf(text, "%lld", job->found), 0);
    }
}

static void withdraw(const char *token) { /* one job; without a token, all that have not started */
    for (struct job *job = jobs; job < jobs + CAPACITY; job++) {
        if (!job->is_held || job->is_answered || (token ? memcmp(job->token, token, TOKEN) : job->has_begun)) continue;
        job->must_stop = 1; /* if it runs, the answer follows when the thread has stopped */
        if (!job->has_begun) say_return(job->token), job->is_answered = 1;
    }
}

/* ---- Incoming messages. */

static void take(const char *record, const char *payload, int size) {
    struct job *job = jobs;
    while (job < jobs + CAPACITY && job->is_held) job++;
    if (is_leaving || job == jobs + CAPACITY) { say_return(record); return; }
    memcpy(job->token, record, TOKEN); /* followed by the job's id, the attempt's number, and the time it may run */
    snprintf(job->number, sizeof job->number, "%.*s", size < 24 ? size : 0, payload);
    job->is_held = 1, job->is_answered = job->has_begun = job->must_stop = 0;
    zmq_send(thread, &job, sizeof job, 0);
}

static void hear(void) {
    char head[256] = "", second[4096] = "", payload[24]; /* second: JSON, records of jobs, or a sentence */
    zmq_recv(broker, head, sizeof head, 0);
    for (int more, count = 0; zmq_getsockopt(broker, ZMQ_RCVMORE, &more, &(size_t){sizeof more}), more; count++) {
        int size = zmq_recv(broker, count ? payload : second, count ? sizeof payload : sizeof second - 1, 0);
        if (*head == JOB && count) take(second + (count - 1) * RECORD, payload, size);
    }
    last_heard = now();
    if (*head == WELCOME) {
        char *beat = strstr(second, "\"heartbeat\":"), *life = strstr(second, "\"lease\":");
        heartbeat = beat ? atof(beat + 12) : heartbeat, lease = life ? atof(life + 8) : lease;
        fprintf(stderr, "connected\n");
    }
    if (*head == RECALL) withdraw(head + 1);
    if (*head == ERROR) fprintf(stderr, "the broker reported an error: %s\n", second);
    if (*head == BYE) exit(is_leaving ? 0 : 1);
} /* HEARTBEAT, and message types newer than this program: they only show that the broker is alive */

int main(int count, char **words) {
    void *context = zmq_ctx_new(), *other_end = zmq_socket(context, ZMQ_PAIR);
    thread = zmq_socket(context, ZMQ_PAIR), broker = zmq_socket(context, ZMQ_DEALER);
    sigset_t told;
    sigemptyset(&told), sigaddset(&told, SIGINT), sigaddset(&told, SIGTERM), pthread_sigmask(SIG_BLOCK, &told, NULL);
    int signals = signalfd(-1, &told, 0);
    zmq_bind(thread, "inproc://thread"), zmq_connect(other_end, "inproc://thread");
    pthread_create(&(pthread_t){0}, NULL, compute, other_end);
    zmq_setsockopt(broker, ZMQ_RECONNECT_IVL, &(int){3600000}, sizeof(int)); /* never: it needs a HELLO */
    if (count != 2 || zmq_connect(broker, words[1])) return fprintf(stderr, "usage: %s tcp://HOST:PORT\n", *words), 2;
    say("\x01\x01\x02", 3, ZMQ_SNDMORE), say("{\"services\": [\"primes\"], \"capacity\": 4}", 39, 0); /* HELLO */
    for (last_heard = now(); now() - last_heard < lease;) {
        struct job *job;
        long due = 1000 * (last_said + heartbeat - now()); /* milliseconds */
        zmq_pollitem_t items[] = {{broker, 0, ZMQ_POLLIN, 0}, {thread, 0, ZMQ_POLLIN, 0}, {0, signals, ZMQ_POLLIN, 0}};
        zmq_poll(items, 3, due > 0 ? due + 1 : 0);
        if (items[0].revents) hear();
        if (items[1].revents) zmq_recv(thread, &job, sizeof job, 0), answer(job), job->is_held = 0;
        if (items[2].revents && read(signals, &(struct signalfd_siginfo){0}, sizeof(struct signalfd_siginfo)) > 0) {
            if (is_leaving++) return 1;         /* second signal */
            say("\x05", 1, 0), withdraw(NULL); /* DRAIN, and RETURN of jobs that have not started */
        }
        if (now() - last_said >= heartbeat) say("\x04", 1, 0); /* HEARTBEAT */
    }
    return fprintf(stderr, "the broker is silent\n"), 1;
}
