//! A certificate authority of this run, servers that it vouches for, and clients that trust it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use distlock::redis::{Client, ConnectionInfo, TlsCertificates};

use super::Server;
use super::server::free_port;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

/// Its files; they are small, and stay until the system clears its folder for temporary ones.
struct Authority(PathBuf);

impl Authority {
    fn new() -> Authority {
        let folder = std::env::temp_dir().join(format!("distlock-authority-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost").expect("a file");
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&folder, &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
        openssl(&folder, &format!("req -new {key} -keyout server.key -out server.csr -subj /CN=server"));
        let sign = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2";
        openssl(&folder, &format!("{sign} -extfile names"));
        Authority(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

fn openssl(folder: &Path, args: &str) {
    let run = Command::new("openssl").args(args.split(' ')).current_dir(folder).output();
    let run = run.expect("openssl on PATH (apt-get install openssl)");
    assert!(run.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&run.stderr));
}

/// A server with a port for TLS, and that port's address. Its plain port is for the test.
pub(crate) fn server() -> (Server, String) {
    let port = free_port().to_string();
    let file = |name| AUTHORITY.file(name);
    let server = Server::with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    (server, format!("rediss://127.0.0.1:{port}/"))
}

/// An address whose server this run's authority must vouch for.
pub(crate) fn trusting(url: &str) -> ConnectionInfo {
    let root_cert = Some(std::fs::read(AUTHORITY.file("ca.pem")).expect("the authority's certificate"));
    let client = Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert }).expect("an address");
    client.get_connection_info().clone()
}
