/* A WebSocket load generator: one thread, epoll, no dependencies. README.md says how to run it.
 *
 * Every session goes through `enum phase` in order. All sessions open first, a bounded number at
 * a time; then all reset, with the same bound; then all step in a closed loop: a session sends its
 * next step when the answer to the last one has arrived. Frames are opaque bytes from files.
 *
 * One JSON object goes to stdout, errors to stderr. The exit status is 0 if that object was
 * printed, even if it reports failures.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define FOREVER UINT64_MAX
#define RECEIVE_BYTES (1u << 20)
#define EVENTS 512
#define SESSIONS_A_SOURCE 4096
#define LOOKED_AT 65536u /* bytes of an answer that --check examines */
#define MOST_OPEN_FRAMES 16
#define MOST_PROCESSES 64

enum { CONTINUATION = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "load: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(2);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static double seconds(uint64_t nanoseconds) { return (double)nanoseconds / 1e9; }

/* ------------------------------------------------------------------ bytes */

struct bytes {
    uint8_t *data;
    size_t used, room;
};

static void append(struct bytes *to, const void *data, size_t size) {
    if (to->used + size > to->room) {
        to->room = (to->used + size) * 2;
        to->data = realloc(to->data, to->room);
        if (!to->data) die("out of memory");
    }
    memcpy(to->data + to->used, data, size);
    to->used += size;
}

static void empty(struct bytes *bytes) {
    free(bytes->data);
    *bytes = (struct bytes){0};
}

static struct bytes read_file(const char *path) {
    struct bytes content = {0};
    uint8_t block[4096];
    FILE *file = fopen(path, "rb");
    if (!file) die("%s: %s", path, strerror(errno));
    for (size_t size; (size = fread(block, 1, sizeof block, file)) > 0;)
        append(&content, block, size);
    fclose(file);
    return content;
}

/* ------------------------------------------------------------------ SHA-1 and base64 (RFC 6455, 1.3) */

static uint32_t rotated(uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

static void sha1_block(uint32_t hash[5], const uint8_t *block) {
    uint32_t w[80], a = hash[0], b = hash[1], c = hash[2], d = hash[3], e = hash[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 80; i++) w[i] = rotated(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20) f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40) f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60) f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t next = rotated(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotated(b, 30), b = a, a = next;
    }
    hash[0] += a, hash[1] += b, hash[2] += c, hash[3] += d, hash[4] += e;
}

/* The SHA-1 of at most 119 bytes, which is enough for a handshake. */
static void sha1(const char *text, uint8_t digest[20]) {
    uint32_t hash[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t padded[128] = {0};
    size_t size = strlen(text), whole = size < 56 ? 64 : 128;
    memcpy(padded, text, size);
    padded[size] = 0x80;
    padded[whole - 2] = (uint8_t)(size * 8 >> 8);
    padded[whole - 1] = (uint8_t)(size * 8);
    for (size_t at = 0; at < whole; at += 64) sha1_block(hash, padded + at);
    for (int i = 0; i < 20; i++) digest[i] = (uint8_t)(hash[i / 4] >> (24 - 8 * (i % 4)));
}

static void base64(const uint8_t *data, size_t size, char *text) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)data[i] << 16 | (i + 1 < size ? (uint32_t)data[i + 1] << 8 : 0) |
                         (i + 2 < size ? data[i + 2] : 0);
        for (int j = 0; j < 4; j++) *text++ = digits[three >> (18 - 6 * j) & 63];
    }
    for (size_t i = size % 3; i && i < 3; i++) text[-(3 - (int)i)] = '=';
    *text = 0;
}

/* ------------------------------------------------------------------ options */

static struct {
    const char *host, *path, *subprotocol, *header, *check, *check_reset, *aside, *ready_file;
    int port, sessions, in_flight, greetings;
    struct bytes open[MOST_OPEN_FRAMES], reset, step;
    int opens;
    bool opens_are_answered, binary, spins;
    long sequence_at; /* -1: the step frame holds no sequence number */
    uint32_t steps, warm_up_steps;
    uint64_t duration, warm_up, overtime, timeout, hold;
    int processes[MOST_PROCESSES], process_count;
} asked = {
    .host = "127.0.0.1", .path = "/ws", .port = 8000, .sessions = 1, .in_flight = 256,
    .opens_are_answered = true, .sequence_at = -1, .warm_up_steps = 1, .duration = 2 * SECOND,
    .warm_up = SECOND / 2, .overtime = 30 * SECOND, .timeout = 60 * SECOND,
};

