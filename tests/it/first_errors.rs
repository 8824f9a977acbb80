//! What a new user gets wrong first, and what is said then: the right kind, what we did, what is the
//! matter and what to do, in one line; the server's own words in the cause; never the password.

use std::{
    error::Error as _,
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use distlock::{DistLock, Error, ErrorKind, LockClient, LockOptions};

use crate::support::{
    Server, eventually, read_message,
    server::{NOBODY, free_port},
};

const LONG: Duration = Duration::from_secs(20);
const PASSWORD: &str = "s3cret";

fn client(url: impl AsRef<str>) -> LockClient {
    LockClient::open(url.as_ref()).unwrap()
}

/// The error's text has these words, and all of it is as an error should be.
#[track_caller]
fn assert_says(error: &Error, kind: ErrorKind, words: &[&str]) {
    let (text, all) = (error.to_string(), format!("{error:?}"));
    assert_eq!(error.kind(), kind, "{all}");
    for word in words {
        assert!(text.contains(word), "{text:?} lacks {word:?}");
    }
    assert!(text.starts_with(|c: char| c.is_lowercase()), "{text}");
    assert!(!all.contains('\n') && !all.contains(PASSWORD), "{all}");
    if let Some(source) = error.source() {
        let source = source.to_string();
        assert!(!text.contains(&source) && all.contains(&source), "{all}");
    }
}

/// So says `ping`, and so does a lock, of its key.
#[track_caller]
fn assert_both_say(url: &str, kind: ErrorKind, words: &[&str]) {
    let client = client(url);
    assert_says(&client.ping().unwrap_err(), kind, words);
    let error = DistLock::new(&client, "orders:42").try_lock().unwrap_err();
    assert_says(&error, kind, words);
    assert!(error.to_string().starts_with("cannot acquire lock \"orders:42\" on \""), "{error}");
}

/// What the cause says.
fn cause(error: &Error) -> String {
    error.source().expect("a cause").to_string()
}

#[test]
fn a_port_where_nothing_listens_is_named_as_such() {
    assert_both_say(
        &format!("redis://127.0.0.1:{NOBODY}/"),
        ErrorKind::Unreachable,
        &["nothing listens", "host and port"],
    );
    // Under a name of the user's own the address stands in the cause.
    let named = distlock::ClientOptions::new().name("reports").open(format!("redis://127.0.0.1:{NOBODY}/")).unwrap();
    let error = named.ping().unwrap_err();
    assert!(error.to_string().contains("\"reports\"") && cause(&error).contains(&format!("127.0.0.1:{NOBODY}: ")));
    let impatient = LockOptions::new().unreachable_after(Duration::from_millis(20));
    let error = DistLock::with_options(&named, "k", &impatient).unwrap().lock().unwrap_err();
    assert_says(&error, ErrorKind::Unreachable, &["no useful answer for", "nothing listens"]);
}

#[test]
fn a_host_that_is_not_known_cannot_be_reached() {
    let error = client("redis://no-such-host.invalid/").ping().unwrap_err();
    assert_says(&error, ErrorKind::Unreachable, &["no-such-host.invalid:6379", "cannot be reached"]);
}

#[test]
fn an_address_without_its_scheme_is_told_what_one_is() {
    let forgotten = ["127.0.0.1:6379", "localhost", "localhost:6379", "", "redis://", "http://127.0.0.1/"];
    // A slash or a hash in a password ends the host.
    for text in forgotten.into_iter().chain(["redis://:s3cret/x@127.0.0.1/", "redis://:s3cret#x@127.0.0.1/"]) {
        let error = LockClient::open(text).unwrap_err();
        assert_says(&error, ErrorKind::InvalidOption, &["redis://[[user]:password@]host[:port]", "%2F"]);
    }
    LockClient::open("redis://:s3cret%2Fx@127.0.0.1/").unwrap();
}

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
#[test]
fn a_tls_address_names_the_features_that_it_needs() {
    let error = LockClient::open("rediss://127.0.0.1/").unwrap_err();
    assert_says(&error, ErrorKind::InvalidOption, &["rediss://", "tls-rustls", "tls-native-tls"]);
}

#[test]
fn a_plain_address_of_a_tls_port_is_told_of_rediss() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/tls");
    let file = |name: &str| format!("{folder}/{name}");
    let port = free_port();
    let _server = Server::with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &file("certificate.pem"),
        "--tls-key-file",
        &file("key.pem"),
        "--tls-ca-cert-file",
        &file("certificate.pem"),
    ]);
    assert_both_say(&format!("redis://127.0.0.1:{port}/"), ErrorKind::Unreachable, &["TLS", "rediss://"]);
}

