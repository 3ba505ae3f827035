/* See holdall.h. */
#include "holdall.h"
#include <string.h>
#include "dds/ddsrt/avl.h"
#include "dds/ddsrt/sync.h"
#include "dds/ddsi/ddsi_domaingv.h"
#include "dds/ddsi/ddsi_entity_index.h"
#include "dds/ddsi/ddsi_lease.h"
#include "dds/ddsi/ddsi_proxy_participant.h"
#include "dds/ddsi/ddsi_thread.h"
#include "dds__domain.h"
#include "dds__entity.h"
#include "ddsi__endpoint.h"
#include "ddsi__endpoint_match.h"
#include "ddsi__entity.h"
#include "ddsi__entity_index.h"
#include "ddsi__misc.h"
#include "ddsi__participant.h"
#include "ddsi__proxy_endpoint.h"
#include "ddsi__radmin.h"
#include "ddsi__tran.h"

static ddsi_guid_t guid_of (const uint8_t gid[16])
{
  ddsi_guid_t guid;
  memcpy (&guid, gid, sizeof (guid));
  return ddsi_ntoh_guid (guid);
}

/* Between these two, entities that are looked up are not freed. */
static struct ddsi_thread_state *begin (struct ddsi_domaingv *gv)
{
  struct ddsi_thread_state *const self = ddsi_lookup_thread_state ();
  ddsi_thread_state_awake (self, gv);
  return self;
}

static void end (struct ddsi_thread_state *self)
{
  ddsi_thread_state_asleep (self);
}

struct ddsi_domaingv *holdall_globals (dds_entity_t domain)
{
  dds_entity *entity;
  if (dds_entity_pin (domain, &entity) != DDS_RETCODE_OK)
    return NULL;
  struct ddsi_domaingv *gv = &entity->m_domain->gv;
  dds_entity_unpin (entity);
  return gv;
}

int64_t holdall_elapsed (void)
{
  return ddsrt_time_elapsed ().v;
}

bool holdall_takes_part (struct ddsi_domaingv *gv, const uint8_t participant[16])
{
  const ddsi_guid_t guid = guid_of (participant);
  struct ddsi_thread_state *const self = begin (gv);
  const bool found = ddsi_entidx_lookup_participant_guid (gv->entity_index, &guid) != NULL;
  end (self);
  return found;
}

void holdall_request_history (struct ddsi_domaingv *gv, const uint8_t reader[16])
{
  const ddsi_guid_t guid = guid_of (reader);
  struct ddsi_thread_state *const self = begin (gv);
  struct ddsi_reader *rd = ddsi_entidx_lookup_reader_guid (gv->entity_index, &guid);
  if (rd != NULL && rd->reliable)
  {
    ddsrt_mutex_lock (&rd->e.lock);
    rd->handle_as_transient_local = 1;
    ddsrt_mutex_unlock (&rd->e.lock);
  }
  end (self);
}

uint64_t holdall_announced_sequence (struct ddsi_domaingv *gv, const uint8_t writer[16])
{
  const ddsi_guid_t guid = guid_of (writer);
  uint64_t last = 0;
  struct ddsi_thread_state *const self = begin (gv);
  struct ddsi_proxy_writer *pwr = ddsi_entidx_lookup_proxy_writer_guid (gv->entity_index, &guid);
  if (pwr != NULL)
  {
    ddsrt_mutex_lock (&pwr->e.lock);
    last = pwr->last_seq;
    ddsrt_mutex_unlock (&pwr->e.lock);
  }
  end (self);
  return last;
}