static const char usage[] =
    "load: drive a WebSocket server with many sessions\n"
    "  --host A --port N --path /ws   where it listens\n"
    "  --sessions N                   connections (1)\n"
    "  --in-flight N                  openings, and resets, under way at a time (256)\n"
    "  --subprotocol NAME             ask for it, and fail without it\n"
    "  --header TEXT                  a line of each handshake, such as a key's\n"
    "  --greeting N                   frames that the server sends first, unasked (0)\n"
    "  --open FILE                    a frame to send first; may be repeated\n"
    "  --open-quiet                   these frames are not answered\n"
    "  --reset FILE                   the frame that resets\n"
    "  --step FILE                    the frame that steps\n"
    "  --binary                       frames are binary messages, not text\n"
    "  --sequence-offset N            a big-endian uint32 there in the step frame counts up\n"
    "  --check TEXT                   what the answer to every step has to contain\n"
    "  --check-reset TEXT             what the answer to every reset has to contain\n"
    "  --aside TEXT                   what contains it, and not that, answers nothing\n"
    "  --warmup S                     step for this long before measuring (0.5)\n"
    "  --warmup-steps N               and until every session has had as many answers (1)\n"
    "  --duration S                   then measure for this long (2), and on until all sessions\n"
    "                                 have had equally many answers: servers answer in bursts\n"
    "  --overtime S                   but neither for more than so much longer (30)\n"
    "  --steps K                      instead of a window: K steps a session\n"
    "  --timeout S                    the longest wait for one answer (60)\n"
    "  --cpu-of PID                   measure the CPU time of this process; may be repeated\n"
    "  --hold S                       keep all sessions open for this long at the end\n"
    "  --ready-file PATH              made when that begins; SIGTERM ends it\n"
    "  --files N                      raise the limit of open files to N\n"
    "  --spin                         poll instead of sleeping while stepping\n";

static uint64_t duration_of(const char *text) { return (uint64_t)(atof(text) * 1e9); }

static void raise_files(long wanted) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if ((rlim_t)wanted > limit.rlim_max) limit.rlim_max = (rlim_t)wanted;
    limit.rlim_cur = (rlim_t)wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit)) die("--files %ld: %s", wanted, strerror(errno));
}

static void add_open_frame(const char *path) {
    if (asked.opens == MOST_OPEN_FRAMES) die("too many --open");
    asked.open[asked.opens++] = read_file(path);
}

static void add_process(const char *text) {
    if (asked.process_count == MOST_PROCESSES) die("too many --cpu-of");
    asked.processes[asked.process_count++] = atoi(text);
}

static void parse(int count, char **words) {
    enum { HOST = 256, PORT, PATH, SESSIONS, IN_FLIGHT, SUBPROTOCOL, HEADER, GREETING, OPEN, OPEN_QUIET,
           RESET, STEP, IS_BINARY, SEQUENCE, CHECK, CHECK_RESET, ASIDE, DURATION, WARM_UP, WARM_UP_STEPS,
           OVERTIME, STEPS, TIMEOUT, CPU_OF, HOLD, READY_FILE, FILES, SPIN, HELP };
    static const struct option options[] = {
        {"host", 1, 0, HOST}, {"port", 1, 0, PORT}, {"path", 1, 0, PATH},
        {"sessions", 1, 0, SESSIONS}, {"in-flight", 1, 0, IN_FLIGHT},
        {"subprotocol", 1, 0, SUBPROTOCOL}, {"header", 1, 0, HEADER},
        {"greeting", 1, 0, GREETING}, {"open", 1, 0, OPEN},
        {"open-quiet", 0, 0, OPEN_QUIET}, {"reset", 1, 0, RESET}, {"step", 1, 0, STEP},
        {"binary", 0, 0, IS_BINARY}, {"sequence-offset", 1, 0, SEQUENCE}, {"check", 1, 0, CHECK},
        {"check-reset", 1, 0, CHECK_RESET}, {"aside", 1, 0, ASIDE},
        {"duration", 1, 0, DURATION}, {"warmup", 1, 0, WARM_UP},
        {"warmup-steps", 1, 0, WARM_UP_STEPS}, {"overtime", 1, 0, OVERTIME},
        {"steps", 1, 0, STEPS}, {"timeout", 1, 0, TIMEOUT}, {"cpu-of", 1, 0, CPU_OF},
        {"hold", 1, 0, HOLD}, {"ready-file", 1, 0, READY_FILE}, {"files", 1, 0, FILES},
        {"spin", 0, 0, SPIN}, {"help", 0, 0, HELP}, {0},
    };
    for (int option; (option = getopt_long(count, words, "", options, NULL)) != -1;) switch (option) {
        case HOST: asked.host = optarg; break;
        case PORT: asked.port = atoi(optarg); break;
        case PATH: asked.path = optarg; break;
        case SESSIONS: asked.sessions = atoi(optarg); break;
        case IN_FLIGHT: asked.in_flight = atoi(optarg); break;
        case SUBPROTOCOL: asked.subprotocol = optarg; break;
        case HEADER: asked.header = optarg; break;
        case GREETING: asked.greetings = atoi(optarg); break;
        case OPEN: add_open_frame(optarg); break;
        case OPEN_QUIET: asked.opens_are_answered = false; break;
        case RESET: asked.reset = read_file(optarg); break;
        case STEP: asked.step = read_file(optarg); break;
        case IS_BINARY: asked.binary = true; break;
        case SEQUENCE: asked.sequence_at = atol(optarg); break;
        case CHECK: asked.check = *optarg ? optarg : NULL; break;
        case CHECK_RESET: asked.check_reset = optarg; break;
        case ASIDE: asked.aside = optarg; break;
        case DURATION: asked.duration = duration_of(optarg); break;
        case WARM_UP: asked.warm_up = duration_of(optarg); break;
        case WARM_UP_STEPS: asked.warm_up_steps = (uint32_t)atol(optarg); break;
        case OVERTIME: asked.overtime = duration_of(optarg); break;
        case STEPS: asked.steps = (uint32_t)atol(optarg); break;
        case TIMEOUT: asked.timeout = duration_of(optarg); break;
        case CPU_OF: add_process(optarg); break;
        case HOLD: asked.hold = duration_of(optarg); break;
        case READY_FILE: asked.ready_file = optarg; break;
        case FILES: raise_files(atol(optarg)); break;
        case SPIN: asked.spins = true; break;
        case HELP: fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
    }
    if (!asked.reset.used || !asked.step.used) die("--reset FILE and --step FILE are needed");
    if (asked.sessions < 1 || asked.in_flight < 1) die("--sessions and --in-flight are at least 1");
    if (asked.sequence_at >= 0 && (size_t)asked.sequence_at + 4 > asked.step.used)
        die("--sequence-offset is outside of the step frame");
}

