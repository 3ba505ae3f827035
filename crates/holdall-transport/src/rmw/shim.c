// Any rmw implementation behind a few plain functions. Compiled where holdall runs, against the headers of the ROS 2 that is sourced there, and
// linked with one implementation; `ffi.rs` declares the same structures. Raise HOLDALL_SHIM_VERSION with every change of them.
#define _GNU_SOURCE
#include <rcutils/allocator.h>
#include <rcutils/strdup.h>
#include <rcutils/types/string_array.h>
#include <rmw/error_handling.h>
#include <rmw/get_service_names_and_types.h>
#include <rmw/get_topic_endpoint_info.h>
#include <rmw/get_topic_names_and_types.h>
#include <rmw/init.h>
#include <rmw/init_options.h>
#include <rmw/names_and_types.h>
#include <rmw/qos_profiles.h>
#include <rmw/rmw.h>
#include <rmw/topic_endpoint_info_array.h>
#include <rosidl_runtime_c/message_type_support_struct.h>
#include <rosidl_runtime_c/service_type_support_struct.h>
// Since Iron; before, a flag limits nodes to this computer, and types have no hashes.
#if __has_include(<rmw/discovery_options.h>)
#include <rmw/discovery_options.h>
#define HAS_DISCOVERY_OPTIONS 1
#endif
#if __has_include(<rosidl_runtime_c/type_hash.h>)
#include <rosidl_runtime_c/type_hash.h>
#define HAS_TYPE_HASH 1
#endif
// Installed with nearly every ROS 2; used for measurements only.
#if __has_include(<std_msgs/msg/u_int8_multi_array.h>)
#include <std_msgs/msg/u_int8_multi_array.h>
#define HAS_STRUCTURES 1
#endif

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDALL_SHIM_VERSION 4
#define EXPORT __attribute__((visibility("default")))

typedef struct {
    const char *node_name, *node_namespace;
    uint64_t domain;
    // 0: this computer, 1: the subnet, 2: nowhere, 3: what the middleware does by itself.
    uint64_t range;
    const char *const *peers;
    uint64_t peer_count;
} holdall_open_t;

// The numbers are rmw's own, which bags store as well.
typedef struct {
    uint64_t history, depth, reliability, durability, liveliness;
    uint64_t deadline_sec, deadline_nsec, lifespan_sec, lifespan_nsec, lease_sec, lease_nsec;
    uint64_t avoid_ros_namespace_conventions;
} holdall_qos_t;

typedef struct {
    const char *topic, *type_name, *node_name, *node_namespace;
    // NULL where it is not known.
    const char *type_hash;
    uint8_t gid[16];
    uint64_t is_publisher;
    holdall_qos_t qos;
} holdall_endpoint_t;

typedef struct {
    uint8_t *bytes;
    uint64_t length, capacity;
} holdall_buffer_t;

typedef struct {
    uint8_t gid[16];
    // UINT64_MAX where the implementation has none.
    uint64_t sequence;
    // Nanoseconds since the Unix epoch; 0 where it is not known.
    int64_t source_timestamp;
} holdall_info_t;

typedef struct {
    const rosidl_message_type_support_t *type;
    void *(*create)(void);
    void (*destroy)(void *);
} holdall_side_t;

// A client, or a server; see `services.c`.
typedef struct {
    holdall_side_t request, response;
    rmw_client_t *client;
    rmw_service_t *server;
} holdall_service_t;

typedef struct {
    void *const *subscriptions;
    uint64_t subscription_count;
    // Clients first.
    holdall_service_t *const *services;
    uint64_t client_count, server_count;
} holdall_waited_t;

typedef struct {
    rcutils_allocator_t allocator;
    rmw_init_options_t options;
    rmw_context_t context;
    rmw_node_t *node;
    rmw_guard_condition_t *wake;
    const rmw_guard_condition_t *graph;
    // Used by the thread that waits only.
    rmw_wait_set_t *waits;
    size_t waits_capacity;
    // What it waits for: subscriptions, then clients, then servers.
    void **waited;
} holdall_context_t;

typedef void (*holdall_endpoint_fn)(void *user, const holdall_endpoint_t *endpoint);
typedef void (*holdall_service_fn)(void *user, const char *name, const char *type_name);

static _Thread_local char last_error[1280];

