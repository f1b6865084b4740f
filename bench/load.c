/* Load generator: one client with a window of jobs in flight and many echoing workers, on libzmq.
 *
 * Four modes. `proxy`: client and workers connect to the two sides of a ROUTER/DEALER zmq.proxy; a worker echoes every
 * message. `pingpong`: they connect to the frontend and the backend of a PingPong broker; a worker sends READY once, PING
 * every second, ignores PONG and echoes all else. In both the client sends ["", body] and expects ["", the same body].
 * `majordomo`: both connect to a broker of MDP/0.1, as in RFC 7.
 * `native`: both connect to the one port of a native broker; the client submits as many jobs in a message as its window
 * has room for, a worker of capacity 16 answers all received jobs in one message, and both accept single and batch forms.
 *
 * A body is: send time (8 bytes), slot number (4 bytes), filler, send time again (8 bytes). So the latency needs no table,
 * and unexpected replies and torn bodies are detected.
 *
 * With --delay-ms, a native worker answers each job so much later, by itself. With --window 0 there are only workers, of
 * the service --service, until standard input ends.
 *
 * Measuring starts when every worker has received a message from the broker and the warm-up has ended. One JSON line is
 * printed; bench/load.py takes the same options and prints the same line. */
#define _GNU_SOURCE
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

#include "report.h"

#define SMALLEST_BODY 24
#define MOST_FRAMES 1100
#define NAME 16
#define RECORD 38
#define CAPACITY 16
#define SERVICE "echo"
#define JOIN_LIMIT_NS (20 * NS_PER_SECOND)
#define REPLY_LIMIT_MS 5000
#define WORKER_NAP_MS 100

enum mode { PROXY, PINGPONG, MAJORDOMO, NATIVE };

static struct {
    enum mode mode;
    const char *frontend, *backend;
    int workers, window, size, threads, broker_pid;
    double warmup, seconds, delay_ms;
    const char *service;
} options = {.service = SERVICE, .workers = 4, .window = 100, .size = 100, .threads = 1, .warmup = 0.5, .seconds = 3.0};

static void *context;
static atomic_bool stopping;
static atomic_int workers_heard;

/* ---- utilities ---- */

static void die_of_zmq(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(1);
}

static void *dial(const char *endpoint)
{
    void *socket = zmq_socket(context, ZMQ_DEALER);
    int zero = 0;
    if (!socket)
        die_of_zmq("zmq_socket");
    zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &zero, sizeof zero);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &zero, sizeof zero);
    if (zmq_connect(socket, endpoint))
        die_of_zmq(endpoint);
    return socket;
}

/* ---- messages ---- */

struct message {
    int count;
    zmq_msg_t frames[MOST_FRAMES];
};

static void release(struct message *m)
{
    for (int i = 0; i < m->count; i++)
        zmq_msg_close(&m->frames[i]);
    m->count = 0;
}

/* Read one whole message; false if there is none yet. A message with more than MOST_FRAMES frames ends the run. */
static bool receive(void *socket, struct message *m, int flags)
{
    m->count = 0;
    do {
        zmq_msg_t *frame = &m->frames[m->count];
        zmq_msg_init(frame);
        if (zmq_msg_recv(frame, socket, m->count ? 0 : flags) < 0) {
            if (zmq_errno() != EAGAIN && zmq_errno() != EINTR)
                die_of_zmq("receive");
            zmq_msg_close(frame);
            release(m);
            return false;
        }
        m->count++;
        if (!zmq_msg_more(frame))
            return true;
    } while (m->count < MOST_FRAMES);
    die("received a message with too many frames");
    return false;
}

static void send_as_it_came(void *socket, struct message *m)
{
    for (int i = 0; i < m->count; i++)
        if (zmq_msg_send(&m->frames[i], socket, i + 1 < m->count ? ZMQ_SNDMORE : 0) < 0)
            die_of_zmq("send");
    m->count = 0;
}

