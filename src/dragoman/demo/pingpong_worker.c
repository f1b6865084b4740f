/* A PingPong worker with libzmq: returns each payload backwards, after some seconds. It uses no code of Dragoman.
 *
 *   cc -o pingpong_worker pingpong_worker.c -lzmq
 *   ./pingpong_worker tcp://127.0.0.1:7401 [SERVICE [SECONDS]]      (the service is the listener's; it is ignored)
 *
 * READY once; PING every second while it is idle; EXIT, or a silence of five seconds, ends it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

static void *broker;

static double now(void) {
    struct timespec time;
    return clock_gettime(CLOCK_MONOTONIC, &time), time.tv_sec + time.tv_nsec / 1e9;
}

static void say(const void *frame, size_t size) { zmq_send(broker, "", 0, ZMQ_SNDMORE), zmq_send(broker, frame, size, 0); }

static int is(zmq_msg_t *frame, const char *word) {
    return zmq_msg_size(frame) == strlen(word) && !memcmp(zmq_msg_data(frame), word, strlen(word));
}

static void work(zmq_msg_t *job, double seconds) {
    char *payload = zmq_msg_data(job);
    size_t size = zmq_msg_size(job);
    struct timespec time = {seconds, (seconds - (long)seconds) * 1e9};
    nanosleep(&time, NULL);
    for (size_t i = 0; i < size / 2; i++) {
        char byte = payload[i];
        payload[i] = payload[size - 1 - i], payload[size - 1 - i] = byte;
    }
    say(payload, size);
}

int main(int count, char **words) {
    void *context = zmq_ctx_new();
    double pinged = now(), heard = now(), seconds = count > 3 ? atof(words[3]) : 0;
    broker = zmq_socket(context, ZMQ_DEALER);
    if (count < 2 || zmq_connect(broker, words[1])) return 2;
    say("READY", 5);
    while (now() - heard < 5) {
        zmq_pollitem_t item = {broker, 0, ZMQ_POLLIN, 0};
        if (zmq_poll(&item, 1, 200) > 0) {
            zmq_msg_t empty, frame;
            zmq_msg_init(&empty), zmq_msg_init(&frame);
            zmq_msg_recv(&empty, broker, 0), zmq_msg_recv(&frame, broker, 0);
            if (is(&frame, "EXIT")) return 0;
            if (!is(&frame, "PONG")) work(&frame, seconds);
            zmq_msg_close(&empty), zmq_msg_close(&frame);
            heard = now();
        }
        if (now() - pinged >= 1) say("PING", 4), pinged = now();
    }
    return 1;
}