// Keeps the reason of a failure for holdall_error, in one line.
static void failed(const char *call)
{
    const char *reason = rmw_error_is_set() ? rmw_get_error_string().str : "no reason given";
    snprintf(last_error, sizeof last_error, "%s: %s", call, reason);
    for (char *at = last_error; *at; at++) {
        if ((unsigned char)*at < ' ') *at = ' ';
    }
    rmw_reset_error();
}

EXPORT uint64_t holdall_version(void)
{
    return HOLDALL_SHIM_VERSION;
}

EXPORT const char *holdall_error(void)
{
    return last_error;
}

EXPORT const char *holdall_implementation(void)
{
    return rmw_get_implementation_identifier();
}

static bool set_range(holdall_context_t *self, const holdall_open_t *how)
{
#ifdef HAS_DISCOVERY_OPTIONS
    static const rmw_automatic_discovery_range_t ranges[] = {
        RMW_AUTOMATIC_DISCOVERY_RANGE_LOCALHOST, RMW_AUTOMATIC_DISCOVERY_RANGE_SUBNET, RMW_AUTOMATIC_DISCOVERY_RANGE_OFF,
        RMW_AUTOMATIC_DISCOVERY_RANGE_SYSTEM_DEFAULT};
    rmw_discovery_options_t *options = &self->options.discovery_options;
    if (how->peer_count > 0) {
        *options = rmw_get_zero_initialized_discovery_options();
        if (rmw_discovery_options_init(options, how->peer_count, &self->allocator) != RMW_RET_OK) {
            failed("rmw_discovery_options_init");
            return false;
        }
        for (uint64_t at = 0; at < how->peer_count; at++) {
            snprintf(options->static_peers[at].peer_address, sizeof options->static_peers[at].peer_address, "%s", how->peers[at]);
        }
    }
    options->automatic_discovery_range = ranges[how->range & 3];
#else
    self->options.localhost_only = how->range == 0 ? RMW_LOCALHOST_ONLY_ENABLED : RMW_LOCALHOST_ONLY_DISABLED;
#endif
    return true;
}

EXPORT void holdall_close(holdall_context_t *self)
{
    if (!self) return;
    if (self->waits && rmw_destroy_wait_set(self->waits) != RMW_RET_OK) rmw_reset_error();
    if (self->wake && rmw_destroy_guard_condition(self->wake) != RMW_RET_OK) rmw_reset_error();
    if (self->node && rmw_destroy_node(self->node) != RMW_RET_OK) rmw_reset_error();
    if (self->context.implementation_identifier) {
        if (rmw_shutdown(&self->context) != RMW_RET_OK) rmw_reset_error();
        if (rmw_context_fini(&self->context) != RMW_RET_OK) rmw_reset_error();
    }
    if (self->options.implementation_identifier && rmw_init_options_fini(&self->options) != RMW_RET_OK) rmw_reset_error();
    free(self->waited);
    free(self);
}

EXPORT holdall_context_t *holdall_open(const holdall_open_t *how)
{
    // A plain client of a discovery server is shown only what it has endpoints for.
    if (getenv("ROS_DISCOVERY_SERVER") && !getenv("ROS_SUPER_CLIENT")) setenv("ROS_SUPER_CLIENT", "TRUE", 1);
    holdall_context_t *self = calloc(1, sizeof *self);
    if (!self) return NULL;
    self->allocator = rcutils_get_default_allocator();
    self->options = rmw_get_zero_initialized_init_options();
    self->context = rmw_get_zero_initialized_context();
    if (rmw_init_options_init(&self->options, self->allocator) != RMW_RET_OK) {
        failed("rmw_init_options_init");
        goto refused;
    }
    self->options.enclave = rcutils_strdup("/", self->allocator);
    self->options.domain_id = how->domain;
    if (!set_range(self, how)) goto refused;
    if (rmw_init(&self->options, &self->context) != RMW_RET_OK) {
        failed("rmw_init");
        goto refused;
    }
    self->node = rmw_create_node(&self->context, how->node_name, how->node_namespace);
    if (!self->node) {
        failed("rmw_create_node");
        goto refused;
    }
    self->graph = rmw_node_get_graph_guard_condition(self->node);
    self->wake = rmw_create_guard_condition(&self->context);
    if (!self->graph || !self->wake) {
        failed("rmw_create_guard_condition");
        goto refused;
    }
    return self;
refused:
    holdall_close(self);
    return NULL;
}

