//! The folder's page over real connections: what it lists and gives, and that nothing leads out of the folder.

use super::*;
use holdall::{Timestamp, Writer, supervise::running::RunningFolder};
use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::symlink,
};

struct Hosted {
    running: RunningFolder,
    played: Mutex<Vec<(PathBuf, PlayTo)>>,
}

impl Host for Hosted {
    fn info(&self, bag: &Path) -> Result<Value, String> {
        let bag = Bag::open(bag).map_err(|error| error.to_string())?;
        Ok(json!({"messages": bag.metadata().message_count}))
    }

    fn play(&self, bag: &Path, to: PlayTo) -> Result<Box<dyn PlayingBag>, String> {
        lock(&self.played).push((bag.to_owned(), to));
        Err("nothing plays in this test".to_owned())
    }

    fn running(&self) -> Vec<Running> {
        self.running.list()
    }
}

struct World {
    server: FolderServer,
    host: Arc<Hosted>,
    outer: tempfile::TempDir,
}

/// A folder with a bag, one with a link, and something beside the folder.
fn world() -> World {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("bags");
    for name in ["bags/lab", "bags/runs/läb 2", "secret"] {
        fs::create_dir_all(outer.path().join(name).parent().unwrap()).unwrap();
        let mut writer = Writer::create(outer.path().join(name)).unwrap();
        let topic = writer.add_topic("/odom", "std_msgs/msg/UInt8").unwrap();
        for number in 0..100 {
            let time = Timestamp::from_nanos(1_700_000_000_000_000_000 + number);
            writer.write(topic, time, &[0, 1, 0, 0, 7]).unwrap();
        }
        writer.close().unwrap();
    }
    symlink(outer.path().join("secret"), root.join("linked")).unwrap();
    fs::create_dir(root.join("inside")).unwrap();
    symlink(
        outer.path().join("secret/secret_0.mcap"),
        root.join("inside/inside_0.mcap"),
    )
    .unwrap();
    let host = Arc::new(Hosted {
        running: RunningFolder::new(outer.path().join("running")),
        played: Mutex::default(),
    });
    let hosted = Arc::clone(&host) as Arc<dyn Host>;
    let server = FolderServer::start("127.0.0.1:0".parse().unwrap(), &root, hosted).unwrap();
    World { server, host, outer }
}

impl World {
    fn exchange(&self, request: &str) -> (u16, Vec<u8>) {
        let mut client = TcpStream::connect(self.server.listener.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let status = str::from_utf8(&bytes[9..12]).unwrap().parse().unwrap();
        (status, bytes.split_off(head + 4))
    }

    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let (status, answer) = self.exchange(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        (status, serde_json::from_slice(&answer).unwrap())
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.get(path).1).unwrap()
    }

    /// The list, once it has been made.
    fn listed(&self) -> Value {
        loop {
            let list = self.json("/api/bags");
            if list["bags"].as_array().is_some_and(|bags| bags.len() == 3) {
                return list;
            }
            thread::yield_now();
        }
    }
}

#[test]
fn bags_are_listed_read_and_downloaded() {
    let world = world();
    let list = world.listed();
    let names: Vec<&str> = list["bags"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|bag| bag["name"].as_str())
        .collect();
    assert_eq!(names, ["inside", "lab", "runs/läb 2"]);
    assert_eq!(
        (&list["bags"][1]["messages"], &list["bags"][1]["state"]),
        (&json!(100), &json!("whole"))
    );
    assert_eq!(list["bags"][0]["state"], json!("refused"));
    let info = world.json("/api/info?bag=runs%2Fl%C3%A4b+2");
    assert_eq!(info["info"]["messages"], json!(100), "{info}");
    let stored = fs::read(world.outer.path().join("bags/lab/lab_0.mcap")).unwrap();
    assert_eq!(
        world.get("/api/download?bag=lab&file=lab_0.mcap"),
        (200, stored.clone())
    );
    let (status, archive) = world.get("/api/download?bag=lab");
    assert_eq!((status, archive.len() % 512), (200, 0));
    let at = archive
        .windows(stored.len())
        .position(|bytes| bytes == stored)
        .unwrap();
    assert_eq!(at % 512, 0);
    for (path, key, expected) in [
        ("/api/timeline", "topics", json!(100)),
        ("/api/check", "sound", json!(true)),
    ] {
        let result = loop {
            let (status, reply) = world.post(path, &json!({"bag": "lab"}));
            assert_eq!(status, 200, "{reply}");
            if let Some(result) = reply.get("result") {
                break result.clone();
            }
            thread::yield_now();
        };
        let found = if key == "topics" {
            &result[key][0]["messages"]
        } else {
            &result[key]
        };
        assert_eq!(*found, expected, "{result}");
    }
}