void holdall_expect_next (struct ddsi_domaingv *gv, const uint8_t writer[16], uint64_t next, uint64_t misled_from)
{
  const ddsi_guid_t guid = guid_of (writer);
  struct ddsi_thread_state *const self = begin (gv);
  struct ddsi_proxy_writer *pwr = ddsi_entidx_lookup_proxy_writer_guid (gv->entity_index, &guid);
  if (pwr != NULL)
  {
    ddsrt_mutex_lock (&pwr->e.lock);
    /* Only delivery, which holds the lock too, uses the reorder buffer. */
    uint64_t expected = ddsi_reorder_next_seq (pwr->reorder);
    if (expected > next && expected - next > misled_from)
      expected = next;
    ddsi_reorder_drop_upto (pwr->reorder, DDSI_MAX_SEQ_NUMBER);
    ddsi_reorder_set_next_seq (pwr->reorder, expected);
    pwr->last_seq = expected - 1;
    pwr->last_fragnum = UINT32_MAX;
    ddsrt_mutex_unlock (&pwr->e.lock);
  }
  end (self);
}

bool holdall_acknowledged (struct ddsi_domaingv *gv, const uint8_t writer[16], uint64_t *sequence, size_t *readers)
{
  const ddsi_guid_t guid = guid_of (writer);
  struct ddsi_thread_state *const self = begin (gv);
  struct ddsi_writer *wr = ddsi_entidx_lookup_writer_guid (gv->entity_index, &guid);
  if (wr != NULL)
  {
    ddsrt_mutex_lock (&wr->e.lock);
    *sequence = ddsi_writer_max_drop_seq (wr);
    *readers = wr->num_reliable_readers;
    ddsrt_mutex_unlock (&wr->e.lock);
  }
  end (self);
  return wr != NULL;
}

void holdall_request_acknowledgement (struct ddsi_domaingv *gv, const uint8_t writer[16])
{
  const ddsi_guid_t guid = guid_of (writer);
  struct ddsi_thread_state *const self = begin (gv);
  struct ddsi_writer *wr = ddsi_entidx_lookup_writer_guid (gv->entity_index, &guid);
  if (wr != NULL)
  {
    ddsrt_mutex_lock (&wr->e.lock);
    wr->hbcontrol.t_of_last_write.v = 0;
    ddsrt_mutex_unlock (&wr->e.lock);
  }
  end (self);
}

bool holdall_lease (struct ddsi_domaingv *gv, const uint8_t participant[16], int64_t *heard, int64_t *until)
{
  const ddsi_guid_t guid = guid_of (participant);
  bool has_end = false;
  struct ddsi_thread_state *const self = begin (gv);
  struct ddsi_proxy_participant *proxy = ddsi_entidx_lookup_proxy_participant_guid (gv->entity_index, &guid);
  /* A lease that is replaced is not freed before `end`. */
  const struct ddsi_lease *lease = proxy ? ddsrt_atomic_ldvoidp (&proxy->minl_auto) : NULL;
  if (lease != NULL && lease->tdur > 0 && lease->tdur != DDS_INFINITY)
  {
    *until = (int64_t) ddsrt_atomic_ld64 (&lease->tend);
    *heard = *until - lease->tdur;
    has_end = true;
  }
  end (self);
  return has_end;
}

int64_t holdall_heartbeat_accepted (struct ddsi_domaingv *gv, const uint8_t reader[16], const uint8_t writer[16])
{
  const ddsi_guid_t writer_guid = guid_of (writer), reader_guid = guid_of (reader);
  int64_t accepted = 0;
  struct ddsi_thread_state *const self = begin (gv);
  struct ddsi_proxy_writer *pwr = ddsi_entidx_lookup_proxy_writer_guid (gv->entity_index, &writer_guid);
  if (pwr != NULL)
  {
    ddsrt_mutex_lock (&pwr->e.lock);
    const struct ddsi_pwr_rd_match *match = ddsrt_avl_lookup (&ddsi_pwr_readers_treedef, &pwr->readers, &reader_guid);
    if (match != NULL)
      accepted = match->t_heartbeat_accepted.v;
    ddsrt_mutex_unlock (&pwr->e.lock);
  }
  end (self);
  return accepted;
}

