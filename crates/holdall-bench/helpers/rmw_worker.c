// One side of a run of `holdall bench run` over any rmw implementation, with serialized messages. Compiled where the run is, against the headers of
// the ROS 2 that is found there; linked with one implementation. The same flags, lines and records as `holdall bench worker`:
//   --role publisher|subscriber|idle --topic NAME --bytes N --rate HZ --count N --reliability reliable|best-effort --depth N --records FILE
//   [--typed 1]   structures instead of serialized bytes
//   [--nodes N]   joins when it is started, and prints {"event":"discovered","at":NANOSECONDS} when it knows N of the other side
// prints {"event":"ready"}, {"event":"matched"}, {"event":"sent"}, {"event":"received","count":N} and {"event":"done"}; reads "start NANOSECONDS"
// (of the monotonic clock) and "end" on standard input.
#include <rcutils/allocator.h>
#include <rcutils/strdup.h>
#include <rmw/error_handling.h>
#include <rmw/init.h>
#include <rmw/init_options.h>
#include <rmw/qos_profiles.h>
#include <rmw/rmw.h>
#include <rosidl_runtime_c/message_type_support_struct.h>
#include <rosidl_runtime_c/primitives_sequence_functions.h>
#include <std_msgs/msg/u_int8_multi_array.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Of std_msgs/UInt8MultiArray: encapsulation, no dimension, offset, length.
enum { HEAD_BYTES = 16 };

const rosidl_message_type_support_t *
rosidl_typesupport_c__get_message_type_support_handle__std_msgs__msg__UInt8MultiArray(void);

typedef struct {
    bool is_publisher, is_idle, is_reliable, is_typed;
    uint64_t bytes, count, depth, nodes;
    double rate;
    const char *records, *topic;
} plan_t;

typedef struct { uint64_t due, before, after, flags; } sent_t;
typedef struct { uint64_t number, at; } received_t;

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "rmw_worker: %s: %s\n", what, why);
    exit(1);
}

static void check(rmw_ret_t result, const char *what)
{
    if (result != RMW_RET_OK) {
        fail(what, rmw_get_error_string().str);
    }
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t nanos)
{
    struct timespec time = {.tv_sec = (time_t)(nanos / 1000000000u), .tv_nsec = (long)(nanos % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
    }
}

static void say(const char *event)
{
    printf("{\"event\":\"%s\"}\n", event);
    fflush(stdout);
}

static plan_t read_plan(int argc, char **argv)
{
    plan_t plan = {.is_reliable = true, .depth = 10};
    for (int at = 1; at + 1 < argc; at += 2) {
        const char *flag = argv[at], *value = argv[at + 1];
        if (!strcmp(flag, "--role")) plan.is_publisher = !strcmp(value, "publisher"), plan.is_idle = !strcmp(value, "idle");
        else if (!strcmp(flag, "--topic")) plan.topic = value;
        else if (!strcmp(flag, "--typed")) plan.is_typed = true;
        else if (!strcmp(flag, "--nodes")) plan.nodes = strtoull(value, NULL, 10);
        else if (!strcmp(flag, "--bytes")) plan.bytes = strtoull(value, NULL, 10);
        else if (!strcmp(flag, "--rate")) plan.rate = strtod(value, NULL);
        else if (!strcmp(flag, "--count")) plan.count = strtoull(value, NULL, 10);
        else if (!strcmp(flag, "--reliability")) plan.is_reliable = !strcmp(value, "reliable");
        else if (!strcmp(flag, "--depth")) plan.depth = strtoull(value, NULL, 10);
        else if (!strcmp(flag, "--records")) plan.records = value;
        else fail(flag, "is not a flag");
    }
    if (plan.bytes < 8 || !(plan.rate > 0) || plan.count == 0 || !plan.records || !plan.topic) {
        fail("flags", "--topic, --bytes, --rate, --count and --records are needed");
    }
    return plan;
}

// A line of standard input when there is one now. "end" and the end of the input both return 'e', "start" returns 's'.
static char read_order(uint64_t *start, int timeout_ms)
{
    static char line[128];
    static size_t length;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, timeout_ms) <= 0) {
        return 0;
    }
    char byte;
    while (read(STDIN_FILENO, &byte, 1) == 1) {
        if (byte == '\n') {
            line[length] = 0;
            length = 0;
            if (!strncmp(line, "start ", 6)) {
                *start = strtoull(line + 6, NULL, 10);
                return 's';
            }
            return 'e';
        }
        if (length + 1 < sizeof line) {
            line[length++] = byte;
        }
    }
    return 'e';
}