/* ------------------------------------------------------------------ latencies */

/* Buckets of 1/64 of a power of two, so a quantile has an error of at most 1.6 %. */
#define SUB_BITS 6
#define SUB (1 << SUB_BITS)
static uint64_t buckets[(64 - SUB_BITS) * SUB], recorded, recorded_sum, recorded_most;

static void record(uint64_t nanoseconds) {
    size_t index = nanoseconds;
    if (nanoseconds >= SUB) {
        int shift = 63 - __builtin_clzll(nanoseconds) - SUB_BITS;
        index = (size_t)(shift + 1) * SUB + (nanoseconds >> shift) - SUB;
    }
    buckets[index]++;
    recorded++;
    recorded_sum += nanoseconds;
    if (nanoseconds > recorded_most) recorded_most = nanoseconds;
}

static double middle_of(size_t index) {
    if (index < SUB) return (double)index;
    size_t shift = index / SUB - 1;
    return (double)((uint64_t)(index % SUB + SUB) << shift) + (double)(1ull << shift) / 2;
}

static double quantile_us(double share) {
    uint64_t seen = 0, wanted = (uint64_t)(share * (double)recorded);
    for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++) {
        seen += buckets[i];
        if (seen > wanted) {
            double middle = middle_of(i);
            return (middle < (double)recorded_most ? middle : (double)recorded_most) / 1e3;
        }
    }
    return (double)recorded_most / 1e3;
}

/* ------------------------------------------------------------------ CPU time */

/* CPU seconds of the --cpu-of processes, including ended threads; -1 if a process has ended. */
static double servers_cpu(void) {
    double total = 0;
    for (int i = 0; i < asked.process_count; i++) {
        char path[64], line[1024];
        snprintf(path, sizeof path, "/proc/%d/stat", asked.processes[i]);
        FILE *file = fopen(path, "r");
        if (!file) return -1;
        size_t size = fread(line, 1, sizeof line - 1, file);
        fclose(file);
        line[size] = 0;
        unsigned long user, system;
        const char *rest = strrchr(line, ')'); /* the name may contain anything */
        if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                            &system) != 2)
            return -1;
        total += (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    }
    return total;
}

