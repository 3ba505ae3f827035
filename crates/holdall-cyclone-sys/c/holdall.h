/* Typed access to the parts of Cyclone DDS that its public interface leaves out.

   `gid` is always a GUID of 16 bytes in network byte order. Functions that take a domain's globals look an entity up by its GUID; they do
   nothing where there is none, and return zero or false. They take the entity's lock, which Cyclone holds while it delivers: none of them may
   be called from a listener. Times are nanoseconds of Cyclone's clock for elapsed time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dds/dds.h>
#include <dds/ddsrt/iovec.h>

struct ddsi_domaingv;
struct ddsi_rdata;

/* The globals of a live domain, which live as long as it; null when the handle is none. */
struct ddsi_domaingv *holdall_globals (dds_entity_t domain);

/* The clock of all times here. */
int64_t holdall_elapsed (void);

/* Whether one of our participants is still in its domain: Cyclone deletes one whose certificate or permissions expire, but keeps its handles. */
bool holdall_takes_part (struct ddsi_domaingv *gv, const uint8_t participant[16]);

/* Makes a volatile reliable reader request all that writers still keep for it, from each writer that it matches from now on.

   A writer that matches us first sends at once; until we have matched it as well, we do not receive its messages. Cyclone would then begin
   with the next one; other vendors' writers send the first ones again on request. */
void holdall_request_history (struct ddsi_domaingv *gv, const uint8_t reader[16]);

/* The last sequence number that a writer of another participant has announced; 0 when it is unknown or has announced none. */
uint64_t holdall_announced_sequence (struct ddsi_domaingv *gv, const uint8_t writer[16]);

/* Lets a writer's proxy expect number `next` again, after a forged DATA, GAP or HEARTBEAT with a number more than `misled_from` away: a proxy of
   a best-effort writer drops everything before the highest number that it has seen, one of a reliable writer drops what a HEARTBEAT has declared
   gone. Messages that the proxy holds out of order are dropped, because one may be forged; a reliable writer sends the rest again. A proxy whose
   deliveries were not misled only forgets the highest number. */
void holdall_expect_next (struct ddsi_domaingv *gv, const uint8_t writer[16], uint64_t next, uint64_t misled_from);

/* The last sequence number that all matched reliable readers of one of our writers have acknowledged (without such a reader the last one
   written), and the number of these readers, those of our own process left out. False when the writer is gone. */
bool holdall_acknowledged (struct ddsi_domaingv *gv, const uint8_t writer[16], uint64_t *sequence, size_t *readers);

/* Makes the next message of one of our writers request an acknowledgement from its reliable readers.

   With a KEEP_LAST history, Cyclone requests acknowledgements only after a message that came 8 ms after the one before, so that a stream of more
   than 125 messages a second is acknowledged only when it ends. Here the time that it compares is set to "long ago". */
void holdall_request_acknowledgement (struct ddsi_domaingv *gv, const uint8_t writer[16]);

/* The shortest lease of another participant (its own, or that of one of its writers): when it was renewed last, and when it ends. False where it
   is gone or its lease has no end. */
bool holdall_lease (struct ddsi_domaingv *gv, const uint8_t participant[16], int64_t *heard, int64_t *end);

/* When one of our readers last accepted a HEARTBEAT of a writer; 0 before the first. */
int64_t holdall_heartbeat_accepted (struct ddsi_domaingv *gv, const uint8_t reader[16], const uint8_t writer[16]);

/* Takes the count of the next ACKNACK of one of our readers to a writer: higher than those before, also than those before the writer's participant was
   lost and found again. 0 where they are not matched. */
uint32_t holdall_next_acknowledgement (struct ddsi_domaingv *gv, const uint8_t reader[16], const uint8_t writer[16]);

/* Releases one reference to the packet of each fragment in a chain. Any thread may call it. */
void holdall_release_fragments (struct ddsi_rdata *first);

/* A connection by which a domain sends UDP over IPv4, and its interface. Addresses are in host byte order. */
struct holdall_sender {
  struct ddsi_tran_conn *connection;
  /* The interface's own address, the one that is announced for it, and its mask. */
  uint32_t address, announced, mask;
  bool is_loopback;
  /* Participants are announced by multicast there. */
  bool has_multicast;
  int socket;
};

#define HOLDALL_SENDERS_MAX 4

/* The connections by which a domain sends, which live as long as it; 0 where one of them is not UDP over IPv4. */
size_t holdall_senders (struct ddsi_domaingv *gv, struct holdall_sender senders[HOLDALL_SENDERS_MAX]);

/* The sockets by which a domain receives multicast, of participants and of data; -1 where it has none. */
void holdall_multicast_sockets (struct ddsi_domaingv *gv, int sockets[2]);

/* Makes a domain without participants send to other hosts though it has only loopback: a network may appear. */
void holdall_reach_other_hosts (struct ddsi_domaingv *gv);

/* A packet that a domain is about to send. */
struct holdall_packet {
  struct ddsi_domaingv *domain;
  struct ddsi_tran_conn *connection;
  /* Address of the connection's interface, and where the packet goes: host byte order. */
  uint32_t from, to, port;
  /* Its pieces, in order. */
  const ddsrt_iovec_t *pieces;
  size_t count;
  /* What Cyclone has called with. */
  const void *call;
};

/* What Rust does with packets. The functions must live for ever and not unwind. */
struct holdall_hooks {
  /* A packet is about to leave; false when Cyclone is to send it as it is, else with the outcome in `code`. */
  bool (*send) (const struct holdall_packet *packet, dds_return_t *code);
  /* A packet of discovery came in, by multicast or not, which may be changed. `from` is in host byte order. */
  void (*received) (struct ddsi_domaingv *domain, uint8_t *packet, size_t len, uint32_t from, bool is_multicast);
};

/* Puts the hooks in the place of the functions by which a domain's connections send, and receive discovery; false, with nothing changed, when
   its connections are not UDP over IPv4. All domains have the same hooks. */
bool holdall_hook (struct ddsi_domaingv *gv, const struct holdall_hooks *hooks);

/* Sends a packet as Cyclone would, by a connection and to an address of the caller's choice. */
dds_return_t holdall_send (const struct holdall_packet *packet, struct ddsi_tran_conn *connection, uint32_t to);

/* The same with other content. */
dds_return_t holdall_send_other (const struct holdall_packet *packet, struct ddsi_tran_conn *connection, uint32_t to, const uint8_t *bytes, size_t len);

/* The decisions of handshakes with Fast DDS, in Rust. They must live for ever. */
struct holdall_handshake {
  /* A key came in: whether it is the bytes of a number alone, and how many zeros it begins with. */
  bool (*is_plain) (const uint8_t *key, size_t len, size_t *zeros);
  /* A key goes out: whether as the bytes of the number alone. */
  bool (*goes_plain) (const uint8_t *number, size_t len);
  /* Other bytes to hash in place of these, allocated by malloc; null when they are hashed as they are. */
  uint8_t *(*to_be_hashed) (const uint8_t *bytes, size_t len, size_t *changed_len);
};

/* Loads OpenSSL 3; false, with a reason, where the system has none or one that lacks a function. Exists only with security. */
bool holdall_openssl_load (const struct holdall_handshake *functions, char *reason, size_t room);

/* Reads a key as Cyclone does, and writes what was read to `to`; returns its length, 0 on failure. For a test. Exists only with security. */
size_t holdall_openssl_key (const unsigned char *key, size_t len, unsigned char *to, size_t room);