static void write_records(const plan_t *plan, const void *records, size_t size, size_t count)
{
    FILE *file = fopen(plan->records, "wb");
    if (!file || fwrite(records, size, count, file) != count || fclose(file)) {
        fail(plan->records, strerror(errno));
    }
}

// Content that does not compress.
static void fill(uint8_t *bytes, size_t length)
{
    uint64_t state = 88172645463325252u;
    for (size_t at = 0; at < length; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        bytes[at] = (uint8_t)state;
    }
}

// What is sent: a structure, or serialized bytes, whose content begins at `content`.
typedef struct {
    std_msgs__msg__UInt8MultiArray *structure;
    rmw_serialized_message_t bytes;
    uint8_t *content;
} message_t;

static message_t new_message(const plan_t *plan)
{
    message_t message = {.bytes = rmw_get_zero_initialized_serialized_message()};
    if (plan->is_typed) {
        message.structure = std_msgs__msg__UInt8MultiArray__create();
        if (!message.structure || !rosidl_runtime_c__uint8__Sequence__init(&message.structure->data, plan->bytes)) {
            fail("message", "no memory");
        }
        message.content = message.structure->data.data;
    } else {
        rcutils_allocator_t allocator = rcutils_get_default_allocator();
        check(rmw_serialized_message_init(&message.bytes, HEAD_BYTES + plan->bytes, &allocator), "message");
        message.bytes.buffer_length = HEAD_BYTES + plan->bytes;
        uint32_t bulk = (uint32_t)plan->bytes;
        memset(message.bytes.buffer, 0, HEAD_BYTES);
        message.bytes.buffer[1] = 1;
        memcpy(message.bytes.buffer + 12, &bulk, sizeof bulk);
        message.content = message.bytes.buffer + HEAD_BYTES;
    }
    fill(message.content, plan->bytes);
    return message;
}

static void publish(const plan_t *plan, rmw_node_t *node, const rosidl_message_type_support_t *type, const rmw_qos_profile_t *qos)
{
    rmw_publisher_options_t options = rmw_get_default_publisher_options();
    rmw_publisher_t *publisher = rmw_create_publisher(node, type, plan->topic, qos, &options);
    if (!publisher) fail("publisher", rmw_get_error_string().str);
    message_t message = new_message(plan);
    sent_t *records = calloc(plan->count, sizeof *records);
    if (!records) fail("records", "no memory");
    say("ready");
    uint64_t start = 0;
    bool is_matched = false;
    char order = 0;
    while (!order) {
        size_t matched = 0;
        check(rmw_publisher_count_matched_subscriptions(publisher, &matched), "matched");
        if (matched > 0 && !is_matched) {
            is_matched = true;
            say("matched");
        }
        order = read_order(&start, 5);
    }
    uint64_t sent = 0;
    if (order == 's') {
        uint64_t end = start + (uint64_t)((double)plan->count * 1e9 / plan->rate);
        for (; sent < plan->count; sent++) {
            sent_t *record = &records[sent];
            record->due = start + (uint64_t)((double)sent * 1e9 / plan->rate);
            record->before = now();
            if (record->before >= end) break;
            if (record->before < record->due) {
                sleep_until(record->due);
                record->before = now();
            }
            size_t matched = 0;
            check(rmw_publisher_count_matched_subscriptions(publisher, &matched), "matched");
            memcpy(message.content, &sent, sizeof sent);
            rmw_ret_t result = message.structure ? rmw_publish(publisher, message.structure, NULL)
                                                 : rmw_publish_serialized_message(publisher, &message.bytes, NULL);
            bool is_accepted = result == RMW_RET_OK;
            if (!is_accepted) rmw_reset_error();
            record->after = now();
            record->flags = (is_accepted ? 1u : 0u) | (matched > 0 ? 2u : 0u);
        }
        say("sent");
        while (read_order(&start, 1000) != 'e') {
        }
    }
    write_records(plan, records, sizeof *records, sent);
}