static double own_cpu(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

struct moment {
    uint64_t at;
    double servers, own;
};

static struct moment moment(void) { return (struct moment){now(), servers_cpu(), own_cpu()}; }

/* ------------------------------------------------------------------ sessions */

enum phase { UNOPENED, CONNECTING, SHAKING_HANDS, GREETED, PREPARING, OPENED, RESETTING, READY,
             STEPPING, FINISHED, GONE };

struct session {
    int fd;
    enum phase phase;
    bool wants_out;
    int greetings_left, opens_sent;
    uint32_t steps, laps, sequence; /* laps: steps since the warm-up, or the window, began */
    uint64_t asked_at;    /* time of the pending request; 0: none is pending */
    struct bytes unsent;
    struct bytes kept;    /* the HTTP answer, or the head of a fragmented message */
    uint8_t header[14], control[125];
    uint8_t header_used, opcode, control_used;
    bool in_payload, final;
    uint64_t payload_left, message_size;
};

static struct {
    uint64_t refused, lost, handshake, wrong, protocol, timeout, closed;
    uint64_t closed_with[5000];
    char sample[512]; /* text of the first error */
} errors;

static struct session *sessions;
static int epoll = -1;
static int in_flight, opened, made_ready, finished, alive;
static uint64_t answer_bytes;
static enum phase stage; /* the target phase: OPENED, READY, STEPPING or FINISHED */
static bool measuring;
static uint32_t lap; /* the unfinished lap; `lapped` sessions have run it */
static int lapped;
static uint64_t mask_state;
static char handshake[1024], expected_accept[32];
static volatile sig_atomic_t told_to_stop;

static void stop(int number) {
    (void)number;
    told_to_stop = 1;
}

static uint32_t next_mask(void) { /* xorshift64*, seeded from the system */
    mask_state ^= mask_state >> 12, mask_state ^= mask_state << 25, mask_state ^= mask_state >> 27;
    return (uint32_t)(mask_state * 0x2545f4914f6cdd1dull >> 32);
}

static void note(const void *text, size_t size) {
    if (errors.sample[0]) return;
    if (size > sizeof errors.sample - 1) size = sizeof errors.sample - 1;
    memcpy(errors.sample, text, size);
    for (size_t i = 0; i < size; i++)
        if (!isprint((unsigned char)errors.sample[i])) errors.sample[i] = '.';
}

static void leave_count(struct session *session) {
    if (session->phase > UNOPENED && session->phase < OPENED) in_flight--;
    if (session->phase == RESETTING) in_flight--;
    if (session->phase >= OPENED && session->phase < GONE) opened--;
    if (session->phase >= READY && session->phase < GONE) made_ready--;
    if (session->laps >= lap && lap) lapped--;
}

static void end(struct session *session) {
    if (session->phase == GONE) return;
    leave_count(session);
    if (session->fd >= 0) close(session->fd);
    session->fd = -1;
    session->phase = GONE;
    session->asked_at = 0;
    empty(&session->unsent);
    empty(&session->kept);
    alive--;
}

static void fail(struct session *session, uint64_t *counter, const char *why) {
    if (stage != GONE) {
        ++*counter;
        note(why, strlen(why));
    }
    end(session);
}

static void fail_by_errno(struct session *session, int error) {
    fail(session, error == ECONNREFUSED ? &errors.refused : &errors.lost, strerror(error));
}

/* ------------------------------------------------------------------ sending */

static void watch(struct session *session, bool out) {
    if (session->wants_out == out) return;
    session->wants_out = out;
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = session};
    epoll_ctl(epoll, EPOLL_CTL_MOD, session->fd, &event);
}

static void transmit(struct session *session, const uint8_t *data, size_t size) {
    if (session->unsent.used) {
        append(&session->unsent, data, size);
        return;
    }
    ssize_t sent = send(session->fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        fail_by_errno(session, errno);
        return;
    }
    if (sent < 0) sent = 0;
    if ((size_t)sent < size) {
        append(&session->unsent, data + sent, size - (size_t)sent);
        watch(session, true);
    }
}

static void flush_unsent(struct session *session) {
    ssize_t sent = send(session->fd, session->unsent.data, session->unsent.used, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN) fail_by_errno(session, errno);
        return;
    }
    session->unsent.used -= (size_t)sent;
    memmove(session->unsent.data, session->unsent.data + sent, session->unsent.used);
    if (!session->unsent.used) {
        empty(&session->unsent);
        watch(session, false);
    }
}

static void send_frame(struct session *session, int opcode, const uint8_t *payload, size_t size) {
    static struct bytes frame;
    uint8_t head[14] = {(uint8_t)(0x80 | opcode)};
    size_t used = 2;
    if (size < 126) {
        head[1] = (uint8_t)(0x80 | size);
    } else {
        int wide = size < 65536 ? 2 : 8;
        head[1] = (uint8_t)(0x80 | (wide == 2 ? 126 : 127));
        for (int i = wide - 1; i >= 0; i--) head[used++] = (uint8_t)((uint64_t)size >> 8 * i);
    }
    uint32_t mask = next_mask();
    memcpy(head + used, &mask, 4);
    frame.used = 0;
    append(&frame, head, used + 4);
    append(&frame, payload, size);
    for (size_t i = 0; i < size; i++) frame.data[used + 4 + i] ^= head[used + i % 4];
    transmit(session, frame.data, frame.used);
}

