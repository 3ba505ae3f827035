//! Services without introspection are named: their calls cannot be recorded.

use super::*;
use holdall_model::unheard::unheard_services_in;
use holdall_transport::{ServiceDescription, ServiceServer, Transport as _};
use std::collections::BTreeSet;

const ADD: &str = "example_interfaces/srv/AddTwoInts";

fn serve(transport: &mut MemoryTransport, name: &str, type_name: &str) -> Box<dyn ServiceServer> {
    let service = ServiceDescription {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        ..ServiceDescription::default()
    };
    transport.serve(&service, Arc::new(|| ())).unwrap()
}

#[test]
fn services_without_introspection_are_named_in_report_and_bag_unless_nobody_asked_for_them() {
    let mut world = World::new();
    world.options.selection = Selection {
        all_services: true,
        exclude_services: vec!["/unwanted".to_owned()],
        ..Selection::default()
    };
    let mut robot = MemoryTransport::new(&world.network, node("robot"), world.clock());
    let _before = serve(&mut robot, "/add", ADD);
    let _others = [
        serve(
            &mut robot,
            "/robot/list_parameters",
            "rcl_interfaces/srv/ListParameters",
        ),
        // Services of other recorders and players, whatever their nodes are called.
        serve(
            &mut robot,
            "/rosbag2_player/pause",
            "rosbag2_interfaces/srv/Pause",
        ),
        serve(
            &mut robot,
            "/black_box/add_marker",
            "holdall_interfaces/srv/AddMarker",
        ),
        serve(
            &mut robot,
            "/robot/set_logger_levels",
            "rcl_interfaces/srv/SetLoggerLevels",
        ),
        serve(&mut robot, "/unwanted", ADD),
        serve(&mut robot, "/heard", ADD),
    ];
    let heard = world.publisher_of(
        "/heard/_service_event",
        "example_interfaces/srv/AddTwoInts_Event",
        None,
        RELIABLE,
    );
    let recording = world.record();
    recording.wait_matched(&heard);
    let gone = serve(&mut robot, "/gone", ADD);
    let _late = serve(&mut robot, "/late", ADD);
    drop(gone);
    // The event topic may come after its service.
    let unheard = |recording: &Recording| recording.recorder.status().unheard_services;
    recording.wait_until("services are found", |recording| {
        world.clock.advance(Duration::from_millis(100));
        unheard(recording).len() == 2
    });
    let recorded = recording.stop();
    let expected = BTreeSet::from(["/add".to_owned(), "/late".to_owned()]);
    assert_eq!(recorded.report.status.unheard_services, expected);
    assert_eq!(unheard_services_in(&recorded.metadata().custom_data), expected);
}
