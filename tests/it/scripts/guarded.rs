//! The parts of guarded writes, `mine` and `newest`: every branch of them.

use super::*;

const MINE: &str = include_str!("../../../src/server/script/mine.lua");
const NEWEST: &str = include_str!("../../../src/server/script/newest.lua");
const COMMANDS: &str = include_str!("../../../src/server/script/commands.lua");

/// What `SET data x` under a condition answers: the refusal, or "done".
fn write(desk: &mut Desk, condition: &str, keys: &[&str], token: &str, fence: &str) -> Result<String, RedisError> {
    let script = [condition, COMMANDS].concat();
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(keys.len()).arg(keys).arg(4711).arg(token).arg(fence);
    command.arg(3).arg("SET").arg("data").arg("x").arg(2).arg("GET").arg("data");
    Ok(match command.query(&mut desk.connection)? {
        redis::Value::Array(parts) => {
            assert_eq!(parts.len(), 3, "{parts:?}");
            assert_eq!(parts[0], redis::Value::BulkString(b"4711".to_vec()));
            "done".to_owned()
        }
        other => redis::from_redis_value::<String>(other).unwrap().strip_suffix(" 4711").unwrap().to_owned(),
    })
}

fn mine(desk: &mut Desk, token: &str, fence: u64) -> Result<String, RedisError> {
    write(desk, MINE, &["k", FENCE, QUEUE, WAITERS], token, &fence.to_string())
}

#[test]
fn a_guarded_write_is_done_under_its_own_lease_alone() {
    let mut desk = Desk::new();
    assert_eq!(mine(&mut desk, "me", 17).unwrap(), "-1", "no lock");
    let (fence, _) = desk.held("me", "5000");
    let table = [("me", fence, "done"), ("me", fence + 5, "done"), ("me", fence - 1, "0"), ("you", fence, "0")];
    for (token, fence, answer) in table {
        let _: () = desk.ask(&["DEL", "data"]);
        assert_eq!(mine(&mut desk, token, fence).unwrap(), answer, "{token} {fence}");
        assert_eq!(desk.ask::<bool>(&["EXISTS", "data"]), answer == "done", "{token} {fence}");
    }
    // A fence that is lost, or none, is no other lease.
    for stored in [None, Some("junk"), Some("99999999999999999999"), Some("1")] {
        match stored {
            None => desk.ask::<()>(&["DEL", FENCE]),
            Some(stored) => desk.set(FENCE, stored),
        }
        assert_eq!(mine(&mut desk, "me", fence).unwrap(), "done", "{stored:?}");
    }
    desk.list("k");
    assert_eq!(mine(&mut desk, "me", fence).unwrap(), "0");
}

#[test]
fn a_guarded_write_on_a_replica_is_refused_and_never_lost() {
    let mut desk = Desk::new();
    for owner in [None, Some("me"), Some("theirs")] {
        let _: () = desk.ask(&["REPLICAOF", "NO", "ONE"]);
        let _: () = desk.ask(&["FLUSHALL"]);
        if let Some(owner) = owner {
            desk.set("k", owner);
        }
        let _: () = desk.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        let script = [MINE, COMMANDS].concat();
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(4).arg("k").arg(FENCE).arg(QUEUE).arg(WAITERS).arg(1).arg("me").arg(17);
        command.arg(3).arg("SET").arg("data").arg("x");
        let error = command.query::<redis::Value>(&mut desk.connection).unwrap_err();
        assert!(is_read_only(&error), "{owner:?}: {error}");
    }
}

#[test]
fn a_gate_refuses_before_it_writes_and_remembers_before_it_writes() {
    let mut desk = Desk::new();
    let gate = |desk: &mut Desk, fence: &str| write(desk, NEWEST, &["gate"], "", fence);
    assert_eq!(gate(&mut desk, "20").unwrap(), "done");
    let _: () = desk.ask(&["DEL", "data"]);
    assert_eq!(gate(&mut desk, "19").unwrap(), "stale 20");
    assert!(!desk.ask::<bool>(&["EXISTS", "data"]));
    assert_eq!(desk.ask::<String>(&["GET", "gate"]), "20");
    let _: () = desk.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = gate(&mut desk, "21").unwrap_err();
    assert!(error.to_string().contains("OOM") || error.code() == Some("OOM"), "{error}");
    let _: () = desk.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(!desk.ask::<bool>(&["EXISTS", "data"]));
}
