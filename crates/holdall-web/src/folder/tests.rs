//! The folder's page over real connections: its lists and answers, and that no path leads out of the folder.

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
    fn play(&self, bag: &Path, to: PlayTo) -> Result<Box<dyn PlayingBag>, String> {
        lock(&self.played).push((bag.to_owned(), to));
        Err("nothing plays in this test".to_owned())
    }

    fn running(&self) -> Vec<Running> {
        self.running.list()
    }

    fn live(&self) -> Option<Arc<dyn LiveSource>> {
        None
    }

    fn find(&self, _: &Path, expression: &str) -> Result<Vec<PathBuf>, String> {
        Err(format!("no catalog knows {expression}"))
    }
}

struct World {
    server: FolderServer,
    host: Arc<Hosted>,
    outer: tempfile::TempDir,
}

/// A folder with a bag, one with a link, and something next to the folder.
fn world() -> World {
    world_with(false)
}

fn world_with(allows_changes: bool) -> World {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("bags");
    for name in ["bags/lab", "bags/runs/läb 2", "secret"] {
        fs::create_dir_all(outer.path().join(name).parent().unwrap()).unwrap();
        let mut writer = Writer::create(outer.path().join(name)).unwrap();
        let topic = if name == "secret" { "/hidden" } else { "/odom" };
        let topic = writer.add_topic(topic, "std_msgs/msg/UInt8").unwrap();
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
    let token = Token::random().unwrap();
    let server = FolderServer::start(
        "127.0.0.1:0".parse().unwrap(),
        token,
        &root,
        hosted,
        allows_changes,
    )
    .unwrap();
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

    /// The header that programs send.
    fn bearer(&self) -> String {
        let link = self.server.link();
        let (_, token) = link.split_once("?token=").unwrap();
        format!("Authorization: Bearer {token}\r\n")
    }

    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        let bearer = self.bearer();
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n"))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let bearer = self.bearer();
        let (status, answer) = self.exchange(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        (status, serde_json::from_slice(&answer).unwrap())
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.get(path).1).unwrap()
    }

    /// The list, once it has been made.
    fn listed(&self) -> Value {
        self.listed_with(3)
    }

    fn listed_with(&self, bags_number: usize) -> Value {
        loop {
            let list = self.json("/api/bags");
            let is_opened = |bag: &Value| bag["state"] != json!("being opened");
            if list["bags"]
                .as_array()
                .is_some_and(|bags| bags.len() == bags_number && bags.iter().all(is_opened))
            {
                return list;
            }
            thread::yield_now();
        }
    }
}

#[test]
fn the_page_has_metrics_for_prometheus() {
    let world = world();
    let (status, text) = world.get("/metrics");
    let text = String::from_utf8(text).unwrap();
    assert!(
        status == 200 && text.contains("holdall_running{kind=\"playback\"} 0\n"),
        "{text}"
    );
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
        (&json!(100), &json!("ended"))
    );
    assert_eq!(list["bags"][0]["state"], json!("refused"));
    let info = world.json("/api/info?bag=runs%2Fl%C3%A4b+2");
    assert_eq!(info["info"]["message_count"], json!(100), "{info}");
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
        ("/api/timeline", "lanes", json!(100)),
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
        let found = if key == "lanes" {
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
    let foreign = format!(
        "POST /api/play HTTP/1.1\r\nHost: localhost\r\n{}Origin: http://evil.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}",
        world.bearer()
    );
    assert_eq!(world.exchange(&foreign).0, 403);
    assert_eq!(world.get("/playback/now/api/status").0, 404);
}

