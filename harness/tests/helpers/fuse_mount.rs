//! The mount that every FUSE server of these tests begins with.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Mounts a connection at `point` and gives its device, to be served. `more` are further options, each after a comma; the
/// error says why that is not possible here.
pub fn mount(source: &str, point: &str, more: &str) -> Result<File, String> {
    let dev = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open("/dev/fuse")
        .map_err(|e| format!("/dev/fuse: {e}"))?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0{more}",
        dev.as_raw_fd()
    );
    let c = |s: &str| std::ffi::CString::new(s).unwrap();
    let (src, tgt, fs, opt) = (c(source), c(point), c("fuse"), c(&options));
    // SAFETY: four C strings that live through the call.
    let rc = unsafe {
        libc::mount(
            src.as_ptr(),
            tgt.as_ptr(),
            fs.as_ptr(),
            0,
            opt.as_ptr().cast(),
        )
    };
    if rc != 0 {
        return Err(format!("mount: {}", std::io::Error::last_os_error()));
    }
    Ok(dev)
}