static void subscribe(const plan_t *plan, rmw_context_t *context, rmw_node_t *node, const rosidl_message_type_support_t *type,
                      const rmw_qos_profile_t *qos)
{
    rmw_subscription_options_t options = rmw_get_default_subscription_options();
    rmw_subscription_t *subscription = rmw_create_subscription(node, type, plan->topic, qos, &options);
    if (!subscription) fail("subscription", rmw_get_error_string().str);
    rmw_wait_set_t *waits = rmw_create_wait_set(context, 1);
    if (!waits) fail("wait set", rmw_get_error_string().str);
    message_t message = new_message(plan);
    if (!message.structure) {
        // Others may pad.
        check(rmw_serialized_message_resize(&message.bytes, HEAD_BYTES + plan->bytes + 64), "message");
    }
    // Duplicates, if any, are recorded as well.
    size_t most = 2 * plan->count + 1000, count = 0;
    received_t *records = calloc(most, sizeof *records);
    if (!records) fail("records", "no memory");
    say("ready");
    bool is_matched = false;
    uint64_t start = 0, next_line = now();
    for (;;) {
        void *list[1] = {subscription->data};
        rmw_subscriptions_t subscriptions = {.subscriber_count = 1, .subscribers = list};
        rmw_guard_conditions_t guards = {0};
        rmw_services_t services = {0};
        rmw_clients_t clients = {0};
        rmw_events_t events = {0};
        rmw_time_t wait = {0, 20000000};
        rmw_ret_t waited = rmw_wait(&subscriptions, &guards, &services, &clients, &events, waits, &wait);
        if (waited != RMW_RET_OK && waited != RMW_RET_TIMEOUT) {
            fail("wait", rmw_get_error_string().str);
        }
        for (bool taken = true; taken && list[0];) {
            taken = false;
            rmw_ret_t result = message.structure ? rmw_take(subscription, message.structure, &taken, NULL)
                                                 : rmw_take_serialized_message(subscription, &message.bytes, &taken, NULL);
            if (result != RMW_RET_OK) {
                rmw_reset_error();
                break;
            }
            const uint8_t *content = message.structure ? message.structure->data.data : message.bytes.buffer + HEAD_BYTES;
            bool is_whole = message.structure ? message.structure->data.size >= 8 : message.bytes.buffer_length >= HEAD_BYTES + 8;
            if (taken && count < most && is_whole) {
                memcpy(&records[count].number, content, 8);
                records[count++].at = now();
            }
        }
        uint64_t time = now();
        if (time < next_line) {
            continue;
        }
        next_line = time + 100000000u;
        size_t matched = 0;
        check(rmw_subscription_count_matched_publishers(subscription, &matched), "matched");
        if (matched > 0 && !is_matched) {
            is_matched = true;
            say("matched");
        }
        printf("{\"event\":\"received\",\"count\":%zu}\n", count);
        fflush(stdout);
        if (read_order(&start, 0) == 'e') {
            break;
        }
    }
    write_records(plan, records, sizeof *records, count);
}