static void ask(struct session *session, const struct bytes *frame) {
    session->asked_at = now();
    send_frame(session, asked.binary ? BINARY : TEXT, frame->data, frame->used);
}

static void ask_step(struct session *session) {
    if (asked.sequence_at >= 0) {
        uint8_t *at = asked.step.data + asked.sequence_at;
        static bool known;
        static uint32_t first;
        if (!known) first = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        known = true;
        uint32_t number = first + session->sequence++;
        for (int i = 0; i < 4; i++) at[i] = (uint8_t)(number >> (24 - 8 * i));
    }
    ask(session, &asked.step);
}

/* ------------------------------------------------------------------ from phase to phase */

static void arrive(struct session *session, enum phase phase) {
    session->phase = phase;
    session->asked_at = 0;
    in_flight--;
    if (phase == OPENED) opened++;
    if (phase == READY) made_ready++;
}

static void prepare(struct session *session) {
    session->phase = PREPARING;
    while (session->opens_sent < asked.opens) {
        ask(session, &asked.open[session->opens_sent++]);
        if (asked.opens_are_answered || session->phase == GONE) return;
    }
    arrive(session, OPENED);
}

static void greet(struct session *session) {
    session->phase = GREETED;
    session->asked_at = now();
    session->greetings_left = asked.greetings;
    if (!session->greetings_left) prepare(session);
}

static bool contains(const uint8_t *head, size_t size, const char *text) {
    return !text || memmem(head, size, text, strlen(text));
}

static void answered_step(struct session *session, const uint8_t *head, size_t size) {
    uint64_t took = now() - session->asked_at;
    session->asked_at = 0;
    session->steps++;
    if (++session->laps == lap) lapped++;
    if (!contains(head, size, asked.check)) {
        errors.wrong++;
        note(head, size);
    } else if (measuring) {
        record(took);
        answer_bytes += session->message_size;
    }
    if (stage != STEPPING || session->steps == asked.steps) {
        session->phase = FINISHED;
        finished++;
    } else {
        ask_step(session);
    }
}

static void answered_reset(struct session *session, const uint8_t *head, size_t size) {
    if (contains(head, size, asked.check_reset)) {
        arrive(session, READY);
        return;
    }
    note(head, size);
    fail(session, &errors.wrong, "wrong answer to the reset");
}

/* Whether a message is an aside of the server, such as an acknowledgment. */
static bool is_aside(const struct session *session, const uint8_t *head, size_t size) {
    const char *check = session->phase == STEPPING ? asked.check : asked.check_reset;
    return asked.aside && !contains(head, size, check) && contains(head, size, asked.aside);
}

static void on_message(struct session *session, const uint8_t *head, size_t size) {
    if (session->phase >= RESETTING && is_aside(session, head, size)) return;
    switch (session->phase) {
        case GREETED:
            if (!--session->greetings_left) prepare(session);
            break;
        case PREPARING: prepare(session); break;
        case RESETTING: answered_reset(session, head, size); break;
        case STEPPING: answered_step(session, head, size); break;
        case FINISHED: break;
        default:
            note(head, size);
            fail(session, &errors.protocol, "a frame that nobody asked for");
    }
}

/* ------------------------------------------------------------------ receiving */

static void on_close(struct session *session) {
    int code = session->control_used >= 2 ? session->control[0] << 8 | session->control[1] : 1005;
    if (stage != GONE) {
        if (session->control_used > 2) note(session->control + 2, session->control_used - 2u);
        errors.closed_with[code < 5000 ? code : 0]++;
    }
    fail(session, &errors.closed, "closed by the server");
}

static void on_control(struct session *session) {
    if (session->opcode == PING) send_frame(session, PONG, session->control, session->control_used);
    if (session->opcode == CLOSE) on_close(session);
}

static size_t header_size(const struct session *session) {
    if (session->header_used < 2) return 2;
    int length = session->header[1] & 127;
    return length == 127 ? 10 : length == 126 ? 4 : 2;
}

/* Handle a complete frame header. */
static void on_header(struct session *session) {
    const uint8_t *header = session->header;
    int opcode = header[0] & 15;
    uint64_t length = header[1] & 127;
    if (length >= 126) {
        size_t wide = length == 126 ? 2 : 8;
        length = 0;
        for (size_t i = 0; i < wide; i++) length = length << 8 | header[2 + i];
    }
    if (header[0] & 0x70 || header[1] & 0x80 || (opcode >= CLOSE && length > 125)) {
        fail(session, &errors.protocol, "a malformed frame");
        return;
    }
    session->opcode = (uint8_t)opcode;
    session->header_used = 0;
    session->payload_left = length;
    session->in_payload = true;
    if (opcode >= CLOSE) {
        session->control_used = 0;
        return;
    }
    session->final = header[0] & 0x80;
    if (opcode != CONTINUATION) session->message_size = 0;
    session->message_size += length;
}

