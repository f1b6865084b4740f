/* Load generator of MemoDB: callers with one job each in flight and many echoing workers, on plain sockets.
 *
 * SP and the few bytes of CBOR are written by hand. Three modes:
 *   memodb  callers send JOB and expect RESULT with the same payload; workers send READY, then RESULT for every JOB and
 *           HEARTBEAT for every HEARTBEAT. Both dial the broker's one port.
 *   echo    callers only: their JOBs go to a bare SP server that echoes every message.
 *   raw     callers only: bare payloads go to a server that echoes every byte.
 * A number of callers, or of workers, share one connection; each has one request at a time, as an NNG REQ context has.
 *
 * A payload is: send time (8 bytes), slot of its caller (4 bytes), filler, the send time again in its last 8 bytes and at
 * every 4 KiB in between. No two jobs carry the same time, so it identifies the job: wrong and torn answers are
 * detected.
 *
 * One thread; at most one read and one write for each connection and iteration. Messages are changed in place and sent
 * from there, so nothing is copied where a connection has one user. Prints the same JSON line as load.c. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "report.h"

#define SMALLEST_BODY 24
#define STAMP_EVERY 4096
#define MOST_HEADER 128 /* of ours: length, request id and CBOR */
#define SHARED_ROOM (256 << 10)
#define EVENTS 512
#define JOIN_LIMIT_NS (20 * NS_PER_SECOND)
#define REPLY_LIMIT_MS 5000

#define VERSION "\x66memo01"
#define READY_ECHO "\x84" VERSION "\x01\x40\x81\x64" "echo"
#define JOB_ECHO "\x85" VERSION "\x02\x40\x64" "echo\x19\xea\x60" /* 60,000 ms */
#define RESULT_TO_CALLER "\x83" VERSION "\x03\x40"
/* These three are followed by a worker's id of 16 bytes. */
#define JOB_TO_WORKER "\x85" VERSION "\x02\x50"
#define RESULT_OF_WORKER "\x83" VERSION "\x03\x50"
#define HEARTBEAT "\x83" VERSION "\x04\x50"
#define KIND_SIZE 10
#define ID_SIZE 16

static const char REQ_GREETING[8] = "\0SP\0\0\x30\0", REP_GREETING[8] = "\0SP\0\0\x31\0";

static struct {
    enum { MEMODB, ECHO, RAW } mode;
    const char *frontend, *backend;
    int workers, window, workers_per_connection, callers_per_connection, size, broker_pid;
    long count;
    double warmup, seconds;
} options = {.workers = 4, .window = 100, .workers_per_connection = 1, .callers_per_connection = 1, .size = 100,
             .warmup = 0.5, .seconds = 3.0};

struct buffer { /* the bytes from begin to end are valid; before begin there is always room for a header */
    char *data;
    size_t begin, end, capacity;
};

struct connection {
    int fd, people;
    bool is_worker, has_greeted, is_waiting; /* to become writable */
    uint32_t first_id, next_id;
    size_t prefix; /* bytes of a length: 8, or on ipc 9 */
    struct buffer in, out;
};

struct caller {
    struct connection *connection;
    int64_t sent; /* send time of its job, 0 if it has none */
    uint32_t id;  /* of its request */
};

static int poller, workers_heard, outstanding;
static struct caller *callers;
static int64_t last_sent;
static bool is_stopping;
static struct tally tally;

/* ---- buffers and sockets ---- */