static void say(void *socket, const char *word)
{
    if (zmq_send(socket, "", 0, ZMQ_SNDMORE) < 0 || zmq_send(socket, word, strlen(word), 0) < 0)
        die_of_zmq(word);
}

/* Native: message types, and ids of 16 bytes. */
enum { HELLO = 0x01, HEARTBEAT = 0x04, SUBMIT = 0x10, RESULT = 0x20, JOB = 0x30 };

static int word_of(struct message *m)
{
    return zmq_msg_size(&m->frames[0]) ? *(unsigned char *)zmq_msg_data(&m->frames[0]) : 0;
}

static void say_hello(void *socket, const char *role, const char *about)
{
    if (zmq_send(socket, role, 3, ZMQ_SNDMORE) < 0 || zmq_send(socket, about, strlen(about), 0) < 0)
        die_of_zmq("hello");
}

/* Majordomo (MDP/0.1): empty frame, header, command. */
enum { MDP_READY = 1, MDP_REQUEST, MDP_REPLY, MDP_HEARTBEAT };

static void say_mdp(void *socket, char command, const char *service)
{
    if (zmq_send(socket, "", 0, ZMQ_SNDMORE) < 0 || zmq_send(socket, "MDPW01", 6, ZMQ_SNDMORE) < 0 ||
        zmq_send(socket, &command, 1, service ? ZMQ_SNDMORE : 0) < 0 ||
        (service && zmq_send(socket, service, strlen(service), 0) < 0))
        die_of_zmq("majordomo");
}

/* Turn a request into its reply; false if the message is not a request. */
static bool make_mdp_reply(struct message *m)
{
    if (m->count != 6 || *(char *)zmq_msg_data(&m->frames[2]) != MDP_REQUEST)
        return false;
    *(char *)zmq_msg_data(&m->frames[2]) = MDP_REPLY;
    return true;
}

static bool is_pong(struct message *m)
{
    zmq_msg_t *word = &m->frames[1];
    return m->count == 2 && zmq_msg_size(word) == 4 && !memcmp(zmq_msg_data(word), "PONG", 4);
}

/* ---- workers ---- */

struct held { /* a job that is answered later */
    int64_t due;
    int which;
    char id[NAME];
    zmq_msg_t body;
};

struct crowd { /* the workers of one thread */
    struct held *held; /* a ring: all jobs take the same time, so the first is due first */
    unsigned first, last;
    int count;
    bool *heard;
    zmq_pollitem_t *items;
    int64_t next_ping;
    int ping_turn;
};

static void hold(struct crowd *c, int which, const char *id, zmq_msg_t *body)
{
    struct held *h = &c->held[c->last++ % (c->count * CAPACITY)];
    if (c->last - c->first > (unsigned)(c->count * CAPACITY))
        die("received more jobs than the workers have slots");
    h->due = now_ns() + (int64_t)(options.delay_ms * 1e6);
    h->which = which;
    memcpy(h->id, id, NAME);
    zmq_msg_init(&h->body);
    zmq_msg_move(&h->body, body);
}

static void answer_due_jobs(struct crowd *c)
{
    char head[1 + NAME] = {RESULT};
    for (; c->first != c->last; c->first++) {
        struct held *h = &c->held[c->first % (c->count * CAPACITY)];
        void *socket = c->items[h->which].socket;
        if (h->due > now_ns())
            return;
        memcpy(head + 1, h->id, NAME);
        if (zmq_send(socket, head, sizeof head, ZMQ_SNDMORE) < 0 || zmq_msg_send(&h->body, socket, 0) < 0)
            die_of_zmq("result");
    }
}

