//! The bytes of a lent payload are in the publisher's shared memory or in the received packets, nowhere else.
//! The recorder's part (a loan is read once, into the block that goes to the disk) is tested in the crate
//! `holdall`.
#![cfg(any(feature = "dds", feature = "iceoryx2", feature = "zenoh"))]

#[cfg(feature = "dds")]
mod dds;
mod support;
#[cfg(feature = "zenoh")]
mod zenoh;

use support::*;

const LEN: usize = 6_220_856;

/// Address and length of each slice of the only message that was kept.
fn slices(keeper: &Keeper) -> Vec<(usize, usize)> {
    let kept = keeper.kept.lock().unwrap();
    let loan = kept[0].loan.as_ref().expect("megabytes are lent");
    let mut slices = Vec::new();
    loan.for_each_slice(&mut |slice| slices.push((slice.as_ptr() as usize, slice.len())));
    assert_eq!(slices.iter().map(|(_, len)| len).sum::<usize>(), LEN);
    slices
}

/// The file that all bytes of a slice are mapped from, according to the kernel.
#[cfg(any(feature = "iceoryx2", feature = "zenoh"))]
fn mapped_from((address, len): (usize, usize)) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        number(start) <= address && address + len <= number(end)
    });
    let line = line.unwrap_or_else(|| panic!("{address:x} is in no mapping:\n{maps}"));
    line.split_whitespace().nth(5).unwrap_or("anonymous").to_owned()
}

/// Waits for the message; it must be in one piece in memory that its publisher shares.
#[cfg(any(feature = "iceoryx2", feature = "zenoh"))]
fn assert_lent_from_shared_memory(keeper: &Keeper, sent: Vec<u8>) {
    assert!(wait_until(|| keeper.len() == 1));
    let slices = slices(keeper);
    assert_eq!(slices.len(), 1);
    let file = mapped_from(slices[0]);
    assert!(file.starts_with("/dev/shm/"), "{file}");
    assert!(keeper.payloads() == [sent]);
}

#[cfg(feature = "iceoryx2")]
#[test]
fn what_iceoryx2_lends_lies_in_the_publishers_shared_memory() {
    use holdall_io::clock::SystemClock;
    use holdall_transport::iceoryx2::Iceoryx2Transport;
    let join = |name: &str| Iceoryx2Transport::new(name, std::sync::Arc::new(SystemClock)).unwrap();
    let (mut ours, mut theirs) = (join("recorder"), join("talker"));
    let topic = topic("shared");
    let mut publisher = publish(&mut theirs, &topic, IMAGE, reliable(2));
    let (keeper, subscription) = subscribe(&mut ours, &topic, IMAGE, reliable(2));
    assert!(wait_until(|| subscription.matched_publishers() == 1));
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    let sent = patterned(1, LEN);
    publisher.publish(&sent).unwrap();
    assert_lent_from_shared_memory(&keeper, sent);
}

#[cfg(feature = "zenoh")]
#[test]
fn what_zenoh_lends_lies_in_the_publishers_shared_memory() {
    use ::zenoh::{
        Wait,
        shm::{BlockOn, GarbageCollect, ShmProviderBuilder},
    };
    let meeting = zenoh::Meeting::new();
    let mut ours = meeting.host("recorder", "peer");
    let topic = topic("shared");
    let (keeper, _subscription) = subscribe(&mut ours, &topic, IMAGE, reliable(2));
    let mut config = ::zenoh::Config::default();
    for (key, value) in [
        ("mode", "\"peer\"".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("transport/shared_memory/enabled", "true".to_owned()),
        ("connect/endpoints", format!("[\"{}\"]", meeting.endpoint)),
        ("listen/endpoints", "[]".to_owned()),
    ] {
        config.insert_json5(key, &value).unwrap();
    }
    let session = ::zenoh::open(config).wait().unwrap();
    let key = format!(
        "{}{topic}/sensor_msgs::msg::dds_::Image_/RIHS01_{}",
        zenoh::DOMAIN,
        "ab".repeat(32)
    );
    let publisher = session.declare_publisher(key).wait().unwrap();
    let is_matched = || publisher.matching_status().wait().unwrap().matching();
    assert!(wait_until(is_matched));
    let provider = ShmProviderBuilder::default_backend(2 * LEN).wait().unwrap();
    let sent = patterned(1, LEN);
    let alloc = provider.alloc(LEN).with_policy::<BlockOn<GarbageCollect>>();
    let mut buffer = alloc.wait().unwrap();
    buffer.copy_from_slice(&sent);
    let mut attachment = 1_i64.to_le_bytes().to_vec();
    attachment.extend(1_i64.to_le_bytes());
    attachment.push(16);
    attachment.extend([9; 16]);
    publisher.put(buffer).attachment(attachment).wait().unwrap();
    assert_lent_from_shared_memory(&keeper, sent);
}

#[cfg(feature = "zenoh")]
#[test]
fn what_zenoh_lends_over_the_network_stays_in_pieces_as_it_came() {
    let meeting = zenoh::Meeting::new();
    let mut theirs = meeting.host("talker", "peer");
    let mut ours = meeting.guest("recorder", "peer");
    let topic = topic("pieces");
    let mut publisher = publish(&mut theirs, &topic, IMAGE, reliable(2));
    let (keeper, _subscription) = subscribe(&mut ours, &topic, IMAGE, reliable(2));
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    publisher.publish(&patterned(1, LEN)).unwrap();
    assert!(wait_until(|| keeper.len() == 1));
    let slices = slices(&keeper);
    assert!(slices.iter().all(|(_, len)| *len <= 64 << 10), "gathered");
}

/// Each fragment is where its packet was received: the packet's header is right before it.
#[cfg(feature = "dds")]
#[test]
fn what_dds_lends_lies_in_the_received_packets() {
    let domain = dds::domain();
    let (mut ours, mut theirs) = (
        dds::transport(domain, "recorder"),
        dds::transport(domain, "talker"),
    );
    let topic = topic("packets");
    let (keeper, _subscription) = subscribe(&mut ours, &topic, IMAGE, reliable(2));
    let mut publisher = publish(&mut theirs, &topic, IMAGE, reliable(2));
    assert!(wait_until(|| publisher.matched_subscriptions() == 1));
    let sent = patterned(1, LEN);
    publisher.publish(&sent).unwrap();
    assert!(wait_until(|| keeper.len() == 1));
    let slices = slices(&keeper);
    assert!(slices.len() > 10, "{}", slices.len());
    for (address, len) in slices {
        assert!(ffi_packet::is_in_a_packet(address), "{len} bytes at {address:x}");
    }
    assert!(keeper.payloads() == [sent]);
}

#[cfg(feature = "dds")]
#[path = "support/ffi_packet.rs"]
mod ffi_packet;
