/* OpenSSL for Cyclone's security plugins: a table of pointers to its functions, filled when a domain is secured (docs/adr/0024).
   Three of its functions are replaced, so that handshakes with Fast DDS succeed. */
#define HOLDALL_OPENSSL_TABLE
#include "openssl_table.h"
#include "holdall.h"
#include "dds/ddsrt/log.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of OpenSSL 3 on Linux. Its rules for names allow no other major version. */
#define LIBRARY "libcrypto.so.3"

/* What each pointer points to before OpenSSL is loaded. */
static void not_loaded (void)
{
  DDS_FATAL ("Cyclone DDS is configured for security, which needs OpenSSL 3, and that is not loaded\n");
}

#define F(name) .name = (__typeof__ (&name)) not_loaded,
struct holdall_openssl holdall_openssl = { HOLDALL_OPENSSL(F) };
#undef F

static const struct holdall_handshake *handshake;

/* OpenSSL's own functions, where the table has ours. */
static __typeof__ (&d2i_ASN1_INTEGER) openssl_read;
static __typeof__ (&i2d_ASN1_INTEGER) openssl_write;
static __typeof__ (&SHA256) openssl_hash;

/* d2i_ASN1_INTEGER, also for the bytes of a number alone. */
static ASN1_INTEGER *read_integer (ASN1_INTEGER **into, const unsigned char **bytes, long len)
{
  size_t skipped = 0;
  if (into != NULL || len < 0 || !handshake->is_plain (*bytes, (size_t) len, &skipped))
    return openssl_read (into, bytes, len);
  ASN1_INTEGER *integer = holdall_openssl.ASN1_STRING_type_new (V_ASN1_INTEGER);
  if (integer == NULL)
    return NULL;
  if (holdall_openssl.ASN1_STRING_set (integer, *bytes + skipped, (int) ((size_t) len - skipped)) != 1)
  {
    holdall_openssl.ASN1_STRING_free (integer);
    return NULL;
  }
  *bytes += len;
  return integer;
}

/* i2d_ASN1_INTEGER, as the bytes of the number alone where the other side writes them so. */
static int write_integer (const ASN1_INTEGER *integer, unsigned char **to)
{
  const unsigned char *number = holdall_openssl.ASN1_STRING_get0_data (integer);
  const int len = holdall_openssl.ASN1_STRING_length (integer);
  if (len < 0 || !handshake->goes_plain (number, (size_t) len))
    return openssl_write (integer, to);
  if (to != NULL && *to != NULL)
  {
    memcpy (*to, number, (size_t) len);
    *to += len;
  }
  return len;
}

/* SHA256 of our properties in the form in which they are sent. */
static unsigned char *hash (const unsigned char *bytes, size_t len, unsigned char *digest)
{
  size_t changed_len = 0;
  unsigned char *changed = handshake->to_be_hashed (bytes, len, &changed_len);
  unsigned char *result = openssl_hash (changed ? changed : bytes, changed ? changed_len : len, digest);
  free (changed);
  return result;
}

bool holdall_openssl_load (const struct holdall_handshake *functions, char *reason, size_t room)
{
  void *library = dlopen (LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
  {
    const char *error = dlerror ();
    snprintf (reason, room, "which cannot be loaded: %s", error ? error : "no reason is known");
    return false;
  }
  struct holdall_openssl found;
  void *address;
#define F(name) \
  if ((address = dlsym (library, #name)) == NULL) \
  { \
    snprintf (reason, room, "and the one found here lacks %s", #name); \
    return false; \
  } \
  memcpy (&found.name, &address, sizeof (address));
  HOLDALL_OPENSSL(F)
#undef F
  handshake = functions;
  openssl_read = found.d2i_ASN1_INTEGER;
  openssl_write = found.i2d_ASN1_INTEGER;
  openssl_hash = found.SHA256;
  found.d2i_ASN1_INTEGER = read_integer;
  found.i2d_ASN1_INTEGER = write_integer;
  found.SHA256 = hash;
  holdall_openssl = found;
  return true;
}

size_t holdall_openssl_key (const unsigned char *key, size_t len, unsigned char *to, size_t room)
{
  const unsigned char *at = key;
  ASN1_INTEGER *integer = holdall_openssl.d2i_ASN1_INTEGER (NULL, &at, (long) len);
  if (integer == NULL || at != key + len)
    return 0;
  const int written = holdall_openssl.i2d_ASN1_INTEGER (integer, NULL);
  if (written > 0 && (size_t) written <= room)
    holdall_openssl.i2d_ASN1_INTEGER (integer, &to);
  holdall_openssl.ASN1_STRING_free (integer);
  return written > 0 && (size_t) written <= room ? (size_t) written : 0;
}