/* Answer all available jobs in one RESULT, or hold them. */
static void answer_native_jobs(struct crowd *c, int which)
{
    static _Thread_local struct message m;
    static _Thread_local zmq_msg_t bodies[CAPACITY];
    char head[1 + CAPACITY * NAME] = {RESULT};
    void *socket = c->items[which].socket;
    for (int count = 1; count;) {
        count = 0;
        while (count < CAPACITY && receive(socket, &m, ZMQ_DONTWAIT)) {
            if (!c->heard[which]) {
                c->heard[which] = true;
                atomic_fetch_add(&workers_heard, 1);
            }
            for (int i = 2; word_of(&m) == JOB && i < m.count && count < CAPACITY; i++) {
                if (options.delay_ms > 0) {
                    hold(c, which, (char *)zmq_msg_data(&m.frames[1]) + (i - 2) * RECORD, &m.frames[i]);
                    continue;
                }
                memcpy(head + 1 + count * NAME, (char *)zmq_msg_data(&m.frames[1]) + (i - 2) * RECORD, NAME);
                zmq_msg_init(&bodies[count]);
                zmq_msg_move(&bodies[count++], &m.frames[i]);
            }
            release(&m);
        }
        if (count && zmq_send(socket, head, 1 + count * NAME, ZMQ_SNDMORE) < 0)
            die_of_zmq("result");
        for (int i = 0; i < count; i++)
            if (zmq_msg_send(&bodies[i], socket, i + 1 < count ? ZMQ_SNDMORE : 0) < 0)
                die_of_zmq("result");
    }
}

static void answer_all(struct crowd *c, int which)
{
    static _Thread_local struct message m;
    if (options.mode == NATIVE) {
        answer_native_jobs(c, which);
        return;
    }
    while (receive(c->items[which].socket, &m, ZMQ_DONTWAIT)) {
        if (!c->heard[which]) {
            c->heard[which] = true;
            atomic_fetch_add(&workers_heard, 1);
        }
        if ((options.mode == PINGPONG && is_pong(&m)) || (options.mode == MAJORDOMO && !make_mdp_reply(&m)))
            release(&m);
        else
            send_as_it_came(c->items[which].socket, &m);
    }
}

/* The pings of a crowd are spread evenly over the second, as those of unrelated workers are. */
static void ping_whose_turn_it_is(struct crowd *c)
{
    for (int64_t now = now_ns(); now >= c->next_ping; c->next_ping += NS_PER_SECOND / c->count) {
        void *socket = c->items[c->ping_turn].socket;
        if (options.mode == PINGPONG)
            say(socket, "PING");
        else if (options.mode == MAJORDOMO)
            say_mdp(socket, MDP_HEARTBEAT, NULL);
        else if (zmq_send(socket, "\x04", 1, 0) < 0)
            die_of_zmq("heartbeat");
        c->ping_turn = (c->ping_turn + 1) % c->count;
    }
}

static long nap_ms(const struct crowd *c)
{
    if (options.mode == PROXY)
        return WORKER_NAP_MS;
    int64_t next = c->next_ping;
    if (c->first != c->last && c->held[c->first % (c->count * CAPACITY)].due < next)
        next = c->held[c->first % (c->count * CAPACITY)].due;
    int64_t left_ms = (next - now_ns()) / 1000000 + 1;
    return left_ms < 0 ? 0 : left_ms > WORKER_NAP_MS ? WORKER_NAP_MS : left_ms;
}

static void *work(void *number_of_workers)
{
    struct crowd c = {.count = (int)(intptr_t)number_of_workers, .next_ping = now_ns()};
    c.heard = calloc(c.count, sizeof *c.heard);
    c.items = calloc(c.count, sizeof *c.items);
    c.held = calloc(c.count * CAPACITY, sizeof *c.held);
    char hello[128];
    snprintf(hello, sizeof hello, "{\"services\": [\"%s\"], \"capacity\": %d}", options.service, CAPACITY);
    for (int i = 0; i < c.count; i++) {
        c.items[i].socket = dial(options.backend);
        c.items[i].events = ZMQ_POLLIN;
        if (options.mode == PINGPONG)
            say(c.items[i].socket, "READY");
        else if (options.mode == MAJORDOMO)
            say_mdp(c.items[i].socket, MDP_READY, SERVICE);
        else if (options.mode == NATIVE)
            say_hello(c.items[i].socket, "\x01\x01\x02", hello);
    }
    while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
        int ready = zmq_poll(c.items, c.count, nap_ms(&c));
        for (int i = 0; i < c.count && ready > 0; i++)
            if (c.items[i].revents) {
                ready--;
                answer_all(&c, i);
            }
        answer_due_jobs(&c);
        if (options.mode != PROXY)
            ping_whose_turn_it_is(&c);
    }
    for (int i = 0; i < c.count; i++)
        zmq_close(c.items[i].socket);
    free(c.heard);
    free(c.items);
    free(c.held);
    return NULL;
}

