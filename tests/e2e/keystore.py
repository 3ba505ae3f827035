"""A keystore as sros2 lays it out, made with openssl alone: authorities, governance, and enclaves with their permissions."""

import datetime
import shutil
import subprocess

SCHEMA = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="http://www.omg.org/spec/DDS-SECURITY/20170901'
DOMAINS = "<domains><id_range><min>0</min><max>230</max></id_range></domains>"


def openssl(*arguments, cwd):
    done = subprocess.run(["openssl", *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def utc(days=0.0, seconds=0.0):
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days, seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


class Keystore:
    """`protection` is that of discovery, liveliness, topics' submessages and payloads; `rtps` that of whole packets."""

    def __init__(self, folder, protection="ENCRYPT", rtps="SIGN", allow_unauthenticated=False):
        self.folder = folder
        self.private, self.public = folder / "private", folder / "public"
        for made in (self.private, self.public, folder / "enclaves"):
            made.mkdir(parents=True)
        self._key(self.private / "ca.key.pem")
        openssl("req", "-x509", "-new", "-key", "ca.key.pem", "-days", "3650", "-subj", "/CN=sros2CA", "-out", self.ca, cwd=self.private)
        self.governance = folder / "governance.p7s"
        self.govern(protection, rtps, allow_unauthenticated)

    @property
    def ca(self):
        return self.public / "ca.cert.pem"

    def _key(self, path):
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", path, cwd=self.folder)

    def _sign(self, text, path):
        (self.private / "unsigned.xml").write_text(text)
        openssl(
            "smime", "-sign", "-text", "-in", "unsigned.xml", "-out", path, "-signer", self.ca, "-inkey", "ca.key.pem", cwd=self.private
        )  # fmt: skip

    def govern(self, protection, rtps, allow_unauthenticated):
        flag = "true" if protection != "NONE" else "false"
        self._sign(
            f'<?xml version="1.0" encoding="UTF-8"?>\n<dds {SCHEMA}/omg_shared_ca_governance.xsd"><domain_access_rules><domain_rule>{DOMAINS}'
            f"<allow_unauthenticated_participants>{str(allow_unauthenticated).lower()}</allow_unauthenticated_participants>"
            f"<enable_join_access_control>true</enable_join_access_control>"
            f"<discovery_protection_kind>{protection}</discovery_protection_kind>"
            f"<liveliness_protection_kind>{protection}</liveliness_protection_kind>"
            f"<rtps_protection_kind>{rtps}</rtps_protection_kind><topic_access_rules><topic_rule><topic_expression>*</topic_expression>"
            f"<enable_discovery_protection>{flag}</enable_discovery_protection>"
            f"<enable_liveliness_protection>{flag}</enable_liveliness_protection>"
            "<enable_read_access_control>true</enable_read_access_control><enable_write_access_control>true</enable_write_access_control>"
            f"<metadata_protection_kind>{protection}</metadata_protection_kind><data_protection_kind>{protection}</data_protection_kind>"
            "</topic_rule></topic_access_rules></domain_rule></domain_access_rules></dds>\n",
            self.governance,
        )

    def enclave(self, name, publish=("*",), subscribe=("*",), certificate_days=365, permissions_seconds=86400 * 365):
        """Makes an enclave (`/robot/recorder`); returns its folder."""
        folder = self.folder / "enclaves" / name.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        self._key(folder / "key.pem")
        subject = "/CN=" + name.replace("/", "\\/")
        openssl("req", "-new", "-key", "key.pem", "-subj", subject, "-out", "request.csr", cwd=folder)
        openssl(
            "x509", "-req", "-in", "request.csr", "-CA", self.ca, "-CAkey", self.private / "ca.key.pem", "-CAcreateserial",
            "-days", certificate_days, "-out", "cert.pem", cwd=folder,
        )  # fmt: skip
        for copy in ("identity_ca.cert.pem", "permissions_ca.cert.pem"):
            shutil.copyfile(self.ca, folder / copy)
        shutil.copyfile(self.governance, folder / "governance.p7s")
        self.permit(folder, name, publish, subscribe, permissions_seconds)
        return folder

    def permit(self, folder, name, publish, subscribe, seconds):
        def topics(names):
            return "<topics>" + "".join(f"<topic>{one}</topic>" for one in names) + "</topics>"

        self._sign(
            f'<?xml version="1.0" encoding="UTF-8"?>\n<dds {SCHEMA}/omg_shared_ca_permissions.xsd"><permissions><grant name="{name}">'
            f"<subject_name>CN={name}</subject_name>"
            f"<validity><not_before>{utc(days=-1)}</not_before><not_after>{utc(seconds=seconds)}</not_after></validity>"
            f"<allow_rule>{DOMAINS}<publish>{topics(publish)}</publish><subscribe>{topics(subscribe)}</subscribe></allow_rule>"
            "<default>DENY</default></grant></permissions></dds>\n",
            folder / "permissions.p7s",
        )

    def variables(self, enclave, strategy="Enforce"):
        return {
            "ROS_SECURITY_ENABLE": "true",
            "ROS_SECURITY_STRATEGY": strategy,
            "ROS_SECURITY_KEYSTORE": str(self.folder),
            "ROS_SECURITY_ENCLAVE_OVERRIDE": enclave,
        }