/* Handle the end of a frame's payload, the `size` bytes at `data`. */
static void on_frame(struct session *session, const uint8_t *data, size_t size) {
    session->in_payload = false;
    if (session->opcode >= CLOSE) {
        on_control(session);
    } else if (session->final) {
        bool is_whole = !session->kept.used;
        on_message(session, is_whole ? data : session->kept.data,
                   is_whole ? size : session->kept.used);
        if (session->kept.data) empty(&session->kept);
    }
}

static void keep(struct session *session, const uint8_t *data, size_t size) {
    if (session->phase == STEPPING && !asked.check) return; /* nothing examines it */
    size_t room = LOOKED_AT - session->kept.used;
    append(&session->kept, data, size < room ? size : room);
}

static void on_payload(struct session *session, const uint8_t *data, size_t size) {
    bool ends = size == session->payload_left;
    session->payload_left -= size;
    if (session->opcode >= CLOSE) {
        memcpy(session->control + session->control_used, data, size);
        session->control_used = (uint8_t)(session->control_used + size);
    } else if (session->kept.used || !ends || !session->final) {
        keep(session, data, size);
    }
    if (ends) on_frame(session, data, size);
}

static void on_bytes(struct session *session, const uint8_t *data, size_t size) {
    while ((size || (session->in_payload && !session->payload_left)) && session->phase != GONE) {
        if (session->in_payload) {
            size_t taken = size < session->payload_left ? size : (size_t)session->payload_left;
            on_payload(session, data, taken);
            data += taken, size -= taken;
            continue;
        }
        session->header[session->header_used++] = *data++, size--;
        if (session->header_used >= 2 && session->header_used == header_size(session))
            on_header(session);
    }
}

/* ------------------------------------------------------------------ handshake */

static void make_handshake(void) {
    uint8_t random[16], digest[20];
    char key[32], both[128];
    if (getrandom(random, sizeof random, 0) != sizeof random) die("getrandom failed");
    memcpy(&mask_state, random, sizeof mask_state);
    mask_state |= 1;
    base64(random, sizeof random, key);
    snprintf(both, sizeof both, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    sha1(both, digest);
    base64(digest, sizeof digest, expected_accept);
    int length = snprintf(handshake, sizeof handshake,
             "GET %s HTTP/1.1\r\nHost: %s:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n%s%s%s%s%s\r\n",
             asked.path, asked.host, asked.port, key,
             asked.subprotocol ? "Sec-WebSocket-Protocol: " : "",
             asked.subprotocol ? asked.subprotocol : "", asked.subprotocol ? "\r\n" : "",
             asked.header ? asked.header : "", asked.header ? "\r\n" : "");
    if (length >= (int)sizeof handshake) die("the handshake is too long");
}

/* Whether header `name` of a zero-terminated HTTP answer has `value`. */
static bool header_is(const char *answer, const char *name, const char *value) {
    for (const char *line = strstr(answer, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, strlen(name)) || line[strlen(name)] != ':') continue;
        const char *found = line + strlen(name) + 1;
        found += strspn(found, " \t");
        return !strncmp(found, value, strlen(value)) && strchr("\r \t", found[strlen(value)]);
    }
    return false;
}

static void on_http(struct session *session, const uint8_t *data, size_t size) {
    append(&session->kept, data, size);
    const uint8_t *end_of_head = memmem(session->kept.data, session->kept.used, "\r\n\r\n", 4);
    if (!end_of_head) return;
    struct bytes answer = session->kept;
    session->kept = (struct bytes){0};
    size_t head = (size_t)(end_of_head - answer.data) + 4;
    char text[4096];
    snprintf(text, sizeof text, "%.*s", (int)head, (const char *)answer.data);
    if (strncmp(text, "HTTP/1.1 101 ", 13) ||
        !header_is(text, "sec-websocket-accept", expected_accept)) {
        fail(session, &errors.handshake, text);
    } else if (asked.subprotocol &&
               !header_is(text, "sec-websocket-protocol", asked.subprotocol)) {
        fail(session, &errors.handshake, "the server did not take the subprotocol");
    } else {
        greet(session);
        if (session->phase != GONE) on_bytes(session, answer.data + head, answer.used - head);
    }
    free(answer.data);
}

/* Bind to another source address for every few thousand sessions: the more ports of an address are
 * taken, the longer the kernel searches for a free one. Only loopback has addresses to spare. */