static holdall_qos_t from_rmw(const rmw_qos_profile_t *qos)
{
    return (holdall_qos_t){
        .history = qos->history, .depth = qos->depth, .reliability = qos->reliability, .durability = qos->durability,
        .liveliness = qos->liveliness, .deadline_sec = qos->deadline.sec, .deadline_nsec = qos->deadline.nsec,
        .lifespan_sec = qos->lifespan.sec, .lifespan_nsec = qos->lifespan.nsec,
        .lease_sec = qos->liveliness_lease_duration.sec, .lease_nsec = qos->liveliness_lease_duration.nsec,
        .avoid_ros_namespace_conventions = qos->avoid_ros_namespace_conventions};
}

static rmw_qos_profile_t to_rmw(const holdall_qos_t *qos)
{
    rmw_qos_profile_t out;
    memset(&out, 0, sizeof out);
    out.history = (__typeof__(out.history))qos->history;
    out.depth = qos->depth;
    out.reliability = (__typeof__(out.reliability))qos->reliability;
    out.durability = (__typeof__(out.durability))qos->durability;
    out.liveliness = (__typeof__(out.liveliness))qos->liveliness;
    out.deadline = (rmw_time_t){qos->deadline_sec, qos->deadline_nsec};
    out.lifespan = (rmw_time_t){qos->lifespan_sec, qos->lifespan_nsec};
    out.liveliness_lease_duration = (rmw_time_t){qos->lease_sec, qos->lease_nsec};
    out.avoid_ros_namespace_conventions = qos->avoid_ros_namespace_conventions != 0;
    return out;
}

// Shows the endpoints of one kind that a topic has.
static bool show_topic(holdall_context_t *self, const char *topic, bool publishers, holdall_endpoint_fn show, void *user)
{
    rmw_topic_endpoint_info_array_t list = rmw_get_zero_initialized_topic_endpoint_info_array();
    rmw_ret_t result = publishers ? rmw_get_publishers_info_by_topic(self->node, &self->allocator, topic, false, &list)
                                  : rmw_get_subscriptions_info_by_topic(self->node, &self->allocator, topic, false, &list);
    if (result != RMW_RET_OK) {
        failed("rmw_get_publishers_info_by_topic");
        return false;
    }
    for (size_t at = 0; at < list.size; at++) {
        const rmw_topic_endpoint_info_t *info = &list.info_array[at];
        holdall_endpoint_t shown = {.topic = topic, .type_name = info->topic_type, .node_name = info->node_name,
                                    .node_namespace = info->node_namespace, .is_publisher = publishers,
                                    .qos = from_rmw(&info->qos_profile)};
        memcpy(shown.gid, info->endpoint_gid, sizeof shown.gid);
        char *hash = NULL;
#ifdef HAS_TYPE_HASH
        if (info->topic_type_hash.version != 0 &&
            rosidl_stringify_type_hash(&info->topic_type_hash, self->allocator, &hash) == RCUTILS_RET_OK) {
            shown.type_hash = hash;
        }
#endif
        show(user, &shown);
        if (hash) self->allocator.deallocate(hash, self->allocator.state);
    }
    if (rmw_topic_endpoint_info_array_fini(&list, &self->allocator) != RMW_RET_OK) rmw_reset_error();
    return true;
}

EXPORT int holdall_endpoints(holdall_context_t *self, holdall_endpoint_fn show, void *user)
{
    rmw_names_and_types_t topics = rmw_get_zero_initialized_names_and_types();
    if (rmw_get_topic_names_and_types(self->node, &self->allocator, false, &topics) != RMW_RET_OK) {
        failed("rmw_get_topic_names_and_types");
        return -1;
    }
    bool shown = true;
    for (size_t at = 0; shown && at < topics.names.size; at++) {
        const char *topic = topics.names.data[at];
        shown = show_topic(self, topic, true, show, user) && show_topic(self, topic, false, show, user);
    }
    if (rmw_names_and_types_fini(&topics) != RMW_RET_OK) rmw_reset_error();
    return shown ? 0 : -1;
}

