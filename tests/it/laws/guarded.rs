//! Guarded writes: what runs only while the lock is held, and what a fence gate lets pass.

use distlock::{
    DistLock, ErrorKind, FenceGate, LockOptions,
    redis::{RedisResult, Script, Value, cmd, pipe},
};

use super::{assert_kind, ms, once, outlive};
use crate::support::Way as Direction;
use crate::support::proxy::contains;
use crate::support::ways::{Way, every_server, every_server_through_a_proxy};

/// What takes a lock away, of which the guard's token is given.
type Fault = fn(&Way, &DistLock, &str);

fn lock(way: &Way) -> DistLock {
    way.lock("k", &LockOptions::new())
}

#[test]
fn commands_run_while_the_lock_is_held_and_answer_as_in_a_pipeline() {
    every_server(|way| {
        let guard = lock(way).lock().unwrap();
        let mut pipe = pipe();
        pipe.set("a", "x y\r\n\0ü").ignore().get("a").incr("n", 5).cmd("LRANGE").arg("l").arg(0).arg(-1).get("none");
        let expected = ("x y\r\n\0ü".to_owned(), 5, Vec::<String>::new(), None::<String>);
        assert_eq!(guard.query::<(String, i64, Vec<String>, Option<String>)>(&pipe).unwrap(), expected);
        let again = (expected.0, 10, expected.2, expected.3);
        assert_eq!(guard.query::<(String, i64, Vec<String>, Option<String>)>(pipe.atomic()).unwrap(), again);
        guard.exec(distlock::redis::pipe().hset("h", "field", "").rpush("l", &["1", "2"])).unwrap();
        let (all, status): (Vec<i64>, Value) =
            guard.query(distlock::redis::pipe().lrange("l", 0, -1).cmd("SET").arg("a").arg(1)).unwrap();
        assert_eq!((all, status), (vec![1, 2], Value::Okay));
        guard.exec(&distlock::redis::pipe()).expect("nothing to do is done");
        guard.unlock().unwrap();
    });
}

#[test]
fn a_script_has_keys_and_arguments_of_its_own_and_answers_as_usual() {
    every_server(|way| {
        let guard = lock(way).lock().unwrap();
        let script = Script::new(
            "redis.call('SET', KEYS[1], ARGV[1])\nreturn {#KEYS, #ARGV, KEYS[2], ARGV[2], redis.call('GET', KEYS[1])}",
        );
        for _ in 0..2 {
            let answer: (i64, i64, String, String, String) =
                guard.invoke(script.key("{k}a").key("{k}b").arg("1").arg("two words")).unwrap();
            assert_eq!(answer, (2, 2, "{k}b".to_owned(), "two words".to_owned(), "1".to_owned()));
        }
        assert_eq!(guard.invoke::<Option<i64>>(&Script::new("").prepare_invoke()).unwrap(), None);
        assert!(!guard.invoke::<bool>(&Script::new("return false").prepare_invoke()).unwrap());
        assert_eq!(guard.invoke::<String>(&Script::new("-- a comment\nreturn 'x'").prepare_invoke()).unwrap(), "x");
        let _: () = way.ask(&["SCRIPT", "FLUSH"]);
        assert_eq!(guard.invoke::<i64>(&Script::new("return 7").prepare_invoke()).unwrap(), 7);
        let error = assert_kind(
            guard.invoke::<()>(&Script::new("\n\nerror('mine')").prepare_invoke()),
            ErrorKind::InvalidOption,
        );
        assert!(format!("{error:?}").contains(":3: mine"), "with its own line: {error:?}");
        guard.unlock().unwrap();
    });
}