static pthread_t *start_workers(void)
{
    pthread_t *threads = calloc(options.threads, sizeof *threads);
    for (int i = 0; i < options.threads; i++) {
        intptr_t share = options.workers / options.threads + (i < options.workers % options.threads);
        if (pthread_create(&threads[i], NULL, work, (void *)share))
            die("cannot start a worker thread");
    }
    return threads;
}

/* ---- the client ---- */

struct client {
    void *socket;
    int64_t *sent; /* by slot: send time of its job, 0 if the slot is free */
    int *free_slots;
    int free_count;
    int64_t last_sent;
    struct tally tally;
    char *filler;
};

static void open_client(struct client *c)
{
    int limit = REPLY_LIMIT_MS;
    memset(c, 0, sizeof *c);
    c->socket = dial(options.frontend);
    zmq_setsockopt(c->socket, ZMQ_RCVTIMEO, &limit, sizeof limit);
    c->sent = calloc(options.window, sizeof *c->sent);
    c->free_slots = calloc(options.window, sizeof *c->free_slots);
    c->free_count = options.window;
    for (int i = 0; i < options.window; i++)
        c->free_slots[i] = i;
    c->filler = malloc(options.size);
    memset(c->filler, 'x', options.size);
    if (options.mode == NATIVE)
        say_hello(c->socket, "\x01\x01\x01", "{\"session\": \"00112233445566778899aabbccddeeff\"}");
}

static int outstanding(const struct client *c)
{
    return options.window - c->free_count;
}

/* The time identifies the job: no two jobs carry the same. */
static int64_t fill_body(struct client *c, zmq_msg_t *body)
{
    int32_t slot = c->free_slots[--c->free_count];
    int64_t time = now_ns();
    if (time <= c->last_sent)
        time = c->last_sent + 1;
    c->last_sent = c->sent[slot] = time;
    zmq_msg_init_size(body, options.size);
    char *bytes = zmq_msg_data(body);
    memcpy(bytes, c->filler, options.size);
    memcpy(bytes, &time, 8);
    memcpy(bytes + 8, &slot, 4);
    memcpy(bytes + options.size - 8, &time, 8);
    return time;
}

/* Native: as many in one message as the window has room for. */
static void submit_all(struct client *c)
{
    static const char head[] = "\x10\x01\xff\0" "\0\0\0\0" "\0\0\0\0" "\0\0\0\0" SERVICE;
    char ids[1024 * NAME];
    int count = c->free_count < 1024 ? c->free_count : 1024;
    zmq_msg_t *bodies = malloc(count * sizeof *bodies);
    memset(ids, 0, count * NAME);
    for (int i = 0; i < count; i++) {
        int64_t time = fill_body(c, &bodies[i]);
        memcpy(ids + i * NAME, &time, 8);
    }
    if (zmq_send(c->socket, head, sizeof head - 1, ZMQ_SNDMORE) < 0 ||
        zmq_send(c->socket, ids, count * NAME, ZMQ_SNDMORE) < 0)
        die_of_zmq("submit");
    for (int i = 0; i < count; i++)
        if (zmq_msg_send(&bodies[i], c->socket, i + 1 < count ? ZMQ_SNDMORE : 0) < 0)
            die_of_zmq("submit");
    free(bodies);
}