#[test]
fn credentials_say_which_side_has_too_much_or_too_little() {
    let (guarded, open) = (Server::with(&["--requirepass", PASSWORD]), Server::start());
    let table = [
        (&guarded, "", "wants a password; give redis://:password@host"),
        // A password where the user stands.
        (&guarded, "s3cret@", "wants a password; give redis://:password@host"),
        (&guarded, ":wrong@", "refuses the user or the password"),
        (&guarded, "nobody:s3cret@", "refuses the user or the password"),
        (&open, ":s3cret@", "has no password set; leave it out"),
    ];
    for (server, login, words) in table {
        assert_both_say(&format!("redis://{login}127.0.0.1:{}/", server.port()), ErrorKind::Denied, &[words]);
    }
}

/// A port that says this to whoever comes, after his first words.
fn says(answer: &'static [u8]) -> String {
    serve(move |stream| {
        let mut stream = stream;
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(answer);
        // Until the other side goes: closing at once could reset what was said.
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

fn serve(answer: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            thread::spawn(move || answer(stream));
        }
    });
    url
}

#[test]
fn what_does_not_speak_redis_is_named_as_such() {
    let http = says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_both_say(&http, ErrorKind::Protocol, &["does not speak Redis", "host and port"]);
}

#[test]
fn a_server_in_protected_mode_is_named_as_such() {
    let error = says(b"-DENIED Redis is running in protected mode because protected mode is enabled\r\n");
    assert_both_say(&error, ErrorKind::Denied, &["protected mode", "until it has a password"]);
}

#[test]
fn a_sentinel_is_told_from_a_server() {
    let sentinel = Server::with(&["--sentinel"]);
    let words = ["a Sentinel listens there", "open_sentinel", "address of the master"];
    assert_both_say(&sentinel.url(), ErrorKind::InvalidOption, &words);
}