#[test]
fn nothing_leads_out_of_the_folder() {
    let world = world();
    world.listed();
    for bag in [
        "..",
        "../secret",
        "%2e%2e%2fsecret",
        "..%2fsecret",
        "lab%2f..%2f..%2fsecret",
        "/etc",
        "linked",
        "lab%00",
        "",
        ".",
        "lab%2flab_0.mcap",
        "./lab",
    ] {
        for path in ["/api/info", "/api/download"] {
            let (status, answer) = world.get(&format!("{path}?bag={bag}"));
            assert!([400, 404].contains(&status), "{path} {bag}: {status} {answer:?}");
        }
    }
    for file in [
        "..%2f..%2fsecret%2fsecret_0.mcap",
        "%2fetc%2fpasswd",
        "..%2finside%2finside_0.mcap",
        "",
        ".",
    ] {
        let (status, answer) = world.get(&format!("/api/download?bag=lab&file={file}"));
        assert_eq!(status, 404, "{file}: {answer:?}");
    }
    for path in ["/api/info", "/api/download"] {
        assert_eq!(world.get(&format!("{path}?bag=inside")).0, 403);
    }
    assert_eq!(world.get("/..%2fsecret").0, 404);
    // A name that becomes a link after it was listed.
    let root = world.outer.path().join("bags");
    fs::rename(root.join("lab"), root.join("lab.old")).unwrap();
    symlink(world.outer.path().join("secret"), root.join("lab")).unwrap();
    for path in ["/api/info?bag=lab", "/api/download?bag=lab&file=lab_0.mcap"] {
        let (status, answer) = world.get(path);
        assert_eq!(status, 404, "{path}: {answer:?}");
    }
}

#[test]
fn playing_is_left_to_the_program_and_refused_for_what_is_no_bag() {
    let world = world();
    world.listed();
    let (status, reply) = world.post("/api/play", &json!({"bag": "lab", "to": "viewers"}));
    assert_eq!(
        (status, &reply["error"]),
        (409, &json!("nothing plays in this test"))
    );
    assert_eq!(
        world.post("/api/play", &json!({"bag": "lab", "to": "moon"})).0,
        400
    );
    assert_eq!(
        world
            .post("/api/play", &json!({"bag": "../secret", "to": "nodes"}))
            .0,
        404
    );
    let played = lock(&world.host.played).clone();
    let lab = world.outer.path().canonicalize().unwrap().join("bags/lab");
    assert_eq!(played, [(lab, PlayTo::Viewers)]);
    let foreign = "POST /api/play HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(world.exchange(foreign).0, 403);
    assert_eq!(world.get("/playback/now/api/status").0, 404);
}

#[test]
fn what_runs_on_the_machine_has_its_dashboard() {
    struct Recording;
    impl Requests for Recording {
        fn names(&self) -> &'static [&'static str] {
            holdall::supervise::control_socket::RECORD_REQUESTS
        }

        fn carry_out(&self, name: &str, _request: &Value) -> Value {
            json!({"ok": true, "status": {"recorded": 5, "bag": "lab", "topics": {}}, "done": name})
        }
    }
    let world = world();
    let socket = world
        .host
        .running
        .bind(holdall::supervise::running::RunningKind::Recording)
        .unwrap();
    socket.serve(Recording).unwrap();
    let process = std::process::id();
    loop {
        let state = world.json("/api/folder");
        if state["running"][0]["state"]["recorded"] == json!(5) {
            assert_eq!(state["running"][0]["process"], json!(process));
            break;
        }
        thread::yield_now();
    }
    let (status, text) = world.get(&format!("/running/{process}/"));
    assert!(status == 200 && String::from_utf8_lossy(&text).contains("../../"));
    let status = world.json(&format!("/running/{process}/api/status"));
    assert_eq!(status["status"]["bag"], json!("lab"));
    let (status, reply) = world.post(&format!("/running/{process}/api/pause"), &json!({}));
    assert_eq!((status, &reply["done"]), (200, &json!("pause")));
    assert_eq!(world.get("/running/1/api/status").0, 404);
    drop(socket);
    loop {
        if world.json("/api/folder")["running"] == json!([]) {
            break;
        }
        thread::yield_now();
    }
}