#[test]
fn what_runs_on_the_machine_has_its_dashboard() {
    struct Recording;
    impl Requests for Recording {
        fn names(&self) -> &'static [&'static str] {
            holdall::supervise::control_socket::RECORD_REQUESTS
        }

        fn execute(&self, name: &str, _request: &Value) -> Value {
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

#[test]
fn every_answer_of_a_folder_needs_the_token() {
    let world = world();
    world.listed();
    let process = std::process::id();
    for line in [
        "GET /",
        "GET /api/folder",
        "GET /api/bags",
        "GET /api/info?bag=lab",
        "GET /api/download?bag=lab",
        "GET /api/download?bag=lab&file=lab_0.mcap",
        "POST /api/timeline",
        "POST /api/check",
        "POST /api/play",
        "POST /api/end_playback",
        &format!("GET /running/{process}/"),
        &format!("POST /running/{process}/api/stop"),
        "GET /playback/now/api/status",
    ] {
        let body = json!({"bag": "lab", "to": "nodes"}).to_string();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(world.exchange(&request).0, 401, "{line}");
    }
    assert!(lock(&world.host.played).is_empty());
}

/// A bag whose file is somewhere below it, with a name that this metadata has.
fn bag_with_file_at(world: &World, name: &str, file: &str) -> PathBuf {
    let root = world.outer.path().join("bags");
    let bag = root.join(name);
    fs::create_dir_all(bag.join(file).parent().unwrap()).unwrap();
    let metadata = fs::read_to_string(root.join("lab/metadata.yaml")).unwrap();
    fs::write(bag.join("metadata.yaml"), metadata.replace("lab_0.mcap", file)).unwrap();
    bag.join(file)
}

/// The answer to each request that opens a bag, once it does.
fn opened(world: &World, name: &str) -> Vec<String> {
    let mut answers =
        vec![String::from_utf8_lossy(&world.get(&format!("/api/info?bag={name}")).1).into_owned()];
    for path in ["/api/timeline", "/api/check"] {
        answers.push(loop {
            let (_, reply) = world.post(path, &json!({"bag": name}));
            if reply.get("part").is_none() {
                break reply.to_string();
            }
            thread::yield_now();
        });
    }
    answers
}

fn assert_shows_nothing(world: &World, name: &str) {
    for answer in opened(world, name) {
        let is_shown = answer.contains("/hidden") || answer.contains("\"sound\":true");
        assert!(!is_shown && !answer.contains("\"message"), "{name}: {answer}");
    }
}

#[test]
fn a_file_deep_in_a_bag_that_is_a_link_is_not_followed() {
    let world = world();
    let deep = "a/b/c/d/e/x.mcap";
    let file = bag_with_file_at(&world, "plain", deep);
    let secret = world.outer.path().join("secret/secret_0.mcap");
    fs::copy(&secret, file).unwrap();
    symlink(&secret, bag_with_file_at(&world, "deep", deep)).unwrap();
    // The folder of the file is a link, deeper than a search for links looks.
    let folder = bag_with_file_at(&world, "folder", "a/b/c/d/e/f/secret_0.mcap");
    fs::remove_dir(folder.parent().unwrap()).unwrap();
    symlink(world.outer.path().join("secret"), folder.parent().unwrap()).unwrap();
    let list = world.listed_with(6);
    let state = |name: &str| {
        let bags = list["bags"].as_array().unwrap();
        bags.iter().find(|bag| bag["name"] == json!(name)).unwrap()["state"].clone()
    };
    assert_eq!(state("plain"), json!("ended"));
    assert!(
        opened(&world, "plain")[0].contains("\"message_count\":100"),
        "a deep file itself is read"
    );
    for name in ["deep", "folder"] {
        assert_ne!(state(name), json!("ended"), "{name}");
        assert_shows_nothing(&world, name);
    }
}

#[test]
fn a_file_that_becomes_a_link_after_it_was_listed_is_not_followed() {
    let world = world();
    world.listed();
    let root = world.outer.path().join("bags");
    let file = root.join("lab/lab_0.mcap");
    fs::remove_file(&file).unwrap();
    symlink(world.outer.path().join("secret/secret_0.mcap"), &file).unwrap();
    assert_shows_nothing(&world, "lab");
    assert_eq!(world.get("/api/download?bag=lab&file=lab_0.mcap").0, 404);
    // The metadata alone leads out, too.
    fs::remove_file(root.join("runs/läb 2/metadata.yaml")).unwrap();
    symlink(
        world.outer.path().join("secret/metadata.yaml"),
        root.join("runs/läb 2/metadata.yaml"),
    )
    .unwrap();
    let answer = String::from_utf8_lossy(&world.get("/api/info?bag=runs%2Fl%C3%A4b+2").1).into_owned();
    assert!(
        !answer.contains("/hidden") && !answer.contains("secret"),
        "{answer}"
    );
}

#[test]
fn bags_are_found_by_their_contents() {
    let world = world();
    world.listed();
    let find = |text: &str| world.json(&format!("/api/find?text={text}"))["names"].clone();
    assert_eq!(find("topic:/odo"), json!(["lab", "runs/läb 2"]));
    assert_eq!(find("topic:/odo%20runs"), json!(["runs/läb 2"]));
    assert_eq!(find("topic:/scan"), json!([]));
    assert_eq!(
        find("type:uint8%20after:1600000000"),
        json!(["lab", "runs/läb 2"])
    );
    assert_eq!(find("topic:/odom%20before:1600000000"), json!([]));
    assert_eq!(world.get("/api/find?text=after:yesterday").0, 400);
}

#[test]
fn changes_are_refused_unless_they_were_allowed() {
    let closed = world();
    closed.listed();
    for (path, more) in [
        ("/api/rename", json!({"to": "x"})),
        ("/api/label", json!({"labels": {"a": "b"}})),
        ("/api/delete", json!({"confirm": "lab"})),
        ("/api/upload", json!({"to": "s3://b/lab"})),
    ] {
        let mut body = json!({"bag": "lab"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, reply) = closed.post(path, &body);
        assert_eq!(status, 403, "{path}: {reply}");
    }
    let world = world_with(true);
    world.listed();
    let change = |path: &str, body: Value| world.post(path, &body);
    assert_eq!(
        change(
            "/api/label",
            json!({"bag": "lab", "labels": {"site": "hall <3>"}})
        )
        .0,
        200
    );
    world.listed();
    assert_eq!(
        world.json("/api/find?text=label:site=hall")["names"],
        json!(["lab"])
    );
    for to in ["../out", "a/b", "", ".x", "linked"] {
        let (status, reply) = change("/api/rename", json!({"bag": "lab", "to": to}));
        assert_eq!(status, 409, "{to}: {reply}");
    }
    let (status, reply) = change("/api/rename", json!({"bag": "runs/läb 2", "to": "hall"}));
    assert_eq!((status, &reply["name"]), (200, &json!("runs/hall")), "{reply}");
    world.listed();
    assert_eq!(
        change("/api/delete", json!({"bag": "runs/hall", "confirm": "hall"})).0,
        409,
        "not its name"
    );
    assert_eq!(
        change("/api/delete", json!({"bag": "linked", "confirm": "linked"})).0,
        404
    );
    assert_eq!(
        change("/api/delete", json!({"bag": "inside", "confirm": "inside"})).0,
        403
    );
    assert_eq!(
        change("/api/delete", json!({"bag": "runs/hall", "confirm": "runs/hall"})).0,
        200
    );
    assert!(!world.outer.path().join("bags/runs/hall").exists());
    assert!(world.outer.path().join("secret/secret_0.mcap").exists());
}