static void take_source(struct session *session) {
    if (strncmp(asked.host, "127.", 4)) return;
    int yes = 1;
    uint32_t number = (uint32_t)((session - sessions) / SESSIONS_A_SOURCE);
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000101 + number)};
    setsockopt(session->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    if (bind(session->fd, (struct sockaddr *)&source, sizeof source))
        die("bind: %s", strerror(errno));
}

static void begin(struct session *session) {
    session->phase = CONNECTING;
    session->asked_at = now();
    in_flight++;
    session->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (session->fd < 0) die("socket: %s (see --files)", strerror(errno));
    int yes = 1;
    setsockopt(session->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    take_source(session);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)asked.port)};
    if (inet_pton(AF_INET, asked.host, &address.sin_addr) != 1) die("--host is no IPv4 address");
    session->wants_out = true;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = session};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, session->fd, &event)) die("epoll: %s", strerror(errno));
    if (connect(session->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS)
        fail_by_errno(session, errno);
}

static void on_connected(struct session *session) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(session->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        fail_by_errno(session, error);
        return;
    }
    session->phase = SHAKING_HANDS;
    watch(session, false);
    transmit(session, (const uint8_t *)handshake, strlen(handshake));
}

/* ------------------------------------------------------------------ the loop */

static void on_event(struct session *session, uint32_t events) {
    static uint8_t received[RECEIVE_BYTES];
    if (session->phase == GONE) return;
    if (session->phase == CONNECTING) {
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) on_connected(session);
        return;
    }
    if (events & EPOLLOUT && session->unsent.used) flush_unsent(session);
    if (session->phase == GONE || !(events & (EPOLLIN | EPOLLERR | EPOLLHUP))) return;
    ssize_t size = recv(session->fd, received, sizeof received, 0);
    if (size < 0) {
        if (errno != EAGAIN) fail_by_errno(session, errno);
    } else if (size == 0) {
        if (stage != GONE) errors.closed_with[1006]++;
        fail(session, &errors.closed, "the connection ended without a close frame");
    } else if (session->phase == SHAKING_HANDS) {
        on_http(session, received, (size_t)size);
    } else {
        on_bytes(session, received, (size_t)size);
    }
}

static void find_timeouts(uint64_t at) {
    static uint64_t next;
    if (at < next) return;
    next = at + SECOND / 4;
    for (int i = 0; i < asked.sessions; i++)
        if (sessions[i].asked_at && at > sessions[i].asked_at + asked.timeout)
            fail(&sessions[i], &errors.timeout, "timeout");
}

/* Handle the pending events, or wait up to 20 ms for some. */
static void turn(bool spins) {
    static struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll, events, EVENTS, spins ? 0 : 20);
    for (int i = 0; i < count; i++) on_event(events[i].data.ptr, events[i].events);
    find_timeouts(now());
}

static void lead(enum phase to, bool (*is_due)(const struct session *), void (*start)(struct session *)) {
    stage = to;
    for (int next = 0; (next < asked.sessions || in_flight) && !told_to_stop;) {
        for (; next < asked.sessions && in_flight < asked.in_flight; next++)
            if (is_due(&sessions[next])) start(&sessions[next]);
        if (in_flight) turn(false);
    }
}

static bool is_unopened(const struct session *session) { return session->phase == UNOPENED; }
static bool is_opened(const struct session *session) { return session->phase == OPENED; }

static void start_reset(struct session *session) {
    session->phase = RESETTING;
    in_flight++;
    ask(session, &asked.reset);
}

static void begin_laps(void) {
    lap = 1;
    lapped = 0;
    for (int i = 0; i < asked.sessions; i++) sessions[i].laps = 0;
}

/* Whether all sessions have run the current lap; starts the next lap if so. */
static bool lap_is_complete(void) {
    if (!alive || lapped < alive) return false;
    lap++;
    lapped = 0;
    for (int i = 0; i < asked.sessions; i++)
        if (sessions[i].phase != GONE && sessions[i].laps >= lap) lapped++;
    return true;
}

/* Step for a time, and then until the end of a lap, so that a server that answers in bursts is
 * measured over whole bursts. */
static void step_for(uint64_t duration, uint32_t laps) {
    uint64_t due = now() + duration;
    begin_laps();
    for (bool complete = false; alive && !told_to_stop; complete = lap_is_complete()) {
        uint64_t at = now();
        if ((at > due && complete && lap > laps) || at > due + asked.overtime) return;
        turn(asked.spins);
    }
}

static void step_to_the_end(void) {
    while (finished < alive && !told_to_stop) turn(asked.spins);
}