#[test]
fn a_node_of_a_cluster_is_named_as_such_whatever_the_key() {
    let [one, other] = [(); 2].map(|()| Server::with(&["--cluster-enabled", "yes"]));
    assert_both_say(&one.url(), ErrorKind::Unavailable, &["one node of a cluster", "open_cluster"]);
    let words = ["one node of a cluster", "ClientOptions::open_cluster"];
    assert_both_say(&format!("{}3", one.url()), ErrorKind::InvalidOption, &words);
    one.serve(0..=8191);
    other.serve(8192..=16383);
    let _: () = one.ask(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
    let is_whole = |server: &Server| {
        let info: String = server.ask(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok") && info.contains("cluster_size:2")
    };
    eventually(LONG, "the cluster is whole", || is_whole(&one) && is_whole(&other));
    assert_both_say(&one.url(), ErrorKind::InvalidOption, &words);
    // The probe's key lies here as often as there.
    let client = client(one.url());
    (0..8).for_each(|_| assert_says(&client.ping().unwrap_err(), ErrorKind::InvalidOption, &words));
}

#[test]
fn a_cluster_of_one_node_is_as_good_as_a_server() {
    let node = Server::with(&["--cluster-enabled", "yes"]);
    let _: () = node.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let client = client(node.url());
    eventually(LONG, "the cluster is up", || client.ping().is_ok());
    DistLock::new(&client, "k").lock().unwrap().unlock().unwrap();
}

#[test]
fn a_replica_is_told_from_its_master() {
    let master = Server::start();
    let replica = Server::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    assert_both_say(&replica.url(), ErrorKind::Unavailable, &["it is a replica", "give the master's address"]);
}

#[test]
fn a_key_that_holds_something_else_is_named_as_such() {
    let server = Server::start();
    let _: i64 = server.ask(&["RPUSH", "orders:42", "a"]);
    let client = client(server.url());
    client.ping().unwrap();
    let lock = DistLock::new(&client, "orders:42");
    for error in [lock.lock().unwrap_err(), lock.try_lock().unwrap_err(), lock.holder().unwrap_err()] {
        assert_says(&error, ErrorKind::WrongType, &["\"orders:42\"", "no lock; choose another key"]);
    }
}

#[test]
fn a_command_that_the_server_lacks_is_named_in_the_cause() {
    for command in ["EVAL", "EVALSHA", "TIME"] {
        let server = Server::with(&["--rename-command", command, ""]);
        assert_both_say(&server.url(), ErrorKind::Protocol, &["lacks a command", "renamed, disabled"]);
        let cause = cause(&client(server.url()).ping().unwrap_err());
        assert_eq!(cause, format!("ERR unknown command '{command}'"), "without what we sent");
    }
    // One that only some ways of a script come to: `ping` finds it.
    let server = Server::with(&["--rename-command", "PTTL", ""]);
    assert_says(&client(server.url()).ping().unwrap_err(), ErrorKind::Protocol, &["lacks a command"]);
}

#[test]
fn a_server_that_is_too_old_is_told_what_is_needed() {
    let error = client(serve(old_server)).ping().unwrap_err();
    assert_says(&error, ErrorKind::InvalidOption, &["6.2 or newer"]);
    assert_eq!(cause(&error), "it is Redis 6.0.16");
}

/// As much of Redis 6.0 as `ping` asks for.
fn old_server(mut stream: TcpStream) {
    let mut requests = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read_message(&mut requests) {
        let words: Vec<String> = redis::from_redis_value(redis::parse_redis_value(&request).unwrap()).unwrap();
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let answer = match words[0].as_str() {
            "TIME" => format!("*2\r\n{}{}", bulk("1764547200"), bulk("1")),
            // Its Lua does not tell the version; the number ends the answer.
            "EVALSHA" => bulk(&format!("? {}", words[7])),
            "INFO" => bulk("# Server\r\nredis_version:6.0.16\r\n"),
            _ => "+OK\r\n".to_owned(),
        };
        let _ = stream.write_all(answer.as_bytes());
    }
}

#[test]
fn a_database_that_is_not_there_is_named_as_such() {
    let server = Server::start();
    let words = ["no database of that number", "0 to 15"];
    assert_both_say(&format!("{}99", server.url()), ErrorKind::InvalidOption, &words);
}

#[test]
fn an_option_that_cannot_be_says_what_can() {
    let client = client("redis://127.0.0.1/");
    let error = DistLock::with_options(&client, "k", &LockOptions::new().ttl(Duration::ZERO)).unwrap_err();
    assert_says(&error, ErrorKind::InvalidOption, &["ttl of 0ns: 10ms to 365 days are possible"]);
    let error = DistLock::new(&client, "distlock:fence:k").try_lock().unwrap_err();
    assert_says(&error, ErrorKind::InvalidOption, &["\"distlock:fence:k\"", "name it otherwise"]);
}

/// The two lines of rules in the documentation of `ping`.
fn documented_rights() -> [Vec<&'static str>; 2] {
    let rights = |first: &str| {
        let line = include_str!("../../src/client.rs").lines().find(|line| line.contains(first)).expect("a line");
        line.trim().trim_start_matches("///").split_whitespace().collect()
    };
    [rights("~orders:*"), rights("&distlock:*")]
}

#[test]
fn the_rights_that_the_documentation_lists_are_those_that_are_needed() {
    let server = Server::start();
    let [needed, told] = documented_rights();
    let as_user = |rules: &[&str]| {
        let user: Vec<_> = [&["ACL", "SETUSER", "worker", "reset", "on", ">s3cret"], rules].concat();
        let _: () = server.ask(&user);
        let _: () = server.ask(&["ACL", "LOG", "RESET"]);
        client(format!("redis://worker:s3cret@127.0.0.1:{}/", server.port()))
    };
    as_user(&needed).ping().unwrap();
    for (i, missing) in needed.iter().enumerate() {
        if ["+select", "+client|setname"].contains(missing) {
            continue;
        }
        let rules: Vec<_> = needed.iter().copied().filter(|rule| rule != missing).collect();
        let client = as_user(&rules);
        let _: () = server.ask(&["SCRIPT", "FLUSH"]);
        // What cannot be released goes on in the background.
        let lock = DistLock::new(&client, format!("orders:{i}"));
        let error = lock.try_lock().err().or_else(|| client.ping().err());
        let error = error.unwrap_or_else(|| panic!("{missing} is not needed"));
        assert_says(&error, ErrorKind::Denied, &["lacks a right", "LockClient::ping"]);
    }
    // With all of them a lock goes from client to client, and nothing is refused.
    let all = [needed, told].concat();
    let (one, other) = (as_user(&all), as_user(&all));
    for _ in 0..3 {
        let guard = DistLock::new(&one, "orders:42").lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| DistLock::new(&other, "orders:42").lock().unwrap().unlock());
            eventually(LONG, "it waits in the queue", || {
                server.ask::<i64>(&["EXISTS", "distlock:queue:{orders:42}"]) == 1
            });
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
    assert_eq!(server.ask::<Vec<redis::Value>>(&["ACL", "LOG"]).len(), 0);
}

#[test]
fn guards_that_pile_up_in_a_loop_cost_no_connections_and_end_with_it() {
    let server = Server::start();
    let client = client(server.url());
    let guards: Vec<_> = (0..500).map(|i| DistLock::new(&client, format!("k{i}")).lock().unwrap()).collect();
    assert!(guards.iter().all(|guard| guard.is_valid()));
    let connections = server.ask::<String>(&["CLIENT", "LIST"]).matches("name=distlock").count();
    assert!(connections <= 2, "one that is pooled and one that renews, not {connections}");
    drop(guards);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "k*"]), [""; 0]);
    // Bound in the loop itself, each is gone before the next comes.
    for _ in 0..20 {
        let _guard = DistLock::new(&client, "k").try_lock().unwrap();
    }
}
