//! For the examples: the server that `REDIS_URL` names, or a private one from PATH that ends with the
//! example.

use std::{
    io,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) struct PrivateServer {
    url: String,
    description: String,
    child: Option<Child>,
}

impl PrivateServer {
    pub(crate) fn or_given() -> io::Result<PrivateServer> {
        if let Ok(url) = std::env::var("REDIS_URL") {
            return Ok(PrivateServer { url, description: "the server of REDIS_URL".to_owned(), child: None });
        }
        for program in ["redis-server", "valkey-server"] {
            match start(program) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                started => return started,
            }
        }
        let text = "no redis-server and no valkey-server on PATH: install one, or set REDIS_URL=redis://host:port/";
        Err(io::Error::new(io::ErrorKind::NotFound, text))
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Which server it is; without an address, which may have a password.
    pub(crate) fn describe(&self) -> &str {
        &self.description
    }
}

fn start(program: &str) -> io::Result<PrivateServer> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let child = Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()?;
    let mut server = PrivateServer {
        url: format!("redis://127.0.0.1:{port}/"),
        description: format!("a private {program} on port {port}"),
        child: Some(child),
    };
    let end = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        // Another program may have taken the port first.
        let ended = server.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
        if ended || Instant::now() > end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} does not come up")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