uint32_t holdall_next_acknowledgement (struct ddsi_domaingv *gv, const uint8_t reader[16], const uint8_t writer[16])
{
  const ddsi_guid_t writer_guid = guid_of (writer), reader_guid = guid_of (reader);
  uint32_t count = 0;
  struct ddsi_thread_state *const self = begin (gv);
  struct ddsi_proxy_writer *pwr = ddsi_entidx_lookup_proxy_writer_guid (gv->entity_index, &writer_guid);
  if (pwr != NULL)
  {
    ddsrt_mutex_lock (&pwr->e.lock);
    struct ddsi_pwr_rd_match *match = ddsrt_avl_lookup (&ddsi_pwr_readers_treedef, &pwr->readers, &reader_guid);
    if (match != NULL)
      count = match->count++;
    ddsrt_mutex_unlock (&pwr->e.lock);
  }
  end (self);
  return count;
}

void holdall_release_fragments (struct ddsi_rdata *first)
{
  ddsi_fragchain_unref (first);
}

/* The functions by which Cyclone sends and receives: one of each for all connections, because all of them are UDP. */
static ddsrt_atomic_voidp_t cyclone_write = DDSRT_ATOMIC_VOIDP_INIT (NULL);
static ddsrt_atomic_voidp_t cyclone_read = DDSRT_ATOMIC_VOIDP_INIT (NULL);
static const struct holdall_hooks *hooks;

struct call {
  const ddsi_locator_t *destination;
  const ddsi_tran_write_msgfrags_t *fragments;
  uint32_t flags;
};

static bool ipv4_of (const ddsi_locator_t *locator, uint32_t *address)
{
  const unsigned char *a = locator->address + 12;
  *address = (uint32_t) a[0] << 24 | (uint32_t) a[1] << 16 | (uint32_t) a[2] << 8 | a[3];
  return locator->kind == DDSI_LOCATOR_KIND_UDPv4;
}

static ddsi_tran_write_fn_t original_write (void)
{
  return (ddsi_tran_write_fn_t) ddsrt_atomic_ldvoidp (&cyclone_write);
}

static int socket_of (struct ddsi_tran_conn *conn)
{
  return conn ? conn->m_base.m_handle_fn (&conn->m_base) : -1;
}

size_t holdall_senders (struct ddsi_domaingv *gv, struct holdall_sender senders[HOLDALL_SENDERS_MAX])
{
  DDSRT_STATIC_ASSERT (HOLDALL_SENDERS_MAX == MAX_XMIT_CONNS);
  size_t count = 0;
  for (size_t i = 0; i < MAX_XMIT_CONNS; i++)
  {
    struct ddsi_tran_conn *const conn = gv->xmit_conns[i];
    if (conn == NULL)
      continue;
    const struct ddsi_network_interface *const interf = conn->m_interf;
    struct holdall_sender *const to = &senders[count];
    if (interf == NULL || !ipv4_of (&interf->loc, &to->address) || !ipv4_of (&interf->extloc, &to->announced) || !ipv4_of (&interf->netmask, &to->mask))
      return 0;
    to->connection = conn;
    to->is_loopback = interf->loopback;
    to->has_multicast = interf->allow_multicast != 0;
    to->socket = socket_of (conn);
    count++;
  }
  return count;
}

void holdall_multicast_sockets (struct ddsi_domaingv *gv, int sockets[2])
{
  sockets[0] = socket_of (gv->disc_conn_mc);
  sockets[1] = socket_of (gv->data_conn_mc);
}

void holdall_reach_other_hosts (struct ddsi_domaingv *gv)
{
  for (int i = 0; i < gv->n_interfaces; i++)
    gv->interfaces[i].loopback = 0;
}

