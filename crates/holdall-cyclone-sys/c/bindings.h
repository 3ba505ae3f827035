/* What Rust sees of Cyclone DDS. */
#include <dds/dds.h>
#include <dds/ddsi/ddsi_radmin.h>
#include <dds/ddsi/ddsi_serdata.h>
#include <dds/ddsi/ddsi_sertype.h>
#include <dds/ddsrt/heap.h>
#include "holdall.h"

/* DDS's own topics, which Cyclone defines by macros. */
static const dds_entity_t HOLDALL_TOPIC_PARTICIPANTS = DDS_BUILTIN_TOPIC_DCPSPARTICIPANT;
static const dds_entity_t HOLDALL_TOPIC_PUBLICATIONS = DDS_BUILTIN_TOPIC_DCPSPUBLICATION;
static const dds_entity_t HOLDALL_TOPIC_SUBSCRIPTIONS = DDS_BUILTIN_TOPIC_DCPSSUBSCRIPTION;
