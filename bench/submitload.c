/* Load generator of background jobs: callers that each enqueue one, wait for its acknowledgement, and enqueue the next.
 * On plain sockets, a connection for each caller. Four modes:
 *   native      ASK `enqueue` over ZMTP 3.0 (DEALER, NULL), answered by TELL
 *   http        POST /v1/jobs?service=bench with the payload as it is, on a connection that is kept: 202
 *   beanstalkd  put: INSERTED
 *   redis       RPUSH to one list: an integer
 * Any other answer is wrong. The jobs stay queued: there are no workers.
 *
 * One thread, which sleeps while there is nothing to read: the core is needed for writing to disk.
 * Prints the same JSON line as load.c. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "report.h"

#define ROOM (64 << 10)
#define EVENTS 512
#define REPLY_LIMIT_MS 20000
#define SERVICE "bench"

#define ZMTP_GREETING 64
#define ZMTP_MORE 1
#define ZMTP_LONG 2
#define ZMTP_COMMAND 4
enum { WELCOME = 0x02, TELL = 0x41 };
#define NUMBER_AT 2 /* of an ASK: flags and length stand before its word, as they do before that of a TELL */

struct caller {
    int fd;
    int64_t sent; /* send time of its job, 0 if it has none */
    uint64_t number; /* native: of its request */
    bool has_greeted;
    char in[ROOM];
    size_t came;
};

struct dialect {
    const char *name;
    void (*make_order)(void);
    void (*greet)(struct caller *);
    void (*hand_in)(struct caller *);
    size_t (*take)(struct caller *, bool *is_right, bool *is_answer); /* the bytes of a whole message, 0: not whole */
};

static struct {
    const struct dialect *dialect;
    const char *frontend;
    int window, size, broker_pid;
    double warmup, seconds;
} options = {.window = 100, .size = 512, .warmup = 0.5, .seconds = 3.0};

static int poller, outstanding;
static bool is_stopping;
static struct tally tally;
static char *order; /* the bytes of one request, sent repeatedly */
static size_t order_size, number_at;