static dds_return_t hooked_write (struct ddsi_tran_conn *conn, const ddsi_locator_t *destination, const ddsi_tran_write_msgfrags_t *fragments, uint32_t flags, size_t *written)
{
  const struct call call = { .destination = destination, .fragments = fragments, .flags = flags };
  struct holdall_packet packet = {
    .domain = conn->m_base.gv,
    .connection = conn,
    .port = destination->port,
    .pieces = fragments->iov,
    .count = fragments->niov,
    .call = &call
  };
  dds_return_t code;
  if (!ipv4_of (destination, &packet.to) || conn->m_interf == NULL || !ipv4_of (&conn->m_interf->loc, &packet.from) || !hooks->send (&packet, &code))
    return original_write () (conn, destination, fragments, flags, written);
  if (written != NULL && code == DDS_RETCODE_OK)
  {
    /* Cyclone expects the size that it asked to send. */
    *written = 0;
    for (size_t i = 0; i < fragments->niov; i++)
      *written += fragments->iov[i].iov_len;
  }
  return code;
}

static dds_return_t hooked_read (struct ddsi_tran_conn *conn, unsigned char *buf, size_t room, bool allow_spurious, struct ddsi_network_packet_info *info, size_t *len)
{
  const ddsi_tran_read_fn_t original = (ddsi_tran_read_fn_t) ddsrt_atomic_ldvoidp (&cyclone_read);
  const dds_return_t code = original (conn, buf, room, allow_spurious, info, len);
  uint32_t from;
  if (code == DDS_RETCODE_OK && info != NULL && *len <= room && ipv4_of (&info->src, &from))
    hooks->received (conn->m_base.gv, buf, *len, from, conn == conn->m_base.gv->disc_conn_mc);
  return code;
}

/* Whether a function is the one that is in use, or the first one. */
static bool is_only (ddsrt_atomic_voidp_t *known, void *function)
{
  return ddsrt_atomic_casvoidp (known, NULL, function) || ddsrt_atomic_ldvoidp (known) == function;
}

bool holdall_hook (struct ddsi_domaingv *gv, const struct holdall_hooks *functions)
{
  struct holdall_sender senders[HOLDALL_SENDERS_MAX];
  const size_t count = holdall_senders (gv, senders);
  for (size_t i = 0; i < count; i++)
    if (senders[i].connection->m_write_fn == hooked_write || !is_only (&cyclone_write, (void *) senders[i].connection->m_write_fn))
      return false;
  if (count == 0)
    return false;
  hooks = functions;
  for (size_t i = 0; i < count; i++)
    __atomic_store_n (&senders[i].connection->m_write_fn, hooked_write, __ATOMIC_RELEASE);
  struct ddsi_tran_conn *const discovery[] = { gv->disc_conn_mc, gv->disc_conn_uc };
  for (size_t i = 0; i < 2; i++)
    if (discovery[i] != NULL && discovery[i]->m_read_fn != hooked_read && is_only (&cyclone_read, (void *) discovery[i]->m_read_fn))
      __atomic_store_n (&discovery[i]->m_read_fn, hooked_read, __ATOMIC_RELEASE);
  return true;
}

static ddsi_locator_t towards (const struct holdall_packet *packet, uint32_t to)
{
  const struct call *const call = packet->call;
  ddsi_locator_t locator = *call->destination;
  for (int i = 0; i < 4; i++)
    locator.address[12 + i] = (unsigned char) (to >> (24 - 8 * i));
  return locator;
}

dds_return_t holdall_send (const struct holdall_packet *packet, struct ddsi_tran_conn *connection, uint32_t to)
{
  const struct call *const call = packet->call;
  const ddsi_locator_t locator = towards (packet, to);
  return original_write () (connection, &locator, call->fragments, call->flags, NULL);
}

dds_return_t holdall_send_other (const struct holdall_packet *packet, struct ddsi_tran_conn *connection, uint32_t to, const uint8_t *bytes, size_t len)
{
  const struct call *const call = packet->call;
  const ddsi_locator_t locator = towards (packet, to);
  DDSI_DECL_TRAN_WRITE_MSGFRAGS_PTR (fragments, 1);
  memset (fragments, 0, sizeof (*fragments));
  fragments->niov = 1;
  fragments->iov[0] = (ddsrt_iovec_t) { .iov_base = (void *) bytes, .iov_len = len };
  return original_write () (connection, &locator, fragments, call->flags, NULL);
}
