/* A Worker-Controller worker in plain C, from the document alone: one thread, libc, protobuf by hand.
 *
 *     controller_worker [-s] [-i] [-d SECONDS] [-n SECONDS] FOLDER
 *
 * It upper-cases its tasks. -s: the shifted numbers of later workers. -i: computes inside the SET_TASK exchange, and
 * answers only when its FETCH_ME was answered. -d: duration of a task. -n: the promised time to its next pulse.
 * As such programs do, it still names its last task when that has ended, and dies of SIGPIPE if its answer is not read.
 */
#include <ctype.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REGISTER, PULSE_OK, FETCH_ME, SHUTDOWN };
enum { RESTART, FETCH, SET_TASK, GET_STATUS };
enum { OK, NO_FETCH, BUSY, TASK_FAILED, FAILED, UNKNOWN_ID = 2 };

static int shifted, inside, next_pulse = 2, listener = -1;
static double delay;
static const char *folder;
static uint64_t id, task, result_size;
static char *result, name[24];
static struct sockaddr_un own;
static int holds, ready, forgotten; /* a task nobody fetched yet; its result is there; UNKNOWN_ID was heard */

static size_t put(unsigned char *to, int field, uint64_t value) {
    size_t n = 0;
    if (!value)
        return 0; /* proto3 leaves it out */
    to[n++] = field << 3;
    for (; value >= 0x80; value >>= 7)
        to[n++] = value | 0x80;
    to[n] = value;
    return n + 1;
}

static void parse(const unsigned char *data, size_t size, uint64_t fields[8]) {
    memset(fields, 0, 8 * sizeof *fields);
    for (size_t at = 0; at < size;) {
        int field = data[at++] >> 3, shift = 0;
        uint64_t value = 0;
        for (; at < size && data[at] & 0x80; shift += 7)
            value |= (uint64_t)(data[at++] & 0x7f) << shift;
        if (at < size)
            value |= (uint64_t)data[at++] << shift;
        fields[field & 7] = value;
    }
}

static int read_all(int fd, void *to, size_t size) {
    return size && recv(fd, to, size, MSG_WAITALL) != (ssize_t)size ? -1 : 0;
}

static void write_message(int fd, const unsigned char *data, size_t size, const char *extra, size_t extra_size) {
    unsigned char length[8] = {size}; /* little-endian, and never over 64 */
    write(fd, length, 8);
    usleep(20000); /* so that whoever closes behind an empty message, before we have written it, is found out */
    write(fd, data, size);
    if (extra_size)
        write(fd, extra, extra_size);
}

static int read_message(int fd, uint64_t fields[8]) {
    unsigned char length[8], data[256]; /* no message has more: there is a byte of length for them */
    if (read_all(fd, length, 8) || read_all(fd, data, length[0]))
        return -1;
    parse(data, length[0], fields);
    return 0;
}

static int open_socket(const char *name, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "%s/%s.sock", folder, name);
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

/* Return the controller's error by the document's numbers; -1 if there was no answer. */
static int pulse(int kind) {
    static const char *names[] = {"REGISTER", "OK", "FETCH_ME", "SHUTDOWN"};
    static const int numbers[2][4] = {{0, 1, 2, 3}, {2, 1, 3, 4}};
    struct sockaddr_un address;
    unsigned char data[64];
    uint64_t fields[8];
    int error = -1, fd = open_socket("main", &address);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
        size_t size = put(data, 1, numbers[shifted][kind]);
        size += put(data + size, 2, kind == REGISTER ? 0 : id);
        size += put(data + size, 3, task);
        size += put(data + size, 4, next_pulse);
        write_message(fd, data, size, NULL, 0);
        if (read_message(fd, fields) == 0) {
            error = (int)fields[1] - shifted;
            id = kind == REGISTER && error == OK ? fields[2] : id;
            forgotten |= error == UNKNOWN_ID;
        }
    }
    close(fd);
    printf("pulse %s %llu -> %d\n", names[kind], (unsigned long long)task, error);
    return error;
}

static void begin(void) {
    while (pulse(REGISTER) != OK)
        usleep(50000);
    snprintf(name, sizeof name, "%llu", (unsigned long long)id);
    listener = open_socket(name, &own);
    unlink(own.sun_path);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) || listen(listener, 16))
        exit(1);
    task = holds = ready = forgotten = 0;
    printf("listens %s\n", own.sun_path);
}

static void end(void) {
    unlink(own.sun_path);
    close(listener);
}

static void answer(int fd, int error, const char *extra, uint64_t extra_size) {
    unsigned char data[64];
    size_t size = put(data, 1, error + shifted);
    size += put(data + size, 2, task);
    size += put(data + size, 3, extra_size);
    write_message(fd, data, size, extra, extra_size);
    close(fd);
}

static void compute(void) {
    usleep((useconds_t)(delay * 1e6));
    for (uint64_t i = 0; i < result_size; i++)
        result[i] = toupper((unsigned char)result[i]);
    ready = 1;
    pulse(FETCH_ME);
}

static void set_task(int fd, char *extra, uint64_t size, uint64_t number) {
    result = extra, result_size = size, task = number, holds = 1, ready = 0;
    if (!inside)
        answer(fd, OK, "", 0);
    compute();
    if (inside)
        answer(fd, OK, "", 0);
}

static void serve(int fd) {
    uint64_t fields[8] = {0};
    char *extra = NULL;
    if (read_message(fd, fields) || !(extra = malloc(fields[2] + 1)) || read_all(fd, extra, fields[2])) {
        close(fd);
        return;
    }
    int kind = (int)fields[1] - shifted;
    printf("control %d\n", kind);
    if (kind == SET_TASK && !holds) {
        set_task(fd, extra, fields[2], fields[3]);
    } else if (kind == SET_TASK) {
        answer(fd, BUSY, "", 0);
    } else if (kind == FETCH) {
        answer(fd, ready ? OK : NO_FETCH, result, ready ? result_size : 0);
        holds = holds && !ready;
        ready = ready && !shifted; /* later workers do not keep it */
    } else if (kind == RESTART || kind == GET_STATUS) {
        answer(fd, OK, "", 0);
    } else {
        answer(fd, FAILED, "what?", 5);
    }
    if (kind == RESTART) {
        pulse(SHUTDOWN);
        end();
        exit(0);
    }
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int option; (option = getopt(count, words, "sid:n:")) != -1;) {
        shifted |= option == 's';
        inside |= option == 'i';
        delay = option == 'd' ? atof(optarg) : delay;
        next_pulse = option == 'n' ? atoi(optarg) : next_pulse;
    }
    folder = words[optind];
    begin();
    for (;;) {
        struct pollfd ear = {.fd = listener, .events = POLLIN};
        if (poll(&ear, 1, next_pulse * 500) > 0)
            serve(accept(listener, NULL, NULL));
        else
            pulse(ready && holds ? FETCH_ME : PULSE_OK);
        if (forgotten)
            end(), begin();
    }
}