static void die_of(const char *what)
{
    fprintf(stderr, "submitload: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- sockets ---- */

static int dial(const char *place)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[64];
    unsigned port;
    int yes = 1;
    if (sscanf(place, "tcp://%63[0-9.]:%u", host, &port) != 2 || !inet_pton(AF_INET, host, &address.sin_addr))
        die("an address must be tcp://IPv4:PORT");
    address.sin_port = htons(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        die_of(place);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* With one small job in flight there is always room for it. */
static void send_all(struct caller *c, const void *bytes, size_t size)
{
    if (send(c->fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
        die_of("send");
}

/* ---- requests ---- */

static void append(const void *bytes, size_t size)
{
    if (!(order = realloc(order, order_size + size)))
        die("no memory");
    memcpy(order + order_size, bytes, size);
    order_size += size;
}

static void append_text(const char *text)
{
    append(text, strlen(text));
}

static void append_payload(void)
{
    for (int i = 0; i < options.size; i++)
        append("x", 1);
}

static void hand_in_order(struct caller *c)
{
    send_all(c, order, order_size);
}

static void greet_nobody(struct caller *c)
{
    c->has_greeted = true;
}

/* ---- native ---- */

static void append_frame(int flags, const void *bytes, size_t size)
{
    unsigned char head[9] = {flags | ZMTP_LONG};
    uint64_t length = htobe64(size);
    memcpy(head + 1, &length, 8);
    if (size < 256) {
        head[0] = flags;
        head[1] = size;
    }
    append(head, size < 256 ? 2 : 9);
    append(bytes, size);
}

static void make_native_order(void)
{
    static const char form[] = "{\"service\":\"" SERVICE "\"}";
    char *payload = malloc(options.size);
    memset(payload, 'x', options.size);
    append_frame(ZMTP_MORE, "\x40" "\0\0\0\0\0\0\0\0" "enqueue", 16);
    append_frame(ZMTP_MORE, form, sizeof form - 1);
    append_frame(0, payload, options.size);
    number_at = NUMBER_AT + 1;
    free(payload);
}

static void greet_in_zmtp(struct caller *c)
{
    char greeting[ZMTP_GREETING] = "\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL";
    static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06" "DEALER";
    static const char hello[] = "\x01\x03\x01\x01\x01\0\x02{}";
    send_all(c, greeting, sizeof greeting);
    send_all(c, ready, sizeof ready - 1);
    send_all(c, hello, sizeof hello - 1);
}

static void ask(struct caller *c)
{
    uint64_t number = htobe64(++c->number);
    memcpy(order + number_at, &number, 8);
    send_all(c, order, order_size);
}

/* Return the end of the frame at `at`; 0: it is incomplete. */
static size_t whole_frame(const struct caller *c, size_t at, const unsigned char **body, size_t *size, int *flags)
{
    const unsigned char *begin = (const unsigned char *)c->in + at;
    size_t here = c->came - at, head = 2;
    uint64_t length;
    if (here < 2)
        return 0;
    *flags = begin[0];
    length = begin[1];
    if (*flags & ZMTP_LONG) {
        head = 9;
        if (here < head)
            return 0;
        memcpy(&length, begin + 1, 8);
        length = be64toh(length);
    }
    if (length > ROOM)
        die("received a frame with an invalid length");
    if (here < head + length)
        return 0;
    *body = begin + head;
    *size = length;
    return at + head + length;
}

static size_t take_native(struct caller *c, bool *is_right, bool *is_answer)
{
    const unsigned char *body;
    size_t size, at = 0;
    int flags = ZMTP_MORE, word = -1;
    if (!c->has_greeted) {
        if (c->came < ZMTP_GREETING)
            return 0;
        c->has_greeted = true;
        return ZMTP_GREETING;
    }
    for (int frame = 0; flags & ZMTP_MORE; frame++) {
        if (!(at = whole_frame(c, at, &body, &size, &flags)))
            return 0;
        if (frame == 0 && !(flags & ZMTP_COMMAND)) {
            uint64_t number = htobe64(c->number);
            word = size ? body[0] : -1;
            *is_right = word == TELL && size == 9 && !memcmp(body + 1, &number, 8);
        } else if (frame == 1) {
            *is_right = *is_right && memmem(body, size, "\"id\":\"", 6);
        }
    }
    *is_answer = word != -1 && word != WELCOME;
    return at;
}

/* ---- HTTP ---- */

static void make_http_order(void)
{
    char head[256];
    snprintf(head, sizeof head,
             "POST /v1/jobs?service=" SERVICE " HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\n"
             "Content-Length: %d\r\n\r\n",
             options.frontend + strlen("tcp://"), options.size);
    append_text(head);
    append_payload();
}

static size_t take_http(struct caller *c, bool *is_right, bool *is_answer)
{
    c->in[c->came] = 0;
    char *end = strstr(c->in, "\r\n\r\n"), *length = strcasestr(c->in, "\r\ncontent-length:");
    if (!end)
        return 0;
    if (!length || length > end)
        die("received a response without a length");
    size_t size = end + 4 - c->in + strtoul(length + strlen("\r\ncontent-length:"), NULL, 10);
    if (c->came < size)
        return 0;
    *is_right = !strncmp(c->in, "HTTP/1.1 202 ", 13);
    *is_answer = true;
    return size;
}

/* ---- the others ---- */

static void make_beanstalkd_order(void)
{
    char head[64];
    snprintf(head, sizeof head, "put 1024 0 60 %d\r\n", options.size);
    append_text(head);
    append_payload();
    append_text("\r\n");
}

static void make_redis_order(void)
{
    char head[64];
    snprintf(head, sizeof head, "*3\r\n$5\r\nRPUSH\r\n$5\r\n" SERVICE "\r\n$%d\r\n", options.size);
    append_text(head);
    append_payload();
    append_text("\r\n");
}

static size_t take_line(struct caller *c, const char *beginning, bool *is_right, bool *is_answer)
{
    char *end = memmem(c->in, c->came, "\r\n", 2);
    *is_right = !strncmp(c->in, beginning, strlen(beginning));
    *is_answer = true;
    return end ? end + 2 - c->in : 0;
}

static size_t take_beanstalkd(struct caller *c, bool *is_right, bool *is_answer)
{
    return take_line(c, "INSERTED ", is_right, is_answer);
}

static size_t take_redis(struct caller *c, bool *is_right, bool *is_answer)
{
    return take_line(c, ":", is_right, is_answer);
}

static const struct dialect DIALECTS[] = {
    {"native", make_native_order, greet_in_zmtp, ask, take_native},
    {"http", make_http_order, greet_nobody, hand_in_order, take_http},
    {"beanstalkd", make_beanstalkd_order, greet_nobody, hand_in_order, take_beanstalkd},
    {"redis", make_redis_order, greet_nobody, hand_in_order, take_redis},
};

/* ---- an iteration ---- */

static void hand_in(struct caller *c)
{
    c->sent = now_ns();
    outstanding++;
    options.dialect->hand_in(c);
}

static void open_callers(void)
{
    for (int i = 0; i < options.window; i++) {
        struct caller *c = calloc(1, sizeof *c);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        c->fd = dial(options.frontend);
        if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event))
            die_of("epoll_ctl");
        options.dialect->greet(c);
        hand_in(c);
    }
}

/* Count a wrong answer; print the first one. */
static void complain(const struct caller *c, size_t size)
{
    if (tally.wrong++)
        return;
    fprintf(stderr, "submitload: a wrong answer of %zu bytes: ", size);
    for (size_t i = 0; i < size && i < 400; i++)
        fputc(c->in[i] >= ' ' && c->in[i] < 127 ? c->in[i] : '.', stderr);
    fputc('\n', stderr);
}

static void take_answer(struct caller *c, bool is_right, size_t size)
{
    if (is_right && c->sent)
        count_job(&tally, now_ns() - c->sent);
    else
        complain(c, size);
    c->sent = 0;
    outstanding--;
    if (!is_stopping)
        hand_in(c);
}

static void receive(struct caller *c)
{
    ssize_t came = recv(c->fd, c->in + c->came, ROOM - 1 - c->came, 0);
    if (came < 0 && errno == EAGAIN)
        return;
    if (came <= 0)
        die(came ? strerror(errno) : "the broker closed a connection");
    c->came += came;
    for (size_t size = 1; size && c->came;) {
        bool is_right = false, is_answer = false;
        size = options.dialect->take(c, &is_right, &is_answer);
        if (size && is_answer)
            take_answer(c, is_right, size);
        c->came -= size;
        memmove(c->in, c->in + size, c->came);
    }
}

/* Wait until something arrives, then handle everything that is available. False: nothing arrived in time. */
static bool turn(void)
{
    static struct epoll_event events[EVENTS];
    int ready = epoll_wait(poller, events, EVENTS, REPLY_LIMIT_MS);
    for (int i = 0; i < ready; i++)
        receive(events[i].data.ptr);
    return ready > 0;
}

/* ---- the run ---- */

static void go_on_for(double seconds)
{
    int64_t over = now_ns() + (int64_t)(seconds * NS_PER_SECOND);
    while (now_ns() < over)
        if (!turn()) {
            fprintf(stderr, "submitload: no answer for %d ms, %d jobs unanswered\n", REPLY_LIMIT_MS, outstanding);
            exit(1);
        }
}

/* Take the outstanding answers. Returns the number of missing ones. */
static int collect_the_rest(void)
{
    is_stopping = true;
    while (outstanding && turn())
        ;
    return outstanding;
}

static void choose_dialect(const char *mode)
{
    for (size_t i = 0; i < sizeof DIALECTS / sizeof *DIALECTS; i++)
        if (!strcmp(mode, DIALECTS[i].name))
            options.dialect = &DIALECTS[i];
    if (!options.dialect)
        die("--mode must be native, http, beanstalkd or redis");
    options.dialect->make_order();
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"mode", required_argument, 0, 'm'},       {"frontend", required_argument, 0, 'f'},
        {"backend", required_argument, 0, 'b'},    {"workers", required_argument, 0, 'n'},
        {"window", required_argument, 0, 'w'},     {"size", required_argument, 0, 's'},
        {"warmup", required_argument, 0, 'u'},     {"seconds", required_argument, 0, 't'},
        {"broker-pid", required_argument, 0, 'p'}, {"other-pid", required_argument, 0, 'o'},
        {0, 0, 0, 0},
    };
    const char *mode = "";
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (c) {
        case 'm': mode = optarg; break;
        case 'f': options.frontend = optarg; break;
        case 'b':
        case 'n': break; /* there are no workers */
        case 'w': options.window = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'u': options.warmup = atof(optarg); break;
        case 't': options.seconds = atof(optarg); break;
        case 'p': options.broker_pid = atoi(optarg); break;
        case 'o': add_other(atoi(optarg)); break;
        default: exit(2);
        }
    if (!options.frontend || options.window < 1 || options.size < 1 || options.size > ROOM / 2)
        die("--frontend is needed; window and size must be at least 1, and size at most 32768");
    choose_dialect(mode);
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    poller = epoll_create1(0);
    open_callers();
    go_on_for(options.warmup);
    struct reading before = take_reading(options.broker_pid);
    tally.is_open = true;
    go_on_for(options.seconds);
    tally.is_open = false;
    struct reading after = take_reading(options.broker_pid);
    report(&tally, &before, &after, collect_the_rest());
    return 0;
}