static void die_of(const char *what)
{
    fprintf(stderr, "spload: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void clear(struct buffer *b)
{
    b->begin = b->end = MOST_HEADER;
}

static void reserve(struct buffer *b, size_t size)
{
    if (b->begin == b->end)
        clear(b);
    if (b->end + size <= b->capacity)
        return;
    b->capacity = 2 * (b->end + size);
    if (!(b->data = realloc(b->data, b->capacity)))
        die("no memory");
}

static void append(struct buffer *b, const void *bytes, size_t size)
{
    reserve(b, size);
    memcpy(b->data + b->end, bytes, size);
    b->end += size;
}

static void watch(struct connection *c, int how, bool for_writing)
{
    struct epoll_event event = {.events = EPOLLIN | (for_writing ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, how, c->fd, &event))
        die_of("epoll_ctl");
    c->is_waiting = for_writing;
}

static void flush(struct connection *c)
{
    struct buffer *out = &c->out;
    if (out->begin < out->end) {
        ssize_t sent = send(c->fd, out->data + out->begin, out->end - out->begin, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            die_of("send");
        out->begin += sent > 0 ? sent : 0;
    }
    bool is_unfinished = out->begin < out->end;
    if (is_unfinished != c->is_waiting)
        watch(c, EPOLL_CTL_MOD, is_unfinished);
}

static int dial(const char *place)
{
    struct sockaddr_in tcp = {.sin_family = AF_INET};
    struct sockaddr_un ipc = {.sun_family = AF_UNIX};
    char host[64];
    unsigned port;
    int fd, failed, yes = 1;
    if (!strncmp(place, "ipc://", 6) && strlen(place + 6) < sizeof ipc.sun_path) {
        strcpy(ipc.sun_path, place + 6);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        failed = connect(fd, (struct sockaddr *)&ipc, sizeof ipc);
    } else if (sscanf(place, "tcp://%63[0-9.]:%u", host, &port) == 2 && inet_pton(AF_INET, host, &tcp.sin_addr)) {
        tcp.sin_port = htons(port);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        failed = connect(fd, (struct sockaddr *)&tcp, sizeof tcp);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    } else {
        die("an address must be tcp://IPv4:PORT or ipc:///PATH");
        return -1;
    }
    if (failed)
        die_of(place);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static struct connection *open_connection(const char *place, bool is_worker, int people)
{
    static uint32_t connections;
    struct connection *c = calloc(1, sizeof *c);
    size_t most = options.size + MOST_HEADER, shared = people * most;
    c->fd = dial(place);
    c->is_worker = is_worker;
    c->people = people;
    c->prefix = place[0] == 'i' ? 9 : 8;
    c->first_id = c->next_id = connections++ << 16; /* NNG begins anywhere and counts up */
    reserve(&c->in, 2 * most + (shared < SHARED_ROOM ? shared : SHARED_ROOM));
    reserve(&c->out, c->in.capacity); /* the two change places */
    clear(&c->in);
    clear(&c->out);
    watch(c, EPOLL_CTL_ADD, false);
    if (options.mode == RAW)
        c->has_greeted = true;
    else
        append(&c->out, REQ_GREETING, sizeof REQ_GREETING);
    return c;
}

/* ---- requests ---- */

/* Write the header of the next request with a payload of this size: length, request id, and `kind` with `id` if it has
 * one. Returns the size of the header. */
static size_t make_header(struct connection *c, char *header, const char *kind, size_t kind_size, const char *id,
                          size_t size)
{
    if (options.mode == RAW)
        return 0;
    size_t id_size = id ? ID_SIZE : 0, total = 4 + kind_size + id_size + size;
    uint64_t length = htobe64(total);
    uint32_t request = htonl(0x80000000 | c->next_id++);
    header[0] = 1; /* ipc; on TCP the length covers it */
    memcpy(header + c->prefix - 8, &length, 8);
    memcpy(header + c->prefix, &request, 4);
    memcpy(header + c->prefix + 4, kind, kind_size);
    if (id)
        memcpy(header + c->prefix + 4 + kind_size, id, ID_SIZE);
    return c->prefix + total - size;
}

/* Send the received payload with another header. If it is the last received one and nothing waits to be sent, the two
 * buffers are swapped instead. */
static void send_back(struct connection *c, const char *header, size_t header_size, char *payload, size_t size)
{
    struct buffer old = c->out;
    if (old.begin < old.end || payload + size != c->in.data + c->in.end) {
        append(&c->out, header, header_size);
        append(&c->out, payload, size);
        return;
    }
    memcpy(payload - header_size, header, header_size);
    c->out = c->in;
    c->out.begin = payload - header_size - c->in.data;
    c->in = old;
    clear(&c->in);
}

/* ---- callers ---- */

static void stamp(char *payload, int64_t time, int32_t slot)
{
    memcpy(payload, &time, 8);
    memcpy(payload + 8, &slot, 4);
    for (int at = STAMP_EVERY; at <= options.size - 16; at += STAMP_EVERY)
        memcpy(payload + at, &time, 8);
    memcpy(payload + options.size - 8, &time, 8);
}

static bool is_stamped(const char *payload, int64_t time)
{
    for (int at = STAMP_EVERY; at <= options.size - 16; at += STAMP_EVERY)
        if (memcmp(payload + at, &time, 8))
            return false;
    return !memcmp(payload + options.size - 8, &time, 8);
}

static size_t next_job(struct caller *caller, char *payload, char *header)
{
    int64_t time = now_ns();
    if (time <= last_sent)
        time = last_sent + 1;
    last_sent = caller->sent = time;
    caller->id = caller->connection->next_id;
    outstanding++;
    stamp(payload, time, caller - callers);
    return make_header(caller->connection, header, JOB_ECHO, sizeof JOB_ECHO - 1, NULL, options.size);
}

/* Return the caller whose job this answers, or NULL if it is not a valid answer. */
static struct caller *whom_it_answers(struct connection *c, uint32_t id, const char *payload, size_t size)
{
    int64_t time;
    int32_t slot;
    if (size != (size_t)options.size)
        return NULL;
    memcpy(&time, payload, 8);
    memcpy(&slot, payload + 8, 4);
    if (slot < 0 || slot >= options.window)
        return NULL;
    struct caller *caller = &callers[slot];
    if (!caller->sent || caller->sent != time || caller->connection != c || !is_stamped(payload, time))
        return NULL;
    return options.mode == RAW || caller->id == id ? caller : NULL;
}

/* Count a wrong answer; print the first one. */
static void complain(const char *who, uint32_t id, const char *body, size_t size)
{
    if (tally.wrong++)
        return;
    fprintf(stderr, "spload: a %s got what it should not under request %u, %zu bytes:", who, id, size);
    for (size_t i = 0; i < size && i < 60; i++)
        fprintf(stderr, " %02x", (unsigned char)body[i]);
    fputc('\n', stderr);
}

static void take_answer(struct connection *c, uint32_t id, char *body, size_t size)
{
    char header[MOST_HEADER];
    const char *kind = options.mode == MEMODB ? RESULT_TO_CALLER : JOB_ECHO; /* the bare server repeats the JOB itself */
    size_t kind_size = options.mode == RAW ? 0 : options.mode == MEMODB ? KIND_SIZE : sizeof JOB_ECHO - 1;
    struct caller *caller = NULL;
    if (size >= kind_size && !memcmp(body, kind, kind_size))
        caller = whom_it_answers(c, id, body + kind_size, size - kind_size);
    if (!caller) {
        complain("caller", id, body, size);
        return;
    }
    count_job(&tally, now_ns() - caller->sent);
    caller->sent = 0;
    outstanding--;
    if (!is_stopping) {
        char *payload = body + kind_size;
        size_t header_size = next_job(caller, payload, header);
        send_back(c, header, header_size, payload, options.size);
    }
}

static void open_callers(void)
{
    char header[MOST_HEADER], *payload = malloc(options.size);
    struct connection *c = NULL;
    memset(payload, 'x', options.size);
    callers = calloc(options.window, sizeof *callers);
    for (int i = 0; i < options.window; i++) {
        if (i % options.callers_per_connection == 0)
            c = open_connection(options.frontend, false, options.callers_per_connection);
        callers[i].connection = c;
        size_t header_size = next_job(&callers[i], payload, header);
        append(&c->out, header, header_size);
        append(&c->out, payload, options.size);
        if ((i + 1) % options.callers_per_connection == 0 || i + 1 == options.window)
            flush(c);
    }
    free(payload);
}

/* ---- workers ---- */

static void take_order(struct connection *c, uint32_t id, char *body, size_t size)
{
    char header[MOST_HEADER], *worker = body + KIND_SIZE, *at = worker + ID_SIZE;
    if (id - c->first_id < (uint32_t)c->people)
        workers_heard++; /* this answers a READY; each worker has sent one */
    if (size == KIND_SIZE + ID_SIZE && !memcmp(body, HEARTBEAT, KIND_SIZE)) {
        append(&c->out, header, make_header(c, header, HEARTBEAT, KIND_SIZE, worker, 0));
        return;
    }
    /* The name and the time-out that follow are ours, or at least the broker's for them: as short as they can be. */
    if (size < KIND_SIZE + ID_SIZE + 10 || memcmp(body, JOB_TO_WORKER, KIND_SIZE) || memcmp(at, "\x64" "echo", 5)) {
        complain("worker", id, body, size);
        return;
    }
    at += 5;
    unsigned char timeout = *at++;
    at += timeout == 0x18 ? 1 : timeout == 0x19 ? 2 : timeout == 0x1a ? 4 : 0;
    size_t payload_size = body + size - at;
    size_t header_size = make_header(c, header, RESULT_OF_WORKER, KIND_SIZE, worker, payload_size);
    send_back(c, header, header_size, at, payload_size);
}

static void open_workers(void)
{
    char header[MOST_HEADER];
    struct connection *c = NULL;
    for (int i = 0; i < options.workers; i++) {
        if (i % options.workers_per_connection == 0)
            c = open_connection(options.backend, true, options.workers_per_connection);
        append(&c->out, header, make_header(c, header, READY_ECHO, sizeof READY_ECHO - 1, NULL, 0));
        if ((i + 1) % options.workers_per_connection == 0 || i + 1 == options.workers)
            flush(c);
    }
}

/* ---- an iteration ---- */

/* Take the next whole message from the received bytes; false if there is none. */
static bool take_message(struct connection *c)
{
    struct buffer *in = &c->in;
    char *begin = in->data + in->begin;
    size_t here = in->end - in->begin;
    uint64_t length;
    uint32_t id;
    if (options.mode == RAW) {
        if (here < (size_t)options.size)
            return false;
        in->begin += options.size;
        take_answer(c, 0, begin, options.size);
        return true;
    }
    if (!c->has_greeted) {
        if (here < sizeof REP_GREETING)
            return false;
        if (memcmp(begin, REP_GREETING, sizeof REP_GREETING))
            die("the broker's greeting is not that of an SP REP");
        in->begin += sizeof REP_GREETING;
        c->has_greeted = true;
        return true;
    }
    if (here < c->prefix)
        return false;
    memcpy(&length, begin + c->prefix - 8, 8);
    length = be64toh(length);
    if (length < 4 || length > (uint64_t)options.size + MOST_HEADER)
        die("received a message with an invalid length");
    if (here < c->prefix + length)
        return false;
    memcpy(&id, begin + c->prefix, 4);
    id = ntohl(id) & 0x7fffffff;
    in->begin += c->prefix + length;
    (c->is_worker ? take_order : take_answer)(c, id, begin + c->prefix + 4, length - 4);
    return true;
}

static void receive(struct connection *c)
{
    struct buffer *in = &c->in;
    size_t here = in->end - in->begin;
    if (!here) {
        clear(in);
    } else if (in->capacity - in->begin < (size_t)options.size + MOST_HEADER) {
        memmove(in->data + MOST_HEADER, in->data + in->begin, here);
        in->begin = MOST_HEADER;
        in->end = in->begin + here;
    }
    ssize_t came = recv(c->fd, in->data + in->end, in->capacity - in->end, 0);
    if (came < 0 && errno == EAGAIN)
        return;
    if (came <= 0)
        die(came ? strerror(errno) : "the broker closed a connection");
    in->end += came;
    while (take_message(c))
        ;
}

/* Poll until something arrives, then handle everything that is available. False: nothing arrived in time.
 * This never sleeps: a wake-up would cost CPU time of the sender, which is being measured. */
static bool turn(void)
{
    static struct epoll_event events[EVENTS];
    int64_t limit = now_ns() + REPLY_LIMIT_MS * (NS_PER_SECOND / 1000);
    int ready;
    do
        ready = epoll_wait(poller, events, EVENTS, 0);
    while (!ready && now_ns() < limit);
    for (int i = 0; i < ready; i++) {
        struct connection *c = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            receive(c);
        flush(c);
    }
    return ready > 0;
}

/* ---- the run ---- */

static void warm_up(void)
{
    int64_t start = now_ns(), over = start + (int64_t)(options.warmup * NS_PER_SECOND);
    int wanted = options.mode == MEMODB ? options.workers : 0;
    while (now_ns() < over || workers_heard < wanted)
        if (!turn() || now_ns() > start + JOIN_LIMIT_NS) {
            fprintf(stderr, "spload: warm-up failed: %d of %d workers heard the broker, %d jobs unanswered\n", workers_heard,
                    wanted, outstanding);
            exit(1);
        }
}

static void measure(void)
{
    int64_t over = now_ns() + (int64_t)(options.seconds * NS_PER_SECOND);
    tally.is_open = true;
    while (options.count ? tally.jobs < (uint64_t)options.count : now_ns() < over)
        if (!turn()) {
            fprintf(stderr, "spload: no reply for %d ms, %d jobs unanswered\n", REPLY_LIMIT_MS, outstanding);
            exit(1);
        }
    tally.is_open = false;
}

/* Take the outstanding answers. Returns the number of missing ones. */
static int collect_the_rest(void)
{
    int64_t over = now_ns() + REPLY_LIMIT_MS * (NS_PER_SECOND / 1000);
    is_stopping = true;
    while (outstanding && now_ns() < over && turn())
        ;
    return outstanding;
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"mode", required_argument, 0, 'm'},
        {"frontend", required_argument, 0, 'f'},
        {"backend", required_argument, 0, 'b'},
        {"workers", required_argument, 0, 'n'},
        {"window", required_argument, 0, 'w'},
        {"workers-per-connection", required_argument, 0, 'N'},
        {"callers-per-connection", required_argument, 0, 'W'},
        {"size", required_argument, 0, 's'},
        {"warmup", required_argument, 0, 'u'},
        {"seconds", required_argument, 0, 't'},
        {"count", required_argument, 0, 'c'},
        {"broker-pid", required_argument, 0, 'p'},
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
        case 'N': options.workers_per_connection = atoi(optarg); break;
        case 'W': options.callers_per_connection = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'u': options.warmup = atof(optarg); break;
        case 't': options.seconds = atof(optarg); break;
        case 'c': options.count = atol(optarg); break;
        case 'p': options.broker_pid = atoi(optarg); break;
        default: exit(2);
        }
    options.mode = !strcmp(mode, "memodb") ? MEMODB : !strcmp(mode, "echo") ? ECHO : RAW;
    if (options.mode == RAW && strcmp(mode, "raw"))
        die("--mode must be memodb, echo or raw");
    if (!options.frontend || (options.mode == MEMODB && !options.backend))
        die("--frontend is needed, and for memodb --backend");
    if (options.workers < 1 || options.window < 1 || options.workers_per_connection < 1 ||
        options.callers_per_connection < 1 || options.count < 0 || options.size < SMALLEST_BODY)
        die("workers, window and those for each connection must be at least 1, size at least 24");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    poller = epoll_create1(0);
    if (options.mode == MEMODB)
        open_workers();
    open_callers();
    warm_up();
    struct reading before = take_reading(options.broker_pid);
    measure();
    struct reading after = take_reading(options.broker_pid);
    report(&tally, &before, &after, collect_the_rest());
    return 0;
}
