//! A hold that spans several requests, which may reach several processes: no guard can, so a token of the
//! upload's names it. The services are known by name, from what would be a configuration.
//!
//! `cargo run --example uploads` prints
//! ```text
//! server: a private redis-server on port 35791
//! POST /files/7/uploads by u-1: 201, it is yours for ten minutes
//! POST /files/7/uploads by u-2: 409, somebody else uploads it
//! POST /files/7/uploads by u-1: 201, it is yours for ten minutes
//! PUT of a part by u-1: 200
//! PUT of a part by u-2: 403, not your upload
//! the last part by u-1, under a guard that is renewed: 200
//! PUT of a part by u-1: 403, not your upload
//! POST /files/7/uploads by u-2: 201, it is yours for ten minutes
//! DELETE by u-2: 200
//! a service that nobody added: there is no service "video": known are "files", "reports"
//! ```

mod server;

use std::{error::Error, time::Duration};

use distlock::{ErrorKind, LockClient, LockManager};
use server::Server;

const KEY: &str = "example:files:7";
const TEN_MINUTES: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::find()?;
    let services = LockManager::new();
    for (service, address) in [("files", server.url()), ("reports", server.url())] {
        services.add(service, &LockClient::open(address)?)?;
    }

    println!("POST /files/7/uploads by u-1: {}", begin(&services, "u-1")?);
    println!("POST /files/7/uploads by u-2: {}", begin(&services, "u-2")?);
    println!("POST /files/7/uploads by u-1: {}", begin(&services, "u-1")?); // its answer was lost, say
    println!("PUT of a part by u-1: {}", part(&services, "u-1")?);
    println!("PUT of a part by u-2: {}", part(&services, "u-2")?);
    println!("the last part by u-1, under a guard that is renewed: {}", finish(&services, "u-1")?);
    println!("PUT of a part by u-1: {}", part(&services, "u-1")?);
    println!("POST /files/7/uploads by u-2: {}", begin(&services, "u-2")?);
    println!("DELETE by u-2: {}", cancel(&services, "u-2")?);
    if let Err(e) = services.client("video") {
        println!("a service that nobody added: {e}");
    }
    Ok(())
}

fn begin(services: &LockManager, upload: &str) -> distlock::Result<&'static str> {
    let ours = services.add_lock("files", KEY, upload, TEN_MINUTES)?;
    Ok(if ours { "201, it is yours for ten minutes" } else { "409, somebody else uploads it" })
}

/// Parts may come twice and in any order; they are put together at the end, under a guard.
fn part(services: &LockManager, upload: &str) -> distlock::Result<&'static str> {
    Ok(if services.is_held_by("files", KEY, upload)? { "200" } else { "403, not your upload" })
}

/// The work at the end is done at once, and may take as long as it takes: a guard takes the hold over, renews
/// it, and has a fence for what is written.
fn finish(services: &LockManager, upload: &str) -> distlock::Result<&'static str> {
    let guard = match services.mutex("files", KEY)?.resume(upload) {
        Ok(guard) => guard,
        Err(e) if e.kind() == ErrorKind::Lost => return Ok("410, it took longer than ten minutes"),
        Err(e) => return Err(e),
    };
    assert!(guard.fence() > 0); // the work, which hands the fence to what it writes to
    guard.unlock()?;
    Ok("200")
}

fn cancel(services: &LockManager, upload: &str) -> distlock::Result<&'static str> {
    Ok(if services.release_lock("files", KEY, upload)? { "200" } else { "404, it was not yours any more" })
}