#[test]
fn nothing_is_written_under_a_lock_that_was_lost() {
    every_server(|way| {
        let client = way.client();
        let write = Script::new("redis.call('SET', 'data', 'late')");
        // Deleted, taken by another, taken over by its token, taken again after a DEL.
        let faults: [(&str, Fault); 4] = [
            ("deleted", |way, _, _| way.ask(&["DEL", "k"])),
            ("taken", |way, _, _| way.ask(&["SET", "k", "somebody", "PX", "60000"])),
            ("resumed", |_, lock, token| drop(lock.resume(token).unwrap().into_token().unwrap())),
            ("of another type", |way, _, _| {
                let _: () = way.ask(&["DEL", "k"]);
                way.ask(&["RPUSH", "k", "a list"])
            }),
        ];
        for (name, fault) in faults {
            way.ask::<()>(&["DEL", "k"]);
            let lock = DistLock::new(&client, "k");
            for script in [false, true] {
                way.ask::<()>(&["DEL", "k"]);
                let guard = lock.lock().unwrap();
                guard.exec(pipe().set("data", "mine")).unwrap();
                fault(way, &lock, guard.token());
                let outcome =
                    if script { guard.invoke(&write.prepare_invoke()) } else { guard.exec(pipe().set("data", "late")) };
                assert_kind(outcome, ErrorKind::Lost);
                assert_eq!(way.value("data").as_deref(), Some("mine"), "{name}");
                assert!(!guard.is_valid(), "{name}: it is known from here on");
                assert_kind(guard.unlock(), ErrorKind::Lost);
            }
        }
    });
}

#[test]
fn nothing_is_sent_under_a_lock_whose_lease_is_over() {
    every_server(|way| {
        let guard = way.lock("k", &once(ms(300))).lock().unwrap();
        outlive(&guard);
        let before = way.script_calls();
        assert_kind(guard.exec(pipe().set("data", "late")), ErrorKind::Lost);
        assert_eq!((way.value("data"), way.script_calls()), (None, before));
    });
}

#[test]
fn a_command_that_fails_says_why_and_does_not_stop_the_others() {
    every_server(|way| {
        let guard = lock(way).lock().unwrap();
        let mut wrong = pipe();
        wrong.set("a", "text").incr("a", 1).set("b", 1).hset("b", "field", 1).set("c", 1);
        let error = assert_kind(guard.exec(&wrong), ErrorKind::InvalidOption);
        assert!(format!("{error:?}").contains("not an integer"), "{error:?}");
        assert_eq!(way.value("c").as_deref(), Some("1"));
        // The redis crate's own way to look at each.
        let all: Vec<RedisResult<Value>> = guard.query(wrong.ignore_errors()).unwrap();
        assert_eq!(all.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, false, true]);
        assert_kind(guard.exec(pipe().hset("b", "field", 1)), ErrorKind::WrongType);
        assert_kind(guard.exec(pipe().cmd("NOSUCH")), ErrorKind::InvalidOption);
        assert!(guard.is_valid(), "a mistake in a write is not the lock's");
        let error = assert_kind(guard.query::<Vec<i64>>(pipe().get("a")), ErrorKind::InvalidOption);
        assert!(error.to_string().contains("was executed"), "{error}");
        guard.unlock().unwrap();
    });
}

#[test]
fn what_cannot_run_inside_a_script_is_refused_with_its_size_and_the_limit() {
    every_server(|way| {
        let guard = lock(way).lock().unwrap();
        let many = vec!["x"; 6_998];
        let fits = || cmd("RPUSH").arg("l").arg(&many).to_owned();
        guard.exec(pipe().add_command(fits())).unwrap();
        assert_eq!(way.ask::<usize>(&["LLEN", "l"]), 6_998);
        let error = assert_kind(guard.exec(pipe().add_command(fits().arg("y").to_owned())), ErrorKind::InvalidOption);
        assert!(error.to_string().contains("7001 parts: at most 7000"), "{error}");
        let error = assert_kind(
            guard.invoke::<()>(&Script::new("#!lua flags=no-writes\nreturn 1").prepare_invoke()),
            ErrorKind::InvalidOption,
        );
        assert!(error.to_string().contains("#!"), "{error}");
        guard.unlock().unwrap();
    });
}

