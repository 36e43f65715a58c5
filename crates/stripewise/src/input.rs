//! The input of a command: standard input of this process, or that of a client of the daemon.

use std::io::Read;
use std::rc::Rc;

use stripewise_control::daemon::caller::Caller;

/// A command's input.
#[derive(Clone)]
pub(crate) enum Input {
    /// Standard input of this process. Reading it blocks the process.
    Process,
    /// Input of a command received over the control socket.
    Caller(Rc<Caller>),
}

impl Input {
    /// Fills `bytes` unless the input ends first. Returns the number of bytes read.
    pub(crate) async fn read_fully(&self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            let read = match self {
                Self::Process => std::io::stdin().lock().read(&mut bytes[filled..]),
                Self::Caller(caller) => caller.read_input(&mut bytes[filled..]).await,
            };
            match read {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Remaining length, if the input is a file.
    pub(crate) fn length_bytes(&self) -> Option<u64> {
        use std::io::Seek;
        match self {
            Self::Caller(caller) => caller.input_bytes(),
            Self::Process => {
                let mut file = std::fs::File::open("/dev/stdin").ok()?;
                let metadata = file.metadata().ok()?;
                let position = file.stream_position().ok()?;
                metadata.is_file().then(|| metadata.len().saturating_sub(position))
            }
        }
    }
}
