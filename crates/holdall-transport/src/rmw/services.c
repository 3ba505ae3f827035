// Services of any rmw implementation: the second part of `shim.c`, which is compiled as one with it. rmw passes requests and replies as
// structures, so they are made from bytes, and bytes from them, with the type support of the two messages.

// A request: who sent it, and its number.
typedef struct {
    uint8_t client[16];
    int64_t number;
} holdall_request_id_t;

// Looks a function up whose name is made of two parts; NULL, with the reason, where there is none.
static void *function_of(void *library, const char *start, const char *end)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", start, end);
    void *found = dlsym(library, name);
    if (!found) snprintf(last_error, sizeof last_error, "there is no %s", name);
    return found;
}

// One of the two messages of a service; `symbol` is its name, as in the names of functions.
static bool find_side(void *types, void *structures, const char *symbol, const char *which, holdall_side_t *side)
{
    char message[384];
    snprintf(message, sizeof message, "%s_%s", symbol, which);
    const rosidl_message_type_support_t *(*get)(void) = (const rosidl_message_type_support_t *(*)(void))
        function_of(types, "rosidl_typesupport_c__get_message_type_support_handle__", message);
    side->create = (void *(*)(void))function_of(structures, message, "__create");
    side->destroy = (void (*)(void *))function_of(structures, message, "__destroy");
    if (!get || !side->create || !side->destroy) return false;
    side->type = get();
    return side->type != NULL;
}

EXPORT void holdall_service_close(holdall_context_t *self, holdall_service_t *service)
{
    if (!service) return;
    if (service->client && rmw_destroy_client(self->node, service->client) != RMW_RET_OK) rmw_reset_error();
    if (service->server && rmw_destroy_service(self->node, service->server) != RMW_RET_OK) rmw_reset_error();
    free(service);
}

// Calls a service, or offers it. The libraries are those of the package's type supports and structures; they are never closed.
EXPORT holdall_service_t *holdall_service_open(holdall_context_t *self, const char *type_library, const char *structure_library,
                                               const char *symbol, const char *name, int is_server)
{
    void *types = dlopen(type_library, RTLD_NOW | RTLD_LOCAL);
    void *structures = types ? dlopen(structure_library, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!structures) {
        const char *reason = dlerror();
        snprintf(last_error, sizeof last_error, "%s", reason ? reason : "it cannot be loaded");
        return NULL;
    }
    const rosidl_service_type_support_t *(*get)(void) = (const rosidl_service_type_support_t *(*)(void))
        function_of(types, "rosidl_typesupport_c__get_service_type_support_handle__", symbol);
    holdall_service_t *service = get ? calloc(1, sizeof *service) : NULL;
    if (!service) return NULL;
    if (!find_side(types, structures, symbol, "Request", &service->request) ||
        !find_side(types, structures, symbol, "Response", &service->response)) {
        holdall_service_close(self, service);
        return NULL;
    }
    if (is_server) {
        service->server = rmw_create_service(self->node, get(), name, &rmw_qos_profile_services_default);
    } else {
        service->client = rmw_create_client(self->node, get(), name, &rmw_qos_profile_services_default);
    }
    if (service->client || service->server) return service;
    failed(is_server ? "rmw_create_service" : "rmw_create_client");
    holdall_service_close(self, service);
    return NULL;
}

// Whether a client's server is there.
EXPORT int holdall_service_is_ready(holdall_context_t *self, const holdall_service_t *service)
{
    bool is_there = false;
    if (rmw_service_server_is_available(self->node, service->client, &is_there) != RMW_RET_OK) rmw_reset_error();
    return is_there;
}

// Sends a client's request, whose number is written to `id`, or a server's reply to `id`.
EXPORT int holdall_service_send(holdall_service_t *service, const uint8_t *bytes, uint64_t length, holdall_request_id_t *id)
{
    const holdall_side_t *side = service->client ? &service->request : &service->response;
    rmw_serialized_message_t message = rmw_get_zero_initialized_serialized_message();
    message.allocator = rcutils_get_default_allocator();
    // Only read.
    message.buffer = (uint8_t *)(uintptr_t)bytes;
    message.buffer_length = message.buffer_capacity = length;
    void *structure = side->create();
    if (!structure) {
        snprintf(last_error, sizeof last_error, "no memory");
        return -1;
    }
    int outcome = -1;
    if (rmw_deserialize(&message, side->type, structure) != RMW_RET_OK) {
        failed("rmw_deserialize");
    } else if (service->client) {
        outcome = rmw_send_request(service->client, structure, &id->number) == RMW_RET_OK ? 0 : -1;
        if (outcome != 0) failed("rmw_send_request");
    } else {
        rmw_request_id_t to;
        memset(&to, 0, sizeof to);
        memcpy(to.writer_guid, id->client, sizeof id->client);
        to.sequence_number = id->number;
        outcome = rmw_send_response(service->server, &to, structure) == RMW_RET_OK ? 0 : -1;
        if (outcome != 0) failed("rmw_send_response");
    }
    side->destroy(structure);
    return outcome;
}

// Takes a server's next request, or a client's next reply, into a buffer, which grows. Returns 1, 0 when there is none, -1 on a failure.
EXPORT int holdall_service_take(holdall_service_t *service, holdall_buffer_t *buffer, holdall_request_id_t *id)
{
    const holdall_side_t *side = service->client ? &service->response : &service->request;
    void *structure = side->create();
    if (!structure) {
        snprintf(last_error, sizeof last_error, "no memory");
        return -1;
    }
    rmw_service_info_t about;
    memset(&about, 0, sizeof about);
    bool taken = false;
    rmw_ret_t result = service->client ? rmw_take_response(service->client, &about, structure, &taken)
                                       : rmw_take_request(service->server, &about, structure, &taken);
    int outcome = -1;
    if (result != RMW_RET_OK) {
        failed(service->client ? "rmw_take_response" : "rmw_take_request");
    } else if (!taken) {
        outcome = 0;
    } else {
        rmw_serialized_message_t message = rmw_get_zero_initialized_serialized_message();
        message.allocator = rcutils_get_default_allocator();
        message.buffer = buffer->bytes;
        message.buffer_capacity = buffer->capacity;
        outcome = rmw_serialize(structure, side->type, &message) == RMW_RET_OK ? 1 : -1;
        if (outcome != 1) failed("rmw_serialize");
        // The buffer may have moved even on a failure.
        buffer->bytes = message.buffer;
        buffer->capacity = message.buffer_capacity;
        buffer->length = message.buffer_length;
        memcpy(id->client, about.request_id.writer_guid, sizeof id->client);
        id->number = about.request_id.sequence_number;
    }
    side->destroy(structure);
    return outcome;
}
