// A node on Debian's Cyclone DDS, secured or not: publishes texts, or listens to them, and reports on standard output.
//
// Usage: cyclone_peer talk|listen TOPIC COUNT [ENCLAVE_FOLDER PLUGIN_FOLDER]    (ROS_DOMAIN_ID and CYCLONEDDS_URI are in the environment;
// PEER_TEXT_BYTES says how long a text is at least)
#include "dds/dds.h"
#include "text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef std_msgs_msg_dds__String_ Text;

static void check(int code, const char *what) {
  if (code < 0) {
    printf("{\"event\": \"failed\", \"what\": \"%s\", \"reason\": \"%s\"}\n", what, dds_strretcode(-code));
    exit(1);
  }
}

static void set(dds_qos_t *qos, const char *name, const char *format, const char *folder) {
  char value[4096];
  snprintf(value, sizeof value, format, folder);
  dds_qset_prop(qos, name, value);
}

static dds_qos_t *secured(const char *enclave, const char *plugins) {
  dds_qos_t *qos = dds_create_qos();
  dds_qset_userdata(qos, "enclave=/peer;", 14);
  set(qos, "dds.sec.auth.library.path", "%s/libdds_security_auth.so", plugins);
  set(qos, "dds.sec.auth.library.init", "%s", "init_authentication");
  set(qos, "dds.sec.auth.library.finalize", "%s", "finalize_authentication");
  set(qos, "dds.sec.crypto.library.path", "%s/libdds_security_crypto.so", plugins);
  set(qos, "dds.sec.crypto.library.init", "%s", "init_crypto");
  set(qos, "dds.sec.crypto.library.finalize", "%s", "finalize_crypto");
  set(qos, "dds.sec.access.library.path", "%s/libdds_security_ac.so", plugins);
  set(qos, "dds.sec.access.library.init", "%s", "init_access_control");
  set(qos, "dds.sec.access.library.finalize", "%s", "finalize_access_control");
  set(qos, "dds.sec.auth.identity_ca", "file:%s/identity_ca.cert.pem", enclave);
  set(qos, "dds.sec.auth.identity_certificate", "file:%s/cert.pem", enclave);
  set(qos, "dds.sec.auth.private_key", "file:%s/key.pem", enclave);
  set(qos, "dds.sec.access.permissions_ca", "file:%s/permissions_ca.cert.pem", enclave);
  set(qos, "dds.sec.access.governance", "file:%s/governance.p7s", enclave);
  set(qos, "dds.sec.access.permissions", "file:%s/permissions.p7s", enclave);
  return qos;
}

static void talk(dds_entity_t participant, dds_entity_t topic, const dds_qos_t *qos, int count) {
  dds_entity_t writer = dds_create_writer(participant, topic, qos, NULL);
  check(writer, "writer");
  int length = getenv("PEER_TEXT_BYTES") ? atoi(getenv("PEER_TEXT_BYTES")) : 0;
  char *text = malloc((size_t)length + 64);
  printf("{\"event\": \"ready\"}\n");
  for (dds_publication_matched_status_t matched = {0}; matched.current_count == 0; dds_sleepfor(DDS_MSECS(10)))
    check(dds_get_publication_matched_status(writer, &matched), "matched");
  for (int number = 0; number < count; number++) {
    int written = sprintf(text, "cyclone %d", number);
    if (written < length)
      sprintf(text + written, "%*s", length - written, "");
    Text message = {.data = text};
    check(dds_write(writer, &message), "write");
    dds_sleepfor(DDS_MSECS(1));
  }
  check(dds_wait_for_acks(writer, DDS_SECS(30)), "acknowledgements");
  printf("{\"event\": \"done\", \"count\": %d}\n", count);
  free(text);
  // Until the end of the test, so that no one sees it leave.
  getchar();
}

static void listen(dds_entity_t participant, dds_entity_t topic, const dds_qos_t *qos, int count) {
  dds_entity_t reader = dds_create_reader(participant, topic, qos, NULL);
  check(reader, "reader");
  printf("{\"event\": \"ready\"}\n");
  for (int heard = 0; heard < count; dds_sleepfor(DDS_MSECS(5))) {
    void *samples[64] = {NULL};
    dds_sample_info_t infos[64];
    int taken = dds_take(reader, samples, infos, 64, 64);
    check(taken, "take");
    for (int index = 0; index < taken; index++)
      if (infos[index].valid_data) {
        printf("{\"event\": \"heard\", \"text\": \"%s\"}\n", ((Text *)samples[index])->data);
        heard++;
      }
    if (taken > 0)
      dds_return_loan(reader, samples, taken);
  }
  printf("{\"event\": \"done\", \"count\": %d}\n", count);
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 6)
    return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  dds_qos_t *joined = argc == 6 ? secured(argv[4], argv[5]) : NULL;
  dds_entity_t participant = dds_create_participant((uint32_t)atoi(getenv("ROS_DOMAIN_ID")), joined, NULL);
  check(participant, "participant");
  dds_entity_t topic = dds_create_topic(participant, &std_msgs_msg_dds__String__desc, argv[2], NULL, NULL);
  check(topic, "topic");
  dds_qos_t *qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(10));
  dds_qset_history(qos, DDS_HISTORY_KEEP_ALL, 0);
  (strcmp(argv[1], "talk") == 0 ? talk : listen)(participant, topic, qos, atoi(argv[3]));
  dds_delete(participant);
  return 0;
}