#[test]
fn a_write_without_an_answer_is_not_sent_again() {
    every_server_through_a_proxy(|way, proxy| {
        for direction in [Direction::Request, Direction::Reply] {
            for fate in way.fates() {
                proxy.pass();
                let _: () = way.ask(&["DEL", "data"]);
                let guard = lock(way).lock().unwrap();
                guard.exec(pipe().get("warm")).unwrap();
                let sent = proxy.count(|request| contains(request, b"INCR"));
                proxy.rule(direction, fate.clone(), 1, |request| contains(request, b"INCR"));
                let error = assert_kind(guard.exec(pipe().incr("data", 1)), ErrorKind::Unreachable);
                assert!(error.to_string().contains("may have been executed"), "{error}");
                let once = if direction == Direction::Reply { Some("1") } else { None };
                assert_eq!(way.value("data").as_deref(), once, "{direction:?} {fate:?}");
                assert_eq!(proxy.count(|request| contains(request, b"INCR")), sent + 1);
                guard.unlock().unwrap();
            }
        }
    });
}

#[test]
fn a_gate_refuses_a_fence_that_is_lower_than_the_highest_it_saw() {
    every_server(|way| {
        let gate = FenceGate::new(&way.client(), "{data}:fence");
        let other = FenceGate::new(&way.client(), "{data}:fence");
        let lock = lock(way);
        let late = lock.lock().unwrap();
        let early_fence = late.fence();
        gate.exec(early_fence, pipe().set("data", "first")).unwrap();
        late.unlock().unwrap();
        let guard = lock.lock().unwrap();
        for value in ["second", "third"] {
            let (set, n): (Value, i64) = other.query(guard.fence(), pipe().set("data", value).incr("n", 1)).unwrap();
            assert_eq!((set, n > 0), (Value::Okay, true));
        }
        let script = Script::new("redis.call('SET', KEYS[1], ARGV[1]) return #KEYS");
        for outcome in [
            gate.exec(early_fence, pipe().set("data", "late")),
            gate.invoke(early_fence, script.key("data").arg("late")),
            gate.exec(early_fence, &pipe()),
        ] {
            let error = assert_kind(outcome, ErrorKind::Lost);
            assert!(error.to_string().contains(&guard.fence().to_string()), "{error}");
        }
        assert_eq!(way.value("data").as_deref(), Some("third"));
        assert_eq!(gate.invoke::<i64>(guard.fence(), script.key("data").arg("fourth")).unwrap(), 1);
        assert_eq!(way.value("data").as_deref(), Some("fourth"));
        assert_eq!(way.value("{data}:fence"), Some(guard.fence().to_string()));
        guard.unlock().unwrap();
    });
}

#[test]
fn a_gate_compares_numbers_and_keeps_the_ttl_that_its_key_has() {
    every_server(|way| {
        let gate = FenceGate::new(&way.client(), "gate");
        for (fence, passes) in [(9, true), (10, true), (9, false), (100, true), (99, false), ((1 << 53) - 1, true)] {
            assert_eq!(gate.exec(fence, &pipe()).is_ok(), passes, "{fence}");
        }
        let _: () = way.ask(&["SET", "gate", "5", "PX", "60000"]);
        gate.exec(6, &pipe()).unwrap();
        assert!(way.ask::<i64>(&["PTTL", "gate"]) > 50_000);
        for fence in [0, 1 << 53, u64::MAX] {
            let error = assert_kind(gate.exec(fence, pipe().set("data", 1)), ErrorKind::InvalidOption);
            assert!(error.to_string().contains(&fence.to_string()), "{error}");
        }
        for junk in ["", "x", "-1", "1e9", "inf", "00000000000000001"] {
            way.ask::<()>(&["SET", "gate", junk]);
            assert_kind(gate.exec(7, pipe().set("data", 1)), ErrorKind::WrongType);
        }
        way.ask::<()>(&["DEL", "gate"]);
        way.ask::<()>(&["RPUSH", "gate", "a list"]);
        assert_kind(gate.exec(7, pipe().set("data", 1)), ErrorKind::WrongType);
        assert_eq!(way.value("data"), None);
    });
}

#[test]
fn a_write_finds_a_connection_that_was_closed_while_it_waited() {
    every_server(|way| {
        let guard = lock(way).lock().unwrap();
        guard.exec(pipe().incr("n", 1)).unwrap();
        // Own connections that have waited for a second are tried before a write that must not be sent twice.
        std::thread::sleep(ms(1100));
        let _: i64 = way.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        guard.exec(pipe().incr("n", 1)).unwrap();
        assert_eq!(way.value("n").as_deref(), Some("2"));
        guard.unlock().unwrap();
    });
}