static void submit(struct client *c)
{
    if (options.mode == NATIVE) {
        submit_all(c);
        return;
    }
    zmq_msg_t body;
    fill_body(c, &body);
    if (zmq_send(c->socket, "", 0, ZMQ_SNDMORE) < 0)
        die_of_zmq("submit");
    if (options.mode == MAJORDOMO && (zmq_send(c->socket, "MDPC01", 6, ZMQ_SNDMORE) < 0 ||
                                      zmq_send(c->socket, SERVICE, strlen(SERVICE), ZMQ_SNDMORE) < 0))
        die_of_zmq("submit");
    if (zmq_msg_send(&body, c->socket, 0) < 0)
        die_of_zmq("submit");
}

/* Return the slot of the job that this body answers, or -1 if it is not a valid answer. */
static int slot_answered(const struct client *c, zmq_msg_t *body)
{
    int64_t time, time_again;
    int32_t slot;
    if (zmq_msg_size(body) != (size_t)options.size)
        return -1;
    const char *bytes = zmq_msg_data(body);
    memcpy(&time, bytes, 8);
    memcpy(&slot, bytes + 8, 4);
    memcpy(&time_again, bytes + options.size - 8, 8);
    if (slot < 0 || slot >= options.window || !c->sent[slot] || c->sent[slot] != time || time != time_again)
        return -1;
    return slot;
}

static void print_beginning(zmq_msg_t *frame)
{
    const unsigned char *bytes = zmq_msg_data(frame);
    size_t size = zmq_msg_size(frame);
    fprintf(stderr, " %zu bytes '", size);
    for (size_t i = 0; i < size && i < 60; i++)
        fputc(bytes[i] >= ' ' && bytes[i] < 127 ? bytes[i] : '.', stderr);
    fputc('\'', stderr);
}

/* Count a wrong reply; print the first one. */
static void complain(struct client *c, struct message *m)
{
    if (c->tally.wrong++)
        return;
    fprintf(stderr, "load: a wrong reply of %d frames:", m->count);
    for (int i = 0; i < m->count; i++)
        print_beginning(&m->frames[i]);
    fputc('\n', stderr);
}

/* The body of frame `which` must answer a job; of a native RESULT it must also be the one that the head names. */
static bool take_body(struct client *c, struct message *m, int which)
{
    int slot = slot_answered(c, &m->frames[which]);
    if (slot < 0)
        return false;
    if (options.mode == NATIVE &&
        memcmp((char *)zmq_msg_data(&m->frames[0]) + 1 + (which - 1) * NAME, &c->sent[slot], 8))
        return false;
    count_job(&c->tally, now_ns() - c->sent[slot]);
    c->sent[slot] = 0;
    c->free_slots[c->free_count++] = slot;
    return true;
}

/* Return the first body frame of a reply. */
static int first_body(void)
{
    return options.mode == MAJORDOMO ? 3 : 1;
}

static bool is_reply(struct message *m)
{
    size_t head = zmq_msg_size(&m->frames[0]);
    if (options.mode != NATIVE)
        return m->count == first_body() + 1 && !head;
    return m->count > 1 && word_of(m) == RESULT && head == 1 + (size_t)(m->count - 1) * NAME;
}

static void take_reply(struct client *c, struct message *m)
{
    bool is_greeting = options.mode == NATIVE && (word_of(m) == 0x02 || word_of(m) == HEARTBEAT);
    bool is_right = is_reply(m);
    for (int i = first_body(); i < m->count && is_right; i++)
        is_right = take_body(c, m, i);
    if (!is_right && !is_greeting)
        complain(c, m);
    release(m);
}

/* Fill the window, wait for a reply, then take all available replies. False: none arrived in time. */
static bool turn(struct client *c)
{
    static struct message m;
    while (c->free_count)
        submit(c);
    if (!receive(c->socket, &m, 0))
        return false;
    do
        take_reply(c, &m);
    while (outstanding(c) && receive(c->socket, &m, ZMQ_DONTWAIT));
    return true;
}

static void warm_up(struct client *c)
{
    int64_t start = now_ns(), over = start + (int64_t)(options.warmup * NS_PER_SECOND);
    while (now_ns() < over || atomic_load(&workers_heard) < options.workers) {
        if (!turn(c) || now_ns() > start + JOIN_LIMIT_NS) {
            fprintf(stderr, "load: warm-up failed: %d of %d workers heard the broker, %d jobs unanswered\n",
                    atomic_load(&workers_heard), options.workers, outstanding(c));
            exit(1);
        }
    }
}

