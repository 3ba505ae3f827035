// A secured node on Debian's Fast DDS: publishes texts, or listens to them, and reports on standard output.
//
// Usage: fast_peer talk|listen TOPIC COUNT ENCLAVE_FOLDER    (ROS_DOMAIN_ID is in the environment; it uses loopback only)
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

using namespace eprosima::fastdds::dds;
using eprosima::fastdds::rtps::UDPv4TransportDescriptor;
using eprosima::fastrtps::Duration_t;
using namespace eprosima::fastrtps::rtps;

// std_msgs/msg/String, little endian.
struct TextType : TopicDataType {
  TextType() {
    setName("std_msgs::msg::dds_::String_");
    m_typeSize = 256;
    m_isGetKeyDefined = false;
  }
  bool serialize(void* data, SerializedPayload_t* payload) override {
    const auto& text = *static_cast<std::string*>(data);
    const uint32_t length = static_cast<uint32_t>(text.size()) + 1;
    std::memcpy(payload->data, "\0\1\0\0", 4);
    std::memcpy(payload->data + 4, &length, 4);
    std::memcpy(payload->data + 8, text.c_str(), length);
    payload->length = 8 + length;
    payload->encapsulation = CDR_LE;
    return true;
  }
  bool deserialize(SerializedPayload_t* payload, void* data) override {
    if (payload->length < 9)
      return false;
    *static_cast<std::string*>(data) = reinterpret_cast<const char*>(payload->data + 8);
    return true;
  }
  std::function<uint32_t()> getSerializedSizeProvider(void*) override { return [] { return 256u; }; }
  void* createData() override { return new std::string(); }
  void deleteData(void* data) override { delete static_cast<std::string*>(data); }
  bool getKey(void*, InstanceHandle_t*, bool) override { return false; }
};

template <typename T> static T* check(T* made, const char* what) {
  if (made == nullptr) {
    std::printf("{\"event\": \"failed\", \"what\": \"%s\", \"reason\": \"\"}\n", what);
    std::exit(1);
  }
  return made;
}

static void pause_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

static DomainParticipantQos secured(const std::string& enclave, uint32_t domain) {
  DomainParticipantQos qos;
  const std::string file = "file://" + enclave + "/";
  auto& properties = qos.properties().properties();
  const std::string pki = "dds.sec.auth.builtin.PKI-DH.", access = "dds.sec.access.builtin.Access-Permissions.";
  properties.emplace_back("dds.sec.auth.plugin", "builtin.PKI-DH");
  properties.emplace_back(pki + "identity_ca", file + "identity_ca.cert.pem");
  properties.emplace_back(pki + "identity_certificate", file + "cert.pem");
  properties.emplace_back(pki + "private_key", file + "key.pem");
  properties.emplace_back("dds.sec.crypto.plugin", "builtin.AES-GCM-GMAC");
  properties.emplace_back("dds.sec.access.plugin", "builtin.Access-Permissions");
  properties.emplace_back(access + "permissions_ca", file + "permissions_ca.cert.pem");
  properties.emplace_back(access + "governance", file + "governance.p7s");
  properties.emplace_back(access + "permissions", file + "permissions.p7s");
  auto loopback = std::make_shared<UDPv4TransportDescriptor>();
  loopback->interfaceWhiteList.emplace_back("127.0.0.1");
  qos.transport().use_builtin_transports = false;
  qos.transport().user_transports.push_back(loopback);
  for (uint32_t index = 0; index < 8; index++) {
    Locator_t peer;
    IPLocator::setIPv4(peer, "127.0.0.1");
    peer.port = 7400 + 250 * domain + 10 + 2 * index;
    qos.wire_protocol().builtin.initialPeersList.push_back(peer);
  }
  const std::string user = "enclave=/peer;";
  qos.user_data().data_vec(std::vector<octet>(user.begin(), user.end()));
  return qos;
}

static void talk(DomainParticipant* participant, Topic* topic, int count) {
  auto* publisher = check(participant->create_publisher(PUBLISHER_QOS_DEFAULT), "publisher");
  DataWriterQos qos;
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.history().kind = KEEP_ALL_HISTORY_QOS;
  auto* writer = check(publisher->create_datawriter(topic, qos), "writer");
  std::printf("{\"event\": \"ready\"}\n");
  PublicationMatchedStatus matched;
  do {
    pause_ms(10);
    writer->get_publication_matched_status(matched);
  } while (matched.current_count == 0);
  for (int number = 0; number < count; number++) {
    std::string text = "fast " + std::to_string(number);
    while (!writer->write(&text))
      pause_ms(1);
    pause_ms(1);
  }
  writer->wait_for_acknowledgments(Duration_t(30, 0));
  std::printf("{\"event\": \"done\", \"count\": %d}\n", count);
  // Until the end of the test, so that no one sees it leave.
  std::getchar();
}

static void listen(DomainParticipant* participant, Topic* topic, int count) {
  auto* subscriber = check(participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT), "subscriber");
  DataReaderQos qos;
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.history().kind = KEEP_ALL_HISTORY_QOS;
  auto* reader = check(subscriber->create_datareader(topic, qos), "reader");
  std::printf("{\"event\": \"ready\"}\n");
  for (int heard = 0; heard < count; pause_ms(5)) {
    std::string text;
    SampleInfo info;
    while (reader->take_next_sample(&text, &info) == ReturnCode_t::RETCODE_OK)
      if (info.valid_data) {
        std::printf("{\"event\": \"heard\", \"text\": \"%s\"}\n", text.c_str());
        heard++;
      }
  }
  std::printf("{\"event\": \"done\", \"count\": %d}\n", count);
  // The last acknowledgement has yet to leave; the test ends this program.
  for (;;) pause_ms(50);
}

int main(int argc, char** argv) {
  if (argc != 5)
    return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const uint32_t domain = static_cast<uint32_t>(std::atoi(std::getenv("ROS_DOMAIN_ID")));
  auto* factory = DomainParticipantFactory::get_instance();
  auto* participant = check(factory->create_participant(domain, secured(argv[4], domain)), "participant");
  TypeSupport type(new TextType());
  type.register_type(participant);
  auto* topic = check(participant->create_topic(argv[2], type.get_type_name(), TOPIC_QOS_DEFAULT), "topic");
  (std::strcmp(argv[1], "talk") == 0 ? talk : listen)(participant, topic, std::atoi(argv[3]));
  // Without its clean-up, in which it crashes now and then.
  std::_Exit(0);
}