EXPORT int holdall_services(holdall_context_t *self, holdall_service_fn show, void *user)
{
    rmw_names_and_types_t services = rmw_get_zero_initialized_names_and_types();
    if (rmw_get_service_names_and_types(self->node, &self->allocator, &services) != RMW_RET_OK) {
        failed("rmw_get_service_names_and_types");
        return -1;
    }
    for (size_t at = 0; at < services.names.size; at++) {
        for (size_t type = 0; type < services.types[at].size; type++) {
            show(user, services.names.data[at], services.types[at].data[type]);
        }
    }
    if (rmw_names_and_types_fini(&services) != RMW_RET_OK) rmw_reset_error();
    return 0;
}

// The type support of a message; NULL where it is not installed.
EXPORT const void *holdall_type_support(const char *library, const char *function)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        snprintf(last_error, sizeof last_error, "%s", reason ? reason : "it cannot be loaded");
        return NULL;
    }
    // Never closed: the implementation keeps pointers into it.
    const rosidl_message_type_support_t *(*get)(void) = (const rosidl_message_type_support_t *(*)(void))dlsym(handle, function);
    if (!get) {
        snprintf(last_error, sizeof last_error, "%s has no %s", library, function);
        return NULL;
    }
    return get();
}

EXPORT void *holdall_subscribe(holdall_context_t *self, const void *type, const char *topic, const holdall_qos_t *qos)
{
    rmw_qos_profile_t wanted = to_rmw(qos);
    rmw_subscription_options_t options = rmw_get_default_subscription_options();
    options.ignore_local_publications = true;
    void *subscription = rmw_create_subscription(self->node, type, topic, &wanted, &options);
    if (!subscription) failed("rmw_create_subscription");
    return subscription;
}

EXPORT void holdall_unsubscribe(holdall_context_t *self, void *subscription)
{
    if (rmw_destroy_subscription(self->node, subscription) != RMW_RET_OK) rmw_reset_error();
}

EXPORT uint64_t holdall_matched_publishers(void *subscription)
{
    size_t count = 0;
    if (rmw_subscription_count_matched_publishers(subscription, &count) != RMW_RET_OK) rmw_reset_error();
    return count;
}

EXPORT void holdall_wake(holdall_context_t *self)
{
    if (rmw_trigger_guard_condition(self->wake) != RMW_RET_OK) rmw_reset_error();
}

// Room for so many in the wait set and in the list of what is waited for.
static bool make_room(holdall_context_t *self, size_t count)
{
    if (self->waits && self->waits_capacity >= count) return true;
    size_t capacity = 2 * count;
    if (self->waits && rmw_destroy_wait_set(self->waits) != RMW_RET_OK) rmw_reset_error();
    self->waits = rmw_create_wait_set(&self->context, capacity);
    void **waited = self->waits ? realloc(self->waited, capacity * sizeof *waited) : NULL;
    if (!waited) {
        failed("rmw_create_wait_set");
        return false;
    }
    self->waited = waited;
    self->waits_capacity = capacity;
    return true;
}

// Waits until a subscription or a service may have something, the graph has changed, or holdall_wake was called; one flag for each
// subscription, then for each service, and one for the graph. Of the services, clients are the first. Returns 0, also when the time ran out.
EXPORT int holdall_wait(holdall_context_t *self, const holdall_waited_t *all, uint8_t *ready, uint8_t *graph, int64_t timeout_ns)
{
    size_t count = all->subscription_count + all->client_count + all->server_count;
    if (!make_room(self, count + 2)) return -1;
    void **subscribers = self->waited, **calling = subscribers + all->subscription_count, **serving = calling + all->client_count;
    for (uint64_t at = 0; at < all->subscription_count; at++) {
        subscribers[at] = ((const rmw_subscription_t *)all->subscriptions[at])->data;
    }
    for (uint64_t at = 0; at < all->client_count; at++) {
        calling[at] = all->services[at]->client->data;
    }
    for (uint64_t at = 0; at < all->server_count; at++) {
        serving[at] = all->services[all->client_count + at]->server->data;
    }
    void *guard_list[2] = {self->wake->data, self->graph->data};
    rmw_subscriptions_t subscriptions = {.subscriber_count = all->subscription_count, .subscribers = subscribers};
    rmw_guard_conditions_t guards = {.guard_condition_count = 2, .guard_conditions = guard_list};
    rmw_services_t services = {.service_count = all->server_count, .services = serving};
    rmw_clients_t clients = {.client_count = all->client_count, .clients = calling};
    rmw_events_t events = {0};
    rmw_time_t timeout = {(uint64_t)timeout_ns / 1000000000u, (uint64_t)timeout_ns % 1000000000u};
    rmw_ret_t result = rmw_wait(&subscriptions, &guards, &services, &clients, &events, self->waits, &timeout);
    if (result != RMW_RET_OK && result != RMW_RET_TIMEOUT) {
        failed("rmw_wait");
        return -1;
    }
    for (size_t at = 0; at < count; at++) {
        ready[at] = result == RMW_RET_OK && self->waited[at] != NULL;
    }
    *graph = result == RMW_RET_OK && guard_list[1] != NULL;
    return 0;
}