static void measure(struct client *c)
{
    int64_t over = now_ns() + (int64_t)(options.seconds * NS_PER_SECOND);
    c->tally.is_open = true;
    while (now_ns() < over)
        if (!turn(c)) {
            fprintf(stderr, "load: no reply for %d ms, %d jobs unanswered\n", REPLY_LIMIT_MS, outstanding(c));
            exit(1);
        }
    c->tally.is_open = false;
}

/* Take the outstanding replies. Returns the number of missing ones. */
static int collect_the_rest(struct client *c)
{
    static struct message m;
    while (outstanding(c) && receive(c->socket, &m, 0))
        take_reply(c, &m);
    return outstanding(c);
}

/* ---- options ---- */

static void print_version(void)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    printf("%d.%d.%d\n", major, minor, patch);
    exit(0);
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"mode", required_argument, 0, 'm'},    {"frontend", required_argument, 0, 'f'},
        {"backend", required_argument, 0, 'b'}, {"workers", required_argument, 0, 'n'},
        {"window", required_argument, 0, 'w'},  {"size", required_argument, 0, 's'},
        {"warmup", required_argument, 0, 'u'},  {"seconds", required_argument, 0, 't'},
        {"threads", required_argument, 0, 'k'}, {"broker-pid", required_argument, 0, 'p'},
        {"version", no_argument, 0, 'v'},       {"other-pid", required_argument, 0, 'o'},
        {"service", required_argument, 0, 'c'}, {"delay-ms", required_argument, 0, 'd'},
        {0, 0, 0, 0},
    };
    const char *mode = "";
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (c) {
        case 'm': mode = optarg; break;
        case 'f': options.frontend = optarg; break;
        case 'b': options.backend = optarg; break;
        case 'n': options.workers = atoi(optarg); break;
        case 'w': options.window = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'u': options.warmup = atof(optarg); break;
        case 't': options.seconds = atof(optarg); break;
        case 'k': options.threads = atoi(optarg); break;
        case 'p': options.broker_pid = atoi(optarg); break;
        case 'o': add_other(atoi(optarg)); break;
        case 'c': options.service = optarg; break;
        case 'd': options.delay_ms = atof(optarg); break;
        case 'v': print_version(); break;
        default: exit(2);
        }
    options.mode = !strcmp(mode, "pingpong")    ? PINGPONG
                   : !strcmp(mode, "majordomo") ? MAJORDOMO
                   : !strcmp(mode, "native")    ? NATIVE
                                                : PROXY;
    if (options.mode == PROXY && strcmp(mode, "proxy"))
        die("--mode must be proxy, pingpong, majordomo or native");
    if (!options.frontend || !options.backend)
        die("--frontend and --backend are needed");
    if (options.workers < 1 || options.window < 0 || options.threads < 1 || options.size < SMALLEST_BODY)
        die("workers and threads must be at least 1, window at least 0, size at least 24");
    if (options.threads > options.workers)
        options.threads = options.workers;
}

static void wait_for_end_of_input(void)
{
    char ignored[64];
    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0)
        ;
}

int main(int argc, char **argv)
{
    struct client client;
    read_options(argc, argv);
    context = zmq_ctx_new();
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, options.workers + 16);
    pthread_t *threads = start_workers();
    if (!options.window) {
        wait_for_end_of_input();
        exit(0);
    }
    open_client(&client);
    warm_up(&client);
    struct reading before = take_reading(options.broker_pid);
    measure(&client);
    struct reading after = take_reading(options.broker_pid);
    report(&client.tally, &before, &after, collect_the_rest(&client));
    atomic_store(&stopping, true);
    for (int i = 0; i < options.threads; i++)
        pthread_join(threads[i], NULL);
    zmq_close(client.socket);
    zmq_ctx_term(context);
    return 0;
}
