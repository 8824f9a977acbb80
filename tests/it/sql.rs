//! The protected side of fences in a SQL database: one column and one comparison, as the docs say it.

use distlock::{DistLock, LockClient, LockOptions, Renew};
use rusqlite::Connection;

use crate::support::Server;

const UPDATE: &str = "UPDATE orders SET state = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2";

fn write(db: &Connection, state: &str, fence: u64) -> usize {
    // SQL drivers want a signed number, which a fence always is.
    let fence = i64::try_from(fence).expect("below 2^53");
    db.execute(UPDATE, (state, fence, 42)).expect("an update")
}

#[test]
fn a_sql_row_takes_no_write_of_a_late_holder() {
    let server = Server::start();
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, fence INTEGER NOT NULL DEFAULT 0);
         INSERT INTO orders (id, state) VALUES (42, 'new');",
    )
    .unwrap();
    let options = LockOptions::new().ttl(std::time::Duration::from_millis(200)).renew(Renew::Never);
    let lock = |name| {
        let client = distlock::ClientOptions::new().name(name).open(server.url()).unwrap();
        DistLock::with_options(&client, "orders:42", &options).unwrap()
    };
    let late = lock("first").lock().unwrap();
    assert_eq!(write(&db, "packed", late.fence()), 1);
    assert_eq!(write(&db, "labelled", late.fence()), 1, "a holder writes as often as it likes");
    assert!(late.wait_lost_for(std::time::Duration::from_secs(5)));
    let guard = DistLock::new(&LockClient::open(server.url()).unwrap(), "orders:42").lock().unwrap();
    assert_eq!(write(&db, "sent", guard.fence()), 1);
    assert_eq!(write(&db, "cancelled", late.fence()), 0, "no row changed means refused");
    let state: String = db.query_row("SELECT state FROM orders WHERE id = 42", (), |row| row.get(0)).unwrap();
    assert_eq!(state, "sent");
}