static rmw_message_info_t nothing_known(void)
{
    rmw_message_info_t about;
    memset(&about, 0, sizeof about);
    about.publication_sequence_number = UINT64_MAX;
    return about;
}

static void show_info(const rmw_message_info_t *about, holdall_info_t *info)
{
    memcpy(info->gid, about->publisher_gid.data, sizeof info->gid);
    info->sequence = about->publication_sequence_number;
    info->source_timestamp = about->source_timestamp;
}

// Takes a message into a buffer, which grows where it is too small. Returns 1, 0 when there is none, -1 on a failure.
EXPORT int holdall_take(void *subscription, holdall_buffer_t *buffer, holdall_info_t *info)
{
    rmw_serialized_message_t message = rmw_get_zero_initialized_serialized_message();
    message.allocator = rcutils_get_default_allocator();
    message.buffer = buffer->bytes;
    message.buffer_capacity = buffer->capacity;
    rmw_message_info_t about = nothing_known();
    bool taken = false;
    rmw_ret_t result = rmw_take_serialized_message_with_info(subscription, &message, &taken, &about, NULL);
    // The buffer may have moved even where nothing was taken.
    buffer->bytes = message.buffer;
    buffer->capacity = message.buffer_capacity;
    buffer->length = message.buffer_length;
    if (result != RMW_RET_OK) {
        failed("rmw_take_serialized_message_with_info");
        return -1;
    }
    show_info(&about, info);
    return taken ? 1 : 0;
}

// A message as the structure that nodes publish and take, whose number replaces a part of its content. For measurements.
typedef struct {
    const void *type;
    void *message;
    void (*destroy)(void *);
    bool is_bytes;
} holdall_structure_t;

// Where the number is: its bytes begin with it, or the structure itself, in place of a time stamp. NULL where there is no room.
static uint8_t *number_of(const holdall_structure_t *self)
{
#ifdef HAS_STRUCTURES
    if (self->is_bytes) {
        const std_msgs__msg__UInt8MultiArray *message = self->message;
        return message->data.size >= sizeof(uint64_t) ? message->data.data : NULL;
    }
#endif
    return self->message;
}

EXPORT void holdall_structure_free(holdall_structure_t *self)
{
    self->destroy(self->message);
    free(self);
}

// The structure of a type, whose functions begin with a prefix; NULL where it is not installed.
EXPORT holdall_structure_t *holdall_structure(const char *library, const char *prefix, const void *type)
{
    bool is_bytes = strcmp(prefix, "std_msgs__msg__UInt8MultiArray") == 0;
#ifndef HAS_STRUCTURES
    if (is_bytes) {
        snprintf(last_error, sizeof last_error, "the headers of std_msgs are not installed");
        return NULL;
    }
#endif
    // Never closed, as those of type supports.
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    char name[256];
    snprintf(name, sizeof name, "%s__create", prefix);
    void *(*create)(void) = handle ? (void *(*)(void))dlsym(handle, name) : NULL;
    snprintf(name, sizeof name, "%s__destroy", prefix);
    void (*destroy)(void *) = handle ? (void (*)(void *))dlsym(handle, name) : NULL;
    holdall_structure_t *self = create && destroy ? calloc(1, sizeof *self) : NULL;
    if (!self || !(self->message = create())) {
        snprintf(last_error, sizeof last_error, "%s has no structure of %s", library, prefix);
        free(self);
        return NULL;
    }
    self->type = type;
    self->destroy = destroy;
    self->is_bytes = is_bytes;
    return self;
}