// A node without topics does nothing for the planned time.
static void idle(const plan_t *plan)
{
    uint64_t start = 0;
    say("ready");
    for (char order = 0; order != 'e'; order = read_order(&start, 1000)) {
        if (order == 's') {
            sleep_until(start + (uint64_t)((double)plan->count * 1e9 / plan->rate));
            say("sent");
        }
    }
}

// Waits until the other side is known, and stays until the order to end.
static void discover(const plan_t *plan, rmw_node_t *node, const rosidl_message_type_support_t *type, const rmw_qos_profile_t *qos)
{
    rmw_publisher_t *publisher = NULL;
    rmw_subscription_t *subscription = NULL;
    if (plan->is_publisher) {
        rmw_publisher_options_t options = rmw_get_default_publisher_options();
        publisher = rmw_create_publisher(node, type, plan->topic, qos, &options);
    } else {
        rmw_subscription_options_t options = rmw_get_default_subscription_options();
        subscription = rmw_create_subscription(node, type, plan->topic, qos, &options);
    }
    if (!publisher && !subscription) fail("endpoint", rmw_get_error_string().str);
    bool is_reported = false;
    for (uint64_t start = 0; read_order(&start, 5) != 'e';) {
        size_t matched = 0;
        check(publisher ? rmw_publisher_count_matched_subscriptions(publisher, &matched)
                        : rmw_subscription_count_matched_publishers(subscription, &matched), "matched");
        if (!is_reported && matched >= plan->nodes) {
            is_reported = true;
            printf("{\"event\":\"discovered\",\"at\":%" PRIu64 "}\n", now());
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    plan_t plan = read_plan(argc, argv);
    if (plan.nodes > 0) {
        // Joins together with all others.
        uint64_t start = 0;
        char order = 0;
        say("ready");
        while (!order) order = read_order(&start, 1000);
        if (order == 'e') _exit(0);
        sleep_until(start);
    }
    rcutils_allocator_t allocator = rcutils_get_default_allocator();
    rmw_init_options_t options = rmw_get_zero_initialized_init_options();
    check(rmw_init_options_init(&options, allocator), "options");
    options.enclave = rcutils_strdup("/", allocator);
    const char *domain = getenv("ROS_DOMAIN_ID"), *range = getenv("ROS_AUTOMATIC_DISCOVERY_RANGE");
    options.domain_id = domain ? strtoul(domain, NULL, 10) : 0;
    bool is_local = range && !strcmp(range, "LOCALHOST");
    options.discovery_options.automatic_discovery_range =
        is_local ? RMW_AUTOMATIC_DISCOVERY_RANGE_LOCALHOST : RMW_AUTOMATIC_DISCOVERY_RANGE_SUBNET;
    rmw_context_t context = rmw_get_zero_initialized_context();
    check(rmw_init(&options, &context), "init");
    rmw_node_t *node = rmw_create_node(&context, plan.is_publisher ? "bench_publisher" : "bench_subscriber", "/");
    if (!node) fail("node", rmw_get_error_string().str);
    const rosidl_message_type_support_t *type =
        rosidl_typesupport_c__get_message_type_support_handle__std_msgs__msg__UInt8MultiArray();
    rmw_qos_profile_t qos = rmw_qos_profile_default;
    qos.history = RMW_QOS_POLICY_HISTORY_KEEP_LAST;
    qos.depth = plan.depth;
    qos.reliability = plan.is_reliable ? RMW_QOS_POLICY_RELIABILITY_RELIABLE : RMW_QOS_POLICY_RELIABILITY_BEST_EFFORT;
    qos.durability = RMW_QOS_POLICY_DURABILITY_VOLATILE;
    if (plan.nodes > 0) {
        discover(&plan, node, type, &qos);
    } else if (plan.is_idle) {
        idle(&plan);
    } else if (plan.is_publisher) {
        publish(&plan, node, type, &qos);
    } else {
        subscribe(&plan, &context, node, type, &qos);
    }
    say("done");
    // What is left ends with the process: some implementations wait for peers that a lossy link never answers for.
    _exit(0);
}
