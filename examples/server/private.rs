//! A `redis-server` or `valkey-server` from PATH that ends with the example, however that ends, and not
//! before it. Called by `Server::find`.

use std::{
    io,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) struct PrivateServer {
    program: &'static str,
    port: u16,
    child: Child,
    warden: Option<Child>,
}

impl PrivateServer {
    /// `None` if there is no such program.
    pub(crate) fn from_path() -> io::Result<Option<PrivateServer>> {
        for program in ["redis-server", "valkey-server"] {
            match start(program) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                started => return started.map(Some),
            }
        }
        Ok(None)
    }

    pub(crate) fn program(&self) -> &'static str {
        self.program
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

fn start(program: &'static str) -> io::Result<PrivateServer> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let child = apart(&mut Command::new(program))
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()?;
    let warden = warden(&child).ok();
    let mut server = PrivateServer { program, port, child, warden };
    let end = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        // Another program may have taken the port first.
        let ended = !matches!(server.child.try_wait(), Ok(None));
        if ended || Instant::now() > end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} does not come up")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}

/// Ctrl-c goes to all processes of the terminal's group: a server in another one is there still when the
/// example releases its locks.
fn apart(command: &mut Command) -> &mut Command {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command
}

/// An example that is killed runs no Drop, but its end of the pipe closes, and then this kills the server.
fn warden(server: &Child) -> io::Result<Child> {
    let pid = server.id().to_string();
    apart(&mut Command::new("sh"))
        .args(["-c", "read -r _; kill -9 \"$0\"", &pid])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // First the warden: it must not kill whatever has the number of the ended server next.
        if let Some(warden) = &mut self.warden {
            let _ = warden.kill();
            let _ = warden.wait();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