/* Warm up and step for the requested time; `start` and `over` are the ends of the measurement. */
static void step_all(struct moment *start, struct moment *over) {
    stage = STEPPING;
    *start = moment();
    measuring = asked.steps > 0;
    for (int i = 0; i < asked.sessions; i++) {
        if (sessions[i].phase != READY) continue;
        sessions[i].phase = STEPPING;
        ask_step(&sessions[i]);
    }
    if (asked.steps) {
        step_to_the_end();
    } else {
        step_for(asked.warm_up, asked.warm_up_steps);
        measuring = true;
        *start = moment();
        step_for(asked.duration, 1);
    }
    measuring = false;
    *over = moment();
    stage = FINISHED;
}

static void hold(void) {
    if (asked.ready_file) {
        int file = open(asked.ready_file, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (file < 0) die("%s: %s", asked.ready_file, strerror(errno));
        close(file);
    }
    for (uint64_t until = now() + asked.hold; now() < until && !told_to_stop;) turn(false);
}

/* Send close frames, without waiting for a server that is still busy. */
static void part(void) {
    static const uint8_t normal[] = {1000 >> 8, 1000 & 255};
    stage = GONE;
    for (int i = 0; i < asked.sessions; i++) {
        if (sessions[i].phase >= OPENED && sessions[i].phase < GONE)
            send_frame(&sessions[i], CLOSE, normal, sizeof normal);
        else
            end(&sessions[i]);
    }
    for (uint64_t until = now() + 2 * SECOND; alive && now() < until;) turn(false);
}

/* ------------------------------------------------------------------ the report */

static void print_errors(void) {
    printf("\"errors\": {\"refused\": %lu, \"lost\": %lu, \"handshake\": %lu, \"wrong\": %lu, "
           "\"protocol\": %lu, \"timeout\": %lu, \"closed\": {",
           errors.refused, errors.lost, errors.handshake, errors.wrong, errors.protocol,
           errors.timeout);
    const char *comma = "";
    for (int code = 0; code < 5000; code++) {
        if (!errors.closed_with[code]) continue;
        printf("%s\"%d\": %lu", comma, code, errors.closed_with[code]);
        comma = ", ";
    }
    printf("}, \"sample\": \"");
    for (const char *c = errors.sample; *c; c++) printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    printf("\"}");
}

static void print_cpu(const char *name, const struct moment *from, const struct moment *to) {
    if (!asked.process_count || from->servers < 0 || to->servers < 0) printf("\"%s\": null, ", name);
    else printf("\"%s\": %.3f, ", name, to->servers - from->servers);
}

static void report(const struct moment *m, int were_opened, int were_ready) {
    double opening = seconds(m[2].at - m[0].at), window = seconds(m[4].at - m[3].at);
    printf("{\"sessions\": %d, \"opened\": %d, \"ready\": %d, \"finished\": %d, ", asked.sessions,
           were_opened, were_ready, finished);
    printf("\"handshake_s\": %.6f, \"reset_s\": %.6f, \"open_rate\": %.1f, ",
           seconds(m[1].at - m[0].at), seconds(m[2].at - m[1].at),
           opening > 0 ? were_ready / opening : 0);
    print_cpu("handshake_cpu_s", &m[0], &m[1]);
    print_cpu("reset_cpu_s", &m[1], &m[2]);
    printf("\"steps\": %lu, \"window_s\": %.6f, \"steps_per_s\": %.1f, ", recorded, window,
           window > 0 ? (double)recorded / window : 0);
    print_cpu("server_cpu_s", &m[3], &m[4]);
    printf("\"load_cpu_s\": %.3f, \"answer_bytes\": %.1f, ", m[4].own - m[3].own,
           recorded ? (double)answer_bytes / (double)recorded : 0);
    printf("\"latency_us\": {\"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, "
           "\"p99.9\": %.1f, \"max\": %.1f}, ",
           recorded ? (double)recorded_sum / (double)recorded / 1e3 : 0, quantile_us(0.5),
           quantile_us(0.9), quantile_us(0.99), quantile_us(0.999), (double)recorded_most / 1e3);
    print_errors();
    printf("}\n");
}

int main(int count, char **words) {
    parse(count, words);
    make_handshake();
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    sessions = calloc((size_t)asked.sessions, sizeof *sessions);
    if (!sessions) die("out of memory");
    for (int i = 0; i < asked.sessions; i++) sessions[i].fd = -1;
    alive = asked.sessions;

    struct moment moments[5] = {moment()};
    lead(OPENED, is_unopened, begin);
    moments[1] = moment();
    int were_opened = opened;
    lead(READY, is_opened, start_reset);
    moments[2] = moment();
    int were_ready = made_ready;
    step_all(&moments[3], &moments[4]);
    if (asked.hold) hold();
    report(moments, were_opened, were_ready);
    fflush(stdout);
    part();
    return 0;
}