// Gives a structure the content of a serialized message. Returns 0, or -1 on a failure.
EXPORT int holdall_structure_fill(holdall_structure_t *self, const uint8_t *bytes, uint64_t length)
{
    rmw_serialized_message_t message = rmw_get_zero_initialized_serialized_message();
    message.allocator = rcutils_get_default_allocator();
    // Only read.
    message.buffer = (uint8_t *)(uintptr_t)bytes;
    message.buffer_length = message.buffer_capacity = length;
    if (rmw_deserialize(&message, self->type, self->message) == RMW_RET_OK) return 0;
    failed("rmw_deserialize");
    return -1;
}

// As holdall_take, into a structure: its number, UINT64_MAX where it has none.
EXPORT int holdall_take_structure(void *subscription, holdall_structure_t *self, uint64_t *number, holdall_info_t *info)
{
    rmw_message_info_t about = nothing_known();
    bool taken = false;
    if (rmw_take_with_info(subscription, self->message, &taken, &about, NULL) != RMW_RET_OK) {
        failed("rmw_take_with_info");
        return -1;
    }
    const uint8_t *at = number_of(self);
    *number = UINT64_MAX;
    if (taken && at) memcpy(number, at, sizeof *number);
    show_info(&about, info);
    return taken ? 1 : 0;
}

EXPORT void holdall_free(uint8_t *bytes)
{
    rcutils_allocator_t allocator = rcutils_get_default_allocator();
    allocator.deallocate(bytes, allocator.state);
}

EXPORT void *holdall_advertise(holdall_context_t *self, const void *type, const char *topic, const holdall_qos_t *qos, uint8_t gid[16])
{
    rmw_qos_profile_t offered = to_rmw(qos);
    rmw_publisher_options_t options = rmw_get_default_publisher_options();
    rmw_publisher_t *publisher = rmw_create_publisher(self->node, type, topic, &offered, &options);
    if (!publisher) {
        failed("rmw_create_publisher");
        return NULL;
    }
    rmw_gid_t own;
    memset(&own, 0, sizeof own);
    if (rmw_get_gid_for_publisher(publisher, &own) != RMW_RET_OK) rmw_reset_error();
    memcpy(gid, own.data, 16);
    return publisher;
}

EXPORT void holdall_unadvertise(holdall_context_t *self, void *publisher)
{
    if (rmw_destroy_publisher(self->node, publisher) != RMW_RET_OK) rmw_reset_error();
}

EXPORT int holdall_publish(void *publisher, const uint8_t *bytes, uint64_t length)
{
    rmw_serialized_message_t message = rmw_get_zero_initialized_serialized_message();
    message.allocator = rcutils_get_default_allocator();
    // Only read.
    message.buffer = (uint8_t *)(uintptr_t)bytes;
    message.buffer_length = message.buffer_capacity = length;
    if (rmw_publish_serialized_message(publisher, &message, NULL) != RMW_RET_OK) {
        failed("rmw_publish_serialized_message");
        return -1;
    }
    return 0;
}

// As holdall_publish, of a structure, with a number of its own.
EXPORT int holdall_publish_structure(void *publisher, holdall_structure_t *self, uint64_t number)
{
    uint8_t *at = number_of(self);
    if (at) memcpy(at, &number, sizeof number);
    if (rmw_publish(publisher, self->message, NULL) == RMW_RET_OK) return 0;
    failed("rmw_publish");
    return -1;
}

EXPORT uint64_t holdall_matched_subscriptions(void *publisher)
{
    size_t count = 0;
    if (rmw_publisher_count_matched_subscriptions(publisher, &count) != RMW_RET_OK) rmw_reset_error();
    return count;
}

// 1 when all reliable subscriptions have acknowledged everything, 0 when the time ran out, -1 where that cannot be known.
EXPORT int holdall_wait_for_acked(void *publisher, int64_t timeout_ns)
{
    rmw_time_t timeout = {(uint64_t)timeout_ns / 1000000000u, (uint64_t)timeout_ns % 1000000000u};
    rmw_ret_t result = rmw_publisher_wait_for_all_acked(publisher, timeout);
    if (result == RMW_RET_OK) return 1;
    if (result == RMW_RET_TIMEOUT) return 0;
    failed("rmw_publisher_wait_for_all_acked");
    return -1;
}
