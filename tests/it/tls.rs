//! TLS with a certificate authority that the test made. (The laws run on it, too.)

use std::time::{Duration, Instant};

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient};

use crate::support::{SLACK, tls};

const IO: Duration = Duration::from_secs(1);

#[test]
fn a_server_is_trusted_by_its_authority_and_by_no_other() {
    let (_server, url) = tls::server();
    LockClient::open(tls::trusting(&url)).unwrap().ping().unwrap();
    // The authorities of the system do not know it.
    let stranger = ClientOptions::new().io_timeout(IO).open(url).unwrap();
    let error = stranger.ping().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    assert!(format!("{error:?}").to_lowercase().contains("certificate"), "{error:?}");
}

#[test]
fn a_silent_server_behind_tls_is_given_up_in_time() {
    let (server, url) = tls::server();
    let client = ClientOptions::new().io_timeout(IO).open(tls::trusting(&url)).unwrap();
    let fresh = ClientOptions::new().io_timeout(IO).open(tls::trusting(&url)).unwrap();
    client.ping().unwrap();
    server.pause();
    for client in [client, fresh] {
        let start = Instant::now();
        assert_eq!(DistLock::new(&client, "k").try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(start.elapsed() < IO + SLACK, "{:?}", start.elapsed());
    }
    server.resume();
}
